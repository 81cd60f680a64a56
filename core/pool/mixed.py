"""Providers side by side in one pool: each ask goes to the provider of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from core.episode import Ask, Episode, Reply
from core.pool.pool import Flight, Pool, answers, entry, flight_of
from core.pool.spec import ModelSpec


class _MixedFlight:
    """Flights of several providers as one; those that answer in batches do so while the others are waited for."""

    def __init__(self, flights: Mapping[str, Flight], provider: Callable[[Ask], str]) -> None:
        self._flights = flights
        self._provider = provider
        self._numbers: dict[str, list[int]] = {name: [] for name in flights}
        self._added = 0
        capacities = [one.capacity for one in flights.values() if one.capacity is not None]
        self.capacity: int | None = None if len(capacities) < len(flights) else sum(capacities)

    @property
    def under_way(self) -> int:
        return sum(flight.under_way for flight in self._flights.values())

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        return all(flight.affords(episode, playing) for flight in self._flights.values())

    def add(self, asks: Sequence[Ask]) -> None:
        own: dict[str, list[tuple[int, Ask]]] = {}
        for number, ask in enumerate(asks, start=self._added):
            own.setdefault(self._provider(ask), []).append((number, ask))
        for name, some in own.items():
            self._flights[name].add([ask for _, ask in some])
            self._numbers[name] += [number for number, _ in some]
        self._added += len(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        batches = [name for name, one in self._flights.items() if one.capacity is None and one.under_way]
        hosted = [name for name, one in self._flights.items() if one.capacity is not None]
        for name in (*batches, *hosted):
            patient = wait and not batches and name == hosted[-1]
            for number, reply in self._flights[name].ready(wait=patient):
                yield self._numbers[name][number], reply

    def wake(self) -> None:
        for flight in self._flights.values():
            flight.wake()

    def cancel(self, number: int) -> None:
        for name, numbers in self._numbers.items():
            if number in numbers:
                self._flights[name].cancel(numbers.index(number))

    def close(self) -> None:
        for flight in self._flights.values():
            flight.close()


class MixedPool:
    """One pool over several: `pools` maps a provider's name, as in `ModelSpec.provider`, to who answers for
    it. Slot order is that of `specs`; raises PoolError for a model not in it."""

    def __init__(self, specs: Sequence[ModelSpec], pools: Mapping[str, Pool]) -> None:
        self.specs = tuple(specs)
        self._by_name = {spec.name: spec for spec in specs}
        self._pools = pools

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) as each is ready; hosted models answer while those in this process write."""
        flight = self.flight()
        flight.add(asks)
        return answers(flight)

    def flight(self) -> _MixedFlight:
        """Calls under way at all providers."""
        return _MixedFlight({name: flight_of(pool) for name, pool in self._pools.items()}, self._provider)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        yield from self._pools[self._provider(ask)].stream(ask)

    def _provider(self, ask: Ask) -> str:
        return entry(self._by_name, ask.model).provider
