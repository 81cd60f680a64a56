"""The fault matrix: whatever a server does wrong, a call recovers where another try may succeed, else it is a failure
in one sentence; no part of a text is taken for a reply, nobody is asked more than needed, and the deadline holds."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from threading import Thread, Timer

import pytest

from core.episode import Reply
from core.pool.hosted import RETRY_QUOTA, HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faults import (
    CUTS,
    TEXT,
    TIMEOUT_S,
    End,
    accepted,
    broken_promises,
    cuts,
    damaged,
    faults,
    good,
    meet,
)
from tests.core.pool.faulty_server import (
    LOOPBACK,
    QUICK,
    Answer,
    Request,
    ask,
    entry,
    fail,
    faulty_server,
    hosting,
    ok,
    respond,
    stream_head,
    talk,
    why,
)

pytestmark = pytest.mark.integration


#: How much later than its deadline a call may end on a busy machine, in seconds; `trinity bench soak` measures it.
LATE_S = 1.0
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@BOTH
def test_every_fault_ends_as_it_should(streamed: bool) -> None:
    calls = meet(product(faults(streamed), (False, True)))
    assert [broken for call in calls for broken in broken_promises(call)] == []
    assert max(call.took_s for call in calls) < TIMEOUT_S + LATE_S
    late = [call for call in calls if call.fault.end is End.LATE]
    assert all(call.reply.latency_s >= TIMEOUT_S for call in late)
    passing = [call for call in calls if not call.lasting]
    assert sum(call.requests for call in passing) <= 1.1 * sum(call.ideal_requests for call in passing)


@BOTH
@pytest.mark.parametrize("mode", CUTS)
def test_no_part_of_a_text_is_a_reply_wherever_it_is_cut(mode: str, streamed: bool) -> None:
    cut = cuts(mode, streamed)
    replies = accepted(cut, streamed)
    assert len(cut) > 50
    assert {(one.text, one.error) for one in replies} <= {(TEXT, None)}
    # Of a stream, line ends and the last chunk may be missing: they follow "[DONE]".
    assert len(replies) <= (8 if streamed else 0)


@BOTH
def test_noise_is_a_failure_and_never_an_exception(streamed: bool) -> None:
    replies = accepted([*damaged(150, streamed)], streamed)
    assert [one for one in replies if one.error is not None] == []


@BOTH
def test_a_connection_whose_encryption_breaks_is_made_anew(streamed: bool) -> None:
    head = stream_head() if streamed else respond(b"", sized=False)
    broken: list[Answer] = [("noise",), (head, 0.05, "noise"), good(streamed)]
    with hosting(*broken, encrypted=True, ca_file=str(LOOPBACK)) as (pool, server):
        *_, reply = pool.stream(ask()) if streamed else next(pool.ask([ask()]))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.error, len(server.requests)) == (TEXT, None, 3)


def test_certificates_that_are_not_trusted_are_not_accepted() -> None:
    with hosting(ok(), encrypted=True, attempts=1) as (pool, server):
        [(_, reply)] = pool.ask([ask()])
        assert "certificate" in why(reply)
        assert server.requests == []


def test_what_a_server_says_is_never_sent_back_to_it() -> None:
    [*_, answer] = ok()
    assert isinstance(answer, bytes)
    cookie = answer.replace(b"\r\n", b"\r\nSet-Cookie: who=you; Path=/\r\n", 1)
    with hosting((cookie,)) as (pool, server):
        assert [reply.text for _ in range(2) for _, reply in pool.ask([ask()])] == ["fine"] * 2
    assert [request.headers.get("cookie") for request in server.requests] == [None, None]


# Where there is no connection


def test_a_server_that_comes_up_between_two_tries_is_reached() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # and does not listen: to connect is refused

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"".join(step for step in ok(TEXT) if isinstance(step, bytes)))

        listening = Timer(0.2, listener.listen)
        listening.start()
        spec = ModelSpec("m", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", attempts=10)
        pool = HttpPool([spec], limits=QUICK)
        replies = pool.ask([ask()])
        listening.join()
        Thread(target=serve, daemon=True).start()
        assert [reply.text for _, reply in replies] == [TEXT]
        pool.close()


@contextmanager
def _full() -> Iterator[str]:
    """The address of a server that has no room for another connection: to connect takes for ever."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        time.sleep(0.05)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for one in waiting:
            one.close()


def test_a_connection_that_takes_for_ever_is_cut_at_the_deadline() -> None:
    with _full() as url:
        pool = HttpPool([ModelSpec("m", base_url=url, timeout_s=TIMEOUT_S)], limits=QUICK)
        began = time.monotonic()
        [(_, reply)] = pool.ask([ask()])
        assert TIMEOUT_S <= time.monotonic() - began < TIMEOUT_S + LATE_S
        assert why(reply)
        pool.close()


def test_the_deadline_says_what_went_before_it() -> None:
    reply, _ = talk(fail(500, "disk on fire"), (5.0,), timeout_s=0.5)
    assert "longer than 0.5 s" in why(reply)
    assert "disk on fire" in why(reply)


# Many calls


def test_an_outage_does_not_become_a_storm_of_two_clients() -> None:
    calls = 100
    with faulty_server(fail(503)) as server:
        pools = [HttpPool([entry(server, timeout_s=30.0)], limits=QUICK) for _ in range(2)]
        asked = [pool.ask([ask()] * calls) for pool in pools]
        assert all(reply.error for replies in asked for _, reply in replies)
        for pool in pools:
            pool.close()
    assert len(server.requests) <= len(pools) * (calls + RETRY_QUOTA)


@pytest.mark.parametrize("says", [{}, {"Retry_After": "0.1"}], ids=["in silence", "in words"])
def test_two_clients_under_one_limit_lose_no_call(says: dict[str, str]) -> None:
    """Fifty calls a second are let through, and others are told how long to wait or are not."""
    answered: list[float] = []

    def limited(_: Request) -> Answer:
        now = time.monotonic()
        if sum(now - at < 0.2 for at in answered) >= 10:
            return fail(429, **says)
        answered.append(now)
        return ok()

    with faulty_server(limited) as server:
        pools = [HttpPool([entry(server, attempts=2, timeout_s=30.0)], limits=QUICK) for _ in range(2)]
        asked = [pool.ask([ask(text=str(n)) for n in range(8)]) for pool in pools]
        assert [reply.error for replies in asked for _, reply in replies] == [None] * 16
        for pool in pools:
            pool.close()
    assert len(server.requests) <= 2 * 16
