"""What moves a coordinator's vector besides sep-CMA-ES: pycma itself, random search and REINFORCE; how each begins, and
how a state that was kept comes back (no torch).

pycma is the library as the authors of TRINITY used it: CMA_diagonal and otherwise its defaults, which from 300 numbers
on adapt the step size by two points (Hansen 2008) and not by the path's length. Its own objects are megabytes of
pickle, which no file should be trusted with. A state here is what was told so far: the library is fed with it again,
which gives the same search to the bit, and is kept between two generations.

Random search draws candidates evenly from a box and keeps the best one seen (trinity.md 1.8, paper A.5).

REINFORCE (Williams 1992) learns a linear head: the gradient of the log-probability of what was chosen, times how much
better its episode did than the batch, by Adam. The paper, which compares with it (A.5), tells neither its baseline nor
its learning rate: the baseline here is the batch's mean, the default rate the best of a grid on validation tasks.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from core.draws import uniform
from core.episode import ROLE_ORDER, Episode
from core.errors import ConfigError
from core.evolution.learner_state import LearnerState, Vector, check_told, kind_of
from core.evolution.sep_cma import SepCMAState

if TYPE_CHECKING:
    from core.evolution.config import EvolveConfig
    from core.evolution.search import SearchSpace

#: Below this pycma mirrors samples on its own account.
FEWEST = 6

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma and Ba 2015


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PycmaState(LearnerState):
    """`told` is the fitness of every candidate of every generation so far; `first` and `first_step` where it began."""

    kind: ClassVar = "pycma"

    first: Vector
    first_step: float
    told: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def start(cls, mean: Vector, step_size: float, *, population: int, seed: int) -> PycmaState:
        """The state before the first generation. ConfigError for what pycma cannot search with."""
        if not (step_size > 0 and np.isfinite(step_size)):
            raise ConfigError(f"A step size of {step_size} cannot search: give a positive number.")
        if population < FEWEST:
            raise ConfigError(f"A population of {population} does not fit: give pycma at least {FEWEST}.")
        mean, step = np.array(mean, float), float(step_size)
        return cls(mean=mean, first=mean, step_size=step, first_step=step, population=population, seed=seed)

    def ask(self) -> Vector:
        return _pycma(self)[1].copy()

    def tell(self, fitness: Vector, played: Sequence[Episode] = ()) -> PycmaState:
        """pycma knows no missing values: such a candidate counts as the worst that is known. A generation of which
        nothing is known is told as a tie."""
        fitness = check_told(fitness, self.population)
        known = fitness[np.isfinite(fitness)]
        filled = np.where(np.isfinite(fitness), fitness, known.min() if known.size else 0.0)
        search, candidates = _pycma(self)
        search.tell(list(candidates), list(-filled))
        after = replace(
            self,
            mean=np.array(search.mean, float),
            step_size=float(search.sigma),
            generation=self.generation + 1,
            told=(*self.told, tuple(filled.tolist())),
        )
        _latest.clear()
        _latest[after.digest] = search, np.array(search.ask())
        return after


#: The search behind the newest state, by its digest, with the candidates that it has drawn.
_latest: dict[str, tuple[Any, Vector]] = {}


def _pycma(state: PycmaState) -> tuple[Any, Vector]:
    """pycma's own search as it stands in this state, and the candidates that it draws next."""
    digest = state.digest
    if digest not in _latest:
        search = _new_pycma(state)
        for fitness in state.told:
            search.tell(list(np.array(search.ask())), list(-np.array(fitness)))
        _latest.clear()
        _latest[digest] = search, np.array(search.ask())
    return _latest[digest]


def _new_pycma(state: PycmaState) -> Any:
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RandomSearchState(LearnerState):
    """`mean` is the best point seen, `best` its fitness; candidates lie within `step_size` of `centre`, each number."""

    kind: ClassVar = "random_search"

    centre: Vector
    best: float = -float("inf")

    @classmethod
    def start(cls, centre: Vector, half_width: float, *, population: int, seed: int) -> RandomSearchState:
        """The state before the first generation."""
        centre, step = np.array(centre, float), float(half_width)
        return cls(mean=centre, centre=centre, step_size=step, population=population, seed=seed)

    def ask(self) -> Vector:
        n = len(self.centre)
        draws = uniform(f"{self.seed}/random-search/{self.generation}", self.population * n)
        return self.centre + self.step_size * (2 * draws.reshape(self.population, n) - 1)

    def tell(self, fitness: Vector, played: Sequence[Episode] = ()) -> RandomSearchState:
        moved = replace(self, generation=self.generation + 1)
        known = np.where(np.isfinite(fitness), fitness, -np.inf)
        first = int(known.argmax())
        if known[first] <= self.best:
            return moved
        return replace(moved, mean=self.ask()[first], best=float(known[first]))

    def vectors(self, points: Vector, space: SearchSpace) -> Vector:
        """Vectors with the steps of SVF offsets in proportion to the head's."""
        return space.vectors(self.centre + (points - self.centre) * space.scales)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReinforceState(LearnerState):
    """`mean` [n] is the head as it is; `first` and `second` [n] are Adam's moments, `step_size` its learning rate."""

    kind: ClassVar = "reinforce"

    first: Vector
    second: Vector
    population: int = 1

    @classmethod
    def start(cls, mean: Vector, learning_rate: float, *, seed: int) -> ReinforceState:
        """The state before the first batch."""
        mean = np.array(mean, float)
        zeros = np.zeros_like(mean)
        return cls(mean=mean, first=zeros, second=zeros, step_size=float(learning_rate), seed=seed)

    def ask(self) -> Vector:
        return self.mean[None]

    def tell(self, fitness: Vector, played: Sequence[Episode] = ()) -> ReinforceState:
        """After a batch that was played with the head as it is; missing episodes are left out."""
        moved = replace(self, generation=self.generation + 1)
        gradient = policy_gradient(played, len(self.mean))
        if not gradient.any():
            return moved
        first = _BETA_1 * self.first + (1 - _BETA_1) * gradient
        second = _BETA_2 * self.second + (1 - _BETA_2) * gradient**2
        unbiased_first = first / (1 - _BETA_1**moved.generation)
        unbiased_second = second / (1 - _BETA_2**moved.generation)
        step = self.step_size * unbiased_first / (np.sqrt(unbiased_second) + _EPSILON)
        return replace(moved, mean=self.mean + step, first=first, second=second)

    def vectors(self, points: Vector, space: SearchSpace) -> Vector:
        """It learns in the vector's own coordinates."""
        return points


def policy_gradient(played: Sequence[Episode], n: int) -> Vector:
    """The estimated gradient [n] of the mean reward over a linear head's weights, row after row.

    d log p(choice) / d W = (one-hot(choice) - p) h, summed over an episode's turns, for model and role alike; times
    its reward less the batch's mean. A choice that the policy did not make has no part in it."""
    finished = [(episode, episode.reward) for episode in played if episode.reward is not None]
    total: Vector = np.zeros(n)
    if not finished:
        return total
    baseline = float(np.mean([reward for _, reward in finished]))
    for episode, reward in finished:
        for turn in episode.turns:
            choice = turn.decision
            state = np.frombuffer(choice.hidden_state, "<f2").astype(float)
            rows = -np.array([*choice.model_probs, *choice.role_probs])
            rows[episode.models.index(choice.model)] += 1
            if choice.origin == "policy":
                rows[len(episode.models) + ROLE_ORDER.index(choice.role)] += 1
            else:
                rows[len(episode.models) :] = 0
            total += (reward - baseline) * np.outer(rows, state).reshape(-1)
    return total / len(finished)


def begin(
    config: EvolveConfig, origin: Vector, step_size: float = 1.0, scales: Vector | None = None
) -> LearnerState:
    """The configured learner before its first generation, at the vector `origin` [n]; `scales` [n] are the first steps
    over `step_size`. ConfigError where it cannot learn so."""
    sizes: Any = {"population": config.population, "seed": config.seed}
    if config.learner == "reinforce":
        if config.population != 1:
            raise ConfigError(
                "REINFORCE plays one policy: give a population of 1, and its batch as tasks per candidate."
            )
        return ReinforceState.start(origin, config.learning_rate, seed=config.seed)
    if config.learner == "pycma":
        if scales is not None and (scales != 1.0).any():
            raise ConfigError(
                "pycma takes one first step for all numbers: give svf_step_size the same value as step_size."
            )
        return PycmaState.start(origin, step_size, **sizes)
    if config.learner == "random-search":
        return RandomSearchState.start(origin, config.box * step_size, **sizes)
    rules: Any = {"mirrored": config.mirrored, "preset": config.rates}
    return SepCMAState.start(origin, step_size, scales=scales, **rules, **sizes)


def read_state(data: bytes) -> LearnerState:
    """The state that some learner's `to_bytes` wrote; ConfigError for anything else."""
    kinds: dict[str, type[LearnerState]] = {
        one.kind: one for one in (SepCMAState, PycmaState, RandomSearchState, ReinforceState)
    }
    state: LearnerState = kinds.get(kind_of(data), SepCMAState).from_bytes(data)
    return state
