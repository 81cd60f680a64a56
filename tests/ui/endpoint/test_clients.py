"""What clients send beside a question: is it honoured, left aside and told, or refused because it would change the
answer?"""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.pool.faulty_server import Answer, Request
from tests.ui.endpoint.server import CHAT, RESPONSES, Serve, Served, raw, said_to, team

TALK: list[Any] = [{"role": "user", "content": "How many?"}]
LONG = "one two\n\nthree</s> four"


def some_words(request: Request) -> Answer:
    """Models that answer a question about words with some, and any other with a number."""
    question = said_to(request)
    return team(f"{LONG if 'words' in question else '42'}")(request)


@pytest.fixture
def one(serve: Serve) -> Served:
    """An endpoint in front of them."""
    return serve(some_words)


def post(one: Served, path: str, **body: Any) -> tuple[int, Any]:
    asked = {"messages": TALK} if path == CHAT else {"input": "How many?"}
    return one.post(path, {"model": "trinity", **asked, **body})


def text_of(answer: Any) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    return str(answer["output"][0]["content"][0]["text"])


#: What changes no answer: the fields, and what the trace says of them.
HARMLESS: list[tuple[str, dict[str, Any], list[str]]] = [
    (CHAT, {"stream": None, "stream_options": None, "n": 1, "logprobs": False, "user": None, "stop": None}, []),
    (CHAT, {"max_tokens": 512, "max_completion_tokens": 512, "seed": 1, "top_logprobs": None, "store": True}, []),
    (CHAT, {"modalities": ["text"], "audio": None, "functions": [], "function_call": None, "metadata": None}, []),
    (CHAT, {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "web_search_options": None}, []),
    (CHAT, {"logit_bias": None, "frequency_penalty": 0, "presence_penalty": 0.0, "temperature": None}, []),
    (CHAT, {"service_tier": "flex", "prediction": {"type": "content", "content": "4"}},
     ["service_tier", "prediction"]),
    (CHAT, {"verbosity": "low", "prompt_cache_key": "k", "prompt_cache_retention": "24h"},
     ["prompt_cache_key", "prompt_cache_retention", "verbosity"]),
    (CHAT, {"reasoning_effort": "minimal", "stream_options": {"include_obfuscation": True}},
     ["stream_options.include_obfuscation"]),
    (CHAT, {"reasoning": {"effort": "low", "exclude": True}}, ["reasoning.exclude"]),
    (RESPONSES, {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "none", "summary": "auto"}},
     ["include", "reasoning.summary"]),
    (RESPONSES, {"text": {"verbosity": "low"}, "truncation": "auto", "max_tool_calls": 3, "service_tier": "priority"},
     ["max_tool_calls", "service_tier", "text.verbosity", "truncation"]),
    (RESPONSES, {"background": False, "previous_response_id": None, "conversation": None, "prompt": None,
                 "top_logprobs": 0, "text": None, "reasoning": None, "tools": None, "instructions": None}, []),
    (RESPONSES, {"tool_choice": "auto", "tools": [
        {"type": "namespace", "name": "mcp__x", "tools": []}, {"type": "web_search"}, {"type": "local_shell"},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
        {"type": "mcp", "server_label": "x"},
        {"type": "function", "name": "add", "parameters": {}, "strict": False, "output_schema": {"a": 1}},
    ]}, ["tools.namespace", "tools.web_search", "tools.local_shell", "tools.custom", "tools.mcp",
         "tools.output_schema"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "told"), HARMLESS)
def test_what_changes_no_answer_is_left_aside_and_told(
    one: Served, path: str, fields: dict[str, Any], told: list[str]
) -> None:
    status, answer = post(one, path, **fields)
    assert status == 200, answer
    assert text_of(answer) == "42"
    assert sorted(answer["trinity"]["left_aside"]) == sorted(told)


AGAIN = {"role": "user", "content": "Look again."}
ADDED = {"id": "a", "type": "function", "index": 0, "function": {"name": "add", "arguments": '{"a": 17}'}}
#: What clients send back as they got it.
HISTORY: list[tuple[str, list[Any], list[str]]] = [
    (CHAT, [{"role": "assistant", "content": "41", "reasoning_content": "17 and 25 make 41."}],
     ["messages.reasoning_content"]),
    (CHAT, [{"role": "assistant", "content": "41", "reasoning": "r", "thinking": "t", "thinking_blocks": [{}],
             "reasoning_details": [{"type": "reasoning.text"}], "provider_specific_fields": {"a": 1}}],
     ["messages.provider_specific_fields", "messages.reasoning", "messages.reasoning_details", "messages.thinking",
      "messages.thinking_blocks"]),
    (CHAT, [{"role": "assistant", "content": "41", "refusal": None, "annotations": [], "audio": None,
             "function_call": None, "tool_calls": None}], []),
    (CHAT, [{"role": "assistant", "content": None}, {"role": "assistant", "content": "", "tool_calls": []}], []),
    (CHAT, [{"role": "assistant", "content": [{"type": "text", "text": "41"}, {"type": "refusal", "refusal": "No."}],
             "id": "msg_1", "status": "completed", "name": "helper"}], []),
    (CHAT, [{"role": "assistant", "content": None, "tool_calls": [ADDED]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "42"}], "name": "add"}], []),
    (CHAT, [{"role": "developer", "content": "Be brief.", "name": "dev"},
            {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
            {"role": "function", "name": "add", "content": "42"}], []),
    (RESPONSES, [{"type": "reasoning", "id": "rs_1", "summary": [], "content": [], "encrypted_content": "x"},
                 {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final_answer",
                  "content": [{"type": "output_text", "text": "41", "annotations": [], "logprobs": []},
                              {"type": "refusal", "refusal": "No."}]}], ["input.reasoning"]),
    (RESPONSES, [{"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}},
                 {"type": "function_call", "id": "fc", "call_id": "a", "name": "add", "arguments": "{}",
                  "status": "completed", "parsed_arguments": None},
                 {"type": "function_call_output", "call_id": "a", "id": None, "status": None,
                  "output": [{"type": "input_text", "text": "42"}]}], ["input.web_search_call"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "history", "told"), HISTORY)
def test_history_is_taken_as_it_came(one: Served, path: str, history: list[Any], told: list[str]) -> None:
    field = "messages" if path == CHAT else "input"
    status, answer = post(one, path, **{field: [*TALK, *history, AGAIN]})
    assert status == 200, answer
    assert sorted(answer["trinity"]["left_aside"]) == told


def image(kind: str) -> list[Any]:
    part = {"type": kind, "image_url": "data:x"}
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]


NOT_READ = "only text and images are read here"
#: What `image` sends is no address.
NO_IMAGE = "send an https address"
ADD = {"type": "function", "function": {"name": "add"}}
#: What would change the answer, the field that the error names, and what it says.
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"n": 2}, "n", "ask again"),
    (CHAT, {"logprobs": True}, "logprobs", "leave it out"),
    (CHAT, {"logit_bias": {"50256": -100}}, "logit_bias", "leave it out"),
    (CHAT, {"presence_penalty": 0.5}, "presence_penalty", "leave it out"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities", "answers are text"),
    (CHAT, {"web_search_options": {}}, "web_search_options", "nothing is looked up"),
    (CHAT, {"functions": [{"name": "add"}]}, "functions", "tools"),
    (CHAT, {"guided_json": {}}, "guided_json", "leave it out"),
    (CHAT, {"stream": "true"}, "stream", "boolean"),
    (CHAT, {"stream": 1}, "stream", "boolean"),
    (CHAT, {"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "two names of one limit"),
    (CHAT, {"messages": image("image_url")}, "messages.0.content.1.image_url", "object"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages.0.role", "'developer'"),
    (CHAT, {"messages": [{"role": "user", "content": " "}]}, "messages", "at least one"),
    (CHAT, {"messages": []}, "messages", "at least 1"),
    (CHAT, {"top_p": 1.5}, "top_p", "less than or equal"),
    (CHAT, {"temperature": 9}, "temperature", "less than or equal"),
    (CHAT, {"reasoning_effort": "huge"}, "reasoning_effort", "minimal"),
    (CHAT, {"stop": 5}, "stop", "string"),
    (CHAT, {"x-y": 5}, "x-y", "leave it out"),
    (CHAT, {"tool_choice": 5}, "tool_choice", "string"),
    (CHAT, {"tools": [ADD], "tool_choice": "sometimes"}, "tool_choice", "auto, none, required"),
    (CHAT, {"messages": image("input_audio")}, "messages.0.content.1.type", NOT_READ),
    (CHAT, {"messages": [{"role": "user", "content": "?", "images": ["x"]}]}, "messages.0.images", "leave it out"),
    (CHAT, {"messages": [{"content": "?"}]}, "messages.0.role", "missing"),
    (CHAT, {"messages": [*TALK, {"role": "assistant", "content": "4", "prefix": True}]}, "messages.1.prefix", "False"),
    (CHAT, {"messages": [*TALK, {"role": "tool", "tool_call_id": "z", "content": "4"}]}, "messages.1", "'z'"),
    (CHAT, {"tool_choice": "required"}, "tool_choice", "no function is offered"),
    (CHAT, {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice", "'sub'"),
    (CHAT, {"tools": [ADD], "tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice", "functions"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type", "'function'"),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
     "response_format.json_schema.name", "missing"),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", "no function"),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice",
     "'web_search'"),
    (RESPONSES, {"input": [{"role": "king", "content": "x"}]}, "input.0.role", "'developer'"),
    (RESPONSES, {"input": 5}, "input", "string"),
    (RESPONSES, {"reasoning": {"effort": 5}}, "reasoning.effort", "string"),
    (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id", "whole conversation"),
    (RESPONSES, {"prompt": {"id": "pmpt_1"}}, "prompt", "text"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
     "input.0.content.0", NO_IMAGE),
    (RESPONSES, {"input": [{"role": "assistant", "content": image("input_image")[0]["content"]}]},
     "input.0.content.1", NO_IMAGE),
    (RESPONSES, {"input": [*TALK, {"type": "item_reference", "id": "msg_1"}]}, "input.1.type", "'item_reference'"),
    (RESPONSES, {"input": [*TALK, {"type": "function_call_output", "call_id": "z", "output": "4"}]}, "input.1", "'z'"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "param", "words"), REFUSED)
def test_what_would_change_the_answer_is_refused(
    one: Served, path: str, fields: dict[str, Any], param: str, words: str
) -> None:
    status, answer = post(one, path, **fields)
    assert (status, answer["error"]["param"]) == (400, param), answer
    assert words in answer["error"]["message"]
    assert not one.models.requests


WORDS = [{"role": "user", "content": "Some words?"}]


@pytest.mark.parametrize(
    ("stop", "answer"),
    [
        ("\n\n", "one two"),
        (["</s>", "\n\n"], "one two"),
        (["</s>"], "one two\n\nthree"),
        (["a", "b", "c", "d", "five"], LONG),
        (["one"], ""),
        (["", "zzz"], LONG),
        ([], LONG),
    ],
)
def test_an_answer_ends_before_the_first_stop_sequence(one: Served, stop: Any, answer: str) -> None:
    status, whole = post(one, CHAT, messages=WORDS, stop=stop)
    assert status == 200, whole
    assert (text_of(whole), whole["choices"][0]["finish_reason"]) == (answer, "stop")
    chunks = [*one.ask(messages=WORDS, stop=stop, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any("stop" in request.body for request in one.models.requests), (
        "it would cut every role's reply"
    )


def test_top_p_and_temperature_reach_the_models(one: Served) -> None:
    assert post(one, CHAT, top_p=0.3, temperature=0.1)[0] == 200
    assert post(one, RESPONSES, top_p=0.4)[0] == 200
    assert post(one, CHAT, top_p=1)[0] == 200
    asked = [(one.body.get("top_p"), one.body["temperature"]) for one in one.models.requests]
    assert asked == [(0.3, 0.1)] * 3 + [(0.4, 0.7)] * 3 + [(None, 0.7)] * 3


def test_sampling_that_no_model_can_be_told_is_left_aside(serve: Serve) -> None:
    one = serve(entry="send_temperature = false")
    answer = post(one, CHAT, top_p=0.3, temperature=0.1)[1]
    assert answer["trinity"]["left_aside"] == ["temperature", "top_p"]
    assert not any({"top_p", "temperature"} & request.body.keys() for request in one.models.requests)


def test_models_are_found_with_and_without_a_slash(one: Served) -> None:
    listed = raw(one.url, "GET", "/v1/models")
    assert raw(one.url, "GET", "/v1/models/")[2] == listed[2]
    for path in ("/v1/models/trinity", "/v1/models/trinity/"):
        assert raw(one.url, "GET", path)[2]["id"] == "trinity"
    assert raw(one.url, "GET", "/v1/models/nope")[0] == 404


def test_usage_that_no_model_gave_adds_up_too(serve: Serve) -> None:
    status, answer = post(serve(team(usage={}), entry=""), CHAT)
    assert status == 200, answer
    usage = answer["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert answer["trinity"]["cost_usd"] is None
