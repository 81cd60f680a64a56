"""REINFORCE, random search and pycma: the gradient, the best seen, the library's own search resumed without its
pickles, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder
from core.episode import ROLE_ORDER, Episode, Role
from core.errors import CheckpointError, ConfigError
from core.evolution import learners
from core.evolution.config import EvolveConfig, shape_of
from core.evolution.learners import PycmaState, RandomSearchState, ReinforceState, policy_gradient, read_state
from core.heads import softmax
from core.learning import episodes_of, play_all
from core.tasks.graders import grade_many
from tests.builders.pools import ScriptedPool
from tests.core.evolution.test_evolve import SPECS, TASKS, accuracy, begun, run, say
from tests.core.evolution.test_sep_cma import Array, sphere

with warnings.catch_warnings():  # it warns that it cannot plot
    warnings.simplefilter("ignore")
    import cma

MODELS = [spec.name for spec in SPECS]
BATCHES = EvolveConfig(
    learner="reinforce",
    generations=12,
    population=1,
    tasks_per_candidate=64,
    rotate_every=1,
    validate_every=12,
    turn_budget=2,
    seed=2,
    learning_rate=0.05,
)
BOXES = EvolveConfig(
    learner="random-search",
    generations=6,
    population=8,
    tasks_per_candidate=8,
    validate_every=6,
    turn_budget=3,
)


def played(encoder: Encoder, checkpoint: Checkpoint) -> list[Episode]:
    births = episodes_of(TASKS[:12], MODELS, seed=1, turn_budget=3, prefix="p")
    return play_all(births, Coordinator(checkpoint, encoder), ScriptedPool(SPECS, say), grade_many)


def test_the_gradient_is_that_of_the_log_probabilities_times_the_advantage(encoder: Encoder) -> None:
    template = begun(encoder)
    vector = 0.1 * np.random.default_rng(0).normal(size=len(template.vector))
    checkpoint = template.with_vector(vector)
    episodes = played(encoder, checkpoint)
    known = [one for one in episodes if one.reward is not None]
    assert 0 < len(known) < len(episodes)  # one of the models is down for a task
    mean = sum(one.reward or 0.0 for one in known) / len(known)

    def surrogate(weights: np.ndarray) -> float:
        total = 0.0
        for one in known:
            assert one.reward is not None
            for turn in one.turns:
                state = np.frombuffer(turn.decision.hidden_state, "<f2").astype(float)
                z = weights.reshape(6, -1) @ state
                model, role = softmax(z[:3]), softmax(z[3:])
                chosen = model[MODELS.index(turn.decision.model)]
                total += (one.reward - mean) * np.log(chosen * role[ROLE_ORDER.index(turn.decision.role)])
        return total / len(known)

    gradient, start = policy_gradient(episodes, len(vector)), np.asarray(checkpoint.vector, float)
    for place in (0, 17, len(vector) // 2, len(vector) - 1):
        step = np.zeros(len(vector))
        step[place] = 1e-4
        slope = (surrogate(start + step) - surrogate(start - step)) / 2e-4
        assert gradient[place] == pytest.approx(slope, rel=0.02, abs=1e-4)


def test_reinforce_learns_whom_to_ask(encoder: Encoder) -> None:
    generations = run(encoder, BATCHES)
    assert accuracy(generations[-1].episodes) > accuracy(generations[1].episodes) + 0.2
    assert [len(one.fitness) for one in generations] == [0] + [1] * 12


def test_a_batch_larger_than_the_tasks_plays_each_again_with_other_chances(encoder: Encoder) -> None:
    episodes = episodes_of([TASKS[1]] * 40, MODELS, seed=3, turn_budget=2, prefix="p")
    assert len({one.seed for one in episodes}) == 40
    policy = Coordinator(begun(encoder), encoder)
    over = play_all(episodes, policy, ScriptedPool(SPECS, say), grade_many)
    assert len({tuple(turn.decision.model for turn in one.turns) for one in over}) > 4


def test_random_search_keeps_the_best_candidate_seen(encoder: Encoder) -> None:
    generations = run(encoder, BOXES)
    best = -np.inf
    for before, one in zip(generations, generations[1:], strict=False):
        top = max(value for value in one.fitness if np.isfinite(value))
        assert (one.checkpoint.vector != before.checkpoint.vector).any() == (top > best)
        best = max(best, top)


def test_random_search_stays_in_its_box_and_counts_no_missing_fitness() -> None:
    state = RandomSearchState.start(np.arange(5.0), 0.5, population=50, seed=1)
    points = state.ask()
    assert np.abs(points - np.arange(5.0)).max() <= 0.5
    assert np.abs(points - np.arange(5.0)).max() > 0.45
    after = state.tell(np.full(50, np.nan))
    assert np.array_equal(after.mean, state.mean)
    fitness = np.zeros(50)
    fitness[7], fitness[9] = 0.5, np.nan
    after = after.tell(fitness)
    assert np.array_equal(after.mean, replace(state, generation=1).ask()[7])


def test_what_does_not_fit_a_learner_is_refused_before_anything_begins(encoder: Encoder) -> None:
    for config, words in (
        ({"learner": "gradient"}, "learner cannot be 'gradient': give 'sep-cma-es'"),
        ({"learner": "reinforce"}, "a population of 1"),
        ({"learner": "reinforce", "population": 1, "learning_rate": 0.0}, "learning_rate cannot be 0.0"),
        ({"learner": "random-search", "box": float("nan")}, "box cannot be nan"),
    ):
        with pytest.raises(ConfigError, match=words):
            EvolveConfig(**config)
    with pytest.raises(ConfigError, match="linear head without SVF"):
        run(encoder, BATCHES, begun(encoder, head_kind="sparse"))
    with pytest.raises(ConfigError, match="by another learner"):
        run(encoder, BATCHES, start=RandomSearchState.start(np.zeros(3), 1.0, population=1, seed=2))
    with pytest.raises(ConfigError, match="not the saved state"):
        read_state(b"nothing of the kind")
    cut = ReinforceState.start(np.zeros(3), 1.0, seed=2)
    with pytest.raises(ConfigError, match="not the saved state"):
        read_state(replace(cut, first=np.zeros(2)).to_bytes())
    with pytest.raises(ConfigError, match="vector length 3"):
        run(encoder, BATCHES, start=cut)
    assert shape_of("reinforce")["population"] == 1


def test_what_a_checkpoint_bars_is_never_chosen_and_is_kept_with_it(encoder: Encoder) -> None:
    config = replace(BOXES, generations=1)
    generations = run(encoder, config, begun(encoder, barred=("thinker", "broken")))
    assert generations[1].episodes
    assert set(generations[1].episodes.shares) == {
        (model, role.value) for model in ("good", "bad") for role in (Role.WORKER, Role.VERIFIER)
    }
    last = generations[-1].checkpoint
    again = Checkpoint.from_bytes(last.to_config(), last.to_bytes())
    assert again == last
    assert again.barred == ("thinker", "broken")
    assert "barred" not in begun(encoder).to_config()  # ids from before stay
    choices = [turn.decision for one in played(encoder, again) for turn in one.turns]
    assert {choice.role for choice in choices} == {Role.WORKER, Role.VERIFIER}
    assert all(choice.model_probs[2] == 0 == choice.role_probs[1] for choice in choices)
    with pytest.raises(CheckpointError, match="no model or role 'nobody'"):
        begun(encoder, barred=("nobody",))
    with pytest.raises(CheckpointError, match="keep at least one of each"):
        begun(encoder, barred=tuple(MODELS))


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


def test_pycma_goes_on_when_reloaded_bit_for_bit() -> None:
    straight, halfway = told(12), told(5)
    learners._latest.clear()  # another process
    resumed = told(7, PycmaState.from_bytes(halfway.to_bytes()))
    assert resumed.digest == straight.digest
    assert np.array_equal(resumed.ask(), straight.ask())


def test_for_pycma_a_missing_fitness_counts_as_the_worst_known() -> None:
    state = told(1)
    fitness = sphere(state.ask())
    worst = np.argmin(fitness)
    missing = fitness.copy()
    missing[worst] = np.nan
    after = state.tell(missing)
    assert min(after.told[-1]) == np.sort(fitness)[1]
    assert state.tell(np.full(12, np.nan)).told[-1] == (0.0,) * 12


def test_what_pycma_cannot_search_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="step size"):
        PycmaState.start(np.ones(3), 0.0, population=8, seed=0)
    with pytest.raises(ConfigError, match="at least 6"):
        PycmaState.start(np.ones(3), 0.1, population=4, seed=0)
    with pytest.raises(ConfigError, match="fitness values"):
        told(0).tell(np.zeros(3))
