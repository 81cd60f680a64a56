"""RouterDC's router: questions and models as points, those that belong together near each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def unit_rows(rows: Array) -> Array:
    """The rows at length 1; one of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0), np.float64)


def fit_contrastive(x: Any, right: Array, seed: int, setting: Mapping[str, float]) -> Callable[[Any], Array]:
    """RouterDC (Chen et al. 2024): questions and models are embedded so that a question's cosine to each of its three
    best models is larger than to its wrong ones among the three worst (its first loss), and to a question of its own
    cluster larger than to three of others (its second loss, of weight `clusters`).

    What differs: a linear map of fixed features to 64 numbers is learned by `steps` of AdamW, not a whole language
    model; clusters are those of k-means on the features (five), without t-SNE before it; which models are best is drawn
    anew among equals at each step, where their sorting decides; the number of steps is chosen on validation tasks."""
    from sklearn.cluster import KMeans

    rng, rows = np.random.default_rng(seed), np.asarray(x, np.float64)
    score = np.where(np.isfinite(right), right, 0.5)
    groups, few = min(5, len(right)), min(3, right.shape[1])
    cluster = KMeans(groups, n_init=1, random_state=seed).fit_predict(rows)
    learned = [
        rng.normal(0, rows.shape[1] ** -0.5, (rows.shape[1], 64)),
        rng.normal(0, 1, (right.shape[1], 64)),
    ]
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in learned]
    for step in range(1, int(setting["steps"]) + 1):
        batch = rng.integers(len(rows), size=128)
        projected, own = rows[batch] @ learned[0], score[batch]
        embedded, ends = unit_rows(projected), unit_rows(learned[1])
        similar = embedded @ ends.T
        order = np.argsort(-(own + 0.01 * rng.random(own.shape)), axis=1)
        slope, bad = np.zeros_like(similar), order[:, -few:]
        wrong = np.take_along_axis(own, bad, 1) < 0.5
        for good in order[:, :few].T[:, :, None]:
            _pull(slope, similar, good, bad, wrong, np.take_along_axis(own, good, 1)[:, 0] > 0.5)
        back = slope @ ends
        if setting["clusters"] and groups > 1:
            apart = setting["clusters"] * _apart(embedded, cluster[batch], rng)
            back = back + (apart + apart.T) @ embedded
        gradients = [
            rows[batch].T @ _through_unit(projected, back),
            _through_unit(learned[1], slope.T @ embedded),
        ]
        for one, gradient, (mean, square) in zip(learned, gradients, moments, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            one *= 1 - 1e-4
            one -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    ends = unit_rows(learned[1])
    return lambda asked: (1 + unit_rows(np.asarray(asked) @ learned[0]) @ ends.T) / 2


def _pull(
    slope: Array, similar: Array, good: Any, others: Any, counted: NDArray[np.bool_], used: NDArray[np.bool_]
) -> None:
    """Add to `slope` [rows, columns] that of the mean surprise that, of a row's column `good` [rows, 1] and its counted
    `others` [rows, some], it is the good one by a softmax of `similar`; `used`: the rows that have a say."""
    near = np.take_along_axis(similar, good, 1)
    away = np.where(counted, np.take_along_axis(similar, others, 1), -np.inf)
    both = np.exp(np.concatenate([near, away], axis=1))  # of cosines
    p = both / both.sum(axis=1, keepdims=True) * used[:, None] / len(similar)
    places = np.arange(len(similar))[:, None]
    np.add.at(slope, (places, good), p[:, :1] - used[:, None] / len(similar))
    np.add.at(slope, (places, others), p[:, 1:])


def _apart(embedded: Array, cluster: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """The slope of RouterDC's second loss by all cosines [rows, rows]: each row is pulled to one of its cluster, and
    pushed from three of others."""
    slope = np.zeros((len(embedded), len(embedded)))
    same = cluster[:, None] == cluster[None, :]
    used = ~same.all(axis=1)
    friend = np.where(same, rng.random(same.shape), -1).argmax(axis=1)[:, None]
    others = np.argsort(np.where(same, 2, rng.random(same.shape)), axis=1)[:, :3]
    _pull(slope, embedded @ embedded.T, friend, others, ~np.take_along_axis(same, others, 1), used)
    return slope


def _through_unit(rows: Array, slope: Array) -> Array:
    """The slope by rows of that by the same rows of length 1."""
    lengths, unit = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), unit_rows(rows)
    return np.asarray((slope - unit * (unit * slope).sum(axis=1, keepdims=True)) / lengths, np.float64)
