"""A coordinator learned from labels (paper A.5): the model that does best on a question, cloned turn by turn.

Every model plays every question, alone and at its best cycle of roles; the head then learns to choose, at each turn of
the episodes that were solved so, the model and the role that were chosen there. It is the coordinator's own head on the
same hidden states, so that an evolution can go on from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import encode_for
from core.coordinator.encoder import Encoder
from core.draws import derive_seed
from core.episode import ROLE_ORDER, Episode, Task
from core.errors import ConfigError
from core.evolution.baselines import Arena
from core.evolution.config import LABEL_REPEATS
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import label_weights, mean_reward, rewards
from core.evolution.learner_state import Vector
from core.heads import softmax
from core.play.session import request_at

#: Weights of the squared head from which the one is taken that says most about questions left aside.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
#: One question in so many is left aside for that.
LEFT_ASIDE = 5

_Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """Choices to learn: hidden `states` [n, hidden size], the slots `models` [n] and places `roles` [n] chosen there,
    how much each counts, `weights` [n], and which question each is from, `questions` [n]."""

    states: Vector
    models: _Places
    roles: _Places
    weights: Vector
    questions: _Places


def cloned_from_labels(
    template: Checkpoint,
    encoder: Encoder,
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    questions: Sequence[Task],
    *,
    ridge: float | None = None,
) -> Checkpoint:
    """The template with a head that clones, on each question, the model that solved it most often in three repeats.

    Models that do equally well share a question; one that nobody solved teaches nothing. `ridge` is the weight of the
    squared head; by default the one of RIDGES that says most about questions left aside. ConfigError for a head that
    is not linear, and when no question was solved at all."""
    if template.head_kind != "linear":
        raise ConfigError("Labels teach a linear head alone: leave --head out, or evolve without labels.")
    played = [
        [
            replace(arena, seed=derive_seed((arena.seed, "label", repeat))).play(policy, questions)
            for repeat in range(LABEL_REPEATS)
        ]
        for policy in arena.singles(cycles)
    ]
    solved = np.stack([[rewards(one) for one in repeats] for repeats in played], axis=0)
    weights = label_weights(mean_reward(np.moveaxis(solved, 1, -1)))
    lessons = _lessons(template, encoder, played, weights)
    if not len(lessons.weights):
        raise ConfigError(
            "No model solved a single one of the questions to be labelled: there is nothing to learn."
        )
    everything = np.ones(len(lessons.weights), bool)
    n_models = len(template.models)
    head = _fitted(lessons, n_models) if ridge is None else _both(lessons, n_models, everything, ridge)
    vector = np.array(template.vector, float)
    vector[template.svf_size :] = head.ravel()
    return template.with_vector(vector, kind="labels")


def _lessons(
    template: Checkpoint, encoder: Encoder, played: Sequence[Sequence[Sequence[Episode]]], weights: Vector
) -> Lessons:
    """The turns of the solved episodes of each question's best models; a question counts once in all."""
    requests, rows = [], []
    for slot, repeats in enumerate(played):
        for question, weight in enumerate(weights[slot]):
            solved = [one[question] for one in repeats if one[question].reward == 1] if weight > 0 else []
            for episode in solved:
                for turn in episode.turns:
                    requests.append(request_at(episode, turn.index))
                    role = ROLE_ORDER.index(turn.decision.role)
                    rows.append((slot, role, weight / (len(solved) * len(episode.turns)), question))
    states = encode_for(template, encoder, requests).states.astype(float) if requests else np.zeros((0, 0))
    slots, roles, shares, asked = np.array(rows, float).reshape(-1, 4).T
    return Lessons(states, slots.astype(int), roles.astype(int), shares, asked.astype(int))


def _fitted(lessons: Lessons, n_models: int) -> Vector:
    """The head [models and roles, hidden size] of the ridge that says most about the questions left aside."""
    aside = lessons.questions % LEFT_ASIDE == 0
    if not aside.any() or aside.all():
        return _both(lessons, n_models, np.ones(len(aside), bool), RIDGES[1])
    best = min(
        RIDGES, key=lambda ridge: _surprise(lessons, n_models, aside, _both(lessons, n_models, ~aside, ridge))
    )
    return _both(lessons, n_models, np.ones(len(aside), bool), best)


def _both(lessons: Lessons, n_models: int, used: NDArray[np.bool_], ridge: float) -> Vector:
    states, weights = lessons.states[used], lessons.weights[used]
    models = _softmax_regression(states, lessons.models[used], weights, n_models, ridge)
    roles = _softmax_regression(states, lessons.roles[used], weights, len(ROLE_ORDER), ridge)
    return np.concatenate([models, roles])


def _surprise(lessons: Lessons, n_models: int, used: NDArray[np.bool_], head: Vector) -> float:
    """Mean negative log probability (nats) of the choices in use."""
    z, rows = lessons.states[used] @ head.T, np.arange(int(used.sum()))
    models, roles = softmax(z[:, :n_models]), softmax(z[:, n_models:])
    told = np.log(models[rows, lessons.models[used]]) + np.log(roles[rows, lessons.roles[used]])
    return -float(np.average(told, weights=lessons.weights[used]))


def _softmax_regression(
    states: Vector, labels: _Places, weights: Vector, classes: int, ridge: float
) -> Vector:
    """Weights [classes, hidden size] of a softmax without a constant, as heads have none.

    Minimises the mean surprise plus `ridge` times the squared weights, of states of mean square 1 a number."""
    from scipy.optimize import minimize  # here, because importing scipy takes longer than all the rest

    scale = float(np.sqrt(np.mean(states**2))) or 1.0
    x, share = states / scale, weights / weights.sum()
    truth = np.eye(classes)[labels]

    def loss(flat: Vector) -> tuple[float, Vector]:
        head = flat.reshape(classes, -1)
        p = softmax(x @ head.T)
        told = -float(share @ np.log(np.maximum(p[np.arange(len(x)), labels], 1e-300)))
        gradient = ((p - truth) * share[:, None]).T @ x + 2 * ridge * head
        return told + ridge * float((head**2).sum()), gradient.ravel()

    found = minimize(
        loss, np.zeros(classes * x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    result: Vector = found.x.reshape(classes, -1) / scale
    return result
