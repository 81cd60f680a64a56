"""An evolution as its run keeps it: its tasks, the most it can ask for, and finding it again by name (no torch)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.episode import Task
from core.errors import StoreError, TaskError
from core.evolution.config import ADAPTED_AT_MOST, EvolveConfig, controls_at_most
from core.pool.costs import Estimate
from core.pool.spec import ModelSpec
from core.tasks.sets import load_tasks
from storage.store import Store
from ui.spending import estimate

#: What `--svf` calls the authors' choice: the second-to-last layer, and all matrices outside the layers.
RELEASED_SVF = "released"


@dataclass(frozen=True, slots=True)
class Outline:
    """An evolution as its run keeps it: enough to resume it. `svf` is a list of layers ("1,2"), "released" or
    empty; `barred` and `token_position` as in a checkpoint; `controls`: whether they are played at the end;
    `digest` tells when a task file changed."""

    tasks: str
    n: int | None
    validation: int
    pool: str
    encoder: str
    max_cost_usd: float | None
    evolution: Mapping[str, Any]
    name: str = ""
    head: str = "linear"
    svf: str = ""
    barred: tuple[str, ...] = ()
    token_position: int = -2
    controls: bool = True
    models: tuple[str, ...] = ()
    digest: str = ""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], max_cost_usd: float | None = None) -> Outline:
        """Of a stored run; a ceiling given now replaces the stored one."""
        try:
            lists = {name: tuple(config.get(name, ())) for name in ("models", "barred")}
            outline = cls(**{**config, **lists})
        except (KeyError, TypeError) as error:
            raise StoreError(
                "This run cannot be resumed: it was not recorded by 'trinity evolve'."
            ) from error
        return outline if max_cost_usd is None else replace(outline, max_cost_usd=max_cost_usd)

    @property
    def config(self) -> EvolveConfig:
        """The evolution's own part."""
        # A run begun before there was a choice made no difference between constant and other preferences.
        return EvolveConfig(**{"constant_spread": None, **self.evolution})


def task_sets(outline: Outline) -> tuple[list[Task], list[Task], list[str]]:
    """The tasks to evolve on, those to validate with, and what is worth telling about them."""
    tasks = load_tasks(outline.tasks, "evolve", outline.n, 0, at_most=True)
    try:
        if outline.validation:
            return tasks, load_tasks(outline.tasks, "validation", outline.validation, 0, at_most=True), []
    except TaskError as error:
        return tasks, [], [f"Nothing is validated: {error}"]
    return tasks, [], []


def most_of(
    outline: Outline, specs: Sequence[ModelSpec], tasks: Sequence[Task], validation: Sequence[Task]
) -> Estimate:
    """The same of parts that are not yet made ready."""
    config, validated = outline.config, len(validation)
    questions = [task.question for task in (*tasks, *validation)]
    per_candidate = config.tasks_per_candidate * (ADAPTED_AT_MOST if config.adaptive else 1)
    played = config.generations * config.population * per_candidate
    played += (1 + math.ceil(config.generations / config.validate_every)) * validated
    if outline.controls:
        played += controls_at_most(len(specs), validated)
    return estimate(specs, played, config.turn_budget, questions)


def find(store: Store, name: str) -> str | None:
    """The run of an evolution by its name or id; None when there is none."""
    for run in store.runs.list(kind="evolve", limit=100_000):
        if name in (run.id, run.config.get("name")):
            return run.id
    return None
