"""Drivers of the role loop: one live episode, or thousands at once, decided, asked and graded together."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, Unpack

from core.episode import (
    Ask,
    AskSteps,
    Decide,
    Delta,
    EndReason,
    Episode,
    EpisodeStarted,
    Event,
    Failure,
    Grade,
    Message,
    Reply,
    WritePlan,
)
from core.errors import BudgetError, TaskError, TrinityError
from core.play.policy import Masks, Policy
from core.play.seats import Seat, Stop, raising, seat_of
from core.pool.pool import Flight, Pool, closing, flight_of

log = logging.getLogger(__name__)

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

#: Whether an answer is right, or why nobody can tell, once somebody has worked it out.
PendingVerdict = Future[bool | Failure]
GradeMany = Callable[[Sequence[Grade]], Sequence[bool | Failure | PendingVerdict]]
Terms = Callable[[Episode, Ask], Ask | EndReason]
#: Replies by what was asked: (episode id, turn index, model, messages).
StoredReplies = Mapping[tuple[str, int, str, tuple[Message, ...]], Reply]


def settled(verdicts: Sequence[bool | Failure | PendingVerdict]) -> list[bool]:
    """Verdicts once they have all come. TaskError where nobody can tell."""
    found = [one.result() if isinstance(one, Future) else one for one in verdicts]
    for one in found:
        if isinstance(one, Failure):
            raise TaskError(one.message)
    return [one is True for one in found]


class DriveOptions(Masks, total=False):
    """What every driver takes besides the episodes.

    `stop` is asked before each decision and each call that costs something; a reason ends the episode as interrupted,
    with its committed turns. `stored_replies` were paid for and stored before their turn was completed: they are used
    instead of asking the same again. `temperatures`: at which one turn's model is asked, by episode id and turn index.
    With `stream`, models are asked one after the other, text arrives as Delta events, `stop` is asked at each of them
    too, and a call that the pool refuses to pay for (BudgetError) ends its episode as interrupted. `terms` is told of
    each call before it is made: it gives the call as it shall be made, or why the episode ends instead.

    Whatever else is raised while an episode is played, and whatever is thrown in where one of its events was yielded
    (it could not be stored), ends that episode alone, as missing; what goes wrong for a batch is tried one by one. The
    errors in `stops` are passed on and end everything: by default TrinityError, which somebody has to mend first."""

    stop: Stop | None
    terms: Terms | None
    stored_replies: StoredReplies | None
    temperatures: Mapping[tuple[str, int], float] | None
    stream: bool
    stops: tuple[type[Exception], ...]


def drive(
    episode: Episode, policy: Policy, pool: Pool, grade: GradeMany, **options: Unpack[DriveOptions]
) -> Iterator[Event]:
    """Play one episode, or go on with one that carries turns; the last event is EpisodeFinished."""
    return drive_many([episode], policy, pool, grade, **options)


def drive_many(
    episodes: Iterable[Episode], policy: Policy, pool: Pool, grade: GradeMany, **options: Unpack[DriveOptions]
) -> Iterator[Event]:
    """Play many episodes side by side, each exactly as it would be played alone.

    All decisions that wait go to `policy` at once, all answers that wait to `grade`, and all calls to `pool`, whose
    replies are taken up as they come: a slow call holds up its own episode and no other. A pool that answers many asks
    best together is given them so. Events of one episode come in order; those of different episodes mix."""
    yield from drive_arriving(_Listed(deque(episodes)), policy, pool, grade, **options)


class Arrivals(Protocol):
    """Episodes that come one after another, also while others are being played."""

    def take(self, *, wait: bool) -> Episode | None:
        """The next one; None when there is none now, and with `wait` when none will come any more."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Call this whenever something came, from any thread."""


@dataclass(slots=True)
class _Listed:
    """Episodes that are all there."""

    episodes: deque[Episode]

    def take(self, *, wait: bool) -> Episode | None:
        return self.episodes.popleft() if self.episodes else None

    def watch(self, wake: Callable[[], None]) -> None:
        """Nothing ever comes."""


def drive_arriving(
    arrivals: Arrivals,
    policy: Policy,
    pool: Pool,
    grade: GradeMany,
    *,
    give_up: Stop | None = None,
    **options: Unpack[DriveOptions],
) -> Iterator[Event]:
    """`drive_many` for episodes that come while others are played, until no more will come.

    `give_up` is asked, whenever something came, of each episode that waits for a reply: a reason cancels its call and
    ends it as interrupted."""
    table = _Table(policy, pool, grade, options)
    arrivals.watch(table.flight.wake)
    next_one: Episode | None = None
    with contextlib.closing(table.flight):
        while True:
            while table.has_room:
                next_one = next_one or arrivals.take(wait=not table.seats)
                if next_one is None or not table.affords(next_one):
                    break
                yield from table.seat(next_one)
                next_one = None
            if not table.seats:
                return
            if give_up is not None:
                yield from table.give_up(give_up)
            yield from table.go_on()


@dataclass
class _Table:
    """The episodes that are being played, and the calls that they wait for."""

    policy: Policy
    pool: Pool
    grade: GradeMany
    options: DriveOptions
    seats: list[Seat] = field(default_factory=list)
    asked: dict[int, tuple[Seat, int | None]] = field(
        default_factory=dict
    )  # who waits for which call, and for which step of a workflow
    judged: list[tuple[PendingVerdict, Seat]] = field(default_factory=list)  # who waits for which verdict
    flight: Flight = field(init=False)
    numbered: int = 0
    due: list[tuple[Seat, int | None, Ask]] = field(default_factory=list)  # calls that are about to begin
    faults: set[str] = field(default_factory=set)  # of which kinds the log has told all

    def __post_init__(self) -> None:
        self.flight = flight_of(self.pool)

    @property
    def stops(self) -> tuple[type[Exception], ...]:
        """The errors that end everything."""
        return self.options.get("stops", (TrinityError,))

    def apart(self, seat: Seat, events: Iterable[Event]) -> Iterator[Event]:
        """What happens to one episode: whatever it raises ends this one and no other."""
        try:
            yield from events
        except self.stops:
            raise
        except Exception as fault:
            self.tell(seat, fault)
            self.cancel(seat)
            yield from seat.break_off(fault)

    def tell(self, seat: Seat, fault: Exception) -> None:
        """Log a fault; its traceback once for all faults that happen at the same place."""
        frames = [*traceback.walk_tb(fault.__traceback__)]
        place = f"{type(fault).__name__} {frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
        known = place in self.faults or isinstance(fault, TrinityError)  # whose sentence says all
        self.faults.add(place)
        message = "Episode %s broke off, the others go on: %s: %s"
        log.error(message, seat.episode.id, type(fault).__name__, fault, exc_info=None if known else fault)

    def one_by_one(
        self,
        seats: Sequence[Seat],
        asked: Sequence[Asked],
        answer: Callable[[Sequence[Asked]], Sequence[Answered]],
        go_on: Callable[[Seat, Answered], Iterator[Event]],
    ) -> Iterator[Event]:
        """Answer what many seats ask in one batch, and let each go on; where that fails, each alone."""
        try:
            answered = [*zip(seats, answer(asked), strict=True)]
        except self.stops:
            raise
        except Exception as fault:
            if len(seats) == 1:
                yield from self.apart(seats[0], raising(fault))
                return
            for seat, request in zip(seats, asked, strict=True):
                yield from self.one_by_one([seat], [request], answer, go_on)
            return
        for seat, one in answered:
            yield from self.apart(seat, go_on(seat, one))

    @property
    def has_room(self) -> bool:
        """Whether another episode is worth beginning."""
        return self.flight.capacity is None or len(self.seats) - len(self.judged) < self.flight.capacity

    def affords(self, episode: Episode) -> bool:
        """Whether it can be paid for beside those that are being played. BudgetError when there are none, and it
        cannot."""
        return self.flight.affords(episode, (seat.episode.id for seat in self.seats))

    def seat(self, episode: Episode) -> Iterator[Event]:
        """Begin an episode, or go on with one that carries turns."""
        options, temperatures = self.options, (self.options.get("temperatures") or {}).items()
        try:
            seat = seat_of(
                episode,
                self.policy,
                self.pool,
                model_mask=options.get("model_mask", ()),
                role_mask=options.get("role_mask", ()),
                temperatures={index: at for (name, index), at in temperatures if name == episode.id},
            )
        except self.stops:
            raise
        except Exception as fault:
            seat = Seat(episode, raising(fault))
        self.seats.append(seat)
        yield from self.apart(seat, self.begin(seat, episode))

    def begin(self, seat: Seat, episode: Episode) -> Iterator[Event]:
        """Tell that an episode begins, unless it goes on, and let it come to its first request."""
        if not episode.turns and not episode.plans:
            yield EpisodeStarted(seat.episode)
        yield from seat.advance()

    def go_on(self) -> Iterator[Event]:
        """Take up verdicts, decide and ask for everyone who waits for that, take up the replies that are there, and
        grade."""
        yield from self.take_up_verdicts()
        yield from self.decide_all()
        yield from self.ask_all()
        busy = any(seat.request is not None for seat in self.seats)
        if self.judged and not busy and not self.flight.under_way:
            wait([verdict for verdict, _ in self.judged], return_when=FIRST_COMPLETED)
        for number, reply in self.flight.ready(wait=not busy):
            if number in self.asked:
                yield from self.take(number, reply)
        if not self.flight.under_way:
            for number in [*self.asked]:
                if number in self.asked:
                    yield from self.take(number, _no_reply("pool"))
        yield from self.grade_all()
        self.seats = [seat for seat in self.seats if seat.outcome is None]

    def give_up(self, reason_to: Stop) -> Iterator[Event]:
        """End those that wait for a reply and have a reason to; their calls are cancelled."""
        for seat in {id(seat): seat for seat, _ in self.asked.values()}.values():
            yield from self.apart(seat, self.give_up_one(seat, reason_to))

    def give_up_one(self, seat: Seat, reason_to: Stop) -> Iterator[Event]:
        """End one where it has a reason to."""
        if reason := reason_to(seat.so_far):
            self.cancel(seat)
            yield from seat.interrupt(reason)

    def take(self, number: int, reply: Reply) -> Iterator[Event]:
        """Go on with whoever waited for this reply."""
        seat, step = self.asked.pop(number)
        if step is None:
            return self.apart(seat, seat.advance(reply))
        return self.apart(seat, self.take_step(seat, step, reply))

    def take_step(self, seat: Seat, step: int, reply: Reply) -> Iterator[Event]:
        """Go on with a workflow of which one step has been answered."""
        seat.under_way.remove(step)
        yield from seat.advance((step, reply))
        if seat.outcome is not None:  # a failure: what the other steps would have said is of no use
            self.cancel(seat)
        elif seat.halting is not None and not seat.under_way:
            yield from seat.interrupt(seat.halting)

    def cancel(self, seat: Seat) -> None:
        """Give up the calls that a seat waits for."""
        for number in [number for number, (waiting, _) in self.asked.items() if waiting is seat]:
            del self.asked[number]
            self.flight.cancel(number)
        seat.under_way.clear()

    def ask_all(self) -> Iterator[Event]:
        """Put every call that a seat asks for under way; what is stored, or streamed, is answered here."""
        for seat in self.seats:
            yield from self.apart(seat, self.ask_steps(seat))
            if isinstance(ask := seat.request, Ask):
                yield from self.apart(seat, self.ask_one(seat, ask))
        due, self.due = self.due, []
        yield from self.begin_calls([one for one in due if one[0].outcome is None])

    def begin_calls(self, calls: Sequence[tuple[Seat, int | None, Ask]]) -> Iterator[Event]:
        """Begin these calls together; where that fails, each alone."""
        if not calls:
            return
        try:
            self.flight.add([ask for _, _, ask in calls])
        except self.stops:
            raise
        except Exception as fault:
            if len(calls) == 1:
                yield from self.apart(calls[0][0], raising(fault))
                return
            for one in calls:
                yield from self.begin_calls([one] if one[0].outcome is None else [])
            return
        for seat, step, _ in calls:
            self.asked[self.numbered] = seat, step
            self.numbered += 1

    def ask_one(self, seat: Seat, ask: Ask) -> Iterator[Event]:
        """Put the call that a seat asks for under way; it is answered here where it is stored, or streamed."""
        stored, stop = self.options.get("stored_replies") or {}, self.options.get("stop")
        terms = self.options.get("terms")
        if reply := stored.get((seat.episode.id, len(seat.turns), ask.model, ask.messages)):
            yield from seat.advance(reply)
        elif reason := seat.halts(stop):
            yield from seat.interrupt(reason)
        elif isinstance(agreed := terms(seat.so_far, ask) if terms else ask, EndReason):
            yield from seat.interrupt(agreed)
        elif self.options.get("stream"):
            yield from _stream(seat, agreed, self.pool, stop)
        else:
            self.due.append((seat, None, agreed))
            seat.request = None  # it waits for its reply

    def ask_steps(self, seat: Seat) -> Iterator[Event]:
        """Put the steps of a workflow under way that can begin, side by side; what is stored, or streamed, is answered
        here. A reason to stop begins no more of them, and ends the episode once those under way have been answered."""
        stored, stop = self.options.get("stored_replies") or {}, self.options.get("stop")
        terms = self.options.get("terms")
        while isinstance(request := seat.request, AskSteps):
            fresh = next(
                ((step, ask) for step, ask in request.asks.items() if step not in seat.under_way), None
            )
            if fresh is None:
                seat.request = None  # it waits for its replies
                return
            step, ask = fresh
            if reply := stored.get((seat.episode.id, step, ask.model, ask.messages)):
                yield from seat.advance((step, reply))
                continue
            agreed: Ask | EndReason = seat.halting or seat.halts(stop) or ask
            if isinstance(agreed, Ask) and terms:
                agreed = terms(seat.so_far, agreed)
            if isinstance(agreed, EndReason):
                seat.halting, seat.request = agreed, None
                if not seat.under_way:
                    yield from seat.interrupt(agreed)
            elif self.options.get("stream"):
                yield from _stream(seat, agreed, self.pool, stop, step)
            else:
                self.due.append((seat, step, agreed))
                seat.under_way.add(step)

    def grade_all(self) -> Iterator[Event]:
        """Have every answer graded that waits for it; what takes long is worked on meanwhile."""
        waiting = [(seat, seat.request) for seat in self.seats if isinstance(seat.request, Grade)]
        if waiting:
            seats, asked = zip(*waiting, strict=True)
            yield from self.one_by_one(seats, asked, self.grade, self.take_verdict)

    def take_verdict(self, seat: Seat, verdict: bool | Failure | PendingVerdict) -> Iterator[Event]:
        """Go on with whoever waited for this verdict; one that is still worked on is waited for."""
        if isinstance(verdict, Future):
            seat.request = None  # it waits for its verdict
            self.judged.append((verdict, seat))
            verdict.add_done_callback(lambda _: self.flight.wake())
        else:
            yield from seat.advance(verdict)

    def take_up_verdicts(self) -> Iterator[Event]:
        """Go on with those whose verdict has come."""
        waiting, self.judged = self.judged, []
        for verdict, seat in waiting:
            if verdict.done():
                yield from self.apart(seat, _with_result(seat, verdict))
            else:
                self.judged.append((verdict, seat))

    def decide_all(self) -> Iterator[Event]:
        """Have every decision made, and every workflow written, that a seat waits for."""
        waiting: list[tuple[Seat, Decide]] = []
        planning: dict[int, list[tuple[Seat, WritePlan]]] = {}
        for seat in self.seats:
            if isinstance(seat.request, Decide | WritePlan):
                yield from self.apart(seat, self.halt(seat))
            if isinstance(seat.request, Decide):
                waiting.append((seat, seat.request))
            elif isinstance(seat.request, WritePlan):
                planning.setdefault(id(seat.writer), []).append((seat, seat.request))
        for some in planning.values():
            writer = some[0][0].writer
            assert writer is not None  # nobody else asks for plans
            seats, plans = zip(*some, strict=True)
            yield from self.one_by_one(seats, plans, writer.write, Seat.advance)
        if waiting:
            seats, asked = zip(*waiting, strict=True)
            yield from self.one_by_one(seats, asked, self.policy.decide, Seat.advance)

    def halt(self, seat: Seat) -> Iterator[Event]:
        """Interrupt an episode that has a reason to stop."""
        if reason := seat.halts(self.options.get("stop")):
            yield from seat.interrupt(reason)


def _with_result(seat: Seat, verdict: PendingVerdict) -> Iterator[Event]:
    yield from seat.advance(verdict.result())


def _stream(seat: Seat, ask: Ask, pool: Pool, stop: Stop | None, step: int | None = None) -> Iterator[Event]:
    reply = _no_reply("stream")
    try:
        with closing(pool.stream(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    reply = piece
                    break
                yield Delta(seat.episode.id, len(seat.turns) if step is None else step, piece)
                if reason := seat.halts(stop):
                    yield from seat.interrupt(reason)
                    return
    except BudgetError:
        yield from seat.interrupt(EndReason.COST_CEILING)
        return
    yield from seat.advance(reply if step is None else (step, reply))


def _no_reply(where: str) -> Reply:
    message = f"The {where} ended without a reply."
    return Reply(text="", finish_reason="error", error=Failure("infrastructure", message))
