"""Random search: candidates drawn evenly from a box, the best one seen is kept (trinity.md 1.8, paper A.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from core.draws import uniform
from core.errors import ConfigError
from core.evolution.learner_state import LearnerState, Vector


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RandomSearchState(LearnerState):
    """`mean` is the best point seen, `best` its fitness; candidates lie within `step_size` of `centre`, each number."""

    kind: ClassVar = "random_search"

    centre: Vector
    best: float = -float("inf")


def start(centre: Vector, half_width: float, *, population: int, seed: int) -> RandomSearchState:
    """The state before the first generation."""
    if not (half_width > 0 and np.isfinite(half_width)):
        raise ConfigError(
            f"A box of half-width {half_width} holds nothing to search: give a positive number."
        )
    centre = np.array(centre, float)
    return RandomSearchState(
        mean=centre, centre=centre, step_size=float(half_width), population=population, seed=seed
    )


def ask(state: RandomSearchState) -> Vector:
    """The generation's candidates [population, n], the same at every call."""
    n = len(state.centre)
    draws = uniform(f"{state.seed}/random-search/{state.generation}", state.population * n)
    return state.centre + state.step_size * (2 * draws.reshape(state.population, n) - 1)


def tell(state: RandomSearchState, fitness: Vector) -> RandomSearchState:
    """The state after the generation; `fitness` [population] is to be maximised, NaN where it is missing."""
    moved = replace(state, generation=state.generation + 1)
    known = np.where(np.isfinite(fitness), fitness, -np.inf)
    first = int(known.argmax())
    if known[first] <= state.best:
        return moved
    return replace(moved, mean=ask(state)[first], best=float(known[first]))
