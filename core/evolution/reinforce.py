"""REINFORCE (Williams 1992) on a linear head: the gradient of the log-probability of what was chosen, times how much
better its episode did than the batch, by Adam. The paper, which compares with it (A.5), tells neither its baseline nor
its learning rate: the baseline here is the batch's mean, the default rate the best of a grid on validation tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from core.episode import ROLE_ORDER, Episode
from core.errors import ConfigError
from core.evolution.learner_state import LearnerState, Vector

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Kingma and Ba 2015


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReinforceState(LearnerState):
    """`mean` [n] is the head as it is; `first` and `second` [n] are Adam's moments, `step_size` its learning rate."""

    kind: ClassVar = "reinforce"

    first: Vector
    second: Vector
    population: int = 1


def start(mean: Vector, learning_rate: float, *, seed: int) -> ReinforceState:
    """The state before the first batch."""
    if not (learning_rate > 0 and np.isfinite(learning_rate)):
        raise ConfigError(f"A learning rate of {learning_rate} learns nothing: give a positive number.")
    mean = np.array(mean, float)
    zeros = np.zeros_like(mean)
    return ReinforceState(mean=mean, first=zeros, second=zeros, step_size=float(learning_rate), seed=seed)


def tell(state: ReinforceState, played: Sequence[Episode]) -> ReinforceState:
    """The state after a batch that was played with the head as it is; missing episodes are left out."""
    moved = replace(state, generation=state.generation + 1)
    gradient = policy_gradient(played, len(state.mean))
    if not gradient.any():
        return moved
    first = _BETA_1 * state.first + (1 - _BETA_1) * gradient
    second = _BETA_2 * state.second + (1 - _BETA_2) * gradient**2
    unbiased_first = first / (1 - _BETA_1**moved.generation)
    unbiased_second = second / (1 - _BETA_2**moved.generation)
    step = state.step_size * unbiased_first / (np.sqrt(unbiased_second) + _EPSILON)
    return replace(moved, mean=state.mean + step, first=first, second=second)


def policy_gradient(played: Sequence[Episode], n: int) -> Vector:
    """The estimated gradient [n] of the mean reward over a linear head's weights, row after row.

    d log p(choice) / d W = (one-hot(choice) - p) h, summed over an episode's turns, for model and role alike; times
    its reward less the batch's mean. A choice that the policy did not make has no part in it."""
    finished = [episode for episode in played if episode.reward is not None]
    if not finished:
        return np.zeros(n)
    baseline = float(np.mean([episode.reward for episode in finished]))
    total: Vector = np.zeros(n)
    for episode in finished:
        assert episode.reward is not None
        advantage = episode.reward - baseline
        for turn in episode.turns:
            choice = turn.decision
            state = np.frombuffer(choice.hidden_state, "<f2").astype(float)
            rows = -np.array([*choice.model_probs, *choice.role_probs])
            rows[episode.models.index(choice.model)] += 1
            if choice.origin == "policy":
                rows[len(episode.models) + ROLE_ORDER.index(choice.role)] += 1
            else:
                rows[len(episode.models) :] = 0
            total += advantage * np.outer(rows, state).reshape(-1)
    return total / len(finished)
