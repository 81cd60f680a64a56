"""The interface of pools, one provider or many that answer an Ask, and what every pool has in common."""

from __future__ import annotations

import logging
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from core.episode import Ask, Episode, Failure, Message, Reply, Role
from core.errors import PoolError, TrinityError
from core.images import as_content, beside_with, image_of
from core.pool.spec import ModelSpec

log = logging.getLogger(__name__)

CHECK_TOKENS = 16
#: In the roles that an episode's prompts have: some models know no system role.
QUESTION = (Message("system", "Answer with a number alone."), Message("user", "What is 1 + 1?"))

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


#: Who is told the pieces of a call's text as they come; None: nobody is.
Hear = Callable[[Ask], Callable[[str], None] | None]


class Flight(ABC):
    """Calls under way, to which more are added as episodes go on: nobody waits for the slowest of a batch."""

    #: How many episodes are worth playing side by side; None where it works best on all that there is at once.
    capacity: int | None = None

    @property
    @abstractmethod
    def under_way(self) -> int:
        """Calls that were added and have no reply yet."""

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        """Whether there is money to play this episode to its end beside those that are being played (their ids).
        BudgetError when there is not and none is being played."""
        return True

    @abstractmethod
    def add(self, asks: Sequence[Ask]) -> None:
        """Begin these calls; their numbers follow those added before, from 0. Where it raises, none has begun."""

    @abstractmethod
    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        """The replies that are there, each with the number of its call; while there is none, `wait` for the next, or
        until woken."""

    def listen(self, hear: Hear) -> None:  # noqa: B027
        """Have calls that begin from here on streamed where `hear` gives somebody who is told their text, piece by
        piece and from any thread; where a model cannot be streamed, nobody is told anything."""

    def wake(self) -> None:  # noqa: B027
        """From any thread: whoever waits in `ready` shall look around."""

    @abstractmethod
    def cancel(self, number: int) -> None:
        """Give up one call: no reply of it will come."""

    def close(self) -> None:  # noqa: B027
        """Cancel what is under way."""


class FlightPool(ABC):
    """Base of a pool that has a flight of its own: to ask is to wait for all calls of one."""

    @abstractmethod
    def flight(self) -> Flight:
        """A new flight."""

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Begin every call at once, and yield (index, reply) as each is ready."""
        flight = self.flight()
        flight.add(asks)
        return answers(flight)


class BackgroundPool(FlightPool):
    """Base of a pool whose calls go on in a thread of their own while the caller is busy. `ahead` is how many of its
    episodes are worth playing side by side."""

    specs: tuple[ModelSpec, ...]
    ahead: int

    @abstractmethod
    def begin(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Future[Reply]:
        """Begin a call to a model of the pool; `on_piece` is given its text as it comes. To cancel the future is to
        give up the call."""

    def flight(self) -> BackgroundFlight:
        """Calls under way, each as soon as there is room for it."""
        return BackgroundFlight(self)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces as they arrive, then the whole Reply, which alone counts: after a retry the pieces
        shown may differ from it."""
        spec = entry({spec.name: spec for spec in self.specs}, ask.model)
        arrived: SimpleQueue[str | Future[Reply]] = SimpleQueue()
        future = self.begin(ask, arrived.put if spec.stream else None)
        future.add_done_callback(arrived.put)
        try:
            while isinstance(piece := arrived.get(), str):
                yield piece
            yield piece.result()
        finally:
            future.cancel()


class BackgroundFlight(Flight):
    """Calls under way in another thread; each reply is there the moment it comes."""

    def __init__(self, pool: BackgroundPool) -> None:
        self._pool = pool
        self._by_name = {spec.name: spec for spec in pool.specs}
        self._numbers: dict[Future[Reply], int] = {}
        self._done: SimpleQueue[Future[Reply] | None] = SimpleQueue()  # None: woken
        self._added = 0
        self._hear: Hear = lambda ask: None
        self.capacity = pool.ahead

    @property
    def under_way(self) -> int:
        return len(self._numbers)

    def add(self, asks: Sequence[Ask]) -> None:
        for ask in asks:  # an unknown model is said before any call
            entry(self._by_name, ask.model)
        for ask in asks:
            streams = self._by_name[ask.model].stream
            future = self._pool.begin(ask, self._hear(ask) if streams else None)
            self._numbers[future] = self._added
            self._added += 1
            future.add_done_callback(self._done.put)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        while self._numbers:
            try:
                future = self._done.get(block=wait)
            except Empty:
                return
            wait = False
            if future is not None and (number := self._numbers.pop(future, None)) is not None:
                yield number, future.result()

    def listen(self, hear: Hear) -> None:
        self._hear = hear

    def wake(self) -> None:
        self._done.put(None)

    def cancel(self, number: int) -> None:
        for future in [one for one, own in self._numbers.items() if own == number]:
            del self._numbers[future]
            future.cancel()

    def close(self) -> None:
        """Cancel the calls in flight, and first those that wait: else one could begin as another makes room."""
        for future in reversed([*self._numbers]):
            future.cancel()
        self._numbers.clear()

    def __del__(self) -> None:
        self.close()


class WaveFlight(Flight):
    """The flight of a pool that answers many asks best together: all that was added, as one batch. Nothing is under way
    between batches."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: dict[int, Ask] = {}
        self._left: dict[int, Ask] = {}  # of the batch that is being answered
        self._added = 0

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def add(self, asks: Sequence[Ask]) -> None:
        self._waiting |= dict(enumerate(asks, start=self._added))
        self._added += len(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        batch, self._waiting = self._waiting, {}
        self._left = {**batch}
        try:
            for number, reply in self._asked(batch):
                if self._left.pop(number, None) is not None:
                    yield number, reply
        except TrinityError:
            raise
        except Exception as fault:
            # One call that cannot be answered must not cost the others their replies.
            for number, ask in batch.items():
                if self._left.pop(number, None) is not None:
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

    def cancel(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._left.pop(number, None)


class WrappedFlight(Flight):
    """Base of a flight that changes what another one, `behind`, does; what it leaves alone is done there."""

    def __init__(self, behind: Flight) -> None:
        self._behind, self.capacity = behind, behind.capacity

    @property
    def under_way(self) -> int:
        return self._behind.under_way

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        return self._behind.affords(episode, playing)

    def add(self, asks: Sequence[Ask]) -> None:
        self._behind.add(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        return self._behind.ready(wait=wait)

    def listen(self, hear: Hear) -> None:
        self._behind.listen(hear)

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
    whose = f" of episode {ask.episode}" if ask.episode else ""
    words = "A call%s to model %s broke off: %s: %s"
    log.error(words, whose, ask.model, type(fault).__name__, fault, exc_info=fault)
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


class _MixedFlight(Flight):
    """Flights of several providers as one; those that answer in batches do so while the others are waited for."""

    def __init__(self, flights: Mapping[str, Flight], specs: Mapping[str, ModelSpec]) -> None:
        self._flights, self._specs = flights, specs
        self._numbers: dict[str, list[int]] = {name: [] for name in flights}
        self._added = 0
        capacities = [one.capacity for one in flights.values()]
        self.capacity = None if None in capacities else sum(one or 0 for one in capacities)

    @property
    def under_way(self) -> int:
        return sum(flight.under_way for flight in self._flights.values())

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        return all(flight.affords(episode, playing) for flight in self._flights.values())

    def add(self, asks: Sequence[Ask]) -> None:
        own: dict[str, list[tuple[int, Ask]]] = {}
        for number, ask in enumerate(asks, start=self._added):
            own.setdefault(entry(self._specs, ask.model).provider, []).append((number, ask))
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

    def listen(self, hear: Hear) -> None:
        for flight in self._flights.values():
            flight.listen(hear)

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


class MixedPool(FlightPool):
    """One pool over several: `pools` maps a provider's name, as in `ModelSpec.provider`, to who answers for
    it. Slot order is that of `specs`; raises PoolError for a model not in it."""

    def __init__(self, specs: Sequence[ModelSpec], pools: Mapping[str, Pool]) -> None:
        self.specs = tuple(specs)
        self._by_name = {spec.name: spec for spec in specs}
        self._pools = pools

    def flight(self) -> _MixedFlight:
        """Calls under way at all providers: hosted models answer while those in this process write."""
        return _MixedFlight({name: flight_of(pool) for name, pool in self._pools.items()}, self._by_name)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        yield from self._pools[entry(self._by_name, ask.model).provider].stream(ask)


def tokens_per_s(reply: Reply) -> float | None:
    """Tokens written in a second of a call, in which its prompt was read too; None where nothing was."""
    written = reply.usage.tokens_out
    return written / reply.latency_s if written and reply.latency_s else None


def check_pool(pool: Pool) -> Iterator[tuple[str, Reply]]:
    """Ask every model a trivial question, all at once, and yield (name, reply) as each answers. One that reads images
    is sent one with it."""
    asks = [_question(spec) for spec in pool.specs]
    with closing(pool.ask(asks)) as replies:
        for index, reply in replies:
            yield asks[index].model, reply


def _question(spec: ModelSpec) -> Ask:
    """What a model is asked to find out whether it can be."""
    most = min(CHECK_TOKENS, spec.max_tokens)
    if spec.dialect == "terse":
        return Ask(spec.name, Role.WORKER, (Message("user", "work\n1 + 1"),), max_tokens=most)
    if not spec.images:
        return Ask(spec.name, Role.WORKER, QUESTION, max_tokens=most)
    system, user = QUESTION
    content, images = as_content([user.content, image_of(_grey_square(), "image/png")])
    shown = Message("user", content, beside_with({}, images))
    data = {one.sha256: one.data for one in images}
    return Ask(spec.name, Role.WORKER, (system, shown), max_tokens=most, images=data)


def _grey_square(side: int = 64) -> bytes:
    """A grey PNG of so many pixels each way: some models refuse smaller ones than 32."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    lines = zlib.compress((b"\0" + b"\x80" * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
