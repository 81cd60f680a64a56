"""HttpPool against a real faulty server: which answers it accepts, whole, streamed, cut off or late."""

from __future__ import annotations

import json
import time

import pytest

from core.episode import Reply
from core.pool.hosted import HttpPool
from tests.core.pool.faulty_server import (
    Answer,
    Request,
    chat,
    events,
    fail,
    faulty_server,
    ok,
    respond,
    stream_head,
)
from tests.core.pool.hosted_calls import ask, entry, hosting, left, stream, talk, why

# What is accepted


def test_length_is_kept_and_reasoning_set_apart() -> None:
    reply, _ = talk(ok("cut of", finish_reason="length", reasoning_content="hmm"))
    assert (reply.text, reply.finish_reason, reply.reasoning) == ("cut of", "length", "hmm")


def test_what_is_not_json_is_not_read() -> None:
    page = (respond(b"<html>Log in</html>", kind="text/html"),)
    assert "text/html" in why(talk(page)[0])
    assert "compressed" in why(talk((respond(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),))[0])


def test_text_that_no_database_can_hold_is_mended() -> None:
    reply, _ = talk(ok("a\ud800b\0c\U0001f600"))
    assert reply.text == "a\ufffdb\ufffdc\U0001f600"


def test_a_model_that_refuses_the_prompt_is_at_fault_itself() -> None:
    reply, _ = talk(fail(400, "triggered content_filter"))
    assert reply.error is not None
    assert reply.error.kind == "model"


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


def test_an_answer_may_come_in_parts() -> None:
    parts = [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": "fo"},
        {"type": "text", "text": "ur"},
    ]
    reply, _ = talk(ok(content=parts))
    assert reply.text == "four"


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
    slow = (0.5, *ok())
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
        time.sleep(0.2)
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


@pytest.mark.parametrize(
    ("told", "cached", "cost"),
    [('{"cached_tokens": 8}', 8, 3.8), ("{}", 0, 11.0), ('{"cached_tokens": 99}', 11, 1.1)],
)
def test_tokens_that_the_server_had_read_before_are_billed_as_such(
    told: str, cached: int, cost: float
) -> None:
    details = f'"usage": {{"prompt_tokens_details": {told}, '
    body = chat("fine").replace(b'"usage": {', details.encode())
    reply, _ = talk((respond(body),), price_in=1.0, price_out=2.0, price_cached=0.1)
    assert (reply.usage.tokens_in, reply.usage.tokens_cached) == (11, cached)
    assert reply.usage.cost_usd == pytest.approx((cost + 7 * 2.0) / 1e6)
    reply, _ = talk((respond(body),), price_in=1.0, price_out=2.0)
    assert reply.usage.cost_usd == pytest.approx((11 + 14) / 1e6)
