"""Separability: what is there is found, what is not there is not, and no task is on both sides of a fold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from sklearn import covariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from core.analysis.separability import (
    FOLDS,
    Points,
    Reader,
    accuracy,
    classes,
    discriminate,
    fisher_ratio,
    folds,
    perplexity,
    project,
    read_questions,
    separability_index,
    synthetic_study,
    within_families,
)

KINDS = ("add", "sort", "spell")
T = TypeVar("T")


def known(found: T | None) -> T:
    assert found is not None
    return found


def points(n: int = 120, apart: float = 6.0, size: int = 12, per_task: int = 2, seed: int = 0) -> Points:
    """`n` points: families lie `apart` deviations from each other in the hidden states; the model is the largest
    of three logits."""
    rng = np.random.default_rng(seed)
    tasks = np.arange(n) // per_task
    family = tasks % len(KINDS)
    centres = apart * np.eye(len(KINDS), size)
    logits = rng.normal(size=(n, 3))
    return Points(
        hidden=(centres[family] + rng.normal(size=(n, size))).astype(np.float32),
        logits=logits.astype(np.float32),
        families=tuple(KINDS[i] for i in family),
        models=tuple("abc"[i] for i in logits.argmax(axis=1)),
        tasks=tuple(tasks.tolist()),
    )


def test_clusters_are_read_and_shuffled_labels_are_not() -> None:
    found = known(accuracy(points(), "task", "hidden"))
    assert min(found.linear.mean, found.rbf.mean) > 0.98
    assert (found.classes, found.n) == (3, 120)
    assert found.majority == pytest.approx(1 / 3)
    assert found.chance == pytest.approx(1 / 3)
    nothing = known(accuracy(points(apart=0.0, n=300), "task", "hidden"))
    assert max(nothing.linear.mean, nothing.rbf.mean) < 0.5


def test_the_model_is_read_off_the_logits_and_not_off_states_that_do_not_know_it() -> None:
    read = known(accuracy(points(n=240), "model", "logits"))
    unread = known(accuracy(points(n=240), "model", "hidden"))
    assert read.linear.mean > 0.9 > 0.5 > unread.linear.mean


def test_within_a_family_only_what_the_family_does_not_tell_is_read() -> None:
    """The model follows the family: it is read off all states together, and within one family not at all."""
    told = points(n=360)
    rng = np.random.default_rng(1)
    models = tuple("xyz"[KINDS.index(family)] if rng.random() < 0.8 else "w" for family in told.families)
    following = replace(told, models=models)
    together = known(accuracy(following, "model", "hidden"))
    assert together.linear.mean > together.majority + 0.3
    apart = within_families(following, "hidden")
    assert set(apart) == set(KINDS)
    assert all(one.linear.mean < one.majority + 0.1 for one in map(known, apart.values()))


def test_the_index_is_the_share_of_variance_between_classes() -> None:
    far, near, none = (
        known(separability_index(points(apart=apart), "task", "hidden")) for apart in (30.0, 3.0, 0.0)
    )
    assert none < 0.05 < near < far
    alike = replace(points(n=120), hidden=np.repeat(np.eye(3, dtype=np.float32), 40, axis=0))
    classes_as_points = replace(alike, families=tuple(KINDS[i // 40] for i in range(120)))
    assert separability_index(classes_as_points, "task", "hidden") == 1.0


def test_made_up_clusters_are_read_better_the_further_apart_they_lie() -> None:
    found = synthetic_study(280, (0.0, 0.1, 0.4))
    assert [one.apart for one in found] == [0.0, 0.1, 0.4]
    assert found[0].accuracy < 0.6 < found[-1].accuracy
    assert found[0].index < found[1].index < found[2].index


def test_kernels_by_matrix_products_are_those_of_scikit_learn() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    given = points(apart=1.5)
    x, y, tasks = given.hidden.astype(float), given.labels("task"), np.array(given.tasks)
    found = known(accuracy(given, "task", "hidden"))
    for kernel, score in (("linear", found.linear), ("rbf", found.rbf)):
        peer = make_pipeline(StandardScaler(), SVC(kernel=kernel, gamma=1 / x.shape[1]))
        by_fold = [peer.fit(x[fit], y[fit]).score(x[test], y[test]) for fit, test in folds(y, tasks)]
        assert score.mean == pytest.approx(np.mean(by_fold))
        assert score.std == pytest.approx(np.std(by_fold))


def test_no_task_is_on_both_sides_and_every_fold_holds_every_class() -> None:
    given = points(per_task=4)
    tasks = np.array(given.tasks)
    split = folds(given.labels("task"), tasks)
    assert len(split) == FOLDS
    assert sorted(i for _, test in split for i in test) == list(range(len(given)))
    for fit, test in split:
        assert not set(tasks[fit]) & set(tasks[test])
        assert set(given.labels("task")[test]) == set(KINDS)


def test_what_only_tells_episodes_apart_is_not_taken_for_knowledge_of_the_family() -> None:
    # Each task has a place of its own, its turns lie on it, and families mean nothing. Split by turns, the
    # task's other turns would give every family away.
    given = points(n=200, per_task=4)
    rng = np.random.default_rng(1)
    places = rng.normal(size=(50, 12)) * 20
    hidden = (places[np.array(given.tasks)] + rng.normal(size=(200, 12))).astype(np.float32)
    found = known(accuracy(replace(given, hidden=hidden), "task", "hidden"))
    by_turn = known(accuracy(replace(given, hidden=hidden, tasks=tuple(range(200))), "task", "hidden"))
    assert found.rbf.mean < 0.5 < 0.95 < by_turn.rbf.mean


def test_a_class_of_fewer_tasks_than_folds_is_left_out() -> None:
    given = points()
    # Twelve turns of "rare", but of four tasks only.
    families = [
        "rare" if task in range(0, 12, 3) else name
        for name, task in zip(given.families, given.tasks, strict=True)
    ]
    tasks = [0 if task in (0, 12) else task for task in given.tasks]
    given = replace(given, families=tuple(families), tasks=tuple(tasks))
    assert classes(given, "task").frequent == KINDS
    assert classes(given, "task").rare == ("rare",)
    found = known(accuracy(given, "task", "hidden"))
    assert found.n == sum(name != "rare" for name in families)
    plane = known(discriminate(given, "task", "hidden"))
    assert len(plane.projection.xy) == len(given)


@pytest.mark.parametrize("families", [("one",) * 40, tuple(f"f{i}" for i in range(40))])
def test_one_class_or_only_rare_ones_give_nothing(families: tuple[str, ...]) -> None:
    given = replace(points(n=40), families=families)
    assert not classes(given, "task").enough
    assert accuracy(given, "task", "hidden") is None
    assert discriminate(given, "task", "hidden") is None


def test_the_fisher_ratio_of_a_hand_example() -> None:
    x = np.array([[0.0, 0.0], [2.0, 0.0], [10.0, 1.0], [12.0, 1.0], [14.0, 1.0]])
    labels = np.array(["a", "a", "b", "b", "b"])
    # Means (1, 0) and (12, 1) around (7.6, 0.6): 2 (6.6² + 0.6²) + 3 (4.4² + 0.4²) = 146.4; within 2 + 8 = 10.
    assert fisher_ratio(x, labels) == pytest.approx(14.64)
    assert fisher_ratio(x[[0, 0, 2, 2]], labels[[0, 0, 2, 2]]) == float("inf")


def test_discriminants_are_those_of_scikit_learn_where_nothing_is_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(covariance, "ledoit_wolf_shrinkage", lambda *_, **__: 0.0)
    given = points(apart=2.0, n=240)
    plane = known(discriminate(given, "task", "hidden"))
    labels = given.labels("task")
    peer = LinearDiscriminantAnalysis().fit_transform(given.hidden.astype(float), labels)[:, :2]
    for ours, theirs in zip(plane.projection.xy.T, peer.T, strict=True):
        assert abs(np.corrcoef(ours, theirs)[0, 1]) == pytest.approx(1.0)
    assert plane.fisher == pytest.approx(fisher_ratio(peer, labels))


def test_a_discriminant_says_what_it_finds_in_noise() -> None:
    there = known(discriminate(points(), "task", "hidden"))
    noise = known(discriminate(points(apart=0.0, size=400, n=90), "task", "hidden"))
    assert there.fisher > 10 * there.shuffled
    assert noise.fisher < 2 * noise.shuffled


def test_labels_are_shuffled_among_tasks_whose_turns_share_one() -> None:
    # Tasks have places, families mean nothing: dealt out among turns, labels would cut tasks in pieces and
    # find far less than the true ones do.
    given = points(n=200, per_task=4)
    places = np.random.default_rng(1).normal(size=(50, 12)) * 20
    found = discriminate(
        replace(given, hidden=(given.hidden + places[np.array(given.tasks)]).astype(np.float32)),
        "task",
        "hidden",
    )
    assert found is not None
    assert found.shuffled > 0.5 * found.fisher


def test_two_classes_have_a_second_axis_all_the_same() -> None:
    given = points()
    two = tuple("same" if name == "sort" else name for name in given.families)
    two = tuple("same" if name == "spell" else name for name in two)
    plane = known(discriminate(replace(given, families=two), "task", "hidden"))
    assert plane.projection.axes == ("LD 1", "PC 1 of the rest")
    assert (plane.projection.xy.std(axis=0) > 0.1).all()


def test_principal_components_are_the_widest_directions() -> None:
    from sklearn.decomposition import PCA

    given = points(size=6)
    found = project(given, "pca", "hidden")
    x = given.hidden.astype(float)
    peer = PCA(2).fit((x - x.mean(axis=0)) / x.std(axis=0))
    theirs = peer.transform((x - x.mean(axis=0)) / x.std(axis=0))
    assert np.allclose(np.abs(found.xy), np.abs(theirs), atol=1e-6)
    assert found.axes[0] == f"PC 1 ({100 * peer.explained_variance_ratio_[0]:.0f} %)"


def test_neighbours_stay_together() -> None:
    given = points(n=45, apart=12.0)
    xy = project(given, "tsne", "hidden").xy
    assert xy.shape == (45, 2)
    nearest = [np.argsort(((xy - own) ** 2).sum(axis=1))[1] for own in xy]
    same = Counter(given.families[i] == given.families[j] for i, j in enumerate(nearest))
    assert same[True] > 40
    assert np.array_equal(xy, project(given, "tsne", "hidden").xy)
    assert perplexity(10) == 3.0


@pytest.mark.parametrize("size", [1, 2, 40])
def test_few_features_and_few_points_are_drawn(size: int) -> None:
    given = points(n=12, size=max(size, 3))
    given = replace(given, hidden=given.hidden[:, :size])
    for method in ("pca", "tsne"):
        assert np.isfinite(project(given, method, "hidden").xy).all()


def test_features_that_do_not_vary_are_no_features() -> None:
    given = points()
    padded = replace(given, hidden=np.pad(given.hidden, ((0, 0), (0, 3)), constant_values=7.0))
    assert accuracy(padded, "task", "hidden") == accuracy(given, "task", "hidden")
    flat = replace(given, logits=np.zeros_like(given.logits))
    assert discriminate(flat, "task", "logits") is None
    found = known(accuracy(flat, "task", "logits"))
    assert found.linear.mean < 0.5


def texts(given: Points, *, telling: bool) -> list[str]:
    """A text for each point, of ten words; its first word tells its family where they are `telling`."""
    rng = np.random.default_rng(2)
    common = rng.integers(40, size=(len(given), 9))
    first = [family[:3] if telling else "the" for family in given.families]
    return [f"{word} {' '.join(f'w{i:02d}' for i in row)}" for word, row in zip(first, common, strict=True)]


_THREE: tuple[Reader, ...] = ("linear", "words", "length")


@pytest.mark.parametrize("telling", [True, False])
def test_questions_are_read_off_what_tells_them_apart_and_off_nothing_else(telling: bool) -> None:
    given = points(n=90, per_task=1, apart=0.0 if telling else 6.0)
    found = known(read_questions(given, texts(given, telling=telling)))
    linear, words, length = (found.share(reader).value or 0.0 for reader in _THREE)
    assert max(linear, words) > 0.9
    assert max(min(linear, words), length) < 0.5
    assert (words > linear) is telling
    ahead, low, high = found.ahead("linear", "words")
    assert (high < 0) is telling
    assert low < ahead < high
    low, high = found.share("linear").ci95
    assert low < linear <= high
    assert found.chance == pytest.approx(1 / 3)


def test_length_alone_tells_middling_texts_from_short_and_long_ones() -> None:
    given = points(n=90, per_task=1, apart=0.0)
    spans = {"add": 1, "sort": 6, "spell": 30}
    told = [" ".join(["so"] * (spans[family] + i % 3)) for i, family in enumerate(given.families)]
    assert (known(read_questions(given, told)).share("length").value or 0.0) > 0.9


def test_equal_questions_are_not_recognised_by_each_other() -> None:
    # Labels mean nothing, and each question is asked four times: split by points, its copies would give it away.
    given = points(n=120, per_task=4, apart=0.0)
    rng = np.random.default_rng(3)
    places = rng.normal(size=(30, 12)) * 20
    hidden = (places[np.array(given.tasks)] + rng.normal(size=(120, 12))).astype(np.float32)
    asked = [f"q{task} r{task}" for task in given.tasks]
    found = known(read_questions(replace(given, hidden=hidden), asked))
    copied = known(read_questions(replace(given, hidden=hidden, tasks=tuple(range(120))), asked))
    for reader in ("rbf", "words"):
        assert (found.share(reader).value or 0.0) < 0.5 < 0.95 < (copied.share(reader).value or 0.0)
    # Thirty questions, not 120: the interval is as wide as that.
    low, high = found.share("rbf").ci95
    assert high - low > 0.2


def test_questions_of_one_class_give_nothing() -> None:
    given = replace(points(n=40), families=("one",) * 40)
    assert read_questions(given, ["a"] * 40) is None
