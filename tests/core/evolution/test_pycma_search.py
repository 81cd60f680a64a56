"""pycma as a learner: the same search that the library itself makes, resumed without its pickles."""

import warnings

import numpy as np
import pytest

from core.errors import ConfigError
from core.evolution import learners
from core.evolution.learners import PycmaState
from tests.core.evolution.test_sep_cma import Array, sphere

with warnings.catch_warnings():  # it warns that it cannot plot
    warnings.simplefilter("ignore")
    import cma


def told(generations: int, state: PycmaState | None = None) -> PycmaState:
    state = state or PycmaState.start(np.full(320, 0.5), 0.3, population=12, seed=4)
    for _ in range(generations):
        state = state.tell(sphere(state.ask()))
    return state


def test_it_is_pycma_with_two_point_adaptation_from_300_numbers_on() -> None:
    normal = np.random.default_rng([4, 0x7C3A]).standard_normal
    options = {
        "popsize": 12,
        "CMA_diagonal": True,
        "randn": lambda *shape: normal(shape),
        "seed": np.nan,
        "verbose": -9,
    }
    theirs = cma.CMAEvolutionStrategy(np.full(320, 0.5), 0.3, options)
    assert isinstance(theirs.adapt_sigma, cma.sigma_adaptation.CMAAdaptSigmaTPA)
    for _ in range(20):
        x: Array = np.array(theirs.ask())
        theirs.tell(list(x), list(-sphere(x)))
    ours = told(20)
    assert np.array_equal(ours.mean, theirs.mean)
    assert ours.step_size == theirs.sigma


def test_saved_and_reloaded_it_goes_on_bit_for_bit() -> None:
    straight, halfway = told(12), told(5)
    learners._latest.clear()  # another process
    resumed = told(7, PycmaState.from_bytes(halfway.to_bytes()))
    assert resumed.digest == straight.digest
    assert np.array_equal(resumed.ask(), straight.ask())


def test_a_missing_fitness_counts_as_the_worst_known() -> None:
    state = told(1)
    fitness = sphere(state.ask())
    worst = np.argmin(fitness)
    missing = fitness.copy()
    missing[worst] = np.nan
    after = state.tell(missing)
    assert min(after.told[-1]) == np.sort(fitness)[1]
    assert state.tell(np.full(12, np.nan)).told[-1] == (0.0,) * 12


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="step size"):
        PycmaState.start(np.ones(3), 0.0, population=8, seed=0)
    with pytest.raises(ConfigError, match="at least 6"):
        PycmaState.start(np.ones(3), 0.1, population=4, seed=0)
    with pytest.raises(ConfigError, match="fitness values"):
        told(0).tell(np.zeros(3))
