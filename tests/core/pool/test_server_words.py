"""What servers say when something goes wrong: read wherever it stands, and told apart by what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.pool.server_words import Meaning, error_in, words_of

SAID = "The disk is on fire"
#: Shapes of one and the same error.
SHAPES: dict[str, Any] = {
    "object": {"error": {"message": SAID, "type": "server_error", "code": None}},
    "text": {"error": SAID},
    "list of one": [{"error": {"code": 500, "status": "INTERNAL", "message": SAID}}],
    "top level": {"object": "error", "message": SAID, "code": 500},
    "detail": {"detail": SAID},
    "validation": {"detail": [{"loc": ["body", "max_tokens"], "msg": SAID, "type": "value_error"}]},
    "errors": {"errors": [{"message": SAID}, {"message": "and so on"}]},
    "nested": {"error": {"message": json.dumps({"error": {"message": SAID}})}},
    "raw": {
        "error": {
            "message": "Provider returned error",
            "code": 502,
            "metadata": {"raw": json.dumps({"message": SAID})},
        }
    },
    "status_msg": {"base_resp": {"status_code": 1000, "status_msg": SAID}},
    "title": {"title": "Failed", "detail": SAID},
    "error of an error": {"error": {"error": {"message": SAID}}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_one_reader_finds_the_words_in_every_shape(shape: str) -> None:
    body = SHAPES[shape]
    assert SAID in words_of(json.dumps(body).encode()).shown
    assert SAID in words_of(b"\xef\xbb\xbf" + json.dumps(body).encode()).shown
    within = error_in(body)
    assert within is not None
    assert SAID in within.shown


def test_a_place_and_a_code_are_shown_and_nothing_of_a_page() -> None:
    assert words_of(json.dumps(SHAPES["validation"]).encode()).shown.endswith(f"body.max_tokens {SAID}")
    coded = {"error": {"message": "No.", "code": "context_length_exceeded"}}
    assert words_of(json.dumps(coded).encode()).shown == "context_length_exceeded No."
    for page in (
        b"<!DOCTYPE html><p>502</p>",
        b"\n <HTML>x",
        b'{"error": "<html>Bad gateway</html>"}',
        b"\xff\xfe",
    ):
        assert words_of(page).shown == ""
    assert words_of(b"upstream connect error\r\nreset").shown == "upstream connect error reset"
    assert words_of(b'{"error": {"mess').shown == ""


@pytest.mark.parametrize(
    "value",
    [
        {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "error": None},
        {"choices": [{"message": {"content": "x"}}], "error": {"code": 0, "message": ""}},
        {
            "choices": [{"message": {"content": "x"}, "error": {}}],
            "base_resp": {"status_code": 0, "status_msg": "success"},
        },
        {"choices": [], "usage": {"total_tokens": 3}},
        None,
        [],
        17,
        "pong",
    ],
)
def test_what_tells_of_no_error_is_none(value: Any) -> None:
    assert error_in(value) is None


@pytest.mark.parametrize(
    ("event", "value", "is_error"),
    [
        ("error", {"message": SAID}, True),
        ("error", {"code": 500, "text": "x"}, True),
        ("", {"type": "error", "message": SAID}, True),
        ("", {"object": "error", "message": SAID}, True),
        ("", {"message": SAID, "code": 500}, True),
        ("", {"error": SAID}, True),
        ("ping", {"type": "ping"}, False),
        ("", {"type": "ping", "message": "still here"}, False),
        ("", {"status": "processing", "message": "third in the queue"}, False),
        ("", {}, False),
    ],
)
def test_an_event_is_an_error_by_its_name_its_kind_or_its_status(
    event: str, value: Any, is_error: bool
) -> None:
    assert (error_in(value, event=event) is not None) is is_error


#: How servers word it, and beside which status, in 2023 to 2026.
MEANT: dict[Meaning, list[tuple[int, str]]] = {
    Meaning.TOO_LONG: [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
        (500, "the request exceeds the available context size (4096 tokens), try increasing it"),
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7100"),
        (
            429,
            "Request too large for x in organization y on tokens per min (TPM): Limit 10000, Requested 12000.",
        ),
        (400, "Range of input length should be [1, 30720]"),
        (422, "Prompt contains too many tokens: please reduce the length of your prompt."),
        (200, "Input tokens exceed the configured limit of 272000 tokens."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        (400, "input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "Input is too long for requested model."),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        (400, "length of prompt_tokens (163280) must be less than max_seq_len (32768)."),
        (400, "`inputs` tokens + `max_new_tokens` must be <= 4097."),
    ],
    Meaning.QUOTA: [
        (429, "You exceeded your current quota, please check your plan and billing details."),
        (429, "insufficient_quota"),
        (402, "Payment Required"),
        (402, ""),
        (400, "Your credit balance is too low to access the API."),
        (403, "Insufficient Balance"),
        (429, "This request requires more credits, or fewer max_tokens."),
        (429, "Your account has arrears: please top up."),
    ],
    Meaning.RATE: [
        (429, "Rate limit reached for x on tokens per minute (TPM): Limit 6000, Used 5900, Requested 300."),
        (429, "You exceeded your current quota, please check your plan and billing. Please retry in 36.5s."),
        (429, ""),
        (200, "Too many requests, slow down"),
        (503, "rate_limit_exceeded"),
        (429, "Quota exceeded for metric: requests per minute"),
    ],
    Meaning.FILTERED: [
        (400, "The response was filtered due to the prompt triggering Azure's content management policy."),
        (403, "Your input was flagged: harassment"),
        (400, "data_inspection_failed: Input data may contain inappropriate content."),
        (400, "Content Exists Risk"),
        (400, "The request was rejected because it was considered high risk"),
        (422, "Blocked by guardrail 'pii'"),
    ],
    Meaning.SYSTEM_ROLE: [
        (400, "System role not supported"),
        (500, "Jinja Exception: System role not supported"),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
        (422, "This model does not support system messages."),
        (400, "Only user and assistant roles are supported!"),
    ],
    Meaning.NO_MODEL: [
        (404, ""),
        (400, "qwen/qwen9 is not a valid model ID"),
        (400, "The model `gpt-4.9-mini` does not exist"),
        (400, "model_not_found"),
        (403, "model llama-9.1 not found, try pulling it first"),
    ],
    Meaning.KEY: [
        (401, "No such organization"),
        (401, "insufficient_quota"),
        (403, ""),
        (403, "Invalid API key"),
        (403, "Authentication failed"),
    ],
    Meaning.OTHER: [
        (403, "Country, region, or territory not supported"),
        (403, "Project does not have access to this model"),
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."),
        (400, "temperature must be at most 1"),
        (503, "The model is not available right now, try again later"),
        (500, SAID),
        (500, ""),
    ],
}


@pytest.mark.parametrize(
    ("meaning", "status", "said"), [(one, *of) for one, listed in MEANT.items() for of in listed]
)
def test_what_servers_say_is_told_apart(meaning: Meaning, status: int, said: str) -> None:
    assert words_of(json.dumps({"error": {"message": said}}).encode()).meaning(status) is meaning


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("try again in 250ms", 0.25),
        ("Please try again in 7m12s", 420.0),
        ("retry after 3 seconds", 3.0),
        ("wait 2 minutes", 120.0),
        ("slow down", None),
    ],
)
def test_how_long_to_wait_may_be_told_in_words(said: str, wait_s: float | None) -> None:
    assert words_of(said.encode()).wait_s == wait_s


def test_google_tells_it_in_a_detail() -> None:
    body = {
        "error": {"code": 429, "message": "Quota.", "details": [{"@type": "RetryInfo", "retryDelay": "12s"}]}
    }
    assert words_of(json.dumps([body]).encode()).wait_s == 12.0


@pytest.mark.parametrize(
    "bad",
    [
        b'{"error": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"error": ' + b'{"error": ' * 500 + b"1" + b"}" * 501,
    ],
)
def test_no_depth_breaks_the_reader(bad: bytes) -> None:
    words_of(bad)
    try:
        value = json.loads(bad)
    except RecursionError:
        return
    error_in(value)
