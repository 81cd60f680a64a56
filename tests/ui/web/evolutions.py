"""A small evolution: the plan of one, and one that a worker has played."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.ui.sums import Sums
from ui.answers.asked import Asked
from ui.answers.learning import asked_of_course
from ui.runs.course import read_course
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan, learning_sets
from ui.runs.worker import play_claimed


def plan(world: Sums, name: str = "", svf: str = "", **evolution: Any) -> EvolutionPlan:
    """A plan of three small generations on the tasks of the world."""

    from core.evolution.config import EvolveConfig
    from core.tasks.sets import digest_of_tasks as digest_of

    small = {
        "generations": 3,
        "population": 4,
        "tasks_per_candidate": 4,
        "turn_budget": 2,
        "validate_every": 2,
        "constant_spread": 6.0,
        **evolution,
    }
    begun = EvolutionPlan(
        world.tasks,
        None,
        200,
        str(world.folder / "pool.toml"),
        os.environ["TRINITY_ENCODER"],
        None,
        EvolveConfig(**small),
        name,
        svf=svf,
        models=("adder", "guesser"),
    )
    return replace(begun, digest=digest_of(learning_sets(begun)[0]))


def finished_by_worker(store: Store, world: Sums) -> str:
    """A run as the page queues it, played in this process."""
    run, _ = enqueue(store, plan(world), Ticket())
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    return run


def asked_of_learned(
    store: Store, run: str, update: int | None = None, second: str | None = None, **choices: str
) -> Asked:
    """A stored evolution or training is asked about, and a second one beside it."""
    course, *others = (read_course(store, store.runs.get(one)) for one in (run, second) if one)
    return asked_of_course(store, course, update, *others, choices=choices)
