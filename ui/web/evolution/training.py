"""A planner's training as pages read it: its iterations as columns, what it cost, and the checkpoints it kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import attrgetter

import streamlit as st

from core.analysis.metrics import wilson_interval
from core.conduct.planners import CONDUCTOR
from core.planner.statistics import IterationStats, PlanStatistics
from core.settings import POCKET_POOL
from storage.rows.summaries import IterationSummary, PlannerSummary, RunSummary
from storage.store import Store
from ui.presentation.theme import FIRST_COLOUR, NEUTRAL_COLOUR, one_line
from ui.runs.plans import TrainingPlan, known_plan
from ui.web.kit.widgets import Standing

#: What the x-axis of a curve may be, with its words.
AXES: dict[str, str] = {"gen": "iteration", "episodes": "episodes played", "time": "minutes"}


@dataclass(frozen=True, slots=True)
class Validated:
    """How many of `n` held-apart tasks a planner solved."""

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


@dataclass(frozen=True, eq=False)
class Training:
    """The iterations of one run, first to last; `plan` is None in a run that was recorded by something else. Equal only
    to itself, so that figures of it can be remembered. Columns have one entry per iteration."""

    run: str
    plan: TrainingPlan | None
    iterations: tuple[IterationSummary, ...]
    planners: tuple[PlannerSummary, ...] = ()

    @cached_property
    def name(self) -> str:
        """What a person called it, else its run's id; plain text."""
        return one_line((self.plan and self.plan.name) or self.run, 40)

    @property
    def begins_as(self) -> str:
        """What learns, plain text."""
        planner = self.plan.planner if self.plan else ""
        return "a new pocket planner" if planner == POCKET_POOL else f"planner {one_line(planner, 40)}"

    @property
    def planned(self) -> int | None:
        """How many iterations there shall be."""
        return self.plan.learning.iterations if self.plan else None

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The pool's models in order; those that were given steps where the run does not say."""
        slots = self.plan.models if self.plan else ()
        return slots or tuple(sorted({model for one in self.plays if one for _, model in one.models}))

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """The iterations' numbers; 0 is the start."""
        return tuple(one.index for one in self.iterations)

    @cached_property
    def stats(self) -> tuple[IterationStats, ...]:
        """What each came to."""
        return tuple(IterationStats.stats_of(one.stats) for one in self.iterations)

    @cached_property
    def plays(self) -> tuple[PlanStatistics | None, ...]:
        """What its rollouts came to; for the start, which has none, its validation."""
        return tuple(one.rollouts or (one.validation if one.index == 0 else None) for one in self.stats)

    @cached_property
    def validations(self) -> tuple[Validated | None, ...]:
        """The planner on held-apart tasks, where it was measured."""
        return tuple(
            Validated(round(one.validation.right * one.validation.n), one.validation.n)
            if one.validation and one.validation.n
            else None
            for one in self.stats
        )

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of the pool, in and out, from the beginning on; without those for choosing the questions."""
        each = (
            sum(part.tokens for part in (one.rollouts, one.validation) if part is not None)
            for one in self.stats
        )
        return tuple(accumulate(each))

    @cached_property
    def best(self) -> int | None:
        """The place of the best validated iteration, the latest of equals; None before any."""
        known = [(one.share, place) for place, one in enumerate(self.validations) if one]
        return max(known)[1] if known else None

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The families of the tasks that it learns on, in order."""
        return tuple(sorted({name for one in self.plays if one for name in one.families}))

    @cached_property
    def policies(self) -> dict[int, str]:
        """The policies that its kept planners are, by iteration."""
        return {one.index: f"{CONDUCTOR}{one.planner_id}" for one in self.iterations if one.planner_id}

    def axis(self, axis: str) -> list[float]:
        """Where each iteration stands on an axis out of AXES."""
        if axis == "episodes":
            return [float(one.episodes) for one in self.iterations]
        if axis == "time":
            return [one.wall_s / 60 for one in self.iterations]
        return [float(one.index) for one in self.iterations]

    def of_iterations(self, name: str) -> tuple[float | None, ...]:
        """A number of every iteration, by its name in `IterationStats`; None where it is not known, as of the start."""
        return tuple(_known(getattr(one, name)) if one.index else None for one in self.stats)

    @property
    def forced(self) -> bool:
        """Whether a grammar forces the form of its plans, so that all of them can be read."""
        if self.plan is not None and not self.plan.learning.constrained:
            return False
        return not any(one.faults for one in self.plays if one)

    @cached_property
    def free(self) -> tuple[float | None, ...]:
        """The share of plans that can be read without that grammar, where it was measured."""
        return tuple(_known(one.free) for one in self.stats)

    def of_rollouts(self, name: str) -> tuple[float | None, ...]:
        """A number of what the rollouts of every iteration came to, by its name in `PlanStatistics`."""
        return tuple(_known(getattr(one.rollouts, name)) if one.rollouts else None for one in self.stats)

    def standings(self) -> list[Standing]:
        """The start in grey, then the best validated iteration and the last validated one."""
        measured = [place for place, one in enumerate(self.validations) if one]
        rows = []
        for place in dict.fromkeys(
            [*measured[:1], *([] if self.best is None else [self.best]), *measured[-1:]]
        ):
            one, index = self.validations[place], self.indices[place]
            which = ", ".join(
                word
                for word, holds in (
                    ("start", index == 0),
                    ("best", place == self.best),
                    ("last", place == measured[-1]),
                )
                if holds
            )
            if one is not None:
                colour = NEUTRAL_COLOUR if index == 0 else FIRST_COLOUR
                rows.append(Standing(f"iteration {index} ({which}), n {one.n}", one.right, one.n, colour))
        return rows


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def training_of(run: RunSummary) -> TrainingPlan | None:
    """What a training's run plays; None when it was recorded by something else."""
    plan = known_plan(run)
    return plan if isinstance(plan, TrainingPlan) else None


@st.cache_resource(
    max_entries=16,
    show_spinner=False,
    hash_funcs={Store: attrgetter("url"), RunSummary: attrgetter("id", "generations")},
)
def read_training(store: Store, run: RunSummary) -> Training:
    """The iterations of a run that are kept; read again only when there are more."""
    return Training(
        run.id,
        training_of(run),
        tuple(store.planners.iterations(run.id)),
        tuple(store.planners.list(run.id)),
    )


# Shares


def part_of(played: PlanStatistics, family: str) -> PlanStatistics | None:
    """What the episodes of a family came to, or all of them ("")."""
    return played.families.get(family) if family else played


def at_place(shares: Mapping[tuple[int, str], float], place: int) -> dict[str, float]:
    """The shares of one place of a step, by name."""
    return {name: share for (at, name), share in shares.items() if at == place}
