"""A provider's limits: kept to where they are known, and learned where they are not, with few calls in vain, however it
refuses and fails. A provider and its clients are simulated on a clock that runs as fast as the machine can."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from core.episode import Failure
from core.pool.client import CallFailed, ChatClient, Limits, Progress, infrastructure
from core.pool.costs import Counts
from core.pool.hosted import Endpoint, HttpPool
from core.pool.spec import ModelSpec, Service
from core.pool.throttle import Throttle
from core.pool.wire import Completion
from core.pool_file import load_specs
from tests.builders.own_models import BURST_S, FAULTS, MODELS
from tests.core.pool.faulty_server import ask, faulty_server, ok

REPLY = Completion("x", counts=Counts(100, 100))
#: What a server needs to say that it is asked too often.
REFUSAL_S = 0.01


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for nothing: its clock goes on by itself."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self.now


class _NoWaiting(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


def run(loop: SimulatedLoop, what: Coroutine[Any, Any, None]) -> None:
    """Run it to its end in a thread of its own: in that of a test that drives a browser a loop may run already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(loop.run_until_complete, what).result()


@contextmanager
def simulated_loop() -> Iterator[SimulatedLoop]:
    """The loop, closed when the block ends."""
    loop = SimulatedLoop()
    try:
        yield loop
    finally:
        loop.close()


#: Whether a call at a time is refused.
Refuses = Callable[[float], bool]


def bucket(per_second: float) -> Refuses:
    """A bucket that fills at the permitted rate and holds BURST_S of it."""
    free_from = 0.0

    def refuses(now: float) -> bool:
        nonlocal free_from
        if free_from > now + BURST_S:
            return True
        free_from = max(free_from, now) + 1 / per_second
        return False

    return refuses


def window(per_second: float, seconds: float, *, fixed: bool = False) -> Refuses:
    """So many calls in any so many seconds, or in each such stretch of time."""
    let_through: list[float] = []

    def refuses(now: float) -> bool:
        since = now // seconds * seconds if fixed else now - seconds
        let_through[:] = [at for at in let_through if at > since]
        if len(let_through) >= per_second * seconds:
            return True
        let_through.append(now)
        return False

    return refuses


@dataclass
class Provider:
    """Seven models behind one limit, of which clients know the calls in flight alone. `says_when`: the share of
    refusals that say how long to wait."""

    loop: SimulatedLoop
    refuses: Refuses
    faulty: bool = False
    says_when: float = 0.5
    slower: float = 1.0
    seed: int = 0
    calls: list[tuple[float, str]] = field(default_factory=list)  # when, and what became of it

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    async def answer(self, seconds: tuple[float, float]) -> Completion:
        """Answer one call, or fail as servers do."""
        await asyncio.sleep(REFUSAL_S)
        if self.refuses(self.loop.now):
            self.calls.append((self.loop.now, "429"))
            wait_s = BURST_S if self.dice.random() < self.says_when else None
            failure = Failure("infrastructure", "429")
            raise CallFailed(failure, retry=True, busy=True, wait_s=wait_s)
        fault = self._fault()
        self.calls.append((self.loop.now, fault))
        await asyncio.sleep({"hang": 30.0, "drip": 0.9}.get(fault, self.slower * self.dice.uniform(*seconds)))
        if fault not in ("", "drip"):
            raise infrastructure(fault, retry=True)
        return REPLY

    def _fault(self) -> str:
        drawn = 100 * self.dice.random()
        for fault, hundredths in FAULTS.items() if self.faulty else ():
            drawn -= hundredths
            if drawn < 0:
                return fault
        return ""


class _Client(ChatClient):
    """A client that asks the provider directly."""

    def __init__(self, provider: Provider, seconds: tuple[float, float]) -> None:
        self._provider, self._seconds = provider, seconds

    async def call(self, body: Mapping[str, Any], on_piece: Callable[[str], None], _: Progress) -> Completion:
        return await self._provider.answer(self._seconds)


@dataclass(frozen=True, slots=True)
class Course:
    """What came of it: seconds until the last call began, calls by what became of them, replies that were lost."""

    seconds: float
    calls: Counter[str]
    lost: int

    def ratio(self, per_second: float, *, forced: bool) -> float:
        """The time taken, in parts of what the permitted rate allows for the answered calls, or with `forced` for those
        too that had to be made again because of a fault."""
        failed = sum(n for fault, n in self.calls.items() if fault not in ("", "drip", "429"))
        answered = self.calls[""] + self.calls["drip"]
        return self.seconds * per_second / (answered + failed * forced)


def played(
    provider: Provider,
    episodes: int,
    *,
    at_once: int = 24,
    each: int = 6,
    timeout_s: float = 6.0,
) -> Course:
    """Play episodes of two to five calls, one after the other, side by side, with at most so many calls in flight."""
    loop, dice, lost = provider.loop, random.Random(provider.seed), 0
    random.seed(provider.seed)  # of the pauses before another try
    throttle = Throttle(Service("provider", at_once), loop.time)
    endpoints = [
        Endpoint(
            ModelSpec(one.name, concurrency=each, timeout_s=timeout_s),
            _Client(provider, one.seconds),
            Limits(),
            throttle,
        )
        for one in MODELS
    ]

    async def episode() -> None:
        nonlocal lost
        for _ in range(dice.choice((2, 3, 4, 5, 5))):
            endpoint = dice.choice(endpoints)
            reply = await endpoint.reply(ask(endpoint.spec.name))
            if reply.error is not None:
                lost += 1
                return

    async def all_of_them() -> None:
        await asyncio.gather(*(episode() for _ in range(episodes)))

    began = loop.now
    run(loop, all_of_them())
    times = [at for at, _ in provider.calls]
    return Course(max(times) - began, Counter(fault for _, fault in provider.calls), lost)


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


@pytest.mark.integration
def test_models_of_a_provider_share_its_limits(tmp_path: Path) -> None:
    with faulty_server(ok()) as server:
        file = tmp_path / "pool.toml"
        file.write_text(
            f'[[provider]]\nname = "here"\nbase_url = "{server.url}"\nrequests_per_minute = 1200\nconcurrency = 2\n'
            '[[model]]\nname = "a"\nprovider = "here"\n[[model]]\nname = "b"\nprovider = "here"\n'
        )
        specs = load_specs(file)
        assert specs[0].base_url == server.url
        assert specs[0].service == specs[1].service == Service("here", 2, 1200.0)
        pool = HttpPool(specs, limits=Limits())
        began = time.monotonic()
        replies = list(pool.ask([ask("a" if n % 2 else "b", str(n)) for n in range(10)]))
        assert time.monotonic() - began >= 0.42  # ten calls, twenty a second
        assert len(replies) == 10
        assert server.most_in_flight <= 2
        pool.close()


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
    seeds: int = 3,
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


SECOND = partial(window, seconds=1.0)


@pytest.mark.parametrize(
    ("refuses", "says_when", "seeds"),
    [
        # From one seed to another these ratios differ by some hundredths: a window of six seconds has a long tail.
        *((bucket, says_when, 1) for says_when in (0.0, 0.5, 1.0)),
        *((SECOND, says_when, 1) for says_when in (0.0, 1.0)),
        *((SIX, says_when, seeds) for says_when, seeds in ((0.0, 2), (0.5, 6), (1.0, 2))),
    ],
)
def test_a_rate_is_learned_whatever_the_server_says(
    refuses: Callable[[float], Refuses], says_when: float, seeds: int
) -> None:
    found = courses(refuses, 10.0, 120, says_when=says_when, timeout_s=20.0, seeds=seeds)
    assert mean(one.ratio(10.0, forced=False) for one in found) < 1.15
    assert sum(one.lost for one in found) == 0
    assert sum(one.calls["429"] for one in found) < 0.15 * sum(one.calls.total() for one in found)


@pytest.mark.parametrize(
    ("per_second", "episodes", "at_once", "slower"), [(1.2, 60, 24, 1), (40, 400, 200, 1), (10, 200, 200, 40)]
)
def test_slow_and_fast_limits_and_slow_models(
    per_second: float, episodes: int, at_once: int, slower: float
) -> None:
    found = courses(bucket, per_second, episodes, at_once=at_once, timeout_s=120.0, slower=slower, seeds=1)
    assert mean(one.ratio(per_second, forced=False) for one in found) < (1.15 if slower == 1 else 1.35)
    assert sum(one.lost for one in found) == 0


@pytest.mark.integration
def test_a_burst_that_is_refused_before_anything_is_answered_is_one_lesson() -> None:
    """Sixty calls at once where fifty a second are let through: none waits for long for the rate to be learned."""
    found = courses(bucket, 50.0, 60, at_once=60, timeout_s=12.0, says_when=0.0, seeds=3)
    assert mean(one.ratio(50.0, forced=False) for one in found) < 2
    assert sum(one.lost for one in found) == 0


def test_a_quota_of_a_minute_that_is_used_up_does_not_slow_the_next_one() -> None:
    found = courses(MINUTE, 5.0, 300, timeout_s=120.0, says_when=0.0, seeds=1)
    assert mean(one.ratio(5.0, forced=False) for one in found) < 1.05
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
