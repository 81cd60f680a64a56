"""The library pycma itself as a learner, as the authors of TRINITY used it: CMA_diagonal and otherwise its defaults,
which from 300 numbers on adapt the step size by two points (Hansen 2008) and not by the path's length.

Its own objects are megabytes of pickle, which no file should be trusted with. A state here is what was told so far: the
library is fed with it again, which gives the same search to the bit, and is kept between two generations.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from core.errors import ConfigError
from core.evolution.learner_state import LearnerState, Vector

#: Below this pycma mirrors samples on its own account.
FEWEST = 6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PycmaState(LearnerState):
    """`told` is the fitness of every candidate of every generation so far; `first` and `first_step` where it began."""

    kind: ClassVar = "pycma"

    first: Vector
    first_step: float
    told: tuple[tuple[float, ...], ...] = ()


def start(mean: Vector, step_size: float, *, population: int, seed: int) -> PycmaState:
    """The state before the first generation. ConfigError for what pycma cannot search with."""
    if not (step_size > 0 and np.isfinite(step_size)):
        raise ConfigError(f"A step size of {step_size} cannot search: give a positive number.")
    if population < FEWEST:
        raise ConfigError(f"A population of {population} does not fit: give pycma at least {FEWEST}.")
    mean = np.array(mean, float)
    step = float(step_size)
    return PycmaState(
        mean=mean, first=mean, step_size=step, first_step=step, population=population, seed=seed
    )


def ask(state: PycmaState) -> Vector:
    """The generation's candidates [population, n], the same at every call."""
    return _search(state)[1].copy()


def tell(state: PycmaState, fitness: Vector) -> PycmaState:
    """The state after the generation. `fitness` [population] is to be maximised.

    pycma knows no missing values: such a candidate (NaN) counts as the worst that is known. A generation of which
    nothing is known is told as a tie."""
    fitness = np.asarray(fitness, float)
    if fitness.shape != (state.population,):
        raise ConfigError(
            f"A generation of {state.population} candidates cannot be told {fitness.size} fitness values."
        )
    known = fitness[np.isfinite(fitness)]
    filled = np.where(np.isfinite(fitness), fitness, known.min() if known.size else 0.0)
    search, candidates = _search(state)
    _tell(search, candidates, filled)
    after = replace(
        state,
        mean=np.array(search.mean, float),
        step_size=float(search.sigma),
        generation=state.generation + 1,
        told=(*state.told, tuple(filled.tolist())),
    )
    _latest.clear()
    _latest[after.digest] = search, np.array(search.ask())
    return after


#: The search behind the newest state, by its digest, with the candidates that it has drawn.
_latest: dict[str, tuple[Any, Vector]] = {}


def _search(state: PycmaState) -> tuple[Any, Vector]:
    """pycma's own search as it stands in this state, and the candidates that it draws next."""
    digest = state.digest
    if digest not in _latest:
        search = _begun(state)
        for fitness in state.told:
            _tell(search, np.array(search.ask()), np.array(fitness))
        _latest.clear()
        _latest[digest] = search, np.array(search.ask())
    return _latest[digest]


def _begun(state: PycmaState) -> Any:
    with warnings.catch_warnings():  # it warns that it cannot plot
        warnings.simplefilter("ignore")
        import cma  # here, because it takes a second and is seldom used

    normal = np.random.default_rng([state.seed, 0x7C3A]).standard_normal
    options = {
        "popsize": state.population,
        "CMA_diagonal": True,
        "randn": lambda *shape: normal(shape),  # its own draws would come from numpy's global generator
        "seed": np.nan,
        "verbose": -9,
    }
    return cma.CMAEvolutionStrategy(state.first, state.first_step, options)


def _tell(search: Any, candidates: Vector, fitness: Vector) -> None:
    search.tell(list(candidates), list(-fitness))
