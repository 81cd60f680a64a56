"""A pool in front of a pool that pays for each distinct call once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from core.episode import Ask, Message, Reply
from core.pool.pool import Pool, closing
from core.pool.spec import ModelSpec

Key = tuple[str, tuple[Message, ...], float, int, int, int]


class CachedPool:
    """Remembers replies by (model, messages, temperature, max_tokens, seed, sample), in memory, the least
    recently used dropped beyond `max_entries`. A hit repeats the reply as it was, usage included, so that an
    episode reads the same whether or not another came first. Failures are not remembered."""

    def __init__(self, pool: Pool, max_entries: int = 100_000) -> None:
        self._pool = pool
        self._limits = {spec.name: (spec.temperature, spec.max_tokens) for spec in pool.specs}
        self._replies: OrderedDict[Key, Reply] = OrderedDict()
        self._max_entries = max_entries
        self.hits = 0
        self.misses = 0

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""
        return self._pool.specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield remembered replies first, then the others as they are ready; equal asks are asked once."""
        waiting: dict[Key, list[int]] = {}
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
        with closing(self._pool.ask([asks[waiting[key][0]] for key in keys])) as replies:
            for place, reply in replies:
                self._remember(keys[place], reply)
                first, *others = waiting[keys[place]]
                self.hits += len(others)
                for index in (first, *others):
                    yield index, reply

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
                yield piece

    def _key(self, ask: Ask) -> Key:
        temperature, max_tokens = self._limits.get(ask.model, (0.0, 0))
        return (
            ask.model,
            ask.messages,
            temperature if ask.temperature is None else ask.temperature,
            max_tokens if ask.max_tokens is None else ask.max_tokens,
            ask.seed,
            ask.sample,
        )

    def _recall(self, key: Key) -> Reply | None:
        reply = self._replies.get(key)
        if reply is not None:
            self._replies.move_to_end(key)
            self.hits += 1
        return reply

    def _remember(self, key: Key, reply: Reply) -> None:
        if reply.error is None:
            self._replies[key] = reply
            if len(self._replies) > self._max_entries:
                self._replies.popitem(last=False)
