"""A planner's training made ready, and played with every iteration kept: for a terminal or a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from core.episode import Task
from core.errors import CheckpointError, ConfigError
from core.planner.archive import MOST_BYTES
from core.planner.forms import Shown
from core.planner.grpo import check_installed
from core.planner.learn import Iteration, learn
from core.planner.planner import LanguagePlanner, best_device
from core.planner.state import PlannerState
from core.planner.statistics import IterationStats
from core.planner.warmup import WarmUp, new_planner, warm_up
from core.play.drive import GradeMany
from core.pocket.training import TrainingProgress
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.settings import POCKET_POOL
from core.tasks.sets import digest_of_tasks
from storage.rows.summaries import IterationSummary, RunStatus
from storage.shelves.paid_replies import PaidReplies
from storage.shelves.shared_replies import SharedReplies
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import HaltingPool, Stopped
from ui.runs.grading import grading
from ui.runs.lease import owner
from ui.runs.plans import TrainingPlan, same_models
from ui.runs.play import Ending
from ui.runs.spending import MeteredPool, Reckoned

#: A larger state is kept in a file and not in a row, in bytes: planner, and the two moments of its optimiser.
MOST_STATE_BYTES = 3 * MOST_BYTES


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """All that a training needs besides the store. `start` is what learns; None for a new pocket planner, which is
    warmed up first. The rest is as in an evolution."""

    plan: TrainingPlan
    pool: Pool
    start: LanguagePlanner | None
    tasks: list[Task]
    validation: list[Task]
    grade: GradeMany
    notes: tuple[str, ...] = ()
    shelf: SharedReplies | None = None
    reckoned: Reckoned = field(default_factory=Reckoned)

    def play(self, store: Store, run: str) -> Generator[TrainingProgress | Iteration, None, Ending]:
        """Learn to the end from wherever the run stands; each iteration is kept before it is yielded. Stopped when a
        person asks the run to, before the next iteration or call. BudgetError at the ceiling, and before an iteration
        that could reach it."""
        state = load_state(store, run)
        if state is not None:
            store.planners.forget_after(run, state.iteration)
        earlier = store.planners.iterations(run)
        ledger = store.planners.paid_replies(run)
        ledger.generation = state.iteration + 1 if state else 0
        paid = ledger.spent_usd(ledger.generation)
        pool = MeteredPool(self.pool, self.plan.max_cost_usd, store.runs.spent_usd(run) + paid, self.reckoned)

        def cancelled() -> bool:
            return store.runs.control(run).cancel

        if self.shelf is not None:
            self.shelf.load([*self.tasks, *self.validation])
        shared = CachedPool(HaltingPool(pool, cancelled), ledger=ledger, shelf=self.shelf)
        keeper = _Keeper(store, run, self, pool, ledger, earlier[-1] if state else None)
        if state is not None:
            start = wiring.load_planner(store, earlier[0].planner_id or "", self.plan.models)
        else:
            start = self.start or (yield from _warmed_up(self.plan, cancelled))
        marks = [one.spent_usd for one in earlier]
        _check_next(pool, marks, paid)
        for iteration in learn(
            self.plan.learning,
            start,
            pool=shared,
            grade=self.grade,
            tasks=self.tasks,
            validation_tasks=self.validation,
            state=state,
            run=run,
        ):
            keeper.keep(iteration)
            yield iteration
            marks.append(pool.spent_usd)
            if iteration.index < self.plan.learning.iterations:
                if cancelled():
                    raise Stopped
                _check_next(pool, marks)
        store.planners.forget_state(run)
        _drop_state_files(run)
        return RunStatus.FINISHED, None


def prepare(store: Store, plan: TrainingPlan) -> TrainingParts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    check_installed()
    tasks, validation, notes = plan.task_sets()
    grade = grading(store, [*tasks, *validation], plan.tasks)
    pool = wiring.resolve_pool(plan.pool)
    models = tuple(spec.name for spec in pool.specs)
    same_models(plan, models)
    if plan.planner == POCKET_POOL and any(spec.provider != POCKET_POOL for spec in pool.specs):
        raise ConfigError(
            "The pocket planner reads short pocket questions and writes words that only pocket models know: name the "
            "folder of a causal language model that learns to plan for these models by --planner FOLDER."
        )
    start = None if plan.planner == POCKET_POOL else _start(store, plan, models)
    plan = replace(plan, models=models, digest=digest_of_tasks(tasks))
    shelf = store.episodes.shared_replies(pool.specs) if plan.reuse else None
    return TrainingParts(plan, pool, start, tasks, validation, grade, tuple(notes), shelf)


def _start(store: Store, plan: TrainingPlan, models: tuple[str, ...]) -> LanguagePlanner:
    """The planner that learns: a stored one, that of a folder, or a language model that has learned nothing yet."""
    if store.planners.has(plan.planner):
        return wiring.load_planner(store, plan.planner, models)
    folder = Path(plan.planner)
    if not folder.is_dir():
        raise CheckpointError(
            f"There is no planner '{plan.planner}': give 'pocket', an id of trinity checkpoints, or the folder of a "
            "causal language model."
        )
    from core.planner.card import CARD_FILE

    device = best_device()
    if (folder / CARD_FILE).exists():
        return LanguagePlanner.load(folder, models, device=device)
    return LanguagePlanner.begin(
        folder,
        models,
        device=device,
        mode=plan.mode,
        most_tokens=plan.most_tokens,
        shown=Shown.NAMES if plan.show_names else Shown.IDS,
        constrained=plan.learning.constrained,
    )


def _warmed_up(
    plan: TrainingPlan, cancelled: Callable[[], bool]
) -> Generator[TrainingProgress, None, LanguagePlanner]:
    """A new pocket planner that knows the form of workflows, and nothing about what is good in them."""
    settings = WarmUp(plan.models, steps=plan.warm_up_steps, seed=plan.learning.seed)
    planner = new_planner(settings)
    for progress in warm_up(planner, settings, report_every=20):
        if cancelled():
            raise Stopped
        yield progress
    return planner.frozen(kind="warm-up")


def _check_next(pool: MeteredPool, marks: Sequence[float], paid_usd: float = 0.0) -> None:
    """BudgetError when the next iteration could reach the ceiling before its end, reckoned by the dearest so far.
    `marks` are what was spent in all after each iteration; so much of the next one is paid already."""
    each = [after - before for before, after in pairwise(marks)]
    if each and not pool.has_room(max(each) - paid_usd):
        raise pool.refusal("iteration")


def state_file(run: str, iteration: int) -> Path:
    """Where the state of a training after an iteration is kept that is too large for a row."""
    return wiring.data_folder() / "training" / f"{Path(run).name}-{iteration}.safetensors"


def _drop_state_files(run: str, but: int | None = None) -> None:
    """Delete the files of a run's states, but for that of one iteration."""
    kept = None if but is None else state_file(run, but)
    for path in (wiring.data_folder() / "training").glob(f"{Path(run).name}-*.safetensors"):
        if path != kept:
            path.unlink(missing_ok=True)


def load_state(store: Store, run: str) -> PlannerState | None:
    """The state that a training goes on from; None before the first. ConfigError where its file is not there."""
    stored = store.planners.state(run)
    if stored is None:
        return None
    iteration, body = stored
    if body:
        return PlannerState.from_bytes(body)
    path = state_file(run, iteration)
    try:
        return PlannerState.from_bytes(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"The state of this training is not at {path}: go on with it on the machine that began it."
        ) from error


@dataclass
class _Keeper:
    """Stores each iteration, with its planner and state where they are due, in one transaction."""

    store: Store
    run_id: str
    parts: TrainingParts
    pool: MeteredPool
    ledger: PaidReplies
    last: IterationSummary | None
    _since: float = field(default_factory=time.monotonic, init=False)

    def keep(self, iteration: Iteration) -> None:
        """Commit an iteration; a resumed training goes on after the last one with a state."""
        self.store.runs.heartbeat(self.run_id, owner())  # refused when another process took the run over
        now = time.monotonic()
        wall_s, self._since = now - self._since, now
        played = [one for one in (iteration.rollouts, iteration.validation) if one is not None]
        episodes = sum(one.n + one.missing for one in played)
        entry = IterationSummary(
            run_id=self.run_id,
            index=iteration.index,
            episodes=episodes + (self.last.episodes if self.last else 0),
            wall_s=wall_s + (self.last.wall_s if self.last else 0.0),
            spent_usd=self.pool.spent_usd,
            planner_id=iteration.planner.card.id if iteration.planner else None,
            stats=IterationStats.to_json(iteration),
        )
        kept = (
            wiring.packed_planner(self.store, iteration.planner, self.run_id) if iteration.planner else None
        )
        state = None if iteration.state is None else self._kept_state(iteration.state)
        self.store.planners.add_iteration(entry, state, kept)
        if state is not None:
            _drop_state_files(self.run_id, but=iteration.index)
        self.last = entry
        self.ledger.generation = iteration.index + 1
        if self.parts.plan.reuse:  # they are kept for others
            return
        if iteration.index == self.parts.plan.learning.iterations:
            self.ledger.forget()
        elif state is not None:
            self.ledger.forget(before=self.ledger.generation)

    def _kept_state(self, state: PlannerState) -> bytes:
        """What the store keeps of it: all, or nothing where it is written to a file."""
        body = state.to_bytes()
        if len(body) <= MOST_STATE_BYTES:
            return body
        path = state_file(self.run_id, state.iteration)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_bytes(body)
        draft.replace(path)
        return b""
