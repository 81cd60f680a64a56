"""Learned routers: from a question alone, which model is likely to answer it right.

Each learner sees questions as rows of numbers, the hidden states of an encoder or TF-IDF, and what every model made of
them. Its settings are tried on validation tasks, TRIALS of them for every learner; the one whose choices are right most
often is kept, and learned again on both. What differs from the published routers is said where each is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import Decide, Episode, Task
from core.errors import ConfigError
from core.outcomes.contrastive import fit_contrastive, unit_rows
from core.outcomes.lessons import TRIALS, Known
from core.play.policies import Policy, PolicyPerRequest

Array = NDArray[np.float64]
#: Tasks as the rows of a matrix, dense or sparse.
Read = Callable[[Sequence[Task]], Any]
#: Such rows -> a score of every model [rows, models], comparable within a row: the higher, the likelier it is right.
Promise = Callable[[Any], Array]
Setting = Mapping[str, float]
#: (rows, right [rows, models], seed, setting) -> what was learned. `right` is 0 to 1, or NaN where it is not known.
Fit = Callable[[Any, Array, int, Setting], Promise]

#: What holds a regression back, as the weight of its squared coefficients.
_PENALTIES = tuple(float(one) for one in np.geomspace(0.1, 1e5, TRIALS // 2))
_STEPS = 60


def _grid(name: str, values: Sequence[float], other: str, others: Sequence[float]) -> tuple[Setting, ...]:
    """Every pair of a value and another one, TRIALS in all."""
    found = tuple({name: one, other: two} for two, one in product(others, values))
    assert len(found) == TRIALS
    return found


@dataclass(frozen=True, slots=True)
class Learner:
    """One way to learn a router, and the settings that are tried. `dense`: it compares rows by all their numbers, so
    that TF-IDF is reduced to its strongest directions."""

    word: str
    settings: tuple[Setting, ...]
    fit: Fit
    dense: bool = False


@dataclass(frozen=True, slots=True)
class Router:
    """A router that has learned. `told`: what was chosen by what, in a sentence; `aside`: what was promised of each
    validation question [models] before these were learned from."""

    name: str
    models: tuple[str, ...]
    read: Read
    promise: Promise
    told: str = ""
    aside: Mapping[str, Array] = field(default_factory=dict)

    def scores(self, tasks: Sequence[Task]) -> Array:
        """A score of every model for each task [tasks, models]: the higher, the likelier it is right. They can be
        compared between the models of a task, not between tasks. Those of validation tasks are of what was learned
        without them, so that something else can be chosen on them by these scores."""
        if not tasks:
            return np.zeros((0, len(self.models)))
        rows = self.promise(self.read(tasks))
        return np.stack([self.aside.get(task.question, row) for task, row in zip(tasks, rows, strict=True)])


@dataclass(frozen=True, slots=True)
class RouterPolicy(PolicyPerRequest):
    """A router as a policy. `turns`: its turn budget, 0 for that of an ordinary policy."""

    scores: Callable[[Sequence[Task]], Array]
    turns: int = 0
    told: str = ""

    def begin(self, episode: Episode) -> Episode:
        return replace(episode, turn_budget=self.turns) if self.turns else episode


def policy_of_router(
    router: Router, policies: Sequence[Policy], tasks: Sequence[Task], *, turns: int = 0
) -> RouterPolicy:
    """Leaves each question to the one of `policies` (one a model) whose model the router promises most of among those
    that may be chosen. The `tasks` are read together at once; another question is read when it is asked."""
    known = dict(zip((task.question for task in tasks), router.scores(tasks), strict=True))

    def policy(request: Decide) -> Policy:
        question = request.transcript.question
        if question not in known:
            [known[question]] = router.scores([Task("", question, "")])
        mask = np.array(request.model_mask or (True,) * len(policies))
        return policies[int(np.where(mask, known[question], -np.inf).argmax())]

    return RouterPolicy(router.name, router.models, policy, router.scores, turns, router.told)


def learn_router(
    learner: Learner,
    name: str,
    read: Read,
    questions: Sequence[Task],
    learned_from: Known,
    validation: Sequence[Task],
    validated_on: Known,
    *,
    seed: int = 0,
) -> Router:
    """Teach a router by what models made of `questions`; its setting is the one whose choices are right on most
    `validation` tasks, of equals the first. ConfigError where nothing is known of either."""
    right, checked = learned_from.right, validated_on.right
    for known, split in ((right, "evolve"), (checked, "validation")):
        if not np.isfinite(known).any():
            raise ConfigError(
                f"Policy '{name}' learns from tasks of the {split} split, and nothing is known of what the models make "
                "of them: choose another policy."
            )
    x = read([*questions, *validation])
    n = len(questions)

    best, worth, aside = learner.settings[0], -1.0, np.zeros((0, 0))
    for setting in learner.settings:
        scores = learner.fit(x[:n], right, seed, setting)(x[n:])
        if (own := share_right(scores, checked)) > worth:
            best, worth, aside = setting, own, scores
    chosen = ", ".join(f"{key} {value:g}" for key, value in best.items())
    return Router(
        name,
        learned_from.models,
        read,
        learner.fit(x, np.concatenate([right, checked]), seed, best),
        f"{name}: of {len(learner.settings)} settings {chosen} was right most often on {len(validation):,} validation "
        f"tasks; {n:,} tasks taught it.",
        dict(zip((task.question for task in validation), aside, strict=False)),
    )


def share_right(scores: Array, right: Array) -> float:
    """How often the likeliest model is right, among those of which it is known; NaN without any."""
    best = np.where(np.isfinite(right), scores, -np.inf).argmax(axis=1)
    found = right[np.arange(len(right)), best]
    return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")


def means_of(right: Array) -> Array:
    """Each model's share of right answers [models]; 0 for one of which nothing is known."""
    known = np.isfinite(right)
    found: Array = np.where(known, right, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return found


def _telling(x: Any, right: Array, setting: Setting) -> tuple[Any, Array]:
    """What a learner learns from: all questions, or those alone on which models differ."""
    if setting["differing"]:
        some = np.nanmax(right, axis=1, initial=0.0) > np.nanmin(right, axis=1, initial=1.0)
        if some.any():
            return x[some], right[some]
    return x, right


def _filled(right: Array) -> Array:
    """Where nothing is known of a model, its mean stands in."""
    return np.where(np.isfinite(right), right, means_of(right))


# The nearest questions


def _fit_nearest(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """The share of right answers to the `neighbours` that are nearest by the cosine."""
    rows, right = _telling(x, right, setting)
    rows, known = unit_rows(rows), np.isfinite(right)
    solved, means, k = (
        np.where(known, right, 0.0),
        means_of(right),
        min(int(setting["neighbours"]), len(right)),
    )

    def promise(asked: Any) -> Array:
        found = np.zeros((len(asked), right.shape[1]))
        for start in range(0, len(asked), 512):
            alike = unit_rows(asked[start : start + 512]) @ rows.T
            near = np.argpartition(-alike, k - 1, axis=1)[:, :k]
            # One neighbour more, who does as ever, decides between models of which as much is known.
            found[start : start + 512] = (solved[near].sum(axis=1) + means) / (known[near].sum(axis=1) + 1)
        return found

    return promise


# Regressions, linear in the features


def _fit_ridge(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """A ridge regression to each model's right answers."""
    from sklearn.linear_model import Ridge

    rows, right = _telling(x, right, setting)
    learned = Ridge(alpha=setting["penalty"], tol=1e-3).fit(rows, _filled(right))
    return lambda asked: np.asarray(learned.predict(asked), np.float64).reshape(-1, right.shape[1])


def _fit_logistic(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """A logistic regression to each model's right answers."""
    rows, right = _telling(x, right, setting)
    known, target = np.isfinite(right), _filled(right)

    def loss(logits: Array) -> tuple[float, Array]:
        each = np.logaddexp(0.0, logits) - target * logits
        return float(each[known].sum()), np.where(known, _sigmoid(logits) - target, 0.0)

    means = np.clip(means_of(right), 1e-3, 1 - 1e-3)
    head = _minimise(rows, loss, np.log(means / (1 - means)), setting["penalty"])
    return lambda asked: _sigmoid(_linear(asked, head))


def _fit_labels(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """A softmax to the model that is right most often; ties count evenly, and a question that no model got right is
    left out (the paper's supervised labels)."""
    from core.heads import softmax

    rows, right = _telling(x, right, setting)
    score = np.where(np.isfinite(right), right, 0.0)
    best = (score == score.max(axis=1, keepdims=True)) & (score > 0)
    some = best.any(axis=1)
    if not some.any():
        means = means_of(right)
        return lambda asked: np.tile(means, (asked.shape[0], 1))
    label = best[some] / best[some].sum(axis=1, keepdims=True)

    def loss(logits: Array) -> tuple[float, Array]:
        p = softmax(logits)
        return -float((label * np.log(np.maximum(p, 1e-300))).sum()), p - label

    head = _minimise(rows[some], loss, np.log(np.maximum(label.mean(axis=0), 1e-3)), setting["penalty"])
    return lambda asked: np.asarray(softmax(_linear(asked, head)), np.float64)


def _minimise(rows: Any, loss: Callable[[Array], tuple[float, Array]], first: Array, penalty: float) -> Array:
    """The head [features and a constant, outputs] with the smallest loss of `rows @ head` (its value and its gradient
    by the logits) and penalty / 2 times the squared coefficients, the constants' apart; these begin at `first`."""
    from scipy.optimize import minimize

    shape = rows.shape[1] + 1, len(first)

    def both(flat: Array) -> tuple[float, Array]:
        head = flat.reshape(shape)
        value, slope = loss(_linear(rows, head))
        gradient = np.vstack([rows.T @ slope + penalty * head[:-1], slope.sum(axis=0)])
        return value + penalty / 2 * float((head[:-1] ** 2).sum()), gradient.ravel()

    begin = np.vstack([np.zeros((shape[0] - 1, shape[1])), first])
    found = minimize(
        both, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-6}
    )
    head: Array = found.x.reshape(shape)
    return head


def _linear(rows: Any, head: Array) -> Array:
    return np.asarray(rows @ head[:-1] + head[-1], np.float64)


def _sigmoid(logits: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)), np.float64)


# Between pairs of models


def _wins(right: Array) -> Array:
    """How far one model beat another on each question [questions, models, models]: it is right, the other is not."""
    known = np.isfinite(right)
    won, lost = np.where(known, right, 0.0), np.where(known, 1 - right, 0.0)
    found: Array = won[:, :, None] * lost[:, None, :]
    found[:, np.arange(right.shape[1]), np.arange(right.shape[1])] = 0.0
    return found


def _chance_to_win(strength: Array) -> Array:
    """The mean chance to beat each other model [rows, models], by log strengths [rows, models]."""
    each = _sigmoid(strength[:, :, None] - strength[:, None, :])
    return np.asarray((each.sum(axis=2) - 0.5) / max(strength.shape[1] - 1, 1), np.float64)


def _fit_similarity(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """RouteLLM's similarity-weighted ranking (Ong et al. 2024): for each question a Bradley-Terry model of the battles
    of all models on known questions, each weighted by `sharpness` to the power of its similarity (cosine, divided by
    that of the nearest one).

    What differs: a battle is won by the model whose answer is right, not by a judge's preference; the sharpness, 10
    there, is chosen on validation tasks, as is whether `ties` count (half a win for each); all models are ranked and
    the strongest one plays, where theirs decides between a strong and a weak one at a threshold."""
    rows, wins, models = unit_rows(x), _wins(right), right.shape[1]
    if setting["ties"]:
        known = np.isfinite(right)
        both = (known[:, :, None] & known[:, None, :]) * (1.0 - np.eye(models))
        wins = wins + (both - wins - np.swapaxes(wins, 1, 2)) / 2
    flat = wins.reshape(len(wins), -1)

    def promise(asked: Any) -> Array:
        found = np.zeros((len(asked), models))
        for start in range(0, len(asked), 512):
            alike = unit_rows(asked[start : start + 512]) @ rows.T
            nearest = np.maximum(alike.max(axis=1, keepdims=True), 1e-9)
            weights = setting["sharpness"] ** (alike / nearest - 1)
            summed = (weights @ flat).reshape(-1, models, models)
            found[start : start + 512] = _chance_to_win(_bradley_terry(summed))
        return found

    return promise


def _bradley_terry(wins: Array, rounds: int = 60) -> Array:
    """Log strengths [rows, models] by weighted wins [rows, models, models] (Hunter 2004); every model also wins and
    loses a hundredth of a mean battle against each other one, so that none is without bounds."""
    models = wins.shape[1]
    little = 0.01 * wins.sum(axis=(1, 2), keepdims=True) / max(models * (models - 1), 1) + 1e-12
    wins = wins + little * (1 - np.eye(models))
    battles = wins + np.swapaxes(wins, 1, 2)
    strength = np.ones(wins.shape[:2])
    for _ in range(rounds):
        met = (battles / (strength[:, :, None] + strength[:, None, :])).sum(axis=2)
        strength = wins.sum(axis=2) / met
        strength /= np.exp(np.log(strength).mean(axis=1, keepdims=True))
    return np.asarray(np.log(strength), np.float64)


def _fit_factors(x: Any, right: Array, seed: int, setting: Setting) -> Promise:
    """RouteLLM's matrix factorisation (Ong et al. 2024): the strength of a model on a question is the product of a
    vector of the model with a linear projection of the question to `factors` numbers, learned from battles.

    What differs: battles are won by right answers; found by L-BFGS with a penalty on all coefficients, where theirs
    takes steps of Adam with noise on the questions; the vectors are not brought to one length, and the projection has
    a constant; all models are ranked."""
    from scipy.optimize import minimize

    wins, models, rank = _wins(right), right.shape[1], int(setting["factors"])
    met = wins.sum(axis=(1, 2)) > 0
    rows, wins = x[met], wins[met]
    size = rows.shape[1] + 1
    rng = np.random.default_rng(seed)
    begin = np.concatenate([np.zeros((size, rank)), rng.normal(0, 1, (models, rank))])
    begin[size - 1] = 0.1

    def both(flat: Array) -> tuple[float, Array]:
        whole = flat.reshape(-1, rank)
        head, vectors = whole[:size], whole[size:]
        inner = _linear(rows, head)
        strength = inner @ vectors.T
        margin = strength[:, :, None] - strength[:, None, :]
        pull = -wins * _sigmoid(-margin)
        slope = pull.sum(axis=2) - pull.sum(axis=1)
        back = slope @ vectors
        value = float((wins * np.logaddexp(0.0, -margin)).sum())
        penalty = setting["penalty"]
        value += penalty / 2 * float((head[:-1] ** 2).sum()) + float((vectors**2).sum()) / 2
        gradient = np.vstack(
            [rows.T @ back + penalty * head[:-1], back.sum(axis=0), slope.T @ inner + vectors]
        )
        return value, gradient.ravel()

    found = minimize(
        both, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-6}
    )
    learned = found.x.reshape(-1, rank)
    return lambda asked: _chance_to_win(_linear(asked, learned[:size]) @ learned[size:].T)


#: Every learner, by the word that its policy's name begins with.
LEARNERS: Mapping[str, Learner] = {
    one.word: one
    for one in (
        Learner(
            "knn",
            _grid("neighbours", (3, 6, 12, 25, 50, 100, 200, 400, 800, 1600), "differing", (0, 1)),
            _fit_nearest,
            dense=True,
        ),
        Learner(
            "ridge",
            _grid("penalty", _PENALTIES, "differing", (0, 1)),
            _fit_ridge,
        ),
        Learner(
            "logistic",
            _grid("penalty", _PENALTIES, "differing", (0, 1)),
            _fit_logistic,
        ),
        Learner(
            "labels",
            _grid("penalty", _PENALTIES, "differing", (0, 1)),
            _fit_labels,
        ),
        Learner(
            "routellm",
            _grid("sharpness", [float(one) for one in np.geomspace(1.5, 1e12, TRIALS // 2)], "ties", (0, 1)),
            _fit_similarity,
            dense=True,
        ),
        Learner(
            "routellm-mf",
            _grid("penalty", _PENALTIES, "factors", (2, 8)),
            _fit_factors,
            dense=True,
        ),
        Learner(
            "routerdc",
            _grid("steps", (4, 8, 12, 16, 24, 32, 48, 64, 96, 160), "clusters", (0, 1)),
            fit_contrastive,
            dense=True,
        ),
    )
}
