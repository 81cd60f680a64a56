"""The interface of pools: one provider or many that answer an Ask."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from core.episode import Ask, Episode, Failure, Reply
from core.errors import PoolError, TrinityError
from core.pool.spec import ModelSpec

log = logging.getLogger(__name__)

T = TypeVar("T")


class Pool(Protocol):
    """A set of models that answer Asks. Failures come back as data in `Reply.error`, never as exceptions."""

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index into asks, reply) as each is ready, batched or concurrent as the provider can.
        Closing the iterator cancels the calls in flight."""

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces of text as they are written, then the whole Reply last."""


class Flight(Protocol):
    """Calls under way, to which more are added as episodes go on: nobody waits for the slowest of a batch.

    `capacity` is how many episodes keep the pool busy, None where it works best on all that there is at once."""

    @property
    def capacity(self) -> int | None:
        """How many episodes are worth playing side by side."""

    @property
    def under_way(self) -> int:
        """Calls that were added and have no reply yet."""

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        """Whether there is money to play this episode to its end beside those that are being played (their ids).
        BudgetError when there is not and none is being played."""

    def add(self, asks: Sequence[Ask]) -> None:
        """Begin these calls; their numbers follow those added before, from 0. Where it raises, none has begun."""

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        """The replies that are there, each with the number of its call; while there is none, `wait` for the next, or
        until woken."""

    def wake(self) -> None:
        """From any thread: whoever waits in `ready` shall look around."""

    def cancel(self, number: int) -> None:
        """Give up one call: no reply of it will come."""

    def close(self) -> None:
        """Cancel what is under way."""


class WaveFlight:
    """The flight of a pool that answers many asks best together: all that was added, as one batch."""

    capacity: int | None = None

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[int, Ask] = {}
        self._added = 0

    @property
    def under_way(self) -> int:
        """Calls that were added since the last batch."""
        return len(self._waiting)

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        """Always: nobody counts here."""
        return True

    def add(self, asks: Sequence[Ask]) -> None:
        """Put these calls into the next batch."""
        self._waiting |= dict(enumerate(asks, start=self._added))
        self._added += len(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        """The replies of the whole batch, as they come."""
        batch, self._waiting = self._waiting, {}
        left = {**batch}
        try:
            for number, reply in self._asked(batch):
                del left[number]
                yield number, reply
        except TrinityError:
            raise
        except Exception as fault:
            # One call that cannot be answered must not cost the others their replies.
            for number, ask in left.items():
                yield number, (broken_off(ask, fault) if len(batch) == 1 else self._alone(ask))

    def _asked(self, batch: Mapping[int, Ask]) -> Iterator[tuple[int, Reply]]:
        numbers = [*batch]
        if batch:
            with closing(self._pool.ask([*batch.values()])) as replies:
                for index, reply in replies:
                    yield numbers[index], reply

    def _alone(self, ask: Ask) -> Reply:
        try:
            return next(reply for _, reply in self._asked({0: ask}))
        except TrinityError:
            raise
        except Exception as fault:
            return broken_off(ask, fault)

    def wake(self) -> None:
        """Nobody waits here: a batch is worked on until it is done."""

    def cancel(self, number: int) -> None:
        """Leave a call out of the next batch."""
        self._waiting.pop(number, None)

    def close(self) -> None:
        """Nothing is under way between batches."""


class WrappedFlight:
    """Base of a flight that changes what another one, `behind`, does; what it leaves alone is done there."""

    def __init__(self, behind: Flight) -> None:
        self._behind = behind

    @property
    def capacity(self) -> int | None:
        return self._behind.capacity

    @property
    def under_way(self) -> int:
        return self._behind.under_way

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        return self._behind.affords(episode, playing)

    def add(self, asks: Sequence[Ask]) -> None:
        self._behind.add(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        return self._behind.ready(wait=wait)

    def wake(self) -> None:
        self._behind.wake()

    def cancel(self, number: int) -> None:
        self._behind.cancel(number)

    def close(self) -> None:
        self._behind.close()


def flight_of(pool: Pool) -> Flight:
    """The pool's own flight, or batches of its asks."""
    begin = getattr(pool, "flight", None)
    flight: Flight = WaveFlight(pool) if begin is None else begin()
    return flight


def answers(flight: Flight) -> Iterator[tuple[int, Reply]]:
    """Every reply of what was added to a flight, as it comes; closing the iterator closes the flight."""
    try:
        came = True
        while came and flight.under_way:
            came = False
            for answer in flight.ready():
                came = True
                yield answer
    finally:
        flight.close()


def broken_off(ask: Ask, fault: Exception) -> Reply:
    """The reply of a call at which this program failed, which is logged; called where the fault was caught."""
    log.error("A call to model %s broke off: %s: %s", ask.model, type(fault).__name__, fault, exc_info=fault)
    message = (
        f"This program failed at a call to model '{ask.model}' ({type(fault).__name__}); its log says more."
    )
    return Reply("", finish_reason="error", error=Failure("infrastructure", message))


def entry(entries: Mapping[str, T], model: str) -> T:
    """The entry of this model; PoolError when the pool has none."""
    if model not in entries:
        raise PoolError(f"The pool has no model named '{model}'; it has {', '.join(entries)}.")
    return entries[model]


@contextmanager
def closing(iterator: Iterator[T]) -> Iterator[Iterator[T]]:
    """Close `iterator` on leaving, if it can be closed: calls in flight are cancelled instead of paid for."""
    try:
        yield iterator
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
