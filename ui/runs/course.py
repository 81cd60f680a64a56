"""The course of an evolution or a training: its updates as columns, their validations, and how far fitness can be
trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from core.analysis.metrics import entropy, wilson_interval
from core.conduct.planners import CONDUCTOR
from core.episode import ROLE_ORDER, Role
from core.evolution.config import LearnerName
from core.evolution.fitness import EpisodeStatistics, GenerationStats, Step
from core.planner.statistics import IterationStats, PlanStatistics
from core.pocket import TRAINED_FAMILIES
from core.settings import POCKET_POOL
from storage.rows.summaries import RunSummary, UpdateSummary
from storage.store import Store
from ui.presentation.theme import one_line
from ui.runs.plans import known_plan
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan

#: Learner in a run's config -> its words.
LEARNERS: dict[LearnerName, str] = {
    "sep-cma-es": "sep-CMA-ES",
    "pycma": "pycma, as the paper's authors",
    "reinforce": "REINFORCE",
    "random-search": "random search",
}
#: What each learner's step size is.
REACH: dict[LearnerName, str] = {
    "sep-cma-es": "step size (sigma)",
    "pycma": "step size (sigma)",
    "reinforce": "learning rate",
    "random-search": "half a box",
}


@dataclass(frozen=True, slots=True)
class Validated:
    """How many of `n` held-apart tasks were solved."""

    right: int
    n: int

    @property
    def share(self) -> float:
        """The share of them, in 0 to 1."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        return wilson_interval(self.right, self.n)


class Course:
    """The updates of one run, first to last, of which 0 is the start; columns have one entry per update. `plan` is None
    in a run that was recorded by something else."""

    #: What its page is called, and what it calls an update, in full and in a list of policies.
    title: ClassVar[str]
    noun: ClassVar[str]
    short: ClassVar[str]
    #: What comes before a checkpoint's id as a policy.
    prefix: ClassVar[str] = ""

    plan: EvolutionPlan | TrainingPlan | None
    #: By what it learns, plain text.
    learner_words: str
    #: How many updates there shall be.
    planned: int | None
    #: What each update came to.
    stats: Sequence[GenerationStats | IterationStats]
    #: What had been learned, on held-apart tasks, where it was measured.
    validations: Sequence[Validated | None]

    def __init__(self, run: str, name: str, updates: Sequence[UpdateSummary]) -> None:
        self.run = run
        #: What a person called it, else its run's id; plain text.
        self.name = one_line(name or run, 40)
        self.updates = tuple(updates)
        self.indices = tuple(one.index for one in updates)

    @property
    def tasks_words(self) -> str:
        """Its tasks, plain text, with the kinds of tasks that the pocket world learns on: `pocket (code, math)`; empty
        where it does not say."""
        tasks = self.plan.tasks if self.plan else ""
        kinds = f" ({', '.join(TRAINED_FAMILIES)})" if tasks == POCKET_POOL else ""
        return one_line(Path(tasks).name if tasks.endswith(".jsonl") else tasks, 60) + kinds

    @property
    def axes(self) -> dict[str, str]:
        """What the x-axis of a curve may be, with its words."""
        return {"gen": self.noun, "episodes": "episodes played", "time": "minutes"}

    def axis(self, axis: str) -> list[float]:
        """Where each update stands on an axis out of `axes`."""
        if axis == "episodes":
            return [float(one.episodes) for one in self.updates]
        if axis == "time":
            return [one.wall_s / 60 for one in self.updates]
        return [float(one.index) for one in self.updates]

    @cached_property
    def policies(self) -> dict[int, str]:
        """The policies that its kept checkpoints are, by the numbers of their updates."""
        return {one.index: f"{self.prefix}{one.checkpoint_id}" for one in self.updates if one.checkpoint_id}

    @cached_property
    def best(self) -> int | None:
        """The place of the best validated update, the latest of equals; None before any."""
        known = [(one.share, place) for place, one in enumerate(self.validations) if one]
        return max(known)[1] if known else None

    def of_updates(self, name: str) -> tuple[float | None, ...]:
        """A number of every update, by its name in `stats`; None where it is not known, as of the start."""
        found = zip(self.indices, self.stats, strict=True)
        return tuple(_known(getattr(one, name)) if index else None for index, one in found)

    def total(self, name: str) -> float | None:
        """The sum of a count of `stats` over all updates; None where no update kept it."""
        counts = [value for one in self.stats if (value := getattr(one, name)) is not None]
        return float(sum(counts)) if counts else None


class Lineage(Course):
    """The generations of an evolution."""

    title = "Evolution"
    noun = "generation"
    short = "gen"

    def __init__(self, run: str, plan: EvolutionPlan | None, updates: Sequence[UpdateSummary]) -> None:
        Course.__init__(self, run, plan.name if plan else "", updates)
        self.plan: EvolutionPlan | None = plan
        # A run from before there was a choice was evolved by sep-CMA-ES.
        self.learner: LearnerName = plan.evolution.learner if plan else "sep-cma-es"
        self.learner_words = LEARNERS[self.learner]
        #: What its step size is.
        self.reach_words = REACH[self.learner]
        self.planned = plan.evolution.generations if plan else None
        self.stats: Sequence[GenerationStats] = [GenerationStats.of(one.stats) for one in updates]
        #: How each population played; for generation 0, before which nobody competed, its validation.
        self.plays: Sequence[EpisodeStatistics | None] = [
            one.episodes or (None if index else one.validation)
            for index, one in zip(self.indices, self.stats, strict=True)
        ]
        found = [one.validation for one in self.stats]
        self.validations = [Validated(one.right, one.n) if one and one.n else None for one in found]
        seen = {model for one in self.plays if one for model, _ in one.shares}
        #: The pool's slots in head order; those that were chosen where the run does not say.
        self.models = (plan.models if plan else ()) or tuple(sorted(seen))
        controls = self.stats[-1].controls if self.stats else {}
        #: What it is compared with, by name; empty until they are played.
        self.controls = {one_line(name, 40): one for name, one in controls.items()}
        #: The first step of each block of the vector, and how far it spreads the logits; empty in older runs.
        self.steps: Mapping[str, Step] = self.stats[0].steps if self.stats else {}


def control_words(name: str) -> str:
    """A control as a reader knows it, plain text: `best single: jack (T W V)`."""
    if not name.startswith("single:"):
        return name
    model, *cycle = name.removeprefix("single:").split(" ")
    return f"best single: {model}" + (f" ({' '.join(cycle)})" if cycle else "")


class Training(Course):
    """The iterations of a planner's training."""

    title = "Training"
    noun = "iteration"
    short = "iteration"
    prefix = CONDUCTOR
    learner_words = "Conductor"  # the system, of which there is one

    def __init__(self, run: str, plan: TrainingPlan | None, updates: Sequence[UpdateSummary]) -> None:
        Course.__init__(self, run, plan.name if plan else "", updates)
        self.plan: TrainingPlan | None = plan
        self.planned = plan.learning.iterations if plan else None
        self.stats: Sequence[IterationStats] = [IterationStats.stats_of(one.stats) for one in updates]
        #: What its rollouts came to; for the start, which has none, its validation.
        self.plays: Sequence[PlanStatistics | None] = [
            one.rollouts or (None if index else one.validation)
            for index, one in zip(self.indices, self.stats, strict=True)
        ]
        found = [one.validation for one in self.stats]
        self.validations = [
            Validated(round(one.right * one.n), one.n) if one and one.n else None for one in found
        ]
        played = [one for one in self.plays if one]
        seen = {model for one in played for _, model in one.models}
        #: The pool's models in order; those that were given steps where the run does not say.
        self.models = (plan.models if plan else ()) or tuple(sorted(seen))
        #: The families of the tasks that it learns on, in order.
        self.families = sorted({name for one in played for name in one.families})
        #: Whether a grammar forces the form of its plans, so that all of them can be read.
        self.forced = (plan is None or plan.learning.constrained) and not any(one.faults for one in played)
        #: The share of plans that can be read without that grammar, where it was measured.
        self.free = [_known(one.free) for one in self.stats]

    @cached_property
    def tokens(self) -> Sequence[int]:
        """Tokens of the pool, in and out, from the beginning on; without those for choosing the questions."""
        parts = [(one.rollouts, one.validation) for one in self.stats]
        return list(accumulate(sum(part.tokens for part in both if part) for both in parts))

    def of_rollouts(self, name: str) -> tuple[float | None, ...]:
        """A number of what the rollouts of every iteration came to, by its name in `PlanStatistics`."""
        return tuple(_known(getattr(one.rollouts, name)) if one.rollouts else None for one in self.stats)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def course_of(run: RunSummary, updates: Sequence[UpdateSummary] = ()) -> Lineage | Training:
    """An evolution or a training with some of its updates; without any, what a list says of it."""
    plan = known_plan(run)
    if run.kind == "train":
        return Training(run.id, plan if isinstance(plan, TrainingPlan) else None, updates)
    return Lineage(run.id, plan if isinstance(plan, EvolutionPlan) else None, updates)


def read_course(store: Store, run: RunSummary) -> Lineage | Training:
    """An evolution or a training with the updates that are kept."""
    return course_of(run, store.learning.updates(run.id))


# How far fitness can be trusted


def binomial_error(share: float, n: int) -> float:
    """The standard error of a share of `n` independent tries; 0 for none."""
    share = min(max(share, 0.0), 1.0)
    return math.sqrt(share * (1 - share) / n) if n > 0 else 0.0


def tasks_each(lineage: Lineage, place: int) -> int | None:
    """How many tasks each candidate of a generation played; None where that is not known."""
    one, plan = lineage.plays[place], lineage.plan
    if place == 0 or one is None or plan is None:
        return None
    return round((one.n + one.missing) / plan.evolution.population)


# Shares


def grouped(shares: Mapping[tuple[str, Role], float], by: str) -> dict[str, float]:
    """Shares summed by "model", "role" or (anything else) by both, as `MODEL ROLE`."""
    found: dict[str, float] = {}
    for (model, role), share in shares.items():
        key = model if by == "model" else role.value if by == "role" else f"{model} {role.value}"
        found[key] = found.get(key, 0.0) + share
    return found


def share_entropy(shares: Mapping[tuple[str, Role], float], by: str) -> float:
    """The entropy in nats of shares as grouped: 0 when one choice takes every turn."""
    values = list(grouped(shares, by).values())
    total = sum(values) or 1.0
    return entropy([value / total for value in values])


def most_entropy(models: Sequence[str], by: str) -> float:
    """The entropy of equal shares."""
    counts = {"model": len(models), "role": len(ROLE_ORDER)}
    return math.log(max(1, counts.get(by, len(models) * len(ROLE_ORDER))))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties averaged; None for fewer than three points or no variation."""
    if len(x) < 3 or min(len(set(x)), len(set(y))) < 2:
        return None
    from scipy.stats import spearmanr  # here, because importing it takes longer than all the rest

    return float(spearmanr(x, y).statistic)


def part_of(played: PlanStatistics, family: str) -> PlanStatistics | None:
    """What the episodes of a family came to, or all of them ("")."""
    return played.families.get(family) if family else played


def at_place(shares: Mapping[tuple[int, str], float], place: int) -> dict[str, float]:
    """The shares of one place of a step, by name."""
    return {name: share for (at, name), share in shares.items() if at == place}
