"""How fast a provider may be asked: the rates that it allows, and what its "too many requests" teach.

Calls take turns. What is known beforehand (requests and tokens a minute) is kept to from the first call on. What is not
is learned: each 429 lowers the rate to a part of what just went through, and it grows again slowly while all goes well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

#: After a 429, the rate is this part of the one that went through.
DECREASE = 0.85
#: While all goes well, the rate grows each second by this part of the one that went through; after PATIENCE_S twice as
#: fast, after twice that three times, for a limit that was lifted.
INCREASE, PATIENCE_S = 0.012, 20.0
#: The rate after a 429 before any call went through, a guess: it grows each second by this factor until it is too high.
UNKNOWN, GROWTH = 5.0, 2.0
#: No provider is asked more seldom than this, in requests a second.
SLOWEST = 0.05
#: After a 429 nobody asks for twice so long, after the next for four times so long, and so on up to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 10.0
#: So long back the calls that went through are counted to tell the rate, in seconds; after a guess, which grew fast.
WINDOW_S, GUESSED_WINDOW_S = 5.0, 1.0


@dataclass(frozen=True, slots=True)
class Service:
    """A provider whose models share limits: calls in flight at once, requests and tokens a minute; None: unknown."""

    name: str
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass
class Throttle:
    """The pace of the calls to one provider, in the event loop that makes them. `clock` gives seconds."""

    service: Service
    clock: Callable[[], float] = time.monotonic
    slots: asyncio.Semaphore | None = field(init=False)
    _rate: float | None = field(
        default=None, init=False
    )  # requests a second, as learned; None: no limit seen
    _limit: float = field(default=0.0, init=False)  # the rate that went through when it was too high last
    _guessed: bool = field(default=False, init=False)  # whether the rate is a guess
    _next: float = field(default=0.0, init=False)  # when the next call may begin
    _tokens_from: float = field(default=0.0, init=False)
    _lowered: float = field(default=-1e9, init=False)
    _raised: float = field(default=0.0, init=False)
    _in_vain: int = field(default=0, init=False)  # pauses since a call went through
    _quiet_until: float = field(default=0.0, init=False)  # the end of the last one
    _through: deque[float] = field(default_factory=lambda: deque(maxlen=1000), init=False)

    def __post_init__(self) -> None:
        most = self.service.concurrency
        self.slots = None if most is None else asyncio.Semaphore(most)

    async def turn(self, tokens: float) -> None:
        """Wait until a call of about so many tokens may begin; calls begin in the order in which they ask."""
        wait = self.reserve(tokens) - self.clock()
        if wait > 0:
            await asyncio.sleep(wait)

    def reserve(self, tokens: float) -> float:
        """When a call of about so many tokens may begin, on the clock."""
        now = self.clock()
        at = max(now, self._next, self._tokens_from)
        if (rate := self.rate) is not None:
            self._next = at + 1 / rate
        if self.service.tokens_per_minute is not None:
            self._tokens_from = at + 60 * tokens / self.service.tokens_per_minute
        return at

    @property
    def rate(self) -> float | None:
        """Requests a second, None where no limit is known."""
        known = [] if self._rate is None else [self._rate]
        if self.service.requests_per_minute is not None:
            known.append(self.service.requests_per_minute / 60)
        return min(known, default=None)

    def used(self, guessed: float, tokens: float) -> None:
        """A call that was reckoned at `guessed` tokens took so many."""
        if self.service.tokens_per_minute is not None:
            self._tokens_from += 60 * (tokens - guessed) / self.service.tokens_per_minute

    def went_through(self) -> None:
        """A call was answered."""
        now = self.clock()
        self._through.append(now)
        self._in_vain = 0
        if self._rate is None:
            return
        elapsed, self._raised = min(now - self._raised, 1.0), now
        if self._guessed:
            self._rate *= GROWTH**elapsed
            return
        self._rate += INCREASE * self._limit * elapsed * (1 + (now - self._lowered) // PATIENCE_S)

    def too_many(self, wait_s: float | None) -> float:
        """A call was refused with 429, which asks to wait so long (None: it does not say). How long to wait before it
        is made again, in seconds."""
        now = self.clock()
        if wait_s is not None:  # the provider says it better than it can be learned
            self._next = max(self._next, now + wait_s)
            return wait_s
        # Calls that were under way together are refused together: that is one lesson.
        if now - self._lowered > 1.0:
            window = GUESSED_WINDOW_S if self._guessed else WINDOW_S
            recent = [at for at in self._through if now - at <= window]
            through = len(recent) / min(window, max(1.0, now - min(self._through, default=now)))
            known = UNKNOWN if self._rate is None else self._rate
            if recent:
                self._limit = max(SLOWEST, through if self._rate is None else min(through, known))
                self._rate = DECREASE * self._limit
            else:  # nothing went through from which it could be told
                self._limit = self._rate = known
            self._guessed = not recent
            self._lowered = self._raised = now
        # Nothing goes through at all for a while: ask ever more seldom. Who is refused during a pause asked before it.
        if now >= self._quiet_until:
            self._in_vain += 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._in_vain, 20))
            self._quiet_until = now + max(pause, 1 / (self._rate or 1.0))
        self._next = max(self._next, self._quiet_until)
        return 0.0  # it takes its turn again
