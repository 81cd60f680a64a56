"""One call, or one stream, to a server with given answers, through a real HttpPool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from core.episode import Ask, Message, Reply, Role
from core.pool.client import Limits
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import Answer, FaultyServer, Request, faulty_server

CANARY = "sk-canary-5a71c2e09b-DO-NOT-LEAK"
QUICK = Limits(wait_initial_s=0.01, wait_max_s=0.05)


def ask(model: str = "m", text: str = "hi", **limits: Any) -> Ask:
    return Ask(model, Role.WORKER, (Message("user", text),), **limits)


def entry(server: FaultyServer, name: str = "m", **fields: Any) -> ModelSpec:
    return ModelSpec(name, **{"base_url": server.url, "timeout_s": 10.0, **fields})


@contextmanager
def hosting(
    *answers: Answer | Callable[[Request], Answer],
    names: Sequence[str] = ("m",),
    limits: Limits = QUICK,
    encrypted: bool = False,
    **fields: Any,
) -> Iterator[tuple[HttpPool, FaultyServer]]:
    """A pool of models behind one server with these answers, whose key is the canary."""
    with faulty_server(*answers, encrypted=encrypted) as server:
        pool = HttpPool([entry(server, name, **fields) for name in names], {"KEY": CANARY}, limits)
        try:
            yield pool, server
        finally:
            pool.close()


def talk(
    *answers: Answer | Callable[[Request], Answer], asked: Ask | None = None, **fields: Any
) -> tuple[Reply, FaultyServer]:
    """One ask to a server with these answers."""
    with hosting(*answers, **fields) as (pool, server):
        [(_, reply)] = pool.ask([asked or ask()])
    return reply, server


def stream(*answers: Answer, **fields: Any) -> tuple[list[str], Reply, FaultyServer]:
    with hosting(*answers, **fields) as (pool, server):
        *pieces, reply = pool.stream(ask())
    assert isinstance(reply, Reply)
    return [piece for piece in pieces if isinstance(piece, str)], reply, server


def why(reply: Reply) -> str:
    assert reply.error is not None, reply
    assert reply.text == ""
    return reply.error.message


def left(server: FaultyServer, hang_ups: int) -> bool:
    until = time.monotonic() + 3
    while server.hang_ups < hang_ups and time.monotonic() < until:
        time.sleep(0.01)
    return server.hang_ups == hang_ups
