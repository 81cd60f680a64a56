"""Drivers of the role loop: one live episode, or thousands at once, decided, asked and graded together."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict, Unpack

from core.episode import (
    Ask,
    AskSteps,
    Decide,
    Decision,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Grade,
    Message,
    Plan,
    Replied,
    Reply,
    Status,
    Turn,
    TurnStarted,
    WritePlan,
)
from core.errors import BudgetError, TaskError
from core.play.policy import Policy, WorkflowPolicy, workflow_policy
from core.play.session import play
from core.pool.pool import Flight, Pool, closing, flight_of

#: Whether an answer is right, or why nobody can tell, once somebody has worked it out.
PendingVerdict = Future[bool | Failure]
GradeMany = Callable[[Sequence[Grade]], Sequence[bool | Failure | PendingVerdict]]
Stop = Callable[[Episode], EndReason | None]
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


class Masks(TypedDict, total=False):
    """Which slots of `Episode.models` and of ROLE_ORDER may be chosen (True); empty allows all."""

    model_mask: Sequence[bool]
    role_mask: Sequence[bool]


class DriveOptions(Masks, total=False):
    """What every driver takes besides the episodes.

    `stop` is asked before each decision and each call that costs something; a reason ends the episode as interrupted,
    with its committed turns. `stored_replies` were paid for and stored before their turn was completed: they are used
    instead of asking the same again. `temperatures`: at which one turn's model is asked, by episode id and turn index.
    With `stream`, models are asked one after the other, text arrives as Delta events, `stop` is asked at each of them
    too, and a call that the pool refuses to pay for (BudgetError) ends its episode as interrupted. `terms` is told of
    each call before it is made: it gives the call as it shall be made, or why the episode ends instead."""

    stop: Stop | None
    terms: Terms | None
    stored_replies: StoredReplies | None
    temperatures: Mapping[tuple[str, int], float] | None
    stream: bool


@dataclass(slots=True)
class _Seat:
    """One episode being played: its generator, what it waits for and its turns so far.

    `under_way` are the calls of a workflow's steps, by the number of their turn; `halting` is why no more are begun,
    while those that are under way are waited for."""

    episode: Episode
    generator: Generator[Any, Any, Episode]
    writer: WorkflowPolicy | None = None
    turns: list[Turn] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    request: Decide | WritePlan | Ask | AskSteps | Grade | None = None
    outcome: Episode | None = None
    under_way: dict[int, int] = field(default_factory=dict)
    halting: EndReason | None = None

    def advance(self, response: object = None) -> Iterator[Event]:
        """Send the answer to `play`, yield its events, and halt at its next request or at the end."""
        self.request = None
        try:
            step = self.generator.send(response)
            while isinstance(step, Plan | TurnStarted | Replied | Turn):
                if isinstance(step, Turn):
                    self.turns.append(step)
                elif isinstance(step, Plan):
                    self.plans.append(step)
                yield step
                step = self.generator.send(None)
            self.request = step
        except StopIteration as ended:
            self.outcome = ended.value
            yield EpisodeFinished(ended.value)

    def halts(self, stop: Stop | None) -> EndReason | None:
        """The reason to stop here, if there is one."""
        return stop(self.so_far) if stop is not None else None

    @property
    def so_far(self) -> Episode:
        """The episode with its committed turns."""
        if not self.turns and not self.plans:
            return self.episode
        return replace(self.episode, turns=tuple(self.turns), plans=tuple(self.plans))

    def interrupt(self, reason: EndReason) -> Iterator[Event]:
        """End the episode early; what it has come to is kept, and it can be resumed."""
        self.generator.close()
        self.request = None
        answer, correct = None, None
        if self.turns:
            answer, correct = self.turns[-1].answer_after, self.turns[-1].correct_after
        self.outcome = replace(
            self.so_far, status=Status.INTERRUPTED, end_reason=reason, answer=answer, correct=correct
        )
        yield EpisodeFinished(self.outcome)


def _seat(episode: Episode, policy: Policy, pool: Pool, options: DriveOptions) -> _Seat:
    specs = {spec.name: spec for spec in pool.specs}
    fresh = replace(episode, status=Status.RUNNING, end_reason=None, answer=None, correct=None)
    if (writer := workflow_policy(policy, episode)) is not None:
        conducted = writer.conduct(fresh, specs, model_mask=options.get("model_mask", ()))
        return _Seat(fresh, conducted, writer, turns=list(episode.turns), plans=list(episode.plans))
    temperatures = (options.get("temperatures") or {}).items()
    generator = play(
        fresh,
        specs,
        model_mask=options.get("model_mask", ()),
        role_mask=options.get("role_mask", ()),
        temperatures={index: at for (name, index), at in temperatures if name == episode.id},
    )
    return _Seat(fresh, generator, turns=list(episode.turns))


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
    seats: list[_Seat] = field(default_factory=list)
    asked: dict[int, tuple[_Seat, int | None]] = field(
        default_factory=dict
    )  # who waits for which call, and for which step of a workflow
    judged: list[tuple[PendingVerdict, _Seat]] = field(default_factory=list)  # who waits for which verdict
    flight: Flight = field(init=False)
    numbered: int = 0

    def __post_init__(self) -> None:
        self.flight = flight_of(self.pool)

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
        seat = _seat(episode, self.policy, self.pool, self.options)
        if not episode.turns and not episode.plans:
            yield EpisodeStarted(seat.episode)
        self.seats.append(seat)
        yield from seat.advance()

    def go_on(self) -> Iterator[Event]:
        """Take up verdicts, decide and ask for everyone who waits for that, take up the replies that are there, and
        grade."""
        yield from self.take_up_verdicts()
        yield from _decide_all(self.seats, self.policy, self.options.get("stop"))
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
            if reason := reason_to(seat.so_far):
                self.cancel(seat)
                yield from seat.interrupt(reason)

    def take(self, number: int, reply: Reply) -> Iterator[Event]:
        """Go on with whoever waited for this reply."""
        seat, step = self.asked.pop(number)
        if step is None:
            yield from seat.advance(reply)
            return
        del seat.under_way[step]
        yield from seat.advance((step, reply))
        if seat.outcome is not None:  # a failure: what the other steps would have said is of no use
            self.cancel(seat)
        elif seat.halting is not None and not seat.under_way:
            yield from seat.interrupt(seat.halting)

    def cancel(self, seat: _Seat) -> None:
        """Give up the calls that a seat waits for."""
        for number in [number for number, (waiting, _) in self.asked.items() if waiting is seat]:
            del self.asked[number]
            self.flight.cancel(number)
        seat.under_way.clear()

    def ask_all(self) -> Iterator[Event]:
        """Put every call that a seat asks for under way; what is stored, or streamed, is answered here."""
        calls: list[Ask] = []
        stored, stop = self.options.get("stored_replies") or {}, self.options.get("stop")
        terms = self.options.get("terms")
        for seat in self.seats:
            yield from self.ask_steps(seat, calls)
            if not isinstance(ask := seat.request, Ask):
                continue
            if reply := stored.get((seat.episode.id, len(seat.turns), ask.model, ask.messages)):
                yield from seat.advance(reply)
            elif reason := seat.halts(stop):
                yield from seat.interrupt(reason)
            elif isinstance(agreed := terms(seat.so_far, ask) if terms else ask, EndReason):
                yield from seat.interrupt(agreed)
            elif self.options.get("stream"):
                yield from _stream(seat, agreed, self.pool, stop)
            else:
                seat.request = None  # it waits for its reply
                self.await_reply(seat, None)
                calls.append(agreed)
        if calls:
            self.flight.add(calls)

    def await_reply(self, seat: _Seat, step: int | None) -> None:
        """Note who waits for the call that is begun next."""
        if step is not None:
            seat.under_way[step] = self.numbered
        self.asked[self.numbered] = seat, step
        self.numbered += 1

    def ask_steps(self, seat: _Seat, calls: list[Ask]) -> Iterator[Event]:
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
                self.await_reply(seat, step)
                calls.append(agreed)

    def grade_all(self) -> Iterator[Event]:
        """Have every answer graded that waits for it; what takes long is worked on meanwhile."""
        waiting = [(seat, seat.request) for seat in self.seats if isinstance(seat.request, Grade)]
        if not waiting:
            return
        for (seat, _), verdict in zip(waiting, self.grade([request for _, request in waiting]), strict=True):
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
                yield from seat.advance(verdict.result())
            else:
                self.judged.append((verdict, seat))


def _decide_all(seats: Sequence[_Seat], policy: Policy, stop: Stop | None) -> Iterator[Event]:
    waiting: list[tuple[_Seat, Decide]] = []
    planning: list[tuple[_Seat, WritePlan]] = []
    for seat in seats:
        if isinstance(seat.request, Decide | WritePlan) and (reason := seat.halts(stop)):
            yield from seat.interrupt(reason)
        elif isinstance(seat.request, Decide):
            waiting.append((seat, seat.request))
        elif isinstance(seat.request, WritePlan):
            planning.append((seat, seat.request))
    by_writer: dict[int, list[tuple[_Seat, WritePlan]]] = {}
    for seat, asked in planning:
        by_writer.setdefault(id(seat.writer), []).append((seat, asked))
    for some in by_writer.values():
        writer = some[0][0].writer
        assert writer is not None  # nobody else asks for plans
        for (seat, _), reply in zip(some, writer.write([asked for _, asked in some]), strict=True):
            yield from seat.advance(reply)
    if waiting:
        decisions: list[Decision] = policy.decide([request for _, request in waiting])
        for (seat, _), decision in zip(waiting, decisions, strict=True):
            yield from seat.advance(decision)


def _stream(seat: _Seat, ask: Ask, pool: Pool, stop: Stop | None, step: int | None = None) -> Iterator[Event]:
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
