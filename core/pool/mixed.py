"""Providers side by side in one pool: each ask goes to the provider of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from core.episode import Ask, Reply
from core.pool.pool import Pool, closing, entry
from core.pool.spec import ModelSpec


class MixedPool:
    """One pool over several: `pools` maps a provider's name, as in `ModelSpec.provider`, to who answers for
    it. Slot order is that of `specs`; raises PoolError for a model not in it."""

    def __init__(self, specs: Sequence[ModelSpec], pools: Mapping[str, Pool]) -> None:
        self.specs = tuple(specs)
        self._by_name = {spec.name: spec for spec in specs}
        self._pools = pools

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) as each is ready; hosted models answer while those in this process write."""
        by_provider: dict[str, list[int]] = {}
        for index, ask in enumerate(asks):
            by_provider.setdefault(self._provider(ask), []).append(index)
        with ExitStack() as stack:
            # A hosted pool starts its calls when asked, others when iterated: ask all, read hosted ones last.
            flights = []
            for provider in sorted(by_provider, key=lambda provider: provider == "openai"):
                indices = by_provider[provider]
                replies = self._pools[provider].ask([asks[index] for index in indices])
                flights.append((indices, stack.enter_context(closing(replies))))
            for indices, replies in flights:
                for place, reply in replies:
                    yield indices[place], reply

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        yield from self._pools[self._provider(ask)].stream(ask)

    def _provider(self, ask: Ask) -> str:
        return entry(self._by_name, ask.model).provider
