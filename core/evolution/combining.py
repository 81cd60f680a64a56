"""Policies that are chosen or taught by what every model makes of some tasks: a cascade, and a router of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.coordinator.encoder import Encoder
from core.draws import derive_seed
from core.episode import EndReason, Episode, Role, Status, Task
from core.evolution.baselines import Arena, QuestionRouter, question_states, solved_by_single
from core.evolution.config import LABEL_REPEATS
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import label_weights, mean_reward, rewards
from core.play.policies import CyclePolicy, cascade_policy, single_policy

#: How large the coefficients of a router of labels may become (scikit-learn's C): the best of a grid on validation
#: tasks.
FREEDOM = 0.01


def cascade(arena: Arena, validation: Sequence[Task]) -> CyclePolicy:
    """The cascade (see `cascade_policy`) whose models and judge do best on validation tasks.

    The judge is the model that tells right answers of all models from wrong ones best on validation tasks, in the
    Verifier's role. The models are chosen one after the other, each the best one after those before it."""

    def played(*team: str, turns: int) -> list[Episode]:
        return replace(arena, turn_budget=turns).play(cascade_policy(team, arena.models), validation)

    checked = {
        judge: [one for model in arena.models for one in played(model, judge, turns=2)]
        for judge in arena.models
    }
    judge = max(arena.models, key=lambda name: discernment(checked[name]))
    team: tuple[str, ...] = ()
    while 2 * len(team) < arena.turn_budget:
        turns = min(2 * len(team) + 2, arena.turn_budget)
        trials = [(*team, model) for model in arena.models]
        team = max(trials, key=lambda trial: float(mean_reward(rewards(played(*trial, judge, turns=turns)))))
    return cascade_policy((*team, judge), arena.models)


def best_answerer(arena: Arena, validation: Sequence[Task]) -> str:
    """The model that solves most validation tasks when each answers once, alone."""
    once = replace(arena, turn_budget=1)

    def accuracy(model: str) -> float:
        policy = single_policy(model, arena.models, (Role.WORKER,))
        return float(mean_reward(rewards(once.play(policy, validation))))

    return max(arena.models, key=accuracy)


def discernment(checked: Sequence[Episode]) -> float:
    """How well a judge tells answers apart: the share of right ones it accepts less that of wrong ones, over episodes
    of one answer and one verdict; -1 when one of the two kinds is not there."""
    accepts: dict[bool, list[bool]] = {True: [], False: []}
    for one in checked:
        if one.status is Status.FINISHED and one.answer is not None:
            accepts[bool(one.correct)].append(one.end_reason is EndReason.ACCEPTED)
    if not all(accepts.values()):
        return -1.0
    return float(np.mean(accepts[True]) - np.mean(accepts[False]))


def labelled_router(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    encoder: Encoder,
    train: Sequence[Task],
    *,
    freedom: float = FREEDOM,
) -> QuestionRouter:
    """Supervised labels (paper A.5): a linear softmax from the question's hidden state to the model that does best.

    The label of a question is the model that solved it most often in three repeats at its best cycle; ties count
    evenly, and a question that no model solved is left out. Trained to the end (L-BFGS), not by some steps of Adam.
    `freedom` is scikit-learn's C: the larger, the larger coefficients may become."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    repeats = [
        solved_by_single(replace(arena, seed=derive_seed((arena.seed, "label", k))), cycles, train)
        for k in range(LABEL_REPEATS)
    ]
    weights = label_weights(mean_reward(np.stack(repeats, axis=-1)))
    rows, labels = np.nonzero(weights.T)
    scaler = StandardScaler().fit(question_states(encoder, train))
    states = scaler.transform(question_states(encoder, train))
    learned = LogisticRegression(C=freedom, max_iter=2000).fit(
        states[rows], labels, sample_weight=weights.T[rows, labels]
    )
    return QuestionRouter(
        "labels",
        arena.models,
        tuple(arena.singles(cycles)),
        encoder,
        lambda found: learned.predict(scaler.transform(found)).astype(int),
    )
