"""Plays a run that learns, an evolution or a planner's training, with every update kept: for a terminal or a worker."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from core.episode import Episode, Task
from core.errors import TaskError
from core.learning import Playing
from core.pocket.tasks import normalise_question
from core.pool.cache import CachedPool
from core.tasks.sets import POCKET_SETS
from storage.rows.full_episodes import TimedEpisode
from storage.rows.summaries import CandidateSummary, RunStatus, UpdateSummary
from storage.shelves.learning import checkpoint_row
from storage.shelves.replies import PaidReplies
from storage.store import Store
from ui.presentation.comparison import seen_words
from ui.runs.lease import owner
from ui.runs.plans import known_plan
from ui.runs.play import TOLD_S, Ending, HaltingPool, Parts, Stopped, common_parts, metered
from ui.runs.policies import stored_in
from ui.runs.settings.learning import LearningPlan, TrainingPlan, learning_sets
from ui.runs.spending import MeteredPool


@dataclass(frozen=True, slots=True)
class Record:
    """What an update adds to its run: the `episodes` it played, its statistics as JSON, and what is kept of it, of the
    checkpoint the fields of a `checkpoint_row`. `state` is all that is needed to go on after it, where it was due, and
    `obsolete` are files that it takes the place of. `settled`: no reply of before is asked for again."""

    episodes: int
    stats: Mapping[str, Any]
    checkpoint: Mapping[str, Any] | None
    state: bytes | None
    settled: bool
    candidates: Sequence[CandidateSummary] = ()
    recorded: Sequence[Episode] = ()
    obsolete: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands as it is taken up: the updates that are kept, the `state` after the last of them, and the pool
    that it asks. `stops` says whether a person asked it to."""

    store: Store
    run: str
    earlier: Sequence[UpdateSummary]
    state: Any
    pool: CachedPool
    stops: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class LearningParts(Parts, ABC):
    """All that a run that learns needs besides the store."""

    #: What it calls an update.
    noun: ClassVar[str]

    validation: list[Task]

    @property
    @abstractmethod
    def updates(self) -> int:
        """How many updates there shall be."""

    @abstractmethod
    def state(self, index: int, kept: bytes, run: str) -> Any:
        """The state after an update, from what the store kept of it."""

    @abstractmethod
    def learn(self, at: Position) -> Iterator[Any]:
        """Each update that follows those that are kept; before each, what a person waits for."""

    @abstractmethod
    def record(self, run: str, update: Any) -> Record:
        """What an update adds to its run."""

    def size(self, update: UpdateSummary) -> float:
        """How much the one after this update plays, compared with others."""
        return 1.0

    def play(self, store: Store, run: str) -> Generator[Any, None, Ending]:
        """Learn to the end from wherever the run stands; each update is kept before it is yielded. Stopped when a
        person asks the run to, before the next update or call. BudgetError at the ceiling, and before an update that
        could reach it."""
        stored, earlier = store.learning.state(run), store.learning.updates(run)
        if (
            stored is None and earlier and earlier[-1].index == self.updates
        ):  # it ended before that was written down
            return RunStatus.FINISHED, None
        state = None if stored is None else self.state(*stored, run)
        kept = 0 if stored is None else stored[0] + 1
        if earlier[kept:]:
            store.learning.forget_from(run, kept)
        earlier = earlier[:kept]
        ledger = store.learning.paid_replies(run)
        ledger.generation = len(earlier)
        paid_usd = ledger.spent_usd(ledger.generation)
        with metered(
            store, run, self.pool, self.plan.max_cost_usd, self.reckoned, keeps_failures=False
        ) as pool:
            yield from self._learn(store, run, earlier, state, ledger, paid_usd, pool)
        return RunStatus.FINISHED, None

    def _learn(
        self,
        store: Store,
        run: str,
        earlier: Sequence[UpdateSummary],
        state: Any,
        ledger: PaidReplies,
        paid_usd: float,
        pool: MeteredPool,
    ) -> Iterator[Any]:
        """Every update that is still to come, of whose replies so much is paid already."""

        def stops() -> bool:
            return store.runs.control(run).cancel

        if self.shelf is not None:
            self.shelf.load([*self.tasks, *self.validation])
        shared = CachedPool(HaltingPool(pool, stops), ledger=ledger, shelf=self.shelf)
        marks = [(one.spent_usd, self.size(one)) for one in earlier]
        if earlier and earlier[-1].index < self.updates:
            self._check_next(pool, marks, paid_usd)
        last = earlier[-1] if earlier else None
        unread = last.unread_usd if last else 0.0
        keeper = _Keeper(store, run, pool, ledger, self.plan.reuse, last, store.now(), unread)
        told = time.monotonic()
        for event in self.learn(Position(store, run, earlier, state, shared, stops)):
            if (index := getattr(event, "index", None)) is None:  # what a person waits for
                if not isinstance(event, Playing) or time.monotonic() - told >= TOLD_S:
                    told = time.monotonic()
                    yield event
                continue
            entry = keeper.keep(index, self.record(run, event))
            pool.note()
            yield event
            marks.append((entry.spent_usd, self.size(entry)))
            if index < self.updates:
                if stops():
                    raise Stopped
                self._check_next(pool, marks)

    def _check_next(
        self, pool: MeteredPool, marks: Sequence[tuple[float, float]], paid_usd: float = 0.0
    ) -> None:
        """BudgetError when the next update could reach the ceiling before its end, reckoned by the dearest so far.
        `marks` are, after each update, what was spent in all and the size of the next one, of which so much is paid."""
        each = [(after - before) / size for (before, size), (after, _) in pairwise(marks)]
        if each and not pool.has_room(max(each) * marks[-1][1] - paid_usd):
            raise pool.refusal(self.noun)


@dataclass
class _Keeper:
    """Stores each update with all that belongs to it in one transaction; a resumed run goes on after the `last`."""

    store: Store
    run: str
    pool: MeteredPool
    ledger: PaidReplies
    reuse: bool  # replies are kept for other runs
    last: UpdateSummary | None
    began: float  # the update under way, Unix seconds
    unread_usd: float  # before the run was taken up
    _since: float = field(default_factory=time.monotonic, init=False)

    def keep(self, index: int, record: Record) -> UpdateSummary:
        """Commit an update; what is kept of it."""
        self.store.runs.heartbeat(self.run, owner())  # refused when another process took the run over
        now, before = time.monotonic(), self.last
        wall_s, self._since = now - self._since, now
        row = checkpoint_row(**record.checkpoint, created=self.store.now()) if record.checkpoint else None
        entry = UpdateSummary(
            run_id=self.run,
            index=index,
            episodes=record.episodes + (before.episodes if before else 0),
            wall_s=wall_s + (before.wall_s if before else 0.0),
            spent_usd=self.pool.replies_usd,
            unread_usd=self.unread_usd + self.pool.reckoned.unread_usd,
            checkpoint_id=row["id"] if row else None,
            stats=record.stats,
        )
        began, self.began = self.began, self.store.now()
        # When each of them was played is not known, only when their update was.
        played = [TimedEpisode(one, began, self.began, [began] * len(one.turns)) for one in record.recorded]
        self.store.learning.add(
            entry, state=record.state, checkpoint=row, candidates=record.candidates, played=played
        )
        for path in record.obsolete:
            path.unlink(missing_ok=True)
        self.last, self.ledger.generation = entry, index + 1
        if record.settled and not self.reuse:
            self.ledger.forget(before=self.ledger.generation)
        return entry


def learning_parts(store: Store, plan: LearningPlan) -> dict[str, Any]:
    """The fields of `LearningParts` for a plan."""
    tasks, validation, notes = learning_sets(plan)
    common = common_parts(store, plan, tasks, validation)
    return {**common, "validation": validation, "notes": tuple(notes)}


def tasks_seen(
    store: Store, policies: Sequence[str], models: Sequence[str], tasks: Sequence[Task], spec: str
) -> list[str]:
    """A sentence for each of these policies that plays by what learned from, or was validated on, some of these
    `tasks` of the set `spec`: what it solves of them says too much. Tasks are the same where their normalised questions
    are. Nothing is said of what was not learned in this store, or from a file that is gone."""
    told = []
    for name in policies:
        for stored in stored_in(name, models):
            for plan in _lessons_of(store, stored):
                if seen := _count_seen(plan, tasks, spec):
                    told.append(seen_words(name, stored, seen, len(tasks), plan.tasks))
    return list(dict.fromkeys(told))


def _lessons_of(store: Store, stored: str) -> list[LearningPlan]:
    """The plans of the runs that a checkpoint or a planner was learned in: its own, and those of the checkpoints that
    taught it or that it went on from."""
    found: dict[str, LearningPlan] = {}
    waiting = [stored]
    while waiting:
        one = waiting.pop()
        run = store.checkpoints.get(one).run_id if store.checkpoints.has(one, planner=None) else None
        if (
            run is None
            or run in found
            or not isinstance(plan := known_plan(store.runs.get(run)), LearningPlan)
        ):
            continue
        found[run] = plan
        if isinstance(plan, TrainingPlan):
            waiting.append(plan.planner)
        elif plan.evolution.teacher:
            waiting += stored_in(plan.evolution.teacher, plan.models)
    return list(found.values())


def _count_seen(plan: LearningPlan, tasks: Sequence[Task], spec: str) -> int:
    """How many of these tasks the run of this plan learned from or was validated on."""
    if (
        plan.tasks == spec or {plan.tasks, spec} <= POCKET_SETS.keys()
    ):  # split alike: the other splits are apart
        tasks = [task for task in tasks if task.split in ("evolve", "validation")]
    if not tasks:
        return 0
    try:
        learned, validated, _ = learning_sets(replace(plan, digest=""))
    except TaskError:
        return 0
    known = {normalise_question(task.question) for task in (*learned, *validated)}
    return sum(normalise_question(task.question) in known for task in tasks)
