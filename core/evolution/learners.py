"""What moves a coordinator's vector, behind one interface: sep-CMA-ES as in the paper, and what it is compared with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from core.episode import Episode
from core.errors import ConfigError
from core.evolution import pycma_search, random_search, reinforce, sep_cma
from core.evolution.config import EvolveConfig, LearnerName
from core.evolution.learner_state import LearnerState, Vector, kind_of
from core.evolution.pycma_search import PycmaState
from core.evolution.random_search import RandomSearchState
from core.evolution.reinforce import ReinforceState
from core.evolution.search import SearchSpace
from core.evolution.sep_cma import SepCMAState


@dataclass(frozen=True, slots=True)
class Optimiser(ABC):
    """Proposes the vectors of a generation and learns from their fitness (the ask and tell interface): a search over
    the points of a search space, whose outcome is where its state stands."""

    #: The search: `ask(state)` gives its points [population, n], `tell(state, fitness)` the state after them.
    search: ClassVar[Any]

    config: EvolveConfig
    space: SearchSpace

    @property
    def origin(self) -> Vector:
        """The vector that the search begins with, [n]."""
        return np.asarray(self.space.template.vector, float)

    @abstractmethod
    def begin(self) -> LearnerState:
        """The state before the first generation."""

    def ask(self, state: Any) -> Vector:
        """The generation's vectors [population, n]."""
        return self._vectors(self.search.ask(state), state)

    def tell(self, state: Any, fitness: Vector, played: Sequence[Episode]) -> LearnerState:
        """The state after it. `fitness` [population], NaN where it is missing; `played` in candidates' order."""
        after: LearnerState = self.search.tell(state, fitness)
        return after

    def outcome(self, state: Any) -> Vector:
        """The vector [n] that has been learned so far."""
        return self._vectors(state.mean, state)

    def _vectors(self, points: Vector, state: Any) -> Vector:
        return self.space.vectors(points)


class SepCMA(Optimiser):
    """Separable CMA-ES; its outcome is the distribution's mean."""

    search: ClassVar[Any] = sep_cma

    def begin(self) -> SepCMAState:
        return sep_cma.start(
            self.origin,
            self.space.step_size,
            scales=self.space.scales,
            population=self.config.population,
            seed=self.config.seed,
            mirrored=self.config.mirrored,
            preset=self.config.rates,
        )


class Pycma(Optimiser):
    """The library pycma; its outcome is the distribution's mean."""

    search: ClassVar[Any] = pycma_search

    def begin(self) -> PycmaState:
        if (self.space.scales != 1.0).any():
            raise ConfigError(
                "pycma takes one first step for all numbers: give svf_step_size the same value as step_size."
            )
        return pycma_search.start(
            self.origin, self.space.step_size, population=self.config.population, seed=self.config.seed
        )


class RandomSearch(Optimiser):
    """Random search in a box around the first vector; its outcome is the best candidate seen."""

    search: ClassVar[Any] = random_search

    def begin(self) -> RandomSearchState:
        half_width, population = self.config.box * self.space.step_size, self.config.population
        return random_search.start(self.origin, half_width, population=population, seed=self.config.seed)

    def _vectors(self, points: Vector, state: RandomSearchState) -> Vector:
        """Vectors with the steps of SVF offsets in proportion to the head's."""
        return self.space.vectors(state.centre + (points - state.centre) * self.space.scales)


class Reinforce(Optimiser):
    """REINFORCE from the first vector, in the vector's own coordinates: one policy, the head as it is."""

    def begin(self) -> ReinforceState:
        return reinforce.start(self.origin, self.config.learning_rate, seed=self.config.seed)

    def ask(self, state: ReinforceState) -> Vector:
        return state.mean[None]

    def tell(self, state: ReinforceState, fitness: Vector, played: Sequence[Episode]) -> ReinforceState:
        return reinforce.tell(state, played)

    def outcome(self, state: ReinforceState) -> Vector:
        return state.mean


_OPTIMISERS: Mapping[LearnerName, type[Optimiser]] = {
    "sep-cma-es": SepCMA,
    "pycma": Pycma,
    "reinforce": Reinforce,
    "random-search": RandomSearch,
}
_STATES: Mapping[str, Any] = {
    one.kind: one for one in (SepCMAState, PycmaState, RandomSearchState, ReinforceState)
}


def optimiser_of(config: EvolveConfig, space: SearchSpace) -> Optimiser:
    """The configured learner in this space; ConfigError when it cannot learn what the template holds."""
    template = space.template
    if config.learner == "reinforce" and (template.head_kind != "linear" or template.svf_layout):
        raise ConfigError(
            "REINFORCE learns a linear head without SVF offsets: leave --head and --svf out, or evolve by "
            "sep-cma-es."
        )
    return _OPTIMISERS[config.learner](config, space)


def restored(data: bytes) -> LearnerState:
    """The state that some learner's `to_bytes` wrote; ConfigError for anything else."""
    state: LearnerState = _STATES.get(kind_of(data), SepCMAState).from_bytes(data)
    return state
