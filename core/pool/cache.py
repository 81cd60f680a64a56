"""A pool in front of a pool that pays for each distinct call once."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from core.episode import Ask, Reply
from core.pool.pool import Pool, closing

#: Replies are handed to a ledger when so many wait, or when the first of them has waited so long.
_HANDED_OVER, _HANDED_OVER_S = 64, 0.25


class ReplyLedger(Protocol):
    """Where replies outlive the process that paid for them."""

    def recall(self) -> Iterable[tuple[bytes, Reply]]:
        """What was kept, by the key of its call."""

    def keep(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Keep these as well, each with the key of its call."""


class CachedPool:
    """Remembers replies by (model, messages, temperature, max_tokens, seed, sample), in memory, the least recently used
    dropped beyond `max_entries`, and in a `ledger` where there is one. A hit repeats the reply as it was, usage
    included, so that an episode reads the same whether or not another came first. Failures are not remembered."""

    def __init__(self, pool: Pool, max_entries: int = 100_000, ledger: ReplyLedger | None = None) -> None:
        self.specs = pool.specs
        self._pool = pool
        self._limits = {spec.name: (spec.temperature, spec.max_tokens) for spec in pool.specs}
        self._ledger = ledger
        self._replies = OrderedDict(ledger.recall() if ledger else ())
        self._max_entries = max_entries
        self._fresh: list[tuple[bytes, Reply]] = []  # not yet in the ledger
        self._fresh_since = 0.0
        self.hits = 0
        self.misses = 0

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield remembered replies first, then the others as they are ready; equal asks are asked once."""
        waiting: dict[bytes, list[int]] = {}
        for index, ask in enumerate(asks):
            key = self._key(ask)
            if (reply := self._recall(key)) is not None:
                yield index, reply
            else:
                waiting.setdefault(key, []).append(index)
        if not waiting:
            return
        self.misses += len(waiting)
        keys = list(waiting)
        try:
            with closing(self._pool.ask([asks[waiting[key][0]] for key in keys])) as replies:
                for place, reply in replies:
                    self._remember(keys[place], reply)
                    first, *others = waiting[keys[place]]
                    self.hits += len(others)
                    for index in (first, *others):
                        yield index, reply
        finally:
            self._hand_over()

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Stream from the pool behind, or yield a remembered reply at once."""
        key = self._key(ask)
        if (known := self._recall(key)) is not None:
            yield known.text
            yield known
            return
        self.misses += 1
        with closing(self._pool.stream(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    self._remember(key, piece)
                    self._hand_over()
                yield piece

    def _key(self, ask: Ask) -> bytes:
        temperature, max_tokens = self._limits.get(ask.model, (0.0, 0))
        call = (
            ask.model,
            [(message.role, message.content) for message in ask.messages],
            float(temperature if ask.temperature is None else ask.temperature),
            max_tokens if ask.max_tokens is None else ask.max_tokens,
            ask.seed,
            ask.sample,
        )
        return hashlib.blake2b(repr(call).encode(errors="surrogatepass"), digest_size=20).digest()

    def _recall(self, key: bytes) -> Reply | None:
        reply = self._replies.get(key)
        if reply is not None:
            self._replies.move_to_end(key)
            self.hits += 1
        return reply

    def _remember(self, key: bytes, reply: Reply) -> None:
        if reply.error is not None:
            return
        self._replies[key] = reply
        if len(self._replies) > self._max_entries:
            self._replies.popitem(last=False)
        if self._ledger is None:
            return
        if not self._fresh:
            self._fresh_since = time.monotonic()
        self._fresh.append((key, reply))
        if len(self._fresh) >= _HANDED_OVER or time.monotonic() - self._fresh_since >= _HANDED_OVER_S:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._ledger is not None and self._fresh:
            fresh, self._fresh = self._fresh, []
            self._ledger.keep(fresh)
