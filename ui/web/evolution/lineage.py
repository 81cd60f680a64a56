"""An evolution as pages read it: its generations as columns, what it cost, and how far its fitness can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import streamlit as st

from core.analysis.metrics import entropy
from core.episode import ROLE_ORDER, Role
from core.evolution.config import LearnerName
from core.evolution.generation_stats import EpisodeStatistics, GenerationStats, Step
from storage.rows.summaries import GenerationSummary, RunSummary
from storage.store import Store
from ui.presentation.theme import NEUTRAL_COLOUR, one_line
from ui.runs.plans import EvolutionPlan, known_plan
from ui.web.kit.widgets import Standing

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
#: What the x-axis of a curve may be, with its words.
AXES: dict[str, str] = {"gen": "generation", "episodes": "episodes played", "time": "minutes"}


@dataclass(frozen=True, eq=False)
class Lineage:
    """The generations of one run, first to last; `plan` is None in a run that was recorded by something else. Equal
    only to itself, so that figures of it can be remembered."""

    run: str
    plan: EvolutionPlan | None
    generations: tuple[GenerationSummary, ...]

    # What it is

    @property
    def learner(self) -> LearnerName:
        """Which learner it is by; a run from before there was a choice was evolved by sep-CMA-ES."""
        return self.plan.evolution.learner if self.plan else "sep-cma-es"

    @property
    def learner_words(self) -> str:
        """The learner as a reader knows it, plain text."""
        return LEARNERS[self.learner]

    @property
    def reach_words(self) -> str:
        """What its step size is."""
        return REACH[self.learner]

    @cached_property
    def name(self) -> str:
        """What a person called it, else its run's id; plain text."""
        return one_line((self.plan and self.plan.name) or self.run, 40)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The pool's slots in head order; those that were chosen where the run does not say."""
        slots = self.plan.models if self.plan else ()
        return slots or tuple(sorted({m for one in self.plays for m, _ in (one.shares if one else ())}))

    @property
    def planned(self) -> int | None:
        """How many generations there shall be."""
        return self.plan.evolution.generations if self.plan else None

    # Columns, one entry per generation

    @cached_property
    def stats(self) -> tuple[GenerationStats, ...]:
        """What each came to besides its fitness."""
        return tuple(GenerationStats.of(one.stats) for one in self.generations)

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """The generations' numbers."""
        return tuple(one.index for one in self.generations)

    @cached_property
    def plays(self) -> tuple[EpisodeStatistics | None, ...]:
        """How each population played; for generation 0, before which nobody competed, its validation."""
        return tuple(
            stats.episodes or (stats.validation if one.index == 0 else None)
            for one, stats in zip(self.generations, self.stats, strict=True)
        )

    @cached_property
    def validations(self) -> tuple[EpisodeStatistics | None, ...]:
        """The distribution mean on held-apart tasks, where it was measured."""
        return tuple(stats.validation for stats in self.stats)

    @cached_property
    def controls(self) -> dict[str, EpisodeStatistics]:
        """What it is compared with, by name; empty until they are played."""
        found = self.stats[-1].controls if self.stats else {}
        return {one_line(name, 40): one for name, one in found.items()}

    def axis(self, axis: str) -> list[float]:
        """Where each generation stands on an axis out of AXES."""
        if axis == "episodes":
            return [float(one.evaluations) for one in self.generations]
        if axis == "time":
            return [one.wall_s / 60 for one in self.generations]
        return [float(one.index) for one in self.generations]

    # What came of it

    @cached_property
    def best(self) -> int | None:
        """The position of the best validated generation, the latest of equals; None before any."""
        known = [(one.accuracy, place) for place, one in enumerate(self.validations) if one and one.n]
        return max(known)[1] if known else None

    def total(self, name: str) -> float | None:
        """The sum of a count over all generations; None where no generation kept it."""
        counts = [value for stats in self.stats if (value := getattr(stats, name)) is not None]
        return float(sum(counts)) if counts else None

    @cached_property
    def steps(self) -> Mapping[str, Step]:
        """The first step of each block of the vector, and how far it spreads the logits; empty in older runs."""
        return self.stats[0].steps if self.stats else {}

    def standings(self, colour: str) -> list[Standing]:
        """The best validated generation and the last validated one in `colour`, then the controls, which
        learned nothing, in grey."""
        rows: list[Standing] = []
        measured = [place for place, one in enumerate(self.validations) if one and one.n]
        for place in dict.fromkeys([self.best, *measured[-1:]]):
            if place is not None and (one := self.validations[place]):
                which = "best" if place == self.best else "last"
                name = f"generation {self.indices[place]} ({which}), n {one.n}"
                rows.append(Standing(name, one.right, one.n, colour))
        rows += [
            Standing(f"{control_words(name)}, n {one.n}", one.right, one.n, NEUTRAL_COLOUR)
            for name, one in self.controls.items()
        ]
        return rows


def control_words(name: str) -> str:
    """A control as a reader knows it, plain text: `best single: jack (T W V)`."""
    if not name.startswith("single:"):
        return name
    model, *cycle = name.removeprefix("single:").split(" ")
    return f"best single: {model}" + (f" ({' '.join(cycle)})" if cycle else "")


def evolution_of(run: RunSummary) -> EvolutionPlan | None:
    """What an evolution's run plays; None when it was recorded by something else."""
    plan = known_plan(run)
    return plan if isinstance(plan, EvolutionPlan) else None


@st.cache_resource(
    max_entries=16,
    show_spinner=False,
    hash_funcs={Store: attrgetter("url"), RunSummary: attrgetter("id", "generations")},
)
def read_lineage(store: Store, run: RunSummary) -> Lineage:
    """The generations of a run that are kept; read again only when there are more."""
    return Lineage(run.id, evolution_of(run), tuple(store.evolution.generations(run.id)))


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
