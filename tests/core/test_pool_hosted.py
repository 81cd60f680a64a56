"""HttpPool against a real faulty server: what it sends, accepts, tries again and never says."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from core.episode import Ask, Message, Reply, Role
from core.errors import PoolError
from core.pool.client import Limits
from core.pool.endpoint import RETRY_QUOTA
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.faulty_server import (
    HANG_UP,
    Answer,
    FaultyServer,
    Request,
    chat,
    chunked,
    events,
    fail,
    faulty_server,
    ok,
    respond,
    stream_head,
)

CANARY = "sk-canary-5a71c2e09b-DO-NOT-LEAK"
QUICK = Limits(wait_initial_s=0.01, wait_max_s=0.05)


def ask(model: str = "m", text: str = "hi", **limits: Any) -> Ask:
    return Ask(model, Role.WORKER, (Message("user", text),), **limits)


def entry(server: FaultyServer, name: str = "m", **fields: Any) -> ModelSpec:
    return ModelSpec(name, **{"base_url": server.url, "timeout_s": 10.0, **fields})


def talk(
    *answers: Answer | Callable[[Request], Answer], limits: Limits = QUICK, **fields: Any
) -> tuple[Reply, FaultyServer]:
    """One ask to a server with these answers."""
    with faulty_server(*answers) as server:
        pool = HttpPool([entry(server, **fields)], {"KEY": CANARY}, limits)
        [(_, reply)] = pool.ask([ask()])
        pool.close()
    return reply, server


def stream(*answers: Answer, **fields: Any) -> tuple[list[str], Reply, FaultyServer]:
    with faulty_server(*answers) as server:
        pool = HttpPool([entry(server, **fields)], limits=QUICK)
        *pieces, reply = pool.stream(ask())
        pool.close()
    assert isinstance(reply, Reply)
    return [piece for piece in pieces if isinstance(piece, str)], reply, server


def why(reply: Reply) -> str:
    assert reply.error is not None, reply
    assert reply.text == ""
    return reply.error.message


# What is sent


def test_the_body_is_minimal_and_the_key_a_header() -> None:
    reply, server = talk(ok("four"), api_key_env="KEY", model="org/model", price_in=2.0, price_out=4.0)
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
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (11, 7)
    assert reply.usage.cost_usd == pytest.approx((11 * 2 + 7 * 4) / 1e6)
    assert 0 < reply.latency_s < 5


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


def test_repeats_in_an_episode_are_sent_with_seeds_of_their_own() -> None:
    with faulty_server(ok()) as server:
        pool = HttpPool([entry(server, send_seed=True)])
        list(pool.ask([ask(seed=7, sample=sample) for sample in range(3)] + [ask(seed=7)]))
        pool.close()
    assert len({request.body["seed"] for request in server.requests}) == 3


def test_usage_or_price_that_is_unknown_is_no_price() -> None:
    body = json.loads(chat("hi"))
    del body["usage"]
    assert talk(ok())[0].usage.cost_usd is None
    reply, _ = talk((respond(json.dumps(body).encode()),), price_in=1.0, price_out=1.0)
    assert (reply.text, reply.usage.cost_usd) == ("hi", None)


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert talk(ok())[0].error is None


# What is tried again


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_passing_faults_are_tried_again(status: int) -> None:
    reply, server = talk(fail(status), fail(status), ok("at last"))
    assert (reply.text, reply.error, len(server.requests)) == ("at last", None, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 422])
def test_lasting_faults_are_not(status: int) -> None:
    reply, server = talk(fail(status, "bad thing"), ok())
    assert f"{status}" in why(reply)
    assert reply.error is not None
    assert reply.error.kind == "infrastructure"
    assert len(server.requests) == 1


def test_retrying_ends_with_the_servers_reason() -> None:
    reply, server = talk(fail(500, "disk on fire"), attempts=3)
    assert "disk on fire" in why(reply)
    assert "tried 3 times" in why(reply)
    assert len(server.requests) == 3


def test_retry_after_is_waited_for_by_every_call_to_the_model() -> None:
    times: list[float] = []

    def answer(request: Request) -> Answer:
        times.append(time.monotonic())
        return fail(429, Retry_After="0.6") if len(times) == 1 else ok()

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, concurrency=1)], limits=QUICK)
        replies = [reply.text for _, reply in pool.ask([ask(), ask(), ask()])]
        pool.close()
    assert replies == ["fine"] * 3
    assert len(times) == 4
    assert times[1] - times[0] >= 0.6


def test_retry_after_may_be_a_date() -> None:
    dates = {"Date": "Fri, 20 Nov 2026 20:00:00 GMT", "Retry_After": "Fri, 20 Nov 2026 20:00:01 GMT"}
    started = time.monotonic()
    reply, _ = talk(fail(503, **dates), ok())
    assert reply.error is None
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("wait", ["61", "9"])  # longer than the cap, longer than the call may take
def test_a_wait_that_is_too_long_is_not_waited_for(wait: str) -> None:
    reply, server = talk(fail(429, Retry_After=wait), ok(), timeout_s=5.0)
    assert f"asks to wait {wait} s" in why(reply)
    assert len(server.requests) == 1


def test_x_should_retry_is_obeyed() -> None:
    assert len(talk(fail(500, x_should_retry="false"), ok())[1].requests) == 1
    assert talk(fail(400, x_should_retry="true"), ok())[0].error is None


def test_a_rate_limit_loses_no_call() -> None:
    window = [0.0, 0]

    def answer(request: Request) -> Answer:
        """Four answers in any 0.2 s."""
        now = time.monotonic()
        if now >= window[0] + 0.2:
            window[:] = [now, 0]
        window[1] += 1
        return ok() if window[1] <= 4 else fail(429, Retry_After="0.2")

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, attempts=2)], limits=QUICK)
        replies = [reply.error for _, reply in pool.ask([ask()] * 24)]
        pool.close()
    assert replies == [None] * 24
    assert len(server.requests) <= 3 * 24


def test_a_limit_that_never_lifts_ends_at_the_deadline() -> None:
    reply, server = talk(
        fail(429, "slow down", Retry_After="0"), timeout_s=0.5, limits=Limits(wait_initial_s=0.1)
    )
    assert reply.error is not None
    assert reply.latency_s < 1.0
    assert 3 <= len(server.requests) <= 6


def test_an_outage_does_not_become_a_storm() -> None:
    with faulty_server(fail(500)) as server:
        pool = HttpPool([entry(server, concurrency=16, timeout_s=30.0)], limits=QUICK)
        replies = [reply for _, reply in pool.ask([ask()] * 60)]
        pool.close()
    assert all(reply.error for reply in replies)
    assert len(server.requests) <= 60 + RETRY_QUOTA


def test_hang_ups_are_tried_again() -> None:
    reply, server = talk(HANG_UP, (b"HTTP/1.1 200 OK\r\nContent-Le",), ok())
    assert (reply.error, len(server.requests)) == (None, 3)


def test_no_server_is_said_with_its_address() -> None:
    with faulty_server(ok()) as server:
        pass
    pool = HttpPool([entry(server, attempts=2)], limits=QUICK)
    [(_, reply)] = pool.ask([ask()])
    pool.close()
    assert "Model 'm' at 127.0.0.1 cannot be reached" in why(reply)


# What is accepted


def test_length_is_kept_and_reasoning_set_apart() -> None:
    reply, _ = talk(ok("cut of", finish_reason="length", reasoning_content="hmm"))
    assert (reply.text, reply.finish_reason, reply.reasoning) == ("cut of", "length", "hmm")


WRONG = {
    "nan": b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": NaN}',
    "infinity": b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "n": -Infinity}',
    "duplicate": chat("x").replace(b'"content": "x"', b'"content": "REVISE", "content": "ACCEPT"'),
    "deep": b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "digits": b'{"choices": [], "n": ' + b"9" * 5000 + b"}",
    "utf8": chat("x").replace(b'"x"', b'"\xff\xfe"'),
    "no choice": b'{"choices": []}',
    "no finish": chat("x", finish_reason=None),
    "number": chat("x").replace(b'"content": "x"', b'"content": 1'),
    "negative usage": chat("x").replace(b"11", b"-1"),
    "list": b"[]",
    "empty": b"",
    "text": b"Internal server error",
    "two": chat("x") + chat("y"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_malformed_json_is_never_a_reply(fault: str) -> None:
    reply, server = talk((respond(WRONG[fault]),), attempts=2)
    assert "its answer" in why(reply)
    assert len(server.requests) == 2


def test_what_is_not_json_is_not_read() -> None:
    page = (respond(b"<html>Log in</html>", kind="text/html"),)
    assert "text/html" in why(talk(page)[0])
    assert "compressed" in why(talk((respond(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),))[0])


def test_a_huge_body_is_cut_off() -> None:
    limits = Limits(response_bytes=100_000)
    sized = (respond(chat("x" * 200_000)),)
    endless = (stream_head(), *[b"data: " + b"x" * 10_000] * 100)
    for answer in (sized, endless):
        reply, server = talk(answer, limits=limits)
        assert "100,000 bytes" in why(reply)
        assert len(server.requests) == 1


def test_text_that_no_database_can_hold_is_mended() -> None:
    reply, _ = talk(ok("a\ud800b\0c\U0001f600"))
    assert reply.text == "a\ufffdb\ufffdc\U0001f600"


def test_a_model_that_cannot_take_the_prompt_is_at_fault_itself() -> None:
    for message in ("This model's maximum context length is 8192 tokens", "triggered content_filter"):
        reply, _ = talk(fail(400, message))
        assert reply.error is not None
        assert reply.error.kind == "model"


@pytest.mark.parametrize("sized", [True, False])
def test_no_truncated_json_is_accepted(sized: bool) -> None:
    whole = respond(chat("The answer is 42."), sized=sized)
    _no_partial_text([(whole[:end],) for end in range(len(whole))], "The answer is 42.", streaming=False)


@pytest.mark.parametrize("mode", ["closed", "sized", "chunked", "clean"])
def test_no_truncated_stream_is_accepted(mode: str) -> None:
    body = events("The ", "answer is ", "42.")
    cuts: list[Answer]
    match mode:
        case "closed":
            cuts = [(stream_head(), body[:end]) for end in range(len(body))]
        case "sized":
            cuts = [(stream_head(Content_Length=str(len(body))), body[:end]) for end in range(len(body))]
        case "chunked":
            whole = chunked(body[:100], body[100:])
            cuts = [(stream_head(Transfer_Encoding="chunked"), whole[:end]) for end in range(len(whole))]
        case _:
            head = stream_head(Transfer_Encoding="chunked")
            cuts = [(head, chunked(body[:end])) for end in range(len(body))]
    _no_partial_text(cuts, "The answer is 42.", streaming=True)


def _no_partial_text(cuts: list[Answer], text: str, *, streaming: bool) -> None:
    """Every cut answer is a failure, or has lost nothing but what follows the text."""
    waiting = iter(cuts)
    with faulty_server(lambda request: next(waiting)) as server:
        pool = HttpPool([entry(server, attempts=1, concurrency=8)], limits=QUICK)
        replies = [reply for _, reply in pool.ask([ask()] * len(cuts))]
        pool.close()
    assert len(replies) == len(cuts) > 100
    accepted = [reply for reply in replies if reply.error is None]
    assert all(reply.text == text and reply.finish_reason == "stop" for reply in accepted)
    assert all(reply.text == "" for reply in replies if reply.error is not None)
    assert len(accepted) <= (9 if streaming else 0)  # line ends and the closing chunk follow "[DONE]"


# Streaming


def test_pieces_come_as_they_are_written() -> None:
    first, *rest = events("one ", "two ", "three").split(b"\n\n")
    with faulty_server(
        (stream_head(), b"\n\n".join([first, rest[0], b""]), 0.5, b"\n\n".join(rest[1:]))
    ) as server:
        pool = HttpPool([entry(server)])
        started = time.monotonic()
        arrivals = [(time.monotonic() - started, piece) for piece in pool.stream(ask())]
        pool.close()
    assert [piece for _, piece in arrivals[:-1]] == ["one ", "two ", "three"]
    reply = arrivals[-1][1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage.tokens_out) == ("one two three", 7)
    assert server.requests[0].body["stream"] is True
    assert "stream_options" not in server.requests[0].body
    assert arrivals[1][0] - arrivals[0][0] > 0.25


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


def test_usage_in_a_stream_is_asked_for_where_the_entry_says_so() -> None:
    _, _, server = stream((stream_head(), events("x")), stream_usage=True)
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


# Time


@pytest.mark.parametrize("kind", ["json", "stream"])
def test_a_slow_drip_is_cut_at_the_deadline(kind: str) -> None:
    body = respond(chat("x" * 500)) if kind == "json" else stream_head() + events(*"x" * 50)
    drip: list[bytes | float] = []
    for start in range(0, len(body), 20):
        drip += [body[start : start + 20], 0.05]
    reply, server = talk(tuple(drip), timeout_s=0.7)
    assert "longer than 0.7 s" in why(reply)
    assert 0.7 <= reply.latency_s < 1.2
    assert server.hang_ups == 1


def test_silence_is_cut_at_the_deadline() -> None:
    reply, _ = talk((5.0,), timeout_s=0.5)
    assert "longer than 0.5 s" in why(reply)
    assert reply.latency_s < 1.0


def test_calls_run_side_by_side_up_to_the_models_limit() -> None:
    slow = (0.1, *ok())
    with faulty_server(slow) as server:
        pool = HttpPool([entry(server, concurrency=4)])
        indices = [index for index, _ in pool.ask([ask()] * 12)]
        pool.close()
    assert sorted(indices) == list(range(12))
    assert server.most_in_flight == 4


def test_a_slow_model_does_not_hold_up_a_quick_one() -> None:
    def answer(request: Request) -> Answer:
        return (0.5, *ok("slow")) if request.body["model"] == "slow" else ok("quick")

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, "slow"), entry(server, "quick")])
        assert [reply.text for _, reply in pool.ask([ask("slow"), ask("quick")])] == ["quick", "slow"]
        pool.close()


def _left(server: FaultyServer, hang_ups: int) -> bool:
    until = time.monotonic() + 3
    while server.hang_ups < hang_ups and time.monotonic() < until:
        time.sleep(0.01)
    return server.hang_ups == hang_ups


def test_closing_the_iterator_cancels_the_calls_in_flight() -> None:
    def answer(request: Request) -> Answer:
        return ok() if request.body["messages"][0]["content"] == "quick" else (20.0,)

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, concurrency=3, timeout_s=30.0)])
        replies = pool.ask([ask(text="quick"), ask(), ask(), ask(), ask()])
        assert next(replies)[0] == 0
        time.sleep(0.2)
        replies.close()  # type: ignore[attr-defined]
        assert _left(server, 3)
        [(_, reply)] = pool.ask([ask(text="quick")])
        assert reply.error is None
        pool.close()


def test_closing_a_stream_cancels_it() -> None:
    with faulty_server((stream_head(), events("one ", done=False, finish_reason=None), 20.0)) as server:
        pool = HttpPool([entry(server, timeout_s=30.0)])
        pieces = pool.stream(ask())
        assert next(pieces) == "one "
        pieces.close()  # type: ignore[attr-defined]
        assert _left(server, 1)
        pool.close()


def test_a_forgotten_pool_closes_and_its_pending_replies_keep_it() -> None:
    with faulty_server((0.2, *ok())) as server:
        replies = HttpPool([entry(server)]).ask([ask()])
        assert [reply.text for _, reply in replies] == ["fine"]


# What is never said


ECHOES: dict[str, Callable[[str], Answer]] = {
    "401": lambda said: fail(401, f"Incorrect API key provided: {said}"),
    "403": lambda said: fail(403, f"no: {said}"),
    "400": lambda said: fail(400, f"bad header {said}"),
    "404": lambda said: fail(404, f"{said} not found"),
    "500": lambda said: fail(500, f"boom {said}"),
    "kind": lambda said: (respond(b"x", kind=f"text/{said}"),),
    "redirect": lambda said: fail(302, said, Location=f"http://127.0.0.1:9/?key={said}"),
    "protocol": lambda said: (f"HTTP/9 {said}\r\n\r\n".encode(),),
    "header": lambda said: (f"HTTP/1.1 200 OK\r\n{said}\x01: x\r\n\r\n".encode(),),
    "text": lambda said: ok(f"your key is {said}", reasoning_content=said),
    "finish": lambda said: ok("x", finish_reason=said),
}


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
        if record.name.partition(".")[0] in ("core", "stamina", "httpx"):
            assert said not in record.getMessage() + repr(record.__dict__)


def test_redirects_are_not_followed() -> None:
    with faulty_server(ok()) as other:
        reply, _ = talk(fail(307, Location=f"{other.url}/chat/completions"), api_key_env="KEY")
    assert "redirects elsewhere (307)" in why(reply)
    assert other.requests == []


def test_a_refused_key_names_its_variable() -> None:
    assert "check the variable KEY" in why(talk(fail(401), api_key_env="KEY")[0])


def test_a_missing_or_broken_key_is_said_before_any_call() -> None:
    spec = ModelSpec("m", base_url="http://127.0.0.1:9/v1", api_key_env="KEY")
    for env, words in (
        ({}, "KEY, which is not set"),
        ({"KEY": " "}, "not set"),
        ({"KEY": "a\nb"}, "no header"),
    ):
        with pytest.raises(PoolError, match=words):
            HttpPool([spec], env)


def test_an_unknown_model_is_said_before_any_call() -> None:
    with faulty_server(ok()) as server:
        pool = HttpPool([entry(server)])
        with pytest.raises(PoolError, match="no model named 'z'; it has m"):
            pool.ask([ask(), ask("z")])
        pool.close()
    assert server.requests == []


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

    def answer(request: Request) -> Answer:
        return ok() if request.body["messages"][0]["content"] == "quick" else (0.5, *[0.5] * 60)

    with faulty_server(answer) as server:
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-c", script, server.url],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert _left(server, 2)
    assert ended.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert "Warning" not in ended.stderr
    assert "Task was destroyed" not in ended.stderr
