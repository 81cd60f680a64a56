"""Drivers of the role loop: one live episode, or thousands at once, decided, asked and graded together."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, Unpack

from core.episode import (
    Ask,
    AskSteps,
    Decide,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Grade,
    Judgement,
    Message,
    PendingVerdict,
    Plan,
    Replied,
    Reply,
    Status,
    Turn,
    TurnStarted,
    WritePlan,
    episode_of,
)
from core.errors import BudgetError, NothingAllowed, TrinityError
from core.play.policies import Masks, Policy, innermost
from core.pool.pool import Flight, Hear, Pool, closing, flight_of
from core.pool.spec import ModelSpec

log = logging.getLogger(__name__)

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

GradeMany = Callable[[Sequence[Grade]], Sequence[bool | Failure | PendingVerdict]]
#: Why an episode shall end now, None when it shall not.
Stop = Callable[[Episode], EndReason | None]
Terms = Callable[[Episode, Ask], Ask | EndReason]
#: Replies by what was asked: (episode id, turn index, model, messages).
StoredReplies = Mapping[tuple[str, int, str, tuple[Message, ...]], Reply]


class DriveOptions(Masks, total=False):
    """What every driver takes besides the episodes.

    `stop` is asked before each decision and each call that costs something; a reason ends the episode as interrupted,
    with its committed turns. `stored_replies` were paid for and stored before their turn was completed: they are used
    instead of asking the same again. With `stream`, models are asked one after the other, text arrives as Delta events,
    `stop` is asked at each of them too, and a call that the pool refuses to pay for (BudgetError) ends its episode as
    interrupted. `terms` is told of each call before it is made, but not of a judge's: it gives the call as it shall be
    made, or why the episode ends instead. `settle` is called before any call begins and before the driver waits: it
    has all events so far stored, and gives those that could not be, each with what is wrong with it.

    Whatever else is raised while an episode is played, and whatever is thrown in where one of its events was yielded
    (it could not be stored), ends that episode alone, as missing; what goes wrong for a batch is tried one by one. The
    errors in `stops` are passed on and end everything: by default TrinityError, which somebody has to mend first."""

    stop: Stop | None
    terms: Terms | None
    settle: Callable[[], Sequence[tuple[Event, Exception]]]
    stored_replies: StoredReplies | None
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
    waiting = iter(episodes)
    return drive_arriving(lambda wait: next(waiting, None), policy, pool, grade, **options)


def drive_arriving(
    take: Callable[[bool], Episode | None],
    policy: Policy,
    pool: Pool,
    grade: GradeMany,
    *,
    watch: Callable[[Callable[[], None]], object] = lambda wake: None,
    give_up: Stop | None = None,
    hear: Hear | None = None,
    **options: Unpack[DriveOptions],
) -> Iterator[Event]:
    """`drive_many` for episodes that come while others are played, until no more will come.

    `take` gives the next one; None when there is none now, and when told to wait, when none will come any more. `watch`
    is given what it is to call, from any thread, whenever something came. `give_up` is then asked of each episode that
    waits for a reply: a reason cancels its call and ends it as interrupted. `hear`: who is told a reply's text as it
    comes (`core.pool.pool.Flight.listen`)."""
    specs, flight = {spec.name: spec for spec in pool.specs}, flight_of(pool)
    table = _Table(policy, pool, grade, options, specs, flight)
    watch(flight.wake)
    if hear is not None:
        flight.listen(hear)
    next_one: Episode | None = None
    with contextlib.closing(flight):
        while True:
            while flight.capacity is None or len(table.seats) - len(table.judged) < flight.capacity:
                next_one = next_one or take(not table.seats)
                played = (seat.episode.id for seat in table.seats)
                if next_one is None or not flight.affords(next_one, played):  # BudgetError: it never can
                    break
                yield from table.seat(next_one)
                next_one = None
            if not table.seats:
                return
            if give_up is not None:
                yield from table.give_up(give_up)
            yield from table.go_on()


@dataclass(slots=True)
class Seat:
    """One episode being played: its generator, what it waits for and its turns so far.

    `writer` plans its workflows, where there are any; `under_way` are the calls that have been made, by the number of
    their turn (None: of the turn that is played); `halting` is why no more are made, while those are waited for;
    `absent` are models that cannot be asked about its task."""

    episode: Episode
    writer: Policy
    absent: tuple[str, ...] = ()
    generator: Generator[Any, Any, Episode] = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    request: Decide | WritePlan | Ask | AskSteps | Grade | None = None
    outcome: Episode | None = None
    under_way: set[int | None] = field(default_factory=set)
    halting: EndReason | None = None

    def advance(self, response: object = None) -> Iterator[Event]:
        """Send the answer to `play`, yield its events, and halt at its next request or at the end."""
        self.request = None
        try:
            step = self.generator.send(response)
            while isinstance(step, EpisodeStarted | Plan | TurnStarted | Replied | Judgement | Turn):
                if isinstance(step, Turn):
                    self.turns.append(step)
                elif isinstance(step, Plan):
                    self.plans.append(step)
                elif isinstance(step, Judgement):
                    self.judgements.append(step)
                yield step
                step = self.generator.send(None)
            self.request = step
        except StopIteration as ended:
            self.outcome = ended.value
            yield EpisodeFinished(ended.value)

    @property
    def so_far(self) -> Episode:
        if not self.turns and not self.plans and not self.judgements:
            return self.episode
        judgements = (*self.episode.judgements, *self.judgements)
        return replace(self.episode, turns=tuple(self.turns), plans=tuple(self.plans), judgements=judgements)

    def interrupt(self, reason: EndReason) -> Iterator[Event]:
        """End the episode early; what it has come to is kept, and it can be resumed."""
        self.generator.close()
        yield self._cut(Status.INTERRUPTED, reason)

    def break_off(self, fault: Exception) -> Iterator[Event]:
        """End the episode as missing because of a fault of this program; what it has come to is kept."""
        with contextlib.suppress(Exception):  # the fault may be its own
            self.generator.close()
        where = f"at turn {len(self.turns) + 1}" if not self.writer.rounds else "in a workflow"
        failed = f"This program failed {where} ({type(fault).__name__}); its log says more."
        message = str(fault) if isinstance(fault, TrinityError) else failed
        yield self._cut(Status.MISSING, EndReason.ERROR, message)

    def leave_out(self) -> Iterator[Event]:
        """End the episode as missing because no model that could be asked has a recorded reply to its task."""
        self.generator.close()
        name = self.episode.policy
        message = f"Policy '{name}' cannot play this task: models that it needs have no recorded reply to it."
        yield self._cut(Status.MISSING, EndReason.NOT_RECORDED, message)

    def next_call(self) -> tuple[int | None, Ask] | None:
        """A call that it waits for and that nobody has made yet, and the number of the turn that it is for where that
        is a workflow's step."""
        match self.request:
            case Ask() if not self.under_way:
                return None, self.request
            case AskSteps():
                fresh = ((step, ask) for step, ask in self.request.asks.items() if step not in self.under_way)
                return next(fresh, None)
        return None

    def _cut(self, status: Status, reason: EndReason, error: str | None = None) -> EpisodeFinished:
        self.request = None
        answer, correct = None, None
        if self.turns:
            answer, correct = self.turns[-1].answer_after, self.turns[-1].correct_after
        self.outcome = replace(
            self.so_far, status=status, end_reason=reason, answer=answer, correct=correct, error=error
        )
        return EpisodeFinished(self.outcome)


#: Who makes a call, for which of a workflow's steps, and the call.
Call = tuple[Seat, int | None, Ask]


def failing_game(fault: Exception) -> Generator[Any, Any, Any]:
    """Raises a fault where its first value is asked for: the play of an episode that cannot begin."""
    raise fault
    yield


@dataclass
class _Table:
    """The episodes that are being played, and the calls that they wait for."""

    policy: Policy
    pool: Pool
    grade: GradeMany
    options: DriveOptions
    specs: Mapping[str, ModelSpec]
    flight: Flight
    seats: list[Seat] = field(default_factory=list)
    # Who waits for which call, and for which step of a workflow.
    asked: dict[int, tuple[Seat, int | None]] = field(default_factory=dict)
    judged: list[tuple[PendingVerdict, Seat]] = field(default_factory=list)  # who waits for which verdict
    numbered: int = 0
    due: list[tuple[Seat, Call]] = field(default_factory=list)  # calls that are about to begin
    faults: set[str] = field(default_factory=set)  # of which kinds the log has told all

    @property
    def stops(self) -> tuple[type[Exception], ...]:
        return self.options.get("stops", (TrinityError,))

    def isolate(self, seat: Seat, events: Iterable[Event]) -> Iterator[Event]:
        """What happens to one episode: whatever it raises ends this one and no other."""
        try:
            yield from events
        except Exception as fault:
            unrecorded = isinstance(fault, NothingAllowed) and bool(seat.absent)
            if isinstance(fault, self.stops) and not unrecorded:
                raise
            self.cancel(seat)
            if unrecorded:
                yield from seat.leave_out()
                return
            self.log_fault(seat, fault)
            yield from seat.break_off(fault)

    def log_fault(self, seat: Seat, fault: Exception) -> None:
        """Log a fault; its traceback once for all faults that happen at the same place."""
        frames = [*traceback.walk_tb(fault.__traceback__)]
        place = f"{type(fault).__name__} {frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
        known = place in self.faults or isinstance(fault, TrinityError)  # whose sentence says all
        self.faults.add(place)
        message = "Episode %s broke off, the others go on: %s: %s"
        log.error(message, seat.episode.id, type(fault).__name__, fault, exc_info=None if known else fault)

    def answer_together(
        self,
        waiting: Sequence[tuple[Seat, Asked]],
        answer: Callable[[Sequence[Asked]], Sequence[Answered]],
        go_on: Callable[[Seat, Answered], Iterator[Event]],
    ) -> Iterator[Event]:
        """Answer what many seats ask in one batch, and let each go on; where that fails, each alone."""
        if not waiting:
            return
        try:
            answered = [*zip(waiting, answer([asked for _, asked in waiting]), strict=True)]
        except Exception as fault:
            unrecorded = isinstance(fault, NothingAllowed) and any(seat.absent for seat, _ in waiting)
            if isinstance(fault, self.stops) and not unrecorded:
                raise
            for seat, asked in waiting:
                if len(waiting) == 1:
                    yield from self.isolate(seat, failing_game(fault))
                elif seat.outcome is None:
                    yield from self.answer_together([(seat, asked)], answer, go_on)
            return
        for (seat, _), one in answered:
            yield from self.isolate(seat, go_on(seat, one))

    def seat(self, episode: Episode) -> Iterator[Event]:
        """Begin an episode, or go on with one that carries turns."""
        fresh = replace(episode, status=Status.RUNNING, end_reason=None, answer=None, correct=None)
        specs = (self.specs[name] for name in episode.models if name in self.specs)
        if absent := tuple(one.name for one in specs if not one.can_answer(episode.task.id)):
            fresh = replace(fresh, left_out=tuple(dict.fromkeys((*fresh.left_out, *absent))))
        seat = Seat(fresh, self.policy, absent, turns=list(episode.turns), plans=list(episode.plans))
        seat.generator = self.game(seat)
        self.seats.append(seat)
        yield from self.isolate(seat, seat.advance())

    def game(self, seat: Seat) -> Generator[Any, Any, Episode]:
        """What is played at a seat. A policy that cannot play it says so when it is asked for the first step."""
        if not seat.turns and not seat.plans:
            yield EpisodeStarted(seat.episode)
        own = self.policy.policy_for(seat.episode)
        if seat.absent and not {*own.choices()} - {*seat.episode.left_out}:
            raise NothingAllowed(f"The mask leaves nothing that policy '{own.id}' could choose: allow more.")
        seat.writer = innermost(own)
        masks = Masks(
            model_mask=self.options.get("model_mask", ()), role_mask=self.options.get("role_mask", ())
        )
        if self.options.get("served"):
            masks["served"] = True
        return (yield from own.conduct(seat.episode, self.specs, **masks))

    def go_on(self) -> Iterator[Event]:
        """Take up verdicts, decide and ask for everyone who waits for that, take up the replies that are there, and
        grade."""
        come = [one for one in self.judged if one[0].done()]
        self.judged = [one for one in self.judged if one not in come]
        for verdict, seat in come:
            yield from self.isolate(seat, self.take_verdict(seat, verdict))
        yield from self.decide_all()
        yield from self.settle()
        yield from self.ask_all()
        busy = any(seat.request is not None for seat in self.seats)
        if self.judged and not busy and not self.flight.under_way:
            wait([verdict for verdict, _ in self.judged], return_when=FIRST_COMPLETED)
        for number, reply in self.flight.ready(wait=not busy):
            if number in self.asked:
                seat, step = self.asked.pop(number)
                yield from self.isolate(seat, self.take(seat, step, reply))
        while self.asked and not self.flight.under_way:
            seat, step = self.asked.pop(min(self.asked))
            yield from self.isolate(seat, self.take(seat, step, _no_reply("pool")))
        graded = [(seat, seat.request) for seat in self.seats if isinstance(seat.request, Grade)]
        yield from self.answer_together(graded, self.grade, self.take_verdict)
        yield from self.settle()
        self.seats = [seat for seat in self.seats if seat.outcome is None]

    def settle(self) -> Iterator[Event]:
        """Have all that happened so far stored. An episode of which something could not be ends as missing, with what
        could."""
        settle = self.options.get("settle")
        while settle is not None and (lost := settle()):
            faults = {episode_of(event): fault for event, fault in lost}
            gone = {id(event) for event, _ in lost}
            for seat in [one for one in self.seats if one.episode.id in faults]:
                fault = faults[seat.episode.id]
                seat.turns = [one for one in seat.turns if id(one) not in gone]
                seat.plans = [one for one in seat.plans if id(one) not in gone]
                self.cancel(seat)
                self.log_fault(seat, fault)
                yield from seat.break_off(fault)

    def give_up(self, reason_to: Stop) -> Iterator[Event]:
        """End those that wait for a reply and have a reason to; their calls are cancelled."""
        for seat in {id(seat): seat for seat, _ in self.asked.values() if reason_to(seat.episode)}.values():
            yield from self.isolate(seat, self.end_early(seat, reason_to))

    def end_early(self, seat: Seat, reason_to: Stop | None) -> Iterator[Event]:
        """End one where it has a reason to."""
        if reason := reason_to and reason_to(seat.so_far):
            self.cancel(seat)
            yield from seat.interrupt(reason)

    def take(self, seat: Seat, step: int | None, reply: Reply) -> Iterator[Event]:
        """Go on with whoever waited for this reply."""
        seat.under_way.discard(step)
        yield from seat.advance(reply if step is None else (step, reply))
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
            if isinstance(seat.request, Ask | AskSteps):
                yield from self.isolate(seat, self.ask(seat))
        yield from self.settle()
        due, self.due = [one for one in self.due if one[0].outcome is None], []
        yield from self.answer_together(due, self.begin_calls, lambda seat, call: iter(()))

    def ask(self, seat: Seat) -> Iterator[Event]:
        """Put the calls of a seat under way, those of a workflow's steps side by side; what is stored, or streamed, is
        answered here. A reason to stop makes no more of them, and ends the episode once those under way have been
        answered."""
        stored, stop = self.options.get("stored_replies") or {}, self.options.get("stop")
        terms = self.options.get("terms")
        while (fresh := seat.next_call()) is not None:
            step, ask = fresh
            index = len(seat.turns) if step is None else step
            if reply := stored.get((seat.episode.id, index, ask.model, ask.messages)):
                yield from seat.advance(reply if step is None else (step, reply))
                continue
            agreed: Ask | EndReason = seat.halting or (stop and stop(seat.so_far)) or ask
            if isinstance(agreed, Ask) and terms and not self.is_judge(ask):
                agreed = terms(seat.so_far, agreed)
            if isinstance(agreed, EndReason):
                seat.halting, seat.request = agreed, None
                if not seat.under_way:
                    yield from seat.interrupt(agreed)
            elif self.options.get("stream"):
                shown = not self.is_judge(ask)  # whose words are no part of the turn
                yield from _stream(seat, agreed, self.pool, stop, step, shown=shown)
            else:
                self.due.append((seat, (seat, step, agreed)))
                seat.under_way.add(step)
        if seat.under_way:
            seat.request = None  # it waits for its replies

    def is_judge(self, ask: Ask) -> bool:
        """Whether a call is to the judge of the pool."""
        return ask.model in self.specs and self.specs[ask.model].judge

    def begin_calls(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Begin these calls together; their seats wait for the replies."""
        self.flight.add([ask for _, _, ask in calls])
        for seat, step, _ in calls:
            self.asked[self.numbered] = seat, step
            self.numbered += 1
        return calls

    def take_verdict(self, seat: Seat, verdict: bool | Failure | PendingVerdict) -> Iterator[Event]:
        """Go on with whoever waited for this verdict; one that is still worked on is waited for."""
        if isinstance(verdict, Future) and not verdict.done():
            seat.request = None  # it waits for its verdict
            self.judged.append((verdict, seat))
            verdict.add_done_callback(lambda _: self.flight.wake())
        else:
            yield from seat.advance(verdict.result() if isinstance(verdict, Future) else verdict)

    def decide_all(self) -> Iterator[Event]:
        """Have every decision made, and every workflow written, that a seat waits for."""
        waiting: list[tuple[Seat, Decide]] = []
        planning: dict[int, list[tuple[Seat, WritePlan]]] = {}
        for seat in self.seats:
            if isinstance(seat.request, Decide | WritePlan):
                yield from self.isolate(seat, self.end_early(seat, self.options.get("stop")))
            if isinstance(seat.request, Decide):
                waiting.append((seat, seat.request))
            elif isinstance(seat.request, WritePlan):
                planning.setdefault(id(seat.writer), []).append((seat, seat.request))
        for some in planning.values():
            yield from self.answer_together(some, some[0][0].writer.write, Seat.advance)
        yield from self.answer_together(waiting, self.policy.decide, Seat.advance)


def _stream(
    seat: Seat, ask: Ask, pool: Pool, stop: Stop | None, step: int | None = None, *, shown: bool = True
) -> Iterator[Event]:
    reply = _no_reply("stream")
    try:
        with closing(pool.stream(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    reply = piece
                    break
                if shown:
                    yield Delta(seat.episode.id, len(seat.turns) if step is None else step, piece)
                if reason := stop and stop(seat.so_far):
                    yield from seat.interrupt(reason)
                    return
    except BudgetError:
        yield from seat.interrupt(EndReason.COST_CEILING)
        return
    yield from seat.advance(reply if step is None else (step, reply))


def _no_reply(where: str) -> Reply:
    message = f"The {where} ended without a reply."
    return Reply(text="", finish_reason="error", error=Failure("infrastructure", message))
