"""HttpPool against a real faulty server: what it sends, tries again and never says; which answers it accepts, whole,
streamed, cut off or late."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from core.episode import Reply
from core.errors import PoolError
from core.pool.client import Limits
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import (
    CANARY,
    ECHOES,
    QUICK,
    USAGE,
    Answer,
    Request,
    ask,
    chat,
    entry,
    events,
    fail,
    faulty_server,
    hosting,
    left,
    ok,
    reached,
    respond,
    stream,
    stream_head,
    talk,
    why,
)

# What is sent


def test_the_body_is_minimal_and_the_key_a_header() -> None:
    usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 8}}
    prices: dict[str, Any] = {"price_in": 2.0, "price_out": 4.0, "price_cached": 0.5}
    reply, server = talk(
        (respond(chat("four", usage=usage)),), api_key_env="KEY", model="org/model", **prices
    )
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert request.body == {
        "model": "org/model",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4096,
        "temperature": 0.7,
    }
    assert reply.text == "four"
    assert (reply.usage.tokens_in, reply.usage.tokens_cached, reply.usage.tokens_out) == (11, 8, 7)
    assert reply.usage.cost_usd == pytest.approx((3 * 2 + 8 * 0.5 + 7 * 4) / 1e6)
    assert 0 < reply.latency_s < 5
    assert talk(ok())[0].usage.cost_usd is None, "no price is known"


def test_an_entry_decides_which_fields_its_server_sees() -> None:
    _, server = talk(
        ok(),
        token_limit_field="max_completion_tokens",
        send_temperature=False,
        send_seed=True,
        extra={"top_p": 0.9},
    )
    [request] = server.requests
    assert request.body.keys() == {"model", "messages", "max_completion_tokens", "seed", "top_p"}
    assert "authorization" not in request.headers


def test_a_query_and_headers_of_its_own_are_sent_and_their_secrets_never_shown() -> None:
    entry_fields: dict[str, Any] = {"query": {"api-version": "2024-10-21"}, "headers_env": {"api-key": "KEY"}}
    reply, server = talk(ok(f"four {CANARY}"), **entry_fields)
    [request] = server.requests
    assert request.path == "/v1/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == CANARY
    assert "authorization" not in request.headers
    assert reply.text == "four (key)"
    told, _ = talk(fail(400, f"bad {CANARY}"), **entry_fields)
    assert CANARY not in why(told)


def test_a_proxy_is_asked_where_one_is_named_and_none_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert talk(ok())[0].error is None
    with faulty_server(ok("by proxy")) as proxy:
        spec = ModelSpec("m", base_url="http://models.invalid/v1", proxy=f"http://127.0.0.1:{proxy.port}")
        pool = HttpPool([spec], limits=QUICK)
        [(_, reply)] = pool.ask([ask()])
        pool.close()
    assert reply.text == "by proxy"
    assert proxy.requests[0].path == "http://models.invalid/v1/chat/completions"


# What is tried again


def test_retry_after_is_waited_for_by_every_call_to_the_model() -> None:
    times: list[float] = []

    def answer(request: Request) -> Answer:
        times.append(time.monotonic())
        return fail(429, Retry_After="0.3") if len(times) == 1 else ok()

    with hosting(answer, concurrency=1) as (pool, server):
        replies = [reply.text for _, reply in pool.ask([ask(), ask(), ask()])]
    assert replies == ["fine"] * 3
    assert len(times) == 4
    assert times[1] - times[0] >= 0.3


def test_x_should_retry_is_obeyed() -> None:
    assert len(talk(fail(500, x_should_retry="false"), ok())[1].requests) == 1
    assert talk(fail(400, x_should_retry="true"), ok())[0].error is None


def test_a_limit_that_never_lifts_ends_at_the_deadline() -> None:
    reply, server = talk(
        fail(429, "slow down", Retry_After="0"), timeout_s=0.5, limits=Limits(wait_initial_s=0.1)
    )
    assert reply.error is not None
    assert reply.latency_s < 1.0
    assert 3 <= len(server.requests) <= 6


TOO_LONG = {"error": {"code": 400, "message": "Input token count (9000) exceeds the limit (8192)."}}
LONG_WORDS = (
    "cannot hold a prompt this long .*9000.*; "
    "give its context_window in the pool file, and prompts are shortened to fit."
)


def told(body: Any, status: int = 200) -> Answer:
    """An answer with this JSON."""
    return (respond(json.dumps(body).encode(), status),)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (fail(500, "disk on fire"), "infrastructure", r'Error: "disk on fire"\. It was tried 3 times\.$'),
        # Longer than the cap, longer than the call may take.
        (fail(429, Retry_After="61"), "infrastructure", "asks to wait 61 s"),
        (fail(429, Retry_After="9"), "infrastructure", "asks to wait 9 s"),
        ((respond(b"<html>Log in</html>", kind="text/html"),), "infrastructure", "text/html and not JSON"),
        ((respond(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),), "infrastructure", "compressed answer"),
        (fail(429, "You exceeded your current quota, check your plan."), "infrastructure", r"credit left \(429\)"),
        (fail(402), "infrastructure", r"no quota or credit left \(402\)"),
        (told({"error": {"code": "insufficient_quota"}}), "infrastructure", "no quota or credit left"),
        (fail(403, "Country not supported"), "infrastructure", 'answered 403 Forbidden: "Country not supported"'),
        (fail(403, "Invalid API key"), "infrastructure", r"refused the key \(403\); check the variable KEY"),
        (fail(401, "Country not supported"), "infrastructure", r"refused the key \(401\); check the variable KEY"),
        (fail(400, "The model `x` does not exist"), "infrastructure", r"no such address or model \(400\)"),
        ((respond(b"<html>Bad gateway</html>", 400),), "infrastructure", r"answered 400 Bad Request\."),
        (fail(400, "triggered content_filter"), "model", "refused the prompt by its content filter"),
        *((told(body, status), "model", LONG_WORDS) for body in (TOO_LONG, [TOO_LONG]) for status in (200, 400)),
    ],
)  # fmt: skip
def test_a_failure_is_said_with_whose_it_is_and_what_to_do(answer: Answer, kind: str, words: str) -> None:
    reply, server = talk(answer, api_key_env="KEY", attempts=3, timeout_s=5.0)
    assert re.search(words, why(reply))
    assert reply.error is not None
    assert reply.error.kind == kind
    assert len(server.requests) == (3 if "tried" in words else 1)


def test_no_server_is_said_with_its_address() -> None:
    with faulty_server(ok()) as server:
        pass
    pool = HttpPool([entry(server, attempts=2)], limits=QUICK)
    [(_, reply)] = pool.ask([ask()])
    pool.close()
    assert "Model 'm' at 127.0.0.1 cannot be reached" in why(reply)


# What is never said


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("said", [CANARY, CANARY[:12], CANARY[-12:]])
def test_the_key_is_in_no_error_reply_or_log(echo: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reply, server = talk(ECHOES[echo](said), api_key_env="KEY", attempts=2)
    assert server.requests[0].headers["authorization"].endswith(CANARY)
    shown = repr(reply)
    if said == CANARY or reply.error is not None:
        assert said.lower() not in shown.lower()
    for record in caplog.records:
        assert said not in record.getMessage() + repr(record.__dict__)


@pytest.mark.parametrize("size", [1, 5, 11, len(CANARY), 50])
def test_the_key_is_not_shown_while_a_text_is_written(size: int) -> None:
    text = f"s, sk-can, sk-{CANARY}{CANARY[:-1]} and {CANARY}."
    written = [text[at : at + size] for at in range(0, len(text), size)]
    with hosting((stream_head(), events(*written)), api_key_env="KEY") as (pool, server):
        *pieces, reply = pool.stream(ask())
    assert isinstance(reply, Reply)
    assert reply.text == "".join(map(str, pieces)) == text.replace(CANARY, "(key)")


def test_redirects_are_not_followed() -> None:
    with faulty_server(ok()) as other:
        reply, _ = talk(fail(307, Location=f"{other.url}/chat/completions"), api_key_env="KEY")
    assert "redirects to another address (307)" in why(reply)
    assert other.requests == []


def test_a_missing_or_broken_key_is_said_before_any_call() -> None:
    spec = ModelSpec("m", base_url="http://127.0.0.1:9/v1", api_key_env="KEY")
    for env, words in (
        ({}, "Model 'm' needs a key in the environment variable KEY, which is not set"),
        ({"KEY": " "}, "not set"),
        ({"KEY": "a\nb"}, "no header"),
    ):
        with pytest.raises(PoolError, match=words):
            HttpPool([spec], env)


def test_an_unknown_model_is_said_before_any_call() -> None:
    with hosting(ok()) as (pool, server), pytest.raises(PoolError, match="no model named 'z'; it has m"):
        pool.ask([ask(), ask("z")])
    assert server.requests == []


@pytest.mark.process
def test_a_process_that_is_interrupted_with_calls_in_flight_ends_at_once() -> None:
    script = """
import sys
from core.episode import Ask, Message, Role
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
pool = HttpPool([ModelSpec("m", base_url=sys.argv[1])])
asks = [Ask("m", Role.WORKER, (Message("user", text),)) for text in ("quick", "slow", "slow")]
for index, reply in pool.ask(asks):
    raise KeyboardInterrupt
"""

    all_asked, slow = threading.Event(), []

    def answer(request: Request) -> Answer:
        if request.body["messages"][0]["content"] == "quick":
            return (all_asked, *ok())
        slow.append(request)
        if len(slow) == 2:
            all_asked.set()
        return [0.5] * 240  # two minutes

    with faulty_server(answer) as server:
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-c", script, server.url],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert left(server, 2)
    assert ended.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert "Warning" not in ended.stderr
    assert "Task was destroyed" not in ended.stderr


# What is accepted


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (ok("cut of", finish_reason="length", reasoning_content="hmm"), ("cut of", "length", "hmm")),
        (ok("a\ud800b\0c\U0001f600"), ("a\ufffdb\ufffdc\U0001f600", "stop", "")),  # no database can hold it
        (ok(content=[{"type": "thinking", "text": "hm"}, {"type": "text", "text": "fo"}, {"text": "ur"}]),
         ("four", "stop", "")),
    ],
)  # fmt: skip
def test_what_is_read_of_an_answer(answer: Answer, read: tuple[str, str, str]) -> None:
    reply, _ = talk(answer)
    assert (reply.text, reply.finish_reason, reply.reasoning) == read


# Streaming


def test_pieces_come_as_they_are_written() -> None:
    first, *rest = events("one ", "two ", "three").split(b"\n\n")
    with hosting((stream_head(), b"\n\n".join([first, rest[0], b""]), 0.5, b"\n\n".join(rest[1:]))) as (
        pool,
        server,
    ):
        started = time.monotonic()
        arrivals = [(time.monotonic() - started, piece) for piece in pool.stream(ask())]
    assert [piece for _, piece in arrivals[:-1]] == ["one ", "two ", "three"]
    reply = arrivals[-1][1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage.tokens_out) == ("one two three", 7)
    assert server.requests[0].body["stream"] is True
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert arrivals[1][0] - arrivals[0][0] > 0.25


def test_a_server_that_knows_no_stream_options_is_asked_without_and_not_again() -> None:
    refused, said = fail(400, "Unknown parameter: stream_options"), (stream_head(), events("hi"))
    with hosting(refused, said) as (pool, server):
        replies = [[*pool.stream(ask())][-1] for _ in range(2)]
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == ["hi", "hi"]
    assert ["stream_options" in request.body for request in server.requests] == [True, False, False]
    _, lasting, _ = stream(fail(400, "No."), fail(400, "No."))
    assert "400" in why(lasting)


def test_a_server_that_can_neither_be_told_to_count_nor_to_call_is_asked_without_both() -> None:
    def answer(request: Request) -> Answer:
        knows = request.body["tool_choice"] == "auto" and "stream_options" not in request.body
        return (stream_head(), events("hi")) if knows else fail(422, "Extra inputs are not permitted")

    tool = json.dumps([{"type": "function", "function": {"name": "add"}}])
    with hosting(answer) as (pool, server):
        replies = [[*pool.stream(ask(tools=tool, must_call=True))][-1] for _ in range(2)]
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == ["hi", "hi"]
    assert len(server.requests) == 4  # and nothing of it is tried again


def test_a_stream_without_done_is_accepted_only_where_the_entry_says_so() -> None:
    answer = (stream_head(), events("hi", done=False))
    assert "without [DONE]" in why(stream(answer, attempts=1)[1])
    assert stream(answer, stream_done=False)[1].text == "hi"
    unfinished = (stream_head(), events("hi", finish_reason=None))
    assert "finish reason" in why(stream(unfinished, stream_done=False, attempts=1)[1])


def test_a_stream_that_breaks_is_tried_again_without_repeating_itself() -> None:
    broken = (stream_head(), events("The ", "answ", done=False, finish_reason=None))
    pieces, reply, server = stream(broken, (stream_head(), events("The ", "answer")))
    assert (reply.text, pieces, len(server.requests)) == ("The answer", ["The ", "answ"], 2)


def test_an_error_in_the_stream_and_a_server_that_does_not_stream() -> None:
    error = b'data: {"error": {"message": "overloaded"}}\n\n'
    assert "in the middle" in why(stream((stream_head(), events("x", done=False) + error), attempts=1)[1])
    assert stream(ok("whole"))[1].text == "whole"
    pieces, reply, server = stream(ok("whole"), stream=False)
    assert (pieces, reply.text, "stream" in server.requests[0].body) == ([], "whole", False)


def test_usage_in_a_stream_is_not_asked_for_where_the_entry_says_so() -> None:
    _, _, server = stream((stream_head(), events("x")), stream_usage=False)
    assert "stream_options" not in server.requests[0].body


# Time


def test_calls_run_side_by_side_up_to_the_models_limit() -> None:
    slow = (0.3, *ok())
    with hosting(slow, slow, slow, slow, (0.05, *ok()), concurrency=4) as (pool, server):
        indices = [index for index, _ in pool.ask([ask()] * 12)]
    assert sorted(indices) == list(range(12))
    assert server.most_in_flight == 4


def test_a_slow_model_does_not_hold_up_a_quick_one() -> None:
    def answer(request: Request) -> Answer:
        return (0.5, *ok("slow")) if request.body["model"] == "slow" else ok("quick")

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, "slow"), entry(server, "quick")])
        assert [reply.text for _, reply in pool.ask([ask("slow"), ask("quick")])] == ["quick", "slow"]
        pool.close()


def test_closing_the_iterator_cancels_the_calls_in_flight() -> None:
    def answer(request: Request) -> Answer:
        return ok() if request.body["messages"][0]["content"] == "quick" else (20.0,)

    with hosting(answer, concurrency=3, timeout_s=30.0) as (pool, server):
        replies = pool.ask([ask(text="quick"), ask(), ask(), ask(), ask()])
        assert next(replies)[0] == 0
        assert reached(lambda: len(server.requests) == 4)
        replies.close()  # type: ignore[attr-defined]
        assert left(server, 3)
        [(_, reply)] = pool.ask([ask(text="quick")])
        assert reply.error is None


def test_closing_a_stream_cancels_it() -> None:
    with hosting((stream_head(), events("one ", done=False, finish_reason=None), 20.0), timeout_s=30.0) as (
        pool,
        server,
    ):
        pieces = pool.stream(ask())
        assert next(pieces) == "one "
        pieces.close()  # type: ignore[attr-defined]
        assert left(server, 1)


def test_a_forgotten_pool_closes_and_its_pending_replies_keep_it() -> None:
    with faulty_server((0.2, *ok())) as server:
        replies = HttpPool([entry(server)]).ask([ask()])
        assert [reply.text for _, reply in replies] == ["fine"]
