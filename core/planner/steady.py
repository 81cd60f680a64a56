"""A pool whose calls are never cancelled, only no longer waited for (no torch).

Where one step of a workflow is lost, the driver cancels the steps beside it. A pool that answers many calls together is
in the middle of them then, and a cache in front of it does not expect the reply of a call that was given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.episode import Ask, Reply
from core.pool.pool import Flight, Pool, WrappedFlight, flight_of
from core.pool.spec import ModelSpec


class SteadyPool:
    """Another pool, asked as it is; the replies of calls that were given up are dropped when they come."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        return self._pool.specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """As the pool behind does."""
        return self._pool.ask(asks)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """As the pool behind does."""
        return self._pool.stream(ask)

    def flight(self) -> Flight:
        """Calls under way."""
        return _SteadyFlight(flight_of(self._pool))


class _SteadyFlight(WrappedFlight):
    def __init__(self, behind: Flight) -> None:
        super().__init__(behind)
        self._dropped: set[int] = set()

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        for number, reply in self._behind.ready(wait=wait):
            if number not in self._dropped:
                yield number, reply

    def cancel(self, number: int) -> None:
        """The call goes on, and nobody hears of its reply."""
        self._dropped.add(number)
