"""A pool in front of a pool that pays for each distinct call once."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from core.episode import Ask, Reply
from core.pool.pool import Flight, FlightPool, Pool, WrappedFlight, closing, entry, flight_of
from core.pool.spec import ModelSpec

#: Replies are handed to a ledger when so many wait, or when the first of them has waited so long.
_HANDED_OVER, _HANDED_OVER_S = 64, 0.25


class ReplyLedger(Protocol):
    """Where replies outlive the process that paid for them."""

    def recall(self) -> Iterable[tuple[bytes, Reply]]:
        """What was kept, by the key of its call."""

    def keep(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Keep these as well, each with the key of its call."""


class ReplyShelf(Protocol):
    """Replies that other runs have got."""

    def find(self, spec: ModelSpec, key: bytes) -> Reply | None:
        """This model's reply to the call with this key, marked as reused; None where there is none."""


def call_key(spec: ModelSpec, ask: Ask) -> bytes:
    """What calls that get the same reply of this model have in common. At temperature 0 there is no chance: draws that
    are told apart by seed and sample are one."""
    temperature = float(spec.temperature if ask.temperature is None else ask.temperature)
    has_chance = temperature > 0 or not spec.send_temperature
    call = (
        ask.model,
        [message.parts for message in ask.messages],
        temperature,
        spec.max_tokens if ask.max_tokens is None else ask.max_tokens,
        *((ask.seed, ask.sample) if has_chance else ()),
        *([ask.tools] if ask.tools else []),
        *(["must call"] if ask.must_call else []),
        *([ask.answer_format] if ask.answer_format else []),
        *([] if ask.may_call else ["may not call"]),
        *([f"top_p {ask.top_p}"] if ask.top_p is not None else []),
        # A recorded model has one prompt for all roles.
        *([f"{ask.role} {ask.judged}"] if spec.dialect == "recorded" else []),
    )
    return hashlib.blake2b(repr(call).encode(errors="surrogatepass"), digest_size=20).digest()


class CachedPool(FlightPool):
    """Remembers replies by their `call_key`, in memory, the least recently used dropped beyond `max_entries`, and in a
    `ledger` where there is one. A hit repeats the reply as it was, usage included, so that an episode reads the same
    whether or not another came first. Failures are not remembered.

    What is not remembered is looked for on the `shelf`, where there is one."""

    def __init__(
        self,
        pool: Pool,
        max_entries: int = 100_000,
        ledger: ReplyLedger | None = None,
        shelf: ReplyShelf | None = None,
    ) -> None:
        self.specs = pool.specs
        self._pool = pool
        self.by_name = {spec.name: spec for spec in pool.specs}
        self._ledger = ledger
        self._shelf = shelf
        self._replies = OrderedDict(ledger.recall() if ledger else ())
        self._max_entries = max_entries
        self.fresh: list[tuple[bytes, Reply]] = []  # not yet in the ledger
        self._fresh_since = 0.0
        self.hits = 0
        self.misses = 0

    def flight(self) -> _CachedFlight:
        """Calls under way; a remembered one is ready at once, equal ones are asked once."""
        return _CachedFlight(self, flight_of(self._pool))

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Stream from the pool behind, or yield a remembered reply at once."""
        key = call_key(entry(self.by_name, ask.model), ask)
        if (known := self.recall(ask, key)) is not None:
            yield known.text
            yield known
            return
        self.misses += 1
        with closing(self._pool.stream(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    self.remember(key, piece)
                    self.hand_over()
                yield piece

    def recall(self, ask: Ask, key: bytes) -> Reply | None:
        """The reply of a call with this key, where it is remembered or on the shelf."""
        reply = self._replies.get(key)
        if reply is not None:
            self._replies.move_to_end(key)
        elif self._shelf is not None:
            reply = self._shelf.find(self.by_name[ask.model], key)
            if reply is not None:
                self.remember(key, reply)
        if reply is not None:
            self.hits += 1
        return reply

    def remember(self, key: bytes, reply: Reply) -> None:
        """Keep the reply of such a call, unless it is a failure."""
        if reply.error is not None:
            return
        self._replies[key] = reply
        if len(self._replies) > self._max_entries:
            self._replies.popitem(last=False)
        if self._ledger is None or reply.recorded is not None:  # recorded ones are kept already
            return
        if not self.fresh:
            self._fresh_since = time.monotonic()
        self.fresh.append((key, reply))
        if len(self.fresh) >= _HANDED_OVER or time.monotonic() - self._fresh_since >= _HANDED_OVER_S:
            self.hand_over()

    def hand_over(self) -> None:
        """Give what came to the ledger."""
        if self._ledger is not None and self.fresh:
            fresh, self.fresh = self.fresh, []
            self._ledger.keep(fresh)


class _CachedFlight(WrappedFlight):
    """The flight of a cached pool over that of the pool behind."""

    def __init__(self, pool: CachedPool, behind: Flight) -> None:
        super().__init__(behind)
        self._pool = pool
        self._known: list[tuple[int, Reply]] = []
        self._waiting: dict[bytes, list[int]] = {}  # numbers of equal calls under way
        self._keys: list[bytes] = []  # of the calls behind, by their numbers there
        self._added = 0

    @property
    def under_way(self) -> int:
        return len(self._known) + sum(map(len, self._waiting.values()))

    def add(self, asks: Sequence[Ask]) -> None:
        keys = [call_key(entry(self._pool.by_name, ask.model), ask) for ask in asks]
        known = [self._pool.recall(ask, key) for ask, key in zip(asks, keys, strict=True)]
        unknown = {key: ask for key, ask, reply in zip(keys, asks, known, strict=True) if reply is None}
        fresh = {key: ask for key, ask in unknown.items() if key not in self._waiting}
        if fresh:
            self._behind.add([*fresh.values()])
        self._keys += fresh
        for number, (key, reply) in enumerate(zip(keys, known, strict=True), start=self._added):
            if reply is not None:
                self._known.append((number, reply))
            else:
                self._waiting.setdefault(key, []).append(number)
        self._added += len(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        known, self._known = self._known, []
        yield from known
        try:
            for place, reply in self._behind.ready(wait=wait and not known):
                numbers = self._waiting.pop(self._keys[place], [])  # nobody, where all have given it up
                self._pool.hits += max(0, len(numbers) - 1)
                self._pool.misses += 1
                self._pool.remember(self._keys[place], reply)
                for number in numbers:
                    yield number, reply
        finally:
            if self._pool.fresh:
                self._pool.hand_over()

    def cancel(self, number: int) -> None:
        """Give up one call; it goes on behind where an equal one waits for it too."""
        self._known = [one for one in self._known if one[0] != number]
        for key, numbers in [*self._waiting.items()]:
            if number in numbers:
                numbers.remove(number)
                if not numbers:
                    del self._waiting[key]
                    # The latest of them: earlier ones may have been given up before.
                    self._behind.cancel(len(self._keys) - 1 - self._keys[::-1].index(key))
