"""The reward's curvature: against derivatives taken by differences, and silent where there is only chance."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from core.analysis.curvature import (
    Choices,
    _Parts,
    block_separability,
    coupling,
    gain_over_random_search,
)
from core.heads import softmax

MODELS, ROWS, TURNS = 3, 6, 2
STATES = np.array([[1.0, 0.0], [0.3, 1.2]])  # of turn 0 and of turn 1
HEAD = np.random.default_rng(4).normal(size=(ROWS, 2))


def chances(head: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of every (model, role) of both turns, [models, roles, models, roles]."""
    z = STATES @ head.T
    models, roles = softmax(z[:, :MODELS]), softmax(z[:, MODELS:])
    found: NDArray[np.float64] = np.einsum("a,b,c,d->abcd", models[0], roles[0], models[1], roles[1])
    return found


def played(reward: NDArray[np.float64], n: int) -> Choices:
    """Episodes of two turns drawn from HEAD; `reward` [models, roles, models, roles] is the chance to be right."""
    rng = np.random.default_rng(0)
    p, z = chances(HEAD), STATES @ HEAD.T
    flat = rng.choice(p.size, size=n, p=p.ravel())
    a, b, c, d = np.unravel_index(flat, p.shape)
    right = rng.random(n) < reward.ravel()[flat]
    return Choices(
        states=np.tile(STATES, (n, 1)).astype(np.float32),
        model_probs=np.tile(softmax(z[:, :MODELS]), (n, 1)),
        role_probs=np.tile(softmax(z[:, MODELS:]), (n, 1)),
        models=np.column_stack([a, c]).ravel(),
        roles=np.column_stack([b, d]).ravel(),
        episodes=np.repeat(np.arange(n), TURNS),
        rewards=right.astype(float),
    )


def test_the_hessian_is_that_of_the_expected_reward() -> None:
    reward = np.random.default_rng(1).random((MODELS, 3, MODELS, 3))
    choices = played(reward, 20_000)
    left, values, axes = np.linalg.svd(choices.states.astype(float), full_matrices=False)
    signed = left * np.sqrt(len(choices.states))
    back = (axes.T * values) / np.sqrt(len(choices.states))  # states = signed @ back.T
    there = np.linalg.inv(back)

    def expected(head: NDArray[np.float64]) -> float:
        """The mean reward of a head [rows, directions] over the states in their leading directions."""
        return float((chances(head @ there) * reward).sum())

    assert signed @ back.T == pytest.approx(choices.states, abs=1e-6)
    start, step, size = (HEAD @ back).ravel(), 1e-3, ROWS * 2
    true = np.zeros((size, size))
    for i in range(size):
        for j in range(i, size):
            for one in (-1, 1):
                for two in (-1, 1):
                    moved = start.copy()
                    moved[i] += one * step
                    moved[j] += two * step
                    true[i, j] += one * two * expected(moved.reshape(ROWS, 2)) / (4 * step**2)
            true[j, i] = true[i, j]
    found = _Parts.of(choices, 2).hessian(choices.rewards).reshape(size, size)
    assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > 0.95
    assert found == pytest.approx(true, abs=0.012)  # the largest are about 0.05


def test_a_reward_that_only_models_decide_does_not_couple_models_and_roles() -> None:
    by_model = np.random.default_rng(2).random(MODELS)
    reward = np.broadcast_to(by_model[None, None, :, None], (MODELS, 3, MODELS, 3))
    found = block_separability(played(reward, 4_000))
    assert found is not None
    assert found.found
    apart = np.abs(found.curvature[:MODELS, MODELS:])
    assert apart.max() < 0.5 * np.abs(found.curvature[:MODELS, :MODELS]).max()


def test_rewards_by_chance_are_told_as_chance_and_too_few_episodes_tell_nothing() -> None:
    even = np.full((MODELS, 3, MODELS, 3), 0.5)
    found = block_separability(played(even, 400))
    assert found is not None
    assert not found.found
    assert found.outside is None
    assert block_separability(played(even, 20)) is None
    assert block_separability(played(np.ones_like(even), 100)) is None


def test_a_block_diagonal_matrix_is_not_coupled_and_another_is() -> None:
    hessian = np.zeros((2, 2, 2, 2))
    hessian[0, :, 0, :], hessian[1, :, 1, :] = np.eye(2), 4 * np.eye(2)
    found = coupling(hessian)
    assert (found.spectral, found.largest, found.row) == (0, 0, 0)
    hessian[0, :, 1, :] = hessian[1, :, 0, :] = np.eye(2)
    found = coupling(hessian)
    assert found.spectral == pytest.approx(1 / 4)
    assert found.largest == pytest.approx(1 / 2)
    assert found.row == pytest.approx(1)


def test_the_lead_over_random_search_grows_with_generations() -> None:
    lead = gain_over_random_search(np.array([2.0, 60.0]))
    assert lead == pytest.approx([2 / np.log(32), 60 / np.log(960)])
