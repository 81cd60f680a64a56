"""How fast a provider may be asked: the rates that it allows, and what its "too many requests" teach.

Calls take turns. What is known beforehand (requests and tokens a minute) is kept to from the first call on. What is not
is learned: a 429 lowers the rate to a part of what just went through, and it grows again slowly while all goes well and
calls wait for their turn. No other failure lowers it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from core.pool.spec import Service

#: After a 429, the rate is this part of the one that went through. That one is taken for LEAST of the rate before at
#: least, as what is counted in a short time may be far off, and for UNTOLD of it where it cannot be told.
DECREASE, LEAST, UNTOLD = 0.95, 0.4, 0.85
#: While all goes well, the rate grows each second by this part of the one that went through; after PATIENCE_S twice as
#: fast, after twice that three times, for a limit that was lifted.
INCREASE, PATIENCE_S = 0.012, 20.0
#: The rate after the first 429, a guess: it grows each second by this factor until it is too high.
UNKNOWN, GROWTH = 5.0, 2.0
#: For one answer the rate grows by so many seconds at most.
LONGEST_GROWTH_S = 0.5
#: No provider is asked more seldom than this, in requests a second.
SLOWEST = 0.05
#: After a 429 nobody asks for twice so long, after the next for four times so long, and so on up to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 10.0
#: So long back the calls that went through are counted to tell the rate, in seconds; after a guess, which grew fast.
WINDOW_S, GUESSED_WINDOW_S = 5.0, 1.0
#: The newest calls are not counted: a refusal of them may be under way.
SETTLED_S = 0.1
#: The rate can be told from so many seconds, in all of which calls waited for their turn.
TOLD_S = 0.9
#: A call that begins so much later than it might, as the machine was busy, does not delay the next one.
LATE_S = 0.02


@dataclass
class Throttle:
    """The pace of the calls to one provider, in the event loop that makes them. `clock` gives seconds."""

    service: Service
    clock: Callable[[], float] = time.monotonic
    slots: asyncio.Semaphore | None = field(init=False)
    # Requests a second, as learned; None: no limit seen.
    _rate: float | None = field(default=None, init=False)
    _limit: float = field(default=0.0, init=False)  # the rate that went through when it was too high last
    _guessed: bool = field(default=False, init=False)  # whether the rate is a guess
    _next: float = field(default=0.0, init=False)  # when the next call may begin
    _tokens_from: float = field(default=0.0, init=False)
    _waited_since: float = field(default=0.0, init=False)  # since then there was always a call that waited
    _binds: bool = field(default=False, init=False)  # whether the last call had to wait
    _lowered: float = field(default=-1e9, init=False)
    _raised: float = field(default=0.0, init=False)
    _in_vain: int = field(default=0, init=False)  # pauses since a call went through
    _quiet_until: float = field(default=0.0, init=False)  # the end of the last one
    _begun: deque[float] = field(default_factory=lambda: deque(maxlen=1000), init=False)  # and not refused
    _line: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _first_tries: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        most = self.service.concurrency
        self.slots = None if most is None else asyncio.Semaphore(most)

    async def turn(self, tokens: float, *, again: bool = False) -> float:
        """Wait until a call of about so many tokens may begin, and tell when it does; calls begin in the order in which
        they ask, but those that are made `again` before all others."""
        async with nullcontext() if again else self._first_tries, self._line:
            while (wait := max(self._next, self._tokens_from) - self.clock()) > 0:
                await asyncio.sleep(wait)
            return self.reserve(tokens)

    def reserve(self, tokens: float) -> float:
        """When a call of about so many tokens may begin, on the clock."""
        now, may = self.clock(), max(self._next, self._tokens_from)
        at = max(may, now - LATE_S)
        if at > may:  # nobody had to wait
            at = self._waited_since = now
        self._binds = at <= may
        if (rate := self.rate) is not None:
            self._next = at + 1 / rate
        if self.service.tokens_per_minute is not None:
            self._tokens_from = at + 60 * tokens / self.service.tokens_per_minute
        self._begun.append(at)
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
        now, in_vain = self.clock(), self._in_vain
        elapsed, self._raised, self._in_vain = min(now - self._raised, LONGEST_GROWTH_S), now, 0
        if self._rate is None or in_vain or not self._binds:  # not known whether more would be let through
            return
        if self._guessed:
            self._rate *= GROWTH**elapsed
            return
        self._rate += INCREASE * self._limit * elapsed * (1 + (now - self._lowered) // PATIENCE_S)

    def too_many(self, wait_s: float | None, begun: float) -> float:
        """A call that had begun then was refused with 429, which asks to wait so long (None: it does not say). How long
        to wait before it is made again, in seconds."""
        now = self.clock()
        if begun in self._begun:
            self._begun.remove(begun)
        # Calls that were under way together are refused together: that is one lesson. And none while nothing at all is
        # let through.
        if begun > self._lowered and (self._rate is None or any(at > self._lowered for at in self._begun)):
            self._learn(begun)
            self._lowered = self._raised = now
        if wait_s is not None:  # the provider says it better than it can be learned
            self.pause(wait_s)
            return wait_s
        # Nothing goes through at all for a while: ask ever more seldom. Who is refused during a pause asked before it.
        if now >= self._quiet_until:
            self._in_vain += 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._in_vain, 20))
            self._quiet_until = now + max(pause, 1 / (self._rate or 1.0))
        self._next = max(self._next, self._quiet_until)
        return 0.0  # it takes its turn again

    def pause(self, wait_s: float) -> None:
        """Let no call begin for so long."""
        self._next = max(self._next, self.clock() + wait_s)

    def _learn(self, begun: float) -> None:
        """Take the rate for too high at which a refused call had begun."""
        last = begun - SETTLED_S
        first = last - (GUESSED_WINDOW_S if self._guessed else WINDOW_S)
        if self._rate is None:  # nobody had to wait yet: far more may be permitted than was asked for
            self._rate = self._limit = max(UNKNOWN, self._let_through(first, last) / WINDOW_S)
            self._guessed = True
            return
        through, first = UNTOLD * self._rate, max(first, self._waited_since, self._lowered)
        if last - first >= TOLD_S:
            through = self._let_through(first, last) / (last - first)
            self._guessed = False
        self._limit = min(max(through, LEAST * self._rate), self._rate)
        self._rate = max(SLOWEST, DECREASE * self._limit)

    def _let_through(self, first: float, last: float) -> int:
        """How many calls began after `first`, until `last`, and were not refused."""
        return sum(first < at <= last for at in self._begun)
