"""A planner's training made ready, and what its run keeps of every iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from core.errors import CheckpointError, ConfigError
from core.learning import Playing
from core.planner.card import MOST_BYTES
from core.planner.forms import Shown
from core.planner.grpo import check_installed
from core.planner.learn import Iteration, PlannerState, learn
from core.planner.planner import LanguagePlanner, best_device
from core.planner.warmup import WarmUp, new_planner, warm_up
from core.pocket.training import TrainingProgress
from core.pool.spec import slots_of
from core.settings import POCKET_POOL
from storage.store import Store
from ui.runs import wiring
from ui.runs.learning import LearningParts, Position, Record, learning_parts
from ui.runs.play import Stopped
from ui.runs.settings.learning import TrainingPlan

#: A larger state is kept in a file and not in a row, in bytes: planner, and the two moments of its optimiser.
MOST_STATE_BYTES = 3 * MOST_BYTES


@dataclass(frozen=True, slots=True)
class TrainingParts(LearningParts):
    """All that a training needs besides the store. `start` is what learns; None for a new pocket planner, which is
    warmed up first."""

    noun: ClassVar = "iteration"

    plan: TrainingPlan
    start: LanguagePlanner | None

    @property
    def updates(self) -> int:
        return self.plan.learning.iterations

    def state(self, index: int, kept: bytes, run: str) -> PlannerState:
        """ConfigError where its file is not there."""
        if kept:
            return PlannerState.from_bytes(kept)
        path = state_file(run, index)
        try:
            return PlannerState.from_bytes(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"The state of this training is not at {path}: go on with it on the machine that began it."
            ) from error

    def learn(self, at: Position) -> Generator[TrainingProgress | Playing | Iteration]:
        """Each iteration, after the warm-up of a new planner; before each, how far its episodes are."""
        if at.state is not None:
            start = wiring.load_planner(at.store, at.earlier[0].checkpoint_id or "", self.plan.models)
        else:
            start = self.start or (yield from _warm_planner(self.plan, at.stops))
        yield from learn(
            self.plan.learning,
            start,
            pool=at.pool,
            grade=self.grade,
            tasks=self.tasks,
            validation_tasks=self.validation,
            state=at.state,
            run=at.run,
            clock=time.perf_counter,
        )
        at.store.learning.forget_state(at.run)  # nothing goes on from a training that is over
        for path in _state_files(at.run):
            path.unlink(missing_ok=True)

    def record(self, run: str, update: Iteration) -> Record:
        """An iteration, with its planner and state where they are due; a large state is written to a file."""
        played = [one for one in (update.rollouts, update.validation) if one is not None]
        return Record(
            episodes=sum(one.n + one.missing for one in played),
            stats=update.to_json(),
            checkpoint=wiring.planner_fields(update.planner, run) if update.planner else None,
            state=None if update.state is None else _kept_state(run, update.state),
            settled=update.index == self.updates or update.state is not None,
            obsolete=[] if update.state is None else _state_files(run, but=update.index),
        )


def prepare(store: Store, plan: TrainingPlan) -> TrainingParts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    check_installed()
    common = learning_parts(store, plan)
    plan = common["plan"]
    if plan.planner == POCKET_POOL and any(
        spec.provider != POCKET_POOL for spec in slots_of(common["pool"].specs)
    ):
        raise ConfigError(
            "The pocket planner reads short pocket questions and writes words that only pocket models know: name the "
            "folder of a causal language model that learns to plan for these models by --planner FOLDER."
        )
    start = None if plan.planner == POCKET_POOL else _start(store, plan)
    return TrainingParts(start=start, **common)


def _start(store: Store, plan: TrainingPlan) -> LanguagePlanner:
    """The planner that learns: a stored one, that of a folder, or a language model that has learned nothing yet."""
    if store.checkpoints.has(plan.planner, planner=True):
        return wiring.load_planner(store, plan.planner, plan.models)
    folder = Path(plan.planner)
    if not folder.is_dir():
        raise CheckpointError(
            f"There is no planner '{plan.planner}': give 'pocket', an id of trinity checkpoints, or the folder of a "
            "causal language model."
        )
    from core.planner.card import CARD_FILE

    device = best_device()
    if (folder / CARD_FILE).exists():
        return LanguagePlanner.load(folder, plan.models, device=device)
    return LanguagePlanner.untrained(
        folder,
        plan.models,
        device=device,
        mode=plan.mode,
        most_tokens=plan.most_tokens,
        shown=Shown.NAMES if plan.show_names else Shown.IDS,
        constrained=plan.learning.constrained,
    )


def _warm_planner(
    plan: TrainingPlan, stops: Callable[[], bool]
) -> Generator[TrainingProgress, None, LanguagePlanner]:
    """A new pocket planner that knows the form of workflows, and nothing about what is good in them."""
    settings = WarmUp(plan.models, steps=plan.warm_up_steps, seed=plan.learning.seed)
    planner = new_planner(settings)
    for progress in warm_up(planner, settings, report_every=20):
        if stops():
            raise Stopped
        yield progress
    return planner.frozen(kind="warm-up")


def state_file(run: str, iteration: int) -> Path:
    """Where the state of a training after an iteration is kept that is too large for a row."""
    return wiring.data_folder() / "training" / f"{Path(run).name}-{iteration}.safetensors"


def _state_files(run: str, but: int | None = None) -> list[Path]:
    kept = None if but is None else state_file(run, but)
    found = (wiring.data_folder() / "training").glob(f"{Path(run).name}-*.safetensors")
    return [path for path in found if path != kept]


def _kept_state(run: str, state: PlannerState) -> bytes:
    """What the store keeps of it: all, or nothing where it is written to a file."""
    body = state.to_bytes()
    if len(body) <= MOST_STATE_BYTES:
        return body
    path = state_file(run, state.iteration)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_bytes(body)
    draft.replace(path)
    return b""
