"""Plays a run to its end, whatever its kind: the one way, for a worker, the command line and every other door; and how
a person stops, pauses or steps it.

    for event in play(store, run): show(event)

Values come up as they are made (turns, generations, numbers of turns read); closing the generator stops the run. How it
ended then stands in the store."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from core.episode import Ask, Decide, EndReason, Episode, Reply, Task, Transcript
from core.errors import ConfigError, PoolError, StoreError, TrinityError
from core.play.drive import GradeMany
from core.play.judging import check_judge
from core.play.policies import Policy, innermost
from core.pool.pool import Flight, FlightPool, Pool, WrappedFlight, flight_of
from core.pool.spec import digest_of_specs, slots_of
from core.processes import EngineState, Processes, loaded_set_aside
from core.settings import LOCAL_ENGINE, ray_address
from core.tasks.sets import digest_of_tasks
from storage.recorder import heartbeats
from storage.rows.summaries import RunStatus
from storage.shelves.replies import SharedReplies
from storage.store import Store
from ui.presentation.runs import lost_words
from ui.runs import wiring
from ui.runs.grading import grading
from ui.runs.lease import finish, owner, take_over
from ui.runs.plans import (
    ENGINE_STATE,
    PREPARATION,
    RUN_KINDS,
    Preparation,
    RunPlan,
    engine_of,
    plan_of,
)
from ui.runs.settings import is_recorded
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import LearningPlan
from ui.runs.spending import MeteredPool, Reckoned, agree_to_cost, price

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder
    from core.coordinator.svf import Layout

#: Why a run that a person had paused was interrupted: nothing went wrong.
PAUSED_FOR_ANOTHER = "Paused: its worker went to another run."
PAUSED_AT_CLOSE = "Paused when the app was closed."


class Stopped(TrinityError):
    """A person asked the run to stop; why it did when they asked for something else."""


@contextmanager
def metered(
    store: Store,
    run: str,
    pool: Pool,
    ceiling_usd: float | None,
    reckoned: Reckoned | None = None,
    *,
    keeps_failures: bool = True,
) -> Iterator[MeteredPool]:
    """The pool as this process asks it for a run. The store is told of calls before they begin: those that were under
    way when the run's last process died are counted as the most that they could cost. Every reply has to be stored
    before more calls begin, and before this is left. Where it is left by a fault or Ctrl-C nobody knows that, and what
    was noted last stays: a few replies may count twice. `keeps_failures`: what failed calls cost is stored as well."""
    reckoned = Reckoned() if reckoned is None else reckoned
    reckoned.lost_usd = store.runs.charge_lost(run, owner=owner())
    note = partial(store.runs.note_unanswered, run, owner=owner())
    spent_usd = store.runs.spent_usd(run)
    if isinstance(pool, MeteredPool) and pool.ceiling_usd is not None:
        # What it would hold back does not count as begun here.
        left_usd = spent_usd + pool.ceiling_usd - pool.spent_usd
        ceiling_usd = left_usd if ceiling_usd is None else min(ceiling_usd, left_usd)
    found = MeteredPool(pool, ceiling_usd, spent_usd, reckoned, note, keeps_failures)
    try:
        yield found
    except StoreError:
        raise
    except (TrinityError, GeneratorExit):
        found.note()
        raise
    found.note()


class HaltingPool(FlightPool):
    """A pool that asks `stops`, before calls begin, whether it shall stop. Stopped, when it shall: every reply that was
    under way has been handed on before."""

    def __init__(self, pool: Pool, stops: Callable[[], bool]) -> None:
        self.specs = pool.specs
        self._pool = pool
        self._stops = stops

    def flight(self) -> _HaltingFlight:
        """Calls under way, of which none begins once it shall stop."""
        return _HaltingFlight(flight_of(self._pool), self._stops)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of the pool behind, then the whole reply."""
        if self._stops():
            raise Stopped
        yield from self._pool.stream(ask)


class _HaltingFlight(WrappedFlight):
    def __init__(self, behind: Flight, stops: Callable[[], bool]) -> None:
        super().__init__(behind)
        self._stops = stops
        self._held = 0  # calls that came when it was to stop

    @property
    def under_way(self) -> int:
        return self._held + self._behind.under_way

    def add(self, asks: Sequence[Ask]) -> None:
        if self._held or self._stops():
            self._held += len(asks)
        else:
            self._behind.add(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        if self._held and not self._behind.under_way:
            raise Stopped
        return self._behind.ready(wait=wait)


#: How often a waiting worker looks whether it may go on, in seconds.
LOOK_S = 0.15
#: Set once this process is to leave as soon as nothing is under way: a run that waits for a person then stops.
leaving = threading.Event()


@dataclass
class GroupControl:
    """What a person asks of a run whose episodes are played side by side: to wait, during which `waits` is called, or
    to end it."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    waits: Callable[[], None] = lambda: None
    cancelled: bool = False
    _looked: float = field(default=0.0, init=False)

    def stop(self, _episode: Episode | None = None) -> EndReason | None:
        """CANCELLED when asked to; waits here while the run is paused."""
        while not self.cancelled:
            if time.monotonic() - self._looked < LOOK_S:
                return None
            control = self.store.runs.control(self.run)
            self.cancelled = control.cancel
            if control.cancel or not control.paused:
                self._looked = time.monotonic()
                break
            self.waits()
            self.sleep(LOOK_S)
        return EndReason.CANCELLED if self.cancelled else None

    def ending(self, missing: int) -> tuple[RunStatus, str | None]:
        """How a run is over that was played to its end or until it was cancelled, `missing` episodes lost but for those
        that no recorded model could play."""
        if self.cancelled:
            return RunStatus.CANCELLED, None
        if not missing:
            return RunStatus.FINISHED, None
        lost = (
            f"{missing} episode{' is' if missing == 1 else 's are'} missing: models could not be asked, or this "
            "program failed, as each episode says."
        )
        return RunStatus.INTERRUPTED, f"{lost} Resume the run to play what is missing."


#: So long a paused run keeps a worker that another run waits for, in seconds.
PATIENCE_S = 120.0


@dataclass
class LiveControl:
    """What a person asks of the run, asked of the store: cancel, wait between turns, take over a decision. `waits` is
    told again and again of an episode whose next turn waits for the person."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    waits: Callable[[Episode], object] = lambda _: None
    _passed: tuple[str, int] = field(default=("", -1), init=False)  # the last turn that was let through

    def stop(self, episode: Episode) -> EndReason | None:
        """CANCELLED when asked to; before a new decision, wait here while the run is paused. Stopped when a paused run
        makes way for one that waits for its worker."""
        turn = episode.id, len(episode.turns)
        since, number = self.clock(), self.store.runs.turns_played(self.run) + 1
        while True:
            control = self.store.runs.control(self.run)
            if control.cancel:
                return EndReason.CANCELLED
            if turn == self._passed:
                return None
            if not control.paused or control.steps >= number:
                self._passed = turn
                return None
            if self.clock() - since > PATIENCE_S and self.store.runs.next_waiting():
                raise Stopped(PAUSED_FOR_ANOTHER)
            if leaving.is_set():
                raise Stopped(PAUSED_AT_CLOSE)
            self.waits(episode)
            self.sleep(LOOK_S)


#: How often it is told how far something is that takes long, in seconds.
TOLD_S = 0.5


class Pace:
    """Tells now and then how far a preparation is, and how long the rest takes by the pace of its last steps."""

    def __init__(self, what: str) -> None:
        self._what, self._told = what, time.monotonic()
        self._last = deque([(self._told, 0.0)], maxlen=24)  # when which share was done

    def after(self, done: int, of: int, share: float | None = None) -> Preparation | None:
        """What is to be told after so many of all; None where it was told a moment ago. The first step is still to
        be done where that is 0, and the last one is always told."""
        now, share = time.monotonic(), done / of if share is None else share
        self._last.append((now, share))
        if now - self._told < TOLD_S and 0 < done < of:
            return None
        self._told = now
        since, before = self._last[0]
        left_s = (now - since) / (share - before) * (1 - share) if share > before else None
        return Preparation(self._what, done, of, share, left_s)


def note_preparation(store: Store, run: str, told: Preparation | None) -> None:
    """Write down for pages how far a preparation is; nothing once it is over."""
    goes_on = told is not None and told.done < told.of
    store.runs.amend_key(run, PREPARATION, asdict(told) if told and goes_on else None, owner=owner())


@dataclass
class EngineNotes:
    """Writes down for pages, while a run is played, what the helpers of its engine do, and once it is over how many of
    them were lost. Nothing for an engine without helpers elsewhere."""

    store: Store
    run: str
    _processes: Processes | None = field(default=None, init=False)
    _lost_before: int = field(default=0, init=False)  # in other runs of this process
    _one: threading.Lock = field(default_factory=threading.Lock, init=False)

    def begin(self, engine: str) -> None:
        """Join the cluster of an engine, which may be another one than before. Stopped, so that the run can be resumed,
        where that is not possible now."""
        self.store.runs.amend_key(
            self.run, "engine", None if engine == LOCAL_ENGINE else engine, owner=owner()
        )
        try:
            processes = None if ray_address(engine) is None else wiring.processes(engine)
        except ConfigError as error:
            raise Stopped(str(error)) from error
        state = processes and processes.state()
        self._lost_before = state.lost if state else 0
        self._processes = processes
        self.tell()

    def tell(self) -> None:
        """Write down what its helpers do now."""
        with self._one:
            if (state := self._state()) is not None:
                self.store.runs.amend_key(self.run, ENGINE_STATE, asdict(state), owner=owner())

    def end(self) -> None:
        """They do nothing more for this run. A cluster that is gone is left, as Ray ends a process that stays; a later
        run joins anew."""
        with self._one:
            state, processes, self._processes = self._state(), self._processes, None
        if processes is None:
            return
        try:
            processes.check()
        except PoolError:
            wiring.leave_cluster()
        if state is not None:
            self.store.runs.amend_key(self.run, ENGINE_STATE, None, owner=owner())
            if state.lost:
                self.store.runs.note(self.run, lost_words(state.lost))

    def _state(self) -> EngineState | None:
        state = self._processes and self._processes.state()
        return replace(state, lost=state.lost - self._lost_before) if state else None


def decompositions(policies: Iterable[Policy]) -> Iterator[Preparation]:
    """Decompose the matrices whose singular values these policies change, and tell how far that is. Nothing where that
    takes no time: they were kept, or are small."""
    for policy in map(innermost, policies):
        encoder, offsets = getattr(policy, "encoder", None), getattr(policy, "offsets", None)
        if encoder is not None and offsets is not None:
            yield from decomposition(encoder, offsets.layout)


def decomposition(encoder: Encoder, layout: Layout) -> Iterator[Preparation]:
    """The same for one encoder and these of its matrices."""
    pace = Pace("matrices of the encoder decomposed")
    for step in encoder.decompose(layout) if layout else ():
        if (told := pace.after(step.done, step.of, step.share)) is not None:
            yield told


def questions_read(encoder: Encoder, questions: Iterable[str]) -> Iterator[Preparation]:
    """Have a large encoder read bare questions, which it then knows, and tell how far that is."""
    if encoder.keeps_states:
        asked = [Decide(Transcript(question), 0, question) for question in dict.fromkeys(questions)]
        pace = Pace("questions read")
        for done, _ in enumerate(encoder.read_each(asked), start=1):
            if (told := pace.after(done, len(asked))) is not None:
                yield told


def prepare_run(store: Store, run: str, steps: Iterable[Preparation]) -> Iterator[Preparation]:
    """The steps of a preparation, each written down for pages before it is yielded; none after a person asked the run
    to stop, which is left to whoever plays it."""
    for told in steps:
        note_preparation(store, run, told)
        yield told
        if store.runs.control(run).cancel:
            return


#: How a run is over, and why in one sentence when that was not its end.
Ending = tuple[RunStatus, str | None]

_STOPPED = "Its process was stopped; it can be resumed."


class Ready(Protocol):
    """A plan with all that it is played with, such as pool, policies and tasks."""

    @property
    def plan(self) -> RunPlan:
        """What is played, complete."""

    def play(self, store: Store, run: str) -> Generator[Any, None, Ending]:
        """Play what the run still lacks, each value kept before it is yielded. Stopped when a person asks for it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every plan over task sets needs besides the store. `shelf` is what is reused, `reckoned` what was not
    billed as usual, `notes` are worth knowing before it begins."""

    plan: Any
    pool: Pool
    tasks: list[Task]
    grade: GradeMany
    shelf: SharedReplies | None = field(default=None, kw_only=True)
    reckoned: Reckoned = field(default_factory=Reckoned, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def readers(self) -> Sequence[Encoder]:
        """The encoders that read for it, one as often as policies decide by it."""
        return ()


def common_parts(
    store: Store, plan: BatchPlan | LearningPlan, tasks: list[Task], others: Sequence[Task] = ()
) -> dict[str, Any]:
    """The fields of `Parts`: of the plan, with the models and tasks that it turns out to have, and of the `others` that
    are graded too. ConfigError when its pool has other models than when its run began."""
    pool = wiring.resolve_pool(plan.pool, engine=plan.engine)
    models = tuple(spec.name for spec in slots_of(pool.specs))
    if plan.models and models != plan.models:
        raise ConfigError(
            f"The models in {plan.pool} have changed since this run began, so it cannot be resumed."
        )
    wiring.check_recorded(pool, [*tasks, *others])
    check_judge(pool.specs, [*tasks, *others])
    reused = plan.reuse and not is_recorded(plan.pool)  # what is recorded costs nothing
    return {
        "plan": replace(plan, models=models, digest=digest_of_tasks(tasks)),
        "pool": pool,
        "tasks": tasks,
        "grade": grading(store, [*tasks, *others], plan.tasks, engine=plan.engine),
        "shelf": store.episodes.shared_replies(pool.specs) if reused else None,
    }


def prepare(store: Store, plan: RunPlan) -> Ready:
    """A plan made ready by its kind; everything that can be wrong with it is found here, before anything is played."""
    player = import_module(RUN_KINDS[plan.kind].player)  # each loads what it needs alone
    ready: Ready = player.prepare(store, plan)
    return ready


def play(store: Store, run: str, ready: Ready | None = None) -> Generator[Any]:
    """Take a run for this process, play it from wherever it stands, and write down how it ended.

    It is finished or cancelled; or interrupted, to be resumed, by Ctrl-C, SIGTERM, a closed generator, a ceiling, an
    outage or a fault of this program; or failed with one sentence, when its plan could not be made ready and nothing of
    it is kept. `ready` is its plan made ready by a door that has seen to the cost. StoreError when another process has
    the run, or it is over; a KeyboardInterrupt and a fault are passed on."""
    take_over(store, run)
    begun, engine = ready is not None, EngineNotes(store, run)
    try:
        with heartbeats(store, run, owner(), tell=engine.tell):
            note_preparation(store, run, None)  # what a process that was killed left
            store.runs.amend_key(run, ENGINE_STATE, None, owner=owner())
            engine.begin(engine_of(plan_of(store.runs.get(run)) if ready is None else ready.plan))
            if ready is None:  # nobody can be asked
                plan = plan_of(store.runs.get(run))
                agree_to_cost(price(store, plan), may_ask=False, agreed=False)
                ready = prepare(store, plan)
            if (pool := getattr(ready, "pool", None)) is not None:  # reading again asks no model
                store.runs.note_pool(run, digest_of_specs(pool.specs))
            for note in getattr(ready, "notes", ()):
                store.runs.note(run, note)
            begun = True
            engine.tell()  # who asks models is there by now
            try:
                with loaded_set_aside():
                    ending = yield from ready.play(store, run)
            finally:
                engine.end()
    except Stopped as stopped:
        ending = RunStatus.INTERRUPTED, str(stopped) or None
    except TrinityError as error:
        found = store.runs.get(run)
        can_go_on = begun or found.episodes or found.generations
        ending = RunStatus.INTERRUPTED if can_go_on else RunStatus.FAILED, str(error)
    except (KeyboardInterrupt, GeneratorExit):
        finish(store, run, RunStatus.INTERRUPTED, _STOPPED)
        raise
    except Exception as error:  # at least the run does not look alive for ever
        finish(store, run, RunStatus.INTERRUPTED, f"It broke off: {type(error).__name__}. It can be resumed.")
        raise
    finish(store, run, *ending)
