"""How near to a provider's permitted rate do calls come that do not know it, however it refuses and fails?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import mean

import pytest

from core.pool.spec import Service
from core.pool.throttle import Throttle
from tests.core.pool.simulated import Course, Provider, Refuses, bucket, played, run, simulated_loop, window

SIX = partial(window, seconds=6.0)
MINUTE = partial(window, seconds=60.0, fixed=True)


def courses(
    refuses: Callable[[float], Refuses],
    per_second: float,
    episodes: int,
    *,
    at_once: int = 24,
    timeout_s: float = 6.0,
    faulty: bool = False,
    says_when: float = 0.5,
    slower: float = 1.0,
    seeds: int = 6,
) -> list[Course]:
    """The same for several seeds."""
    found = []
    for seed in range(seeds):
        with simulated_loop() as loop:
            behind = Provider(loop, refuses(per_second), faulty, says_when, slower, seed)
            found.append(played(behind, episodes, at_once=at_once, each=at_once // 4, timeout_s=timeout_s))
    return found


@pytest.mark.parametrize("episodes", [36, 120])
def test_faults_that_are_not_about_the_rate_do_not_lower_it(episodes: int) -> None:
    """The time is near to what the permitted rate allows for what was answered and for what faults made to be asked
    again, and calls are lost to faults alone."""
    found = courses(bucket, 10.0, episodes, faulty=True)
    assert mean(one.ratio(10.0, forced=True) for one in found) < 1.15
    assert mean(one.ratio(10.0, forced=False) for one in found) < 1.25
    for one in found:
        # One of the first burst may be refused, then fail, and find no time for another try.
        assert one.lost <= one.calls["hang"] + 1


@pytest.mark.parametrize("says_when", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("refuses", [bucket, partial(window, seconds=1.0), SIX])
def test_a_rate_is_learned_whatever_the_server_says(
    refuses: Callable[[float], Refuses], says_when: float
) -> None:
    found = courses(refuses, 10.0, 120, says_when=says_when, timeout_s=20.0)
    assert mean(one.ratio(10.0, forced=False) for one in found) < 1.15
    assert sum(one.lost for one in found) == 0
    assert sum(one.calls["429"] for one in found) < 0.15 * sum(one.calls.total() for one in found)


@pytest.mark.parametrize(
    ("per_second", "episodes", "at_once", "slower"), [(1.2, 60, 24, 1), (40, 400, 200, 1), (10, 200, 200, 40)]
)
def test_slow_and_fast_limits_and_slow_models(
    per_second: float, episodes: int, at_once: int, slower: float
) -> None:
    found = courses(bucket, per_second, episodes, at_once=at_once, timeout_s=120.0, slower=slower)
    assert mean(one.ratio(per_second, forced=False) for one in found) < (1.15 if slower == 1 else 1.35)
    assert sum(one.lost for one in found) == 0


def test_a_quota_of_a_minute_that_is_used_up_does_not_slow_the_next_one() -> None:
    found = courses(MINUTE, 10.0, 600, timeout_s=120.0, says_when=0.0, seeds=2)
    assert mean(one.ratio(10.0, forced=False) for one in found) < 1.05
    assert sum(one.lost for one in found) == 0


def test_a_pause_holds_for_those_who_wait_and_refused_calls_go_first() -> None:
    with simulated_loop() as loop:
        throttle, order = Throttle(Service("p", requests_per_minute=60), loop.time), list[tuple[str, float]]()

        async def call(name: str, *, again: bool = False) -> None:
            order.append((name, await throttle.turn(1, again=again) - 1000.0))

        async def calls() -> None:
            waiting = [loop.create_task(call(name)) for name in "abc"]
            await waiting[0]
            throttle.too_many(2.5, 1000.0)
            await loop.create_task(call("a", again=True))
            for one in waiting:
                await one

        run(loop, calls())
    assert [name for name, _ in order] == ["a", "b", "a", "c"]
    assert [at for _, at in order] == pytest.approx([0.0, 2.5, 3.5, 4.5])
