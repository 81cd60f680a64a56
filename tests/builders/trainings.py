"""Recorded trainings of a planner, with every kind of number that an iteration can have; no torch."""

from __future__ import annotations

import time
from dataclasses import replace

from core.planner.card import PlannerCard
from core.planner.config import LearnConfig
from core.planner.statistics import IterationStats, PlanStatistics
from core.workflow import PlanFault, Topology
from storage.rows.summaries import RunStatus, UpdateSummary
from storage.shelves.learning import checkpoint_row
from storage.store import Store
from tests.builders.stores import begin_run
from ui.runs.plans import to_config
from ui.runs.settings.learning import TrainingPlan

MODELS = ("ann", "<b>bob</b>", "cid")
LEARNING = LearnConfig(iterations=4, questions=4, rollouts=4, save_every=2, validate_every=2, seed=3)
PLAN = TrainingPlan("pocket", 64, 20, "pocket", LEARNING, name="mine", models=MODELS)


def plans_of(index: int) -> PlanStatistics:
    """What the 16 rollouts of an iteration came to: the later, the more are right, and the more ann does."""
    ann = 0.25 * index
    whole = PlanStatistics(
        n=16,
        right=index / 16,
        readable=(16 - index) / 16,
        steps_mean=1 + index / 2,
        topologies={Topology.CHAIN: ann, Topology.SINGLE: 1 - ann},
        models={(0, "ann"): ann, (0, MODELS[1]): 1 - ann, (1, "cid"): 1.0},
        subtasks={(0, "plan"): ann, (0, "<i>solve"): 1 - ann, (1, "check"): 1.0},
        faults={PlanFault.NO_LISTS: index} if index else {},
        tokens=100 * index,
    )
    return replace(whole, families={"math": replace(whole, n=8), "logic": PlanStatistics(n=8, right=0.5)})


def stats_of(index: int) -> IterationStats:
    """An iteration: the start has its validation alone, and every second one has one."""
    validation = None
    if index % 2 == 0:
        validation = PlanStatistics(n=20, right=(4 + index) / 20, readable=1.0, steps_mean=2.0, tokens=50)
    if index == 0:  # nothing of it was played but its validation
        begun = replace(plans_of(0), n=20, right=0.2, steps_mean=2.0, tokens=50)
        return IterationStats(index=0, validation=begun)
    return IterationStats(
        index=index,
        reward_mean=0.5 + index / 32,
        signal=0.25 * index,
        rollouts=plans_of(index),
        validation=validation,
        learning_rate=1e-3,
        loss=0.1,
        entropy=1.5,
        gradient=0.2,
        written_tokens=40,
        calls=30,
        calls_saved=10,
        seconds=2.0,
    )


def card(index: int, run: str, models: tuple[str, ...]) -> PlannerCard:
    """The card of the planner that is kept after an iteration."""
    kind = "trained" if index else "warm-up"
    return PlannerCard(models, f"weights of {run} {index}", kind=kind, parent_run=run, iteration=index)


def record_training(
    store: Store,
    run: str = "rtrain",
    *,
    done: int = 4,
    plan: TrainingPlan = PLAN,
    models: tuple[str, ...] = MODELS,
    status: RunStatus = RunStatus.FINISHED,
    error: str | None = None,
) -> dict[int, str]:
    """A training of so many iterations after the start (below 0: not even that); its kept planners' ids by
    iteration."""
    begin_run(store, run, "train", to_config(plan), plan.name)
    kept: dict[int, str] = {}
    for index in range(done + 1):
        row = None
        if index % 2 == 0:
            own = card(index, run, models)
            row = checkpoint_row(
                own.id,
                own.to_json(),
                b"zip",
                run_id=run,
                generation=index,
                kind=own.kind,
                created=time.time(),
            )
            kept[index] = own.id
        entry = UpdateSummary(
            run,
            index,
            20 + 18 * index,
            3.0 * (index + 1),
            spent_usd=0.25 * index,
            checkpoint_id=kept.get(index),
            stats=stats_of(index).to_json(),
        )
        store.learning.add(entry, checkpoint=row)
    store.runs.finish(run, status, error=error)
    return kept
