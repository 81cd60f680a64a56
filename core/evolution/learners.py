"""The learners of a coordinator behind one interface: sep-CMA-ES as in the paper, and those it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from core.episode import Episode
from core.errors import ConfigError
from core.evolution import random_search, reinforce, sep_cma
from core.evolution.learner_state import LearnerState, Vector, kind_of
from core.evolution.random_search import RandomSearchState
from core.evolution.reinforce import ReinforceState
from core.evolution.search import SearchSpace
from core.evolution.sep_cma import SepCMAState


class Learner(Protocol):
    """Proposes the vectors of a generation and learns from their fitness (the ask and tell interface)."""

    def begin(self) -> LearnerState:
        """The state before the first generation."""

    def ask(self, state: Any) -> Vector:
        """The generation's vectors [population, n]."""

    def tell(self, state: Any, fitness: Vector, played: Sequence[Episode]) -> LearnerState:
        """The state after it. `fitness` [population], NaN where it is missing; `played` in candidates' order."""

    def outcome(self, state: Any) -> Vector:
        """The vector [n] that has been learned so far."""


@dataclass(frozen=True, slots=True)
class SepCMA:
    """Separable CMA-ES over the points of a search space."""

    space: SearchSpace
    population: int
    seed: int
    mirrored: bool
    rates: sep_cma.Preset

    def begin(self) -> SepCMAState:
        return sep_cma.start(
            np.asarray(self.space.template.vector, float),
            self.space.step_size,
            scales=self.space.scales,
            population=self.population,
            seed=self.seed,
            mirrored=self.mirrored,
            preset=self.rates,
        )

    def ask(self, state: SepCMAState) -> Vector:
        return self.space.vectors(sep_cma.ask(state))

    def tell(self, state: SepCMAState, fitness: Vector, played: Sequence[Episode]) -> SepCMAState:
        return sep_cma.tell(state, fitness)

    def outcome(self, state: SepCMAState) -> Vector:
        """The distribution's mean."""
        return self.space.vectors(state.mean)


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """Random search in the same space: a box of `box` first step sizes around the first vector."""

    space: SearchSpace
    population: int
    seed: int
    box: float

    def begin(self) -> RandomSearchState:
        return random_search.start(
            np.asarray(self.space.template.vector, float),
            self.box * self.space.step_size,
            population=self.population,
            seed=self.seed,
        )

    def ask(self, state: RandomSearchState) -> Vector:
        return self.space.vectors(self._scaled(random_search.ask(state), state))

    def tell(self, state: RandomSearchState, fitness: Vector, played: Sequence[Episode]) -> RandomSearchState:
        return random_search.tell(state, fitness)

    def outcome(self, state: RandomSearchState) -> Vector:
        """The best candidate seen."""
        return self.space.vectors(self._scaled(state.mean, state))

    def _scaled(self, points: Vector, state: RandomSearchState) -> Vector:
        """Points with the steps of SVF offsets in proportion to the head's."""
        return state.centre + (points - state.centre) * self.space.scales


@dataclass(frozen=True, slots=True)
class Reinforce:
    """REINFORCE from the first vector, in the vector's own coordinates."""

    space: SearchSpace
    learning_rate: float
    seed: int

    def __post_init__(self) -> None:
        template = self.space.template
        if template.head_kind != "linear" or template.svf_layout:
            raise ConfigError(
                "REINFORCE learns a linear head without SVF offsets: leave --head and --svf out, or evolve by "
                "sep-cma-es."
            )

    def begin(self) -> ReinforceState:
        return reinforce.start(
            np.asarray(self.space.template.vector, float), self.learning_rate, seed=self.seed
        )

    def ask(self, state: ReinforceState) -> Vector:
        """One policy: the head as it is."""
        return state.mean[None]

    def tell(self, state: ReinforceState, fitness: Vector, played: Sequence[Episode]) -> ReinforceState:
        return reinforce.tell(state, played)

    def outcome(self, state: ReinforceState) -> Vector:
        """The head as it is."""
        return state.mean


_STATES: Mapping[str, Any] = {one.kind: one for one in (SepCMAState, RandomSearchState, ReinforceState)}


def restored(data: bytes) -> LearnerState:
    """The state that some learner's `to_bytes` wrote; ConfigError for anything else."""
    state: LearnerState = _STATES.get(kind_of(data), SepCMAState).from_bytes(data)
    return state
