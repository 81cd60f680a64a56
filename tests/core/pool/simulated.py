"""A provider and its clients on a clock that runs as fast as the machine can: episodes of calls, limits and faults."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from core.episode import Ask, Failure, Message, Role
from core.pool.client import CallFailed, ChatClient, Limits, Progress, infrastructure
from core.pool.costs import Counts
from core.pool.hosted import Endpoint
from core.pool.spec import ModelSpec, Service
from core.pool.throttle import Throttle
from core.pool.wire import Completion
from tests.builders.own_models import BURST_S, FAULTS, MODELS

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
            reply = await endpoint.reply(Ask(endpoint.spec.name, Role.WORKER, (Message("user", "hi"),)))
            if reply.error is not None:
                lost += 1
                return

    async def all_of_them() -> None:
        await asyncio.gather(*(episode() for _ in range(episodes)))

    began = loop.now
    run(loop, all_of_them())
    times = [at for at, _ in provider.calls]
    return Course(max(times) - began, Counter(fault for _, fault in provider.calls), lost)
