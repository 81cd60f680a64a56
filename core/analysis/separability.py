"""Can the task and the chosen model be read off a hidden state? SVMs, discriminants and projections to a plane.

The analyses of the paper (arXiv 2512.04695, figures 8 to 13) over the recorded decisions of one policy: what the
encoder hands to the head (hidden states), and what the head makes of it (logits). Every feature is standardised.
Questions that an encoder reads before any play are measured in the same way, beside readers without an encoder.
scikit-learn takes seconds to import, so it is imported where it is used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import ClusteredShare, difference_over_tasks
from core.heads import Array

Space = Literal["hidden", "logits"]
Target = Literal["task", "model"]
Method = Literal["pca", "lda", "tsne"]
Reader = Literal["linear", "rbf", "words", "length"]

SPACES: tuple[Space, ...] = get_args(Space)
TARGETS: tuple[Target, ...] = get_args(Target)
SPACE_WORDS: dict[Space, str] = {"hidden": "hidden states", "logits": "logits"}
READERS: tuple[Reader, ...] = get_args(Reader)
TARGET_WORDS: dict[Target, str] = {"task": "task family", "model": "chosen model"}

#: Folds of the cross-validation. A class needs tasks in every fold: one with fewer tasks is left out.
FOLDS = 5
#: More points cost minutes of t-SNE on a small machine and add little: the paper has 1,698.
MOST_POINTS = 1500
#: Fewer points make no picture.
FEWEST_POINTS = 10
#: Shuffles of the labels: what a discriminant finds where there is nothing to find.
SHUFFLES = 10
SEED = 0


@dataclass(frozen=True, eq=False)
class Points:
    """`n` decisions of one policy: `hidden` (n, hidden size), `logits` (n, models + roles), all finite, and for
    each its task family, the model that was chosen, and a key that tells its task from others."""

    hidden: NDArray[np.float32]
    logits: NDArray[np.float32]
    families: tuple[str, ...]
    models: tuple[str, ...]
    tasks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def matrix(self, space: Space) -> NDArray[np.float32]:
        """The features of a space, (n, d)."""
        return self.hidden if space == "hidden" else self.logits

    def labels(self, target: Target) -> NDArray[np.str_]:
        """The class of every point, (n,)."""
        return np.array(self.families if target == "task" else self.models, dtype=np.str_)

    def only(self, keep: NDArray[np.bool_]) -> Points:
        """Some of the points: where `keep` (n,) is true."""
        places = np.flatnonzero(keep).tolist()
        return Points(
            self.hidden[keep],
            self.logits[keep],
            families=tuple(self.families[place] for place in places),
            models=tuple(self.models[place] for place in places),
            tasks=tuple(self.tasks[place] for place in places),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """An accuracy: mean and standard deviation over the folds, None where it is not known."""

    mean: float
    std: float | None = None


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a target: those with enough tasks for cross-validation, and the rare ones, which are left out."""

    frequent: tuple[str, ...]
    rare: tuple[str, ...]

    @property
    def enough(self) -> bool:
        return len(self.frequent) > 1


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well two SVMs read a target off a space, over the `n` points of `classes` classes. `majority` is the
    accuracy of always naming the largest class, `chance` that of naming any at random."""

    target: Target
    space: Space
    linear: Score
    rbf: Score
    majority: float
    chance: float
    classes: int
    n: int


@dataclass(frozen=True, slots=True)
class Projection:
    """Every point in the plane, (n, 2), and what its two axes are called."""

    xy: Array
    axes: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Discriminant:
    """A discriminant plane with the Fisher ratio of its classes in it, and the mean of the same ratio when the
    labels are shuffled among the tasks: with many features and few points that is far from nothing."""

    projection: Projection
    fisher: float
    shuffled: float


@dataclass(frozen=True, slots=True)
class PublishedSeparability:
    """The paper's own figures for a target and a space, of frontier models; None where it gives none."""

    linear: Score
    rbf: Score
    chance: float | None


#: Table of the separability study of arXiv 2512.04695: 1,698 samples, four benchmarks, agents 0, 1, 2 and 6.
PUBLISHED_ACCURACY: dict[tuple[Target, Space], PublishedSeparability] = {
    ("task", "hidden"): PublishedSeparability(Score(1.0), Score(1.0), 0.25),
    ("task", "logits"): PublishedSeparability(Score(0.945), Score(0.955), 0.25),
    ("model", "hidden"): PublishedSeparability(Score(0.713, 0.016), Score(0.776, 0.020), None),
    ("model", "logits"): PublishedSeparability(Score(0.786), Score(0.783), None),
}
#: Of the same study, how well a linear SVM reads the agent off hidden states within one benchmark.
PUBLISHED_WITHIN: dict[str, float] = {"LCB": 0.844, "MATH500": 0.764, "MMLU": 0.679, "RLPR": 0.544}
#: The Fisher ratios beside its figure 9, one per space.
PUBLISHED_FISHER: dict[Space, float] = {"hidden": 2.85, "logits": 2.45}


def classes(points: Points, target: Target) -> Classes:
    """Which classes have at least FOLDS tasks, so that each fold can hold one; both lists sorted."""
    tasks: dict[str, set[int]] = defaultdict(set)
    for label, task in zip(points.labels(target).tolist(), points.tasks, strict=True):
        tasks[label].add(task)
    names = sorted(tasks)
    return Classes(
        tuple(name for name in names if len(tasks[name]) >= FOLDS),
        tuple(name for name in names if len(tasks[name]) < FOLDS),
    )


def _is_frequent(points: Points, target: Target) -> NDArray[np.bool_]:
    return np.isin(points.labels(target), classes(points, target).frequent)


# Accuracy


def folds(
    labels: NDArray[np.str_], tasks: NDArray[np.int64]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Indices to fit on and to score on, FOLDS times: classes as even as they can be, and no task on both sides,
    or the later turns of an episode would be recognised by its earlier ones."""
    from sklearn.model_selection import StratifiedGroupKFold

    split = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED)
    return list(split.split(np.zeros(len(labels)), labels, tasks))


def accuracy(points: Points, target: Target, space: Space) -> Accuracy | None:
    """Linear and RBF SVM (C = 1, gamma = 1/d of the standardised features) in cross-validation. Features are
    standardised by the points that are fitted on. None when there are no two classes to tell apart."""
    found = classes(points, target)
    if not found.enough:
        return None
    keep = _is_frequent(points, target)
    x, y = points.matrix(space)[keep].astype(np.float64), points.labels(target)[keep]
    parts = folds(y, np.array(points.tasks, dtype=np.int64)[keep])
    read = [_read_by_svms(x, y, fit, test) for fit, test in parts]
    linear, rbf = (_score([float(one[i].mean()) for one in read]) for i in range(2))
    _, counts = np.unique(y, return_counts=True)
    return Accuracy(
        target,
        space,
        linear,
        rbf,
        majority=float(counts.max() / len(y)),
        chance=1 / len(found.frequent),
        classes=len(found.frequent),
        n=len(y),
    )


def _read_by_svms(
    x: Array, y: NDArray[np.str_], fit: NDArray[np.int64], test: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether a linear and an RBF SVM, fitted on the points `fit`, name the class of each point of `test`."""
    a, b = _standardised(x[fit], x[fit]), _standardised(x[test], x[fit])
    # Kernels as two matrix products: libsvm's own loops over a thousand features take ten times as long.
    inner, across = a @ a.T, b @ a.T
    norms, width = np.diag(inner), max(1, a.shape[1])
    from_self = norms[:, None] + norms - 2 * inner
    from_test = (b * b).sum(axis=1)[:, None] + norms - 2 * across
    return (
        _named(inner, across, y[fit], y[test]),
        _named(np.exp(-from_self / width), np.exp(-from_test / width), y[fit], y[test]),
    )


@dataclass(frozen=True, eq=False)
class QuestionReadings:
    """Whether each reader names the class of each of `n` questions that it was not fitted on, each [n]; equal questions
    have one key in `tasks`. `majority` and `chance` as of an Accuracy."""

    right: Mapping[Reader, NDArray[np.bool_]]
    tasks: tuple[int, ...]
    majority: float
    chance: float
    classes: int

    def share(self, reader: Reader) -> ClusteredShare:
        """How often a reader is right, over the questions."""
        return ClusteredShare.counted(zip(self.tasks, self.right[reader].tolist(), strict=True))

    def ahead(self, reader: Reader, of: Reader) -> tuple[float, float, float]:
        """How much more often one reader is right than another on the same questions, with the 95 % interval."""
        apart = self.right[reader].astype(float) - self.right[of]
        _, which = np.unique(self.tasks, return_inverse=True)
        means = np.bincount(which, apart) / np.bincount(which)
        return difference_over_tasks(means.tolist(), [1] * len(means))


def read_questions(points: Points, texts: Sequence[str]) -> QuestionReadings | None:
    """How well the class of questions with these `texts` is read off their hidden states by the SVMs of `accuracy`,
    off their words (logistic regression on TF-IDF of words and pairs of words) and off their length alone, all in the
    same folds. None when there are no two classes."""
    if not classes(points, "task").enough:
        return None
    keep = _is_frequent(points, "task")
    x, y = points.hidden[keep].astype(np.float64), points.labels("task")[keep]
    kept = [texts[i] for i in np.flatnonzero(keep).tolist()]
    tasks = np.array(points.tasks, dtype=np.int64)[keep]
    right: dict[Reader, NDArray[np.bool_]] = {reader: np.zeros(len(y), np.bool_) for reader in READERS}
    for fit, test in folds(y, tasks):
        right["linear"][test], right["rbf"][test] = _read_by_svms(x, y, fit, test)
        right["words"][test], right["length"][test] = _read_without_encoder(kept, y, fit, test)
    names, counts = np.unique(y, return_counts=True)
    return QuestionReadings(
        right, tuple(tasks.tolist()), float(counts.max() / len(y)), 1 / len(names), len(names)
    )


def _read_without_encoder(
    texts: Sequence[str], y: NDArray[np.str_], fit: NDArray[np.int64], test: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The same as of the SVMs, of logistic regressions on words and on length."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import SplineTransformer

    # Digits and signs are words too: without them two sums would be the same text.
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    # Of the logarithm of the length: a class may be that of middling lengths, which no straight line tells.
    lengths = np.log1p([[float(len(text))] for text in texts])
    spline = SplineTransformer(5, extrapolation="constant").fit(lengths[fit])
    features = (
        (words.fit_transform([texts[i] for i in fit]), words.transform([texts[i] for i in test])),
        (spline.transform(lengths[fit]), spline.transform(lengths[test])),
    )
    words_right, length_right = (
        np.asarray(LogisticRegression(C=10, max_iter=1000).fit(a, y[fit]).predict(b) == y[test])
        for a, b in features
    )
    return words_right, length_right


def within_families(points: Points, space: Space) -> dict[str, Accuracy | None]:
    """How well the chosen model is read among the decisions of one task family, by family: what is left when the family
    itself tells nothing. None where a family has no two models to tell apart."""
    names = np.array(points.families)
    return {
        name: accuracy(points.only(names == name), "model", space) for name in sorted(set(points.families))
    }


def separability_index(points: Points, target: Target, space: Space) -> float | None:
    """The share of the variance that lies between classes, of standardised features: 0 when class means are one, 1 when
    each class is a point. None when there are no two classes."""
    if not classes(points, target).enough:
        return None
    keep = _is_frequent(points, target)
    x = points.matrix(space)[keep].astype(np.float64)
    ratio = fisher_ratio(_standardised(x, x), points.labels(target)[keep])
    return 1.0 if math.isinf(ratio) else ratio / (1 + ratio)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Made-up states whose clusters lie `apart` standard deviations from each other: their index, and how well a
    linear SVM reads the model off them."""

    apart: float
    index: float
    accuracy: float


#: The synthetic study of the paper's appendix (figure 14): its numbers of features, models and task clusters.
SYNTHETIC_SIZE, SYNTHETIC_MODELS, SYNTHETIC_TASKS = 1024, 7, 4
SYNTHETIC_APART = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)


def synthetic_study(n: int = 700, apart: Sequence[float] = SYNTHETIC_APART) -> list[Synthetic]:
    """How well a linear reader does as clusters move apart: each point is its task's centre plus its model's, both
    `apart` long in every number on average, plus noise of deviation 1. Each task prefers one model to the others."""
    rng = np.random.default_rng(SEED)
    tasks = np.arange(n) % SYNTHETIC_TASKS
    preferred = rng.random(n) < 0.5
    models = np.where(preferred, tasks, rng.integers(SYNTHETIC_MODELS, size=n))
    of_task = rng.normal(size=(SYNTHETIC_TASKS, SYNTHETIC_SIZE))
    of_model = rng.normal(size=(SYNTHETIC_MODELS, SYNTHETIC_SIZE))
    noise = rng.normal(size=(n, SYNTHETIC_SIZE))
    found = []
    for distance in apart:
        hidden = distance * (of_task[tasks] + of_model[models]) + noise
        points = Points(
            hidden=hidden.astype(np.float32),
            logits=np.zeros((n, 1), np.float32),
            families=tuple(f"task {task}" for task in tasks),
            models=tuple(f"model {model}" for model in models),
            tasks=tuple(range(n)),
        )
        index, read = separability_index(points, "model", "hidden"), accuracy(points, "model", "hidden")
        if index is not None and read is not None:
            found.append(Synthetic(distance, index, read.linear.mean))
    return found


def _named(
    inner: Array, across: Array, fitted: NDArray[np.str_], true: NDArray[np.str_]
) -> NDArray[np.bool_]:
    """Whether an SVM fitted on the kernel `inner` (m, m) is right on points with the kernel `across` (k, m)."""
    from sklearn.svm import SVC

    return np.asarray(SVC(kernel="precomputed").fit(inner, fitted).predict(across) == true)


def _score(accuracies: Sequence[float]) -> Score:
    return Score(float(np.mean(accuracies)), float(np.std(accuracies)))


def _standardised(x: Array, like: Array) -> Array:
    """`x` by the mean and deviation of `like`; features that do not vary there are dropped."""
    mean, deviation = like.mean(axis=0), like.std(axis=0)
    varies = deviation > 1e-12 * np.maximum(1.0, np.abs(mean))
    return np.asarray((x - mean)[:, varies] / deviation[varies])


# Projections


def project(points: Points, method: Method, space: Space) -> Projection:
    """All points in the plane by a method that looks at no labels: `pca` or `tsne`."""
    x = points.matrix(space).astype(np.float64)
    x = _standardised(x, x)
    if method == "pca":
        plane, shares = _principal(x, 2)
        return Projection(plane, (f"PC 1 ({100 * shares[0]:.0f} %)", f"PC 2 ({100 * shares[1]:.0f} %)"))
    # Distances hardly change without the last axes, and neighbours are found sooner.
    reduced, _ = _principal(x, 50)
    return Projection(_tsne(reduced), ("t-SNE 1", "t-SNE 2"))


def _principal(x: Array, most: int) -> tuple[Array, Array]:
    """The leading principal components of centred `x` (n, d), as many as there are up to `most` but at least
    two, with each one's share of the variance. Each axis points to where its largest value is."""
    left, values, _ = np.linalg.svd(x, full_matrices=False)
    size = max(2, min(most, len(values)))
    scores = np.zeros((len(x), size))
    scores[:, : min(size, len(values))] = (left * values)[:, :size]
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(size)]
    variances = np.zeros(size)
    variances[: min(size, len(values))] = values[:size] ** 2
    return scores * np.where(largest < 0, -1.0, 1.0), variances / (float((values**2).sum()) or 1.0)


def perplexity(n: int) -> float:
    """How many neighbours t-SNE gives a point: 30, fewer where there are few points."""
    return min(30.0, (n - 1) / 3)


def _tsne(x: Array) -> Array:
    from sklearn.manifold import TSNE

    start = x[:, :2] / (float(x[:, 0].std()) or 1.0) * 1e-4
    found = TSNE(perplexity=perplexity(len(x)), init=start, max_iter=500, random_state=SEED).fit_transform(x)
    return np.asarray(found, dtype=np.float64)


# Discriminants


def discriminate(points: Points, target: Target, space: Space) -> Discriminant | None:
    """The plane in which the classes of a target lie furthest apart (Fisher 1936), the covariance shrunk after
    Ledoit and Wolf (2004) so that a thousand features and few points do not make noise look like classes. Rare
    classes are projected, but not fitted. None when there are no two classes, or all points are the same."""
    if not classes(points, target).enough:
        return None
    keep, labels = _is_frequent(points, target), points.labels(target)
    x = points.matrix(space).astype(np.float64)
    x = _standardised(x, x[keep])
    if x.shape[1] == 0:
        return None
    white, own = _whitened(x, keep), labels[keep]
    plane, axes = _discriminants(white, keep, own)
    tasks = np.array(points.tasks, dtype=np.int64)[keep]
    rng = np.random.default_rng(SEED)
    shuffled = []
    for _ in range(SHUFFLES):
        mixed = _shuffle(own, tasks, rng)
        shuffled.append(fisher_ratio(_discriminants(white, keep, mixed)[0][keep], mixed))
    return Discriminant(Projection(plane, axes), fisher_ratio(plane[keep], own), float(np.mean(shuffled)))


def fisher_ratio(x: Array, labels: NDArray[np.str_]) -> float:
    """Scatter of the class means around the mean over the scatter within the classes, as traces:
    sum of n_c |m_c - m|^2 over sum of |x_i - m_c(i)|^2, for `x` (n, d). Infinite when classes are points."""
    within = between = 0.0
    mean = x.mean(axis=0)
    for name in np.unique(labels):
        own = x[labels == name]
        between += len(own) * float(((own.mean(axis=0) - mean) ** 2).sum())
        within += float(((own - own.mean(axis=0)) ** 2).sum())
    return between / within if within else math.inf


def _whitened(x: Array, keep: NDArray[np.bool_]) -> Array:
    """All of `x` (n, d) in axes in which the kept points, centred, have the shrunk covariance identity.

    What lies far apart there against the whole scatter also does against the scatter within any classes, so
    one decomposition serves the true labels and all shuffled ones."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    shrinkage = float(ledoit_wolf_shrinkage(x[keep], assume_centered=True))
    _, values, axes = np.linalg.svd(x[keep], full_matrices=False)
    variances = values**2 / keep.sum()
    shrunk = (1 - shrinkage) * variances + shrinkage * variances.sum() / x.shape[1]
    real = variances > 1e-9 * variances.max()
    return np.asarray((x @ axes[real].T) / np.sqrt(shrunk[real]))


def _discriminants(
    white: Array, keep: NDArray[np.bool_], labels: NDArray[np.str_]
) -> tuple[Array, tuple[str, str]]:
    """The first two discriminants of all whitened points (n, r), fitted on the kept ones and their labels, each
    scaled to variance 1 within the classes. Where there is only one, as of two classes, the second axis is the
    direction of most variance in what remains."""
    own = white[keep]
    names, counts = np.unique(labels, return_counts=True)
    means = np.array([own[labels == name].mean(axis=0) for name in names])
    _, values, directions = np.linalg.svd(np.sqrt(counts)[:, None] * means, full_matrices=False)
    size = min(2, len(names) - 1, len(values))
    found = white @ directions[:size].T
    axes = ("LD 1", "LD 2")
    if size < 2:
        rest = white - found @ directions[:size]
        found, axes = np.column_stack([found, _principal(rest, 2)[0][:, 0]]), ("LD 1", "PC 1 of the rest")
    within = np.zeros(2)
    for name in names:
        within += len(own[labels == name]) * found[keep][labels == name].var(axis=0)
    spread = np.sqrt(within / len(own))
    return found / np.where(spread > 1e-12, spread, 1.0), axes


def _shuffle(
    labels: NDArray[np.str_], tasks: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.str_]:
    """The labels shuffled: among tasks where each task has one label, as its turns share it; else among points."""
    _, first, which = np.unique(tasks, return_index=True, return_inverse=True)
    by_task = labels[first]
    if np.array_equal(by_task[which], labels):
        return np.asarray(rng.permutation(by_task)[which])
    return np.asarray(rng.permutation(labels))
