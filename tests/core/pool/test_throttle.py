"""Are a provider's limits kept to where they are known, and learned where they are not, with few calls in vain?"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import pytest

from core.pool.client import Limits
from core.pool.hosted import HttpPool
from core.pool.spec import Service
from core.pool.throttle import Throttle
from core.pool_file import load_specs
from tests.core.pool.faulty_server import Answer, Request, fail, faulty_server, ok
from tests.core.pool.hosted_calls import ask, hosting


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_known_rates_space_the_calls() -> None:
    clock = Clock()
    paced = Throttle(Service("p", requests_per_minute=120), clock)
    assert [paced.reserve(1) - 100 for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    counted = Throttle(Service("p", tokens_per_minute=6000), clock)
    assert [counted.reserve(50) - 100 for _ in range(3)] == [0.0, 0.5, 1.0]
    counted.used(50, 150)  # it took more than was reckoned with
    assert counted.reserve(50) - 100 == pytest.approx(2.5)
    free = Throttle(Service("p"), clock)
    assert [free.reserve(10**6) - 100 for _ in range(3)] == [0.0] * 3


def test_a_burst_that_is_refused_before_anything_is_answered_is_one_lesson() -> None:
    """Thirty calls at once where fifty a second are let through, and each takes its time: none waits for long."""
    free_from = 0.0

    def limited(_: Request) -> Answer:
        nonlocal free_from
        now = time.monotonic()
        if free_from > now + 0.1:
            return fail(429, "slow down")
        free_from = max(free_from, now) + 1 / 50
        return (0.3, *ok())

    with hosting(limited, concurrency=30, attempts=2, timeout_s=8.0) as (pool, server):
        began = time.monotonic()
        replies = [reply for _, reply in pool.ask([ask(text=str(n)) for n in range(60)])]
        took = time.monotonic() - began
        assert [reply.error for reply in replies] == [None] * 60
        assert took < 12  # 1.2 seconds at the permitted rate, the first of them still to be learned


@pytest.mark.parametrize("latency_s", [0.1, 0.5])
def test_a_rate_that_was_only_guessed_soon_is_the_permitted_one(latency_s: float) -> None:
    """Forty a second by a window of a second, in which the first calls are all refused but for those under way."""
    clock = Clock()
    throttle = Throttle(Service("p"), clock)
    throttle.too_many(None, throttle.reserve(1))
    began, through, last, under_way = clock.now, 0, list[float](), deque[float]()
    while clock.now - began < 60:
        at = throttle.reserve(1)
        clock.now = max(clock.now + 1e-6, at)
        while under_way and under_way[0] <= clock.now:
            under_way.popleft()
            throttle.went_through()
        last = [at for at in last if clock.now - at < 1.0]
        if len(last) < 40:
            last.append(clock.now)
            under_way.append(clock.now + latency_s)
            through += 1
        else:
            throttle.too_many(None, at)
    assert through >= 0.75 * 60 * 40


def test_models_of_a_provider_share_its_limits(tmp_path: Path) -> None:
    with faulty_server(ok()) as server:
        file = tmp_path / "pool.toml"
        file.write_text(
            f'[[provider]]\nname = "here"\nbase_url = "{server.url}"\nrequests_per_minute = 600\nconcurrency = 2\n'
            '[[model]]\nname = "a"\nprovider = "here"\n[[model]]\nname = "b"\nprovider = "here"\n'
        )
        specs = load_specs(file)
        assert specs[0].base_url == server.url
        assert specs[0].service == specs[1].service == Service("here", 2, 600.0)
        pool = HttpPool(specs, limits=Limits())
        began = time.monotonic()
        replies = list(pool.ask([ask("a" if n % 2 else "b", str(n)) for n in range(10)]))
        assert time.monotonic() - began >= 0.85  # ten calls, ten a second
        assert len(replies) == 10
        assert server.most_in_flight <= 2
        pool.close()
