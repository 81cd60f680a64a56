"""What a call costs whose answers fail: by what its server told, or else as the most that each try could cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.episode import Reply
from core.pool.costs import bound_usd
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import (
    HANG_UP,
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
    ok,
    respond,
    stream_head,
    talk,
    why,
)

PRICES: dict[str, Any] = {"price_in": 1.0, "price_out": 10.0, "max_tokens": 1000}
MOST = bound_usd(ModelSpec("m", **PRICES), ask())
TOLD = (11 + 70) / 1e6  # by USAGE

CUT = (respond(chat("forty-two")[:40]),)
NAN = (respond(chat("forty-two").replace(b'"id"', b'"n": NaN, "id"')),)
NO_MESSAGE = (respond(b'{"choices": [{"finish_reason": "stop"}], "usage": %b}' % json.dumps(USAGE).encode()),)
HTML = (respond(b"<html>Log in</html>", kind="text/html"),)
GZIP = (respond(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),)
BREAKS = (respond(b"", sized=False, headers={"Content-Length": "500"}), chat("forty-two"))
FAILED = (respond(chat("forty", finish_reason="error")),)
FAILED_AT_ONCE = (respond(b'{"choices": [{"finish_reason": "error", "message": {"content": ""}}]}'),)
FAILED_UNCOUNTED = (respond(b'{"choices": [{"finish_reason": "abort", "message": {"content": "forty"}}]}'),)
BUSY = (respond(b'{"error": {"code": 429, "message": "slow down"}}'),)
UPSTREAM = (respond(b'{"error": {"code": 502, "message": "upstream died"}}'),)
ERROR = b'event: error\ndata: {"message": "engine is out of memory"}\n\n'


def streamed(*body: bytes) -> Answer:
    return (stream_head(), *body)


@pytest.mark.parametrize(
    ("answer", "requests", "usd"),
    [
        (CUT, 2, 2 * MOST),
        (NAN, 2, 2 * TOLD),
        (NO_MESSAGE, 2, 2 * TOLD),
        (HTML, 1, MOST),
        (GZIP, 1, MOST),
        (BREAKS, 2, 2 * MOST),
        (FAILED, 4, 4 * TOLD),
        (FAILED_UNCOUNTED, 4, 4 * MOST),
        (FAILED_AT_ONCE, 4, 0.0),
        (UPSTREAM, 4, 0.0),
        (fail(500), 4, 0.0),
        (fail(400), 1, 0.0),
        (HANG_UP, 4, 0.0),
        (streamed(events("forty", done=False, finish_reason=None)), 2, 2 * MOST),
        (streamed(events("forty", done=False)), 2, 2 * TOLD),
        (streamed(events("forty", done=False, finish_reason=None), ERROR), 4, 4 * MOST),
        (streamed(ERROR), 4, 0.0),
        (streamed(events("forty", finish_reason="network_error")), 4, 4 * TOLD),
    ],
)
def test_each_try_counts_that_served_an_answer(answer: Answer, requests: int, usd: float) -> None:
    reply, server = talk(answer, **PRICES)
    assert ("engine is out of memory" in why(reply)) == (ERROR in answer)
    assert len(server.requests) == requests
    assert reply.usage.cost_usd == pytest.approx(usd)
    assert reply.usage.unread_usd == pytest.approx(usd)


def test_what_failed_first_is_in_the_cost_of_the_reply() -> None:
    reply, server = talk(CUT, NAN, fail(503), ok("forty-two"), **PRICES, attempts=5)
    assert (reply.text, len(server.requests)) == ("forty-two", 4)
    assert reply.usage.unread_usd == pytest.approx(MOST + TOLD)
    assert reply.usage.cost_usd == pytest.approx(MOST + 2 * TOLD)
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (22, 14), "those that were told"
    uncounted = (respond(b'{"choices": [{"finish_reason": "stop", "message": {"content": "x"}}]}'),)
    reply, _ = talk(CUT, uncounted, **PRICES)
    assert reply.usage.cost_usd is None
    assert reply.usage.at_most_usd == pytest.approx(2 * MOST)


def test_an_answer_that_cannot_be_read_in_the_same_way_is_asked_for_twice_at_most() -> None:
    reply, server = talk(CUT, NAN, CUT, ok(), **PRICES)
    assert len(server.requests) == 3
    assert "tried 3 times" in why(reply)


@pytest.mark.parametrize(("budget", "requests"), [(None, 2), (2.0, 2), (1.9, 1), (1.0, 1)])
def test_a_call_is_made_again_only_where_one_more_fits_what_it_may_cost(
    budget: float | None, requests: int
) -> None:
    with hosting(CUT, **PRICES) as (pool, server):
        [(_, reply)] = pool.ask([ask(budget_usd=budget and budget * MOST)])
    assert len(server.requests) == requests
    assert reply.usage.cost_usd == pytest.approx(requests * MOST)
    # What served nothing is asked again whatever is left.
    with hosting(fail(503), fail(503), ok(), **PRICES) as (pool, server):
        [(_, reply)] = pool.ask([ask(budget_usd=MOST)])
    assert (reply.text, len(server.requests)) == ("fine", 3)


def test_a_call_that_is_cut_off_at_its_deadline_may_be_billed() -> None:
    late, _ = talk((5.0,), **PRICES, timeout_s=0.3)
    assert "took longer" in why(late)
    assert late.usage.cost_usd == pytest.approx(MOST)
    waiting, _ = talk(fail(429, Retry_After="0.2"), **PRICES, timeout_s=0.3)
    assert why(waiting)
    assert waiting.usage.cost_usd == 0.0, "nothing was under way"


def test_a_filtered_prompt_is_paid_for_and_is_the_models_own() -> None:
    for reason in ("content_filter", "sensitive", "SAFETY"):
        reply, server = talk(ok("", finish_reason=reason), **PRICES)
        assert reply.error is not None
        assert (reply.error.kind, reply.finish_reason, len(server.requests)) == ("model", "content_filter", 1)
        assert reply.usage.cost_usd == pytest.approx(TOLD)
        assert reply.usage.unread_usd == 0.0


# Failures that are told within a success


def test_a_failed_finish_is_tried_again_and_its_words_are_shown() -> None:
    body = json.loads(chat("", finish_reason="error"))
    body["choices"][0]["error"] = {"code": 502, "message": "upstream died"}
    failed = (respond(json.dumps(body).encode()),)
    reply, server = talk(failed, **PRICES)
    assert "upstream died" in why(reply)
    assert reply.error is not None
    assert (reply.error.kind, len(server.requests)) == ("infrastructure", 4)
    assert talk(failed, ok())[0].text == "fine"


def test_too_many_requests_within_a_success_are_waited_for() -> None:
    reply, server = talk(BUSY, BUSY, ok(), attempts=1)
    assert (reply.text, len(server.requests)) == ("fine", 3)
    worded = (respond(b'{"error": {"message": "Rate limit reached, please try again in 300ms"}}'),)
    reply, server = talk(worded, ok(), attempts=1)
    assert reply.text == "fine"
    assert reply.latency_s >= 0.3


def test_a_model_without_a_system_role_says_which_field_mends_it() -> None:
    def answer(request: Request) -> Answer:
        roles = [one["role"] for one in request.body["messages"]]
        return fail(400, "System role not supported") if "system" in roles else ok("4")

    from core.pool.pool import check_pool

    with faulty_server(answer) as server:
        pool = HttpPool([entry(server, "plain"), entry(server, "told", system_role=False)], limits=QUICK)
        replies: dict[str, Reply] = dict(check_pool(pool))
        pool.close()
    assert "set system_role = false in its entry of the pool file" in why(replies["plain"])
    assert replies["told"].text == "4"
    assert len(server.requests) == 2
