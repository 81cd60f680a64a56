"""Learned routers find which model knows what where questions tell it, and gain nothing where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from core.episode import Decide, Role, Task, Transcript
from core.errors import ConfigError
from core.outcomes.features import FEATURES, FeatureName, reader_of
from core.outcomes.lessons import TRIALS, Known
from core.outcomes.routers import (
    LEARNERS,
    Router,
    learn_router,
    policy_of_router,
    share_right,
)
from core.play.policies import single_policy

MODELS = ("ann", "bob", "cyd")
TOPICS = {
    "law": "court judge contract tort statute appeal plea clause",
    "physics": "force mass quark photon energy lens field spin",
    "music": "chord tempo fugue violin octave scale rhythm note",
}


def make_tasks(n: int, seed: int, *, told: bool = True) -> tuple[list[Task], Known]:
    """Tasks of three topics in turn, each known by one model alone, which the others get right in one of five. `told`:
    their questions are of the topic's own words, else of those of all."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    every = " ".join(TOPICS.values()).split()
    tasks, right = [], np.zeros((n, len(MODELS)))
    for i in range(n):
        topic = names[i % len(names)]
        words = rng.choice(TOPICS[topic].split() if told else every, 5)
        tasks.append(Task(f"t{seed}-{i}", f"{' '.join(words)} {1000 * seed + i}", "A", family=topic))
        right[i] = rng.random(len(MODELS)) < 0.2
        right[i, i % len(names)] = 1.0
    return tasks, known_of(right)


def known_of(right: NDArray[np.float64]) -> Known:
    unknown = np.full(right.shape, np.nan)
    return Known(MODELS, right, np.zeros(right.shape, np.int64), unknown, unknown)


def learned(
    word: str, taught: tuple[list[Task], Known], chosen: tuple[list[Task], Known], **reading: Any
) -> Router:
    """A router that tries every fourth setting of its learner, which is all that such small worlds need."""
    learner = replace(LEARNERS[word], settings=LEARNERS[word].settings[1::4])
    read = reader_of("tfidf", taught[0], dense=learner.dense, **reading)
    return learn_router(learner, word, read, *taught, *chosen)


@pytest.mark.parametrize("word", LEARNERS)
def test_a_router_finds_who_is_right_where_the_words_of_a_question_tell_it(word: str) -> None:
    router = learned(word, make_tasks(150, 1), make_tasks(60, 2))
    asked, known = make_tasks(90, 3)
    assert share_right(router.scores(asked), known.right) > 0.95
    assert known.right.mean(axis=0).max() < 0.6  # nobody does so alone


@pytest.mark.parametrize("word", LEARNERS)
def test_a_router_gains_nothing_where_outcomes_are_permuted_among_questions(word: str) -> None:
    """Accuracies by model stay, .8, .5 and .5; whoever is best overall is all that can be learned."""
    rng = np.random.default_rng(5)

    def permuted(n: int, seed: int) -> tuple[list[Task], Known]:
        tasks, _ = make_tasks(n, seed)
        return tasks, known_of((rng.random((n, 3)) < [0.8, 0.5, 0.5]).astype(float))

    router = learned(word, permuted(300, 1), permuted(150, 2))
    asked, known = permuted(400, 3)
    single = known.right[:, 0].mean()
    assert share_right(router.scores(asked), known.right) < single + 0.02


@pytest.mark.parametrize("word", LEARNERS)
def test_a_router_is_the_same_again_by_its_seed_and_does_not_need_every_outcome(word: str) -> None:
    taught, known = make_tasks(120, 1)
    known.right[::4, 1] = np.nan
    one, other = (learned(word, (taught, known), make_tasks(60, 2)) for _ in range(2))
    asked, outcomes = make_tasks(60, 3)
    assert np.array_equal(one.scores(asked), other.scores(asked))
    assert one.told == other.told
    assert np.isfinite(one.scores(asked)).all()
    assert share_right(one.scores(asked), outcomes.right) > 0.9


def test_every_learner_tries_as_many_settings() -> None:
    assert {len(one.settings) for one in LEARNERS.values()} == {TRIALS}


def test_a_family_is_told_where_the_words_say_nothing() -> None:
    taught, chosen = make_tasks(240, 1, told=False), make_tasks(90, 2, told=False)
    asked, known = make_tasks(90, 3, told=False)
    unaware = learned("logistic", taught, chosen)
    aware = learned("logistic", taught, chosen, family=True)
    assert share_right(aware.scores(asked), known.right) > 0.95
    assert share_right(unaware.scores(asked), known.right) < 0.65
    strange = [Task("x", "court judge", "A", family="unheard of")]
    assert np.isfinite(aware.scores(strange)).all()


def test_validation_tasks_are_scored_by_what_was_learned_without_them() -> None:
    taught, chosen = make_tasks(90, 1), make_tasks(60, 2)
    router, learner = learned("ridge", taught, chosen), LEARNERS["ridge"]
    read = reader_of("tfidf", taught[0])
    x, asked = read(taught[0]), read(chosen[0])
    without = [learner.fit(x, taught[1].right, 0, setting)(asked) for setting in learner.settings]
    scores = router.scores(chosen[0])
    assert any(np.allclose(scores, one) for one in without)
    assert not np.allclose(scores, router.promise(asked))


def test_hidden_states_are_read_as_well_and_need_who_reads_them() -> None:
    taught, chosen, (asked, known) = make_tasks(90, 1), make_tasks(60, 2), make_tasks(60, 3)
    words = list(TOPICS.values())

    def states(questions: Sequence[str]) -> NDArray[np.float64]:
        counted = [[sum(word in topic for word in one.split()) for topic in words] for one in questions]
        return np.array(counted, float) + 100.0

    read = reader_of("states", taught[0], states)
    router = learn_router(LEARNERS["ridge"], "ridge", read, *taught, *chosen)
    assert share_right(router.scores(asked), known.right) > 0.95
    assert abs(read(taught[0]).mean()) < 1e-9
    with pytest.raises(ValueError, match="need an encoder"):
        reader_of("states", taught[0])


def test_features_have_the_same_length_with_and_without_families() -> None:
    tasks, _ = make_tasks(30, 1)
    for dense in (False, True):
        bare = reader_of("tfidf", tasks, dense=dense)(tasks)
        told = reader_of("tfidf", tasks, dense=dense, family=True)(tasks)
        assert told.shape[1] == bare.shape[1] + len(TOPICS)
        added = np.asarray(told[:, bare.shape[1] :].sum(axis=1)).ravel()
        assert added == pytest.approx(np.ones(30))
    assert get_args(FeatureName) == FEATURES


def test_nothing_known_is_refused() -> None:
    taught, chosen = make_tasks(30, 1), make_tasks(30, 2)
    nothing = known_of(np.full((30, 3), np.nan))
    with pytest.raises(ConfigError, match="evolve split, and nothing is known"):
        learned("knn", (taught[0], nothing), chosen)
    with pytest.raises(ConfigError, match="validation split, and nothing is known"):
        learned("knn", taught, (chosen[0], nothing))


def test_a_policy_takes_the_next_best_model_where_the_best_is_masked() -> None:
    asked, _ = make_tasks(3, 1)
    router = Router(
        "r",
        MODELS,
        lambda tasks: np.zeros((len(tasks), 1)),
        lambda rows: np.tile([0.2, 0.9, 0.5], (len(rows), 1)),
    )
    alone = [single_policy(model, MODELS, (Role.WORKER,)) for model in MODELS]
    policy = policy_of_router(router, alone, asked[:2], turns=1)

    def chosen(question: str, *mask: bool) -> str:
        [decision] = policy.decide([Decide(Transcript(question), 0, question, model_mask=mask)])
        assert decision.role is Role.WORKER
        return decision.model

    assert chosen(asked[0].question) == "bob"
    assert chosen(asked[0].question, True, False, True) == "cyd"
    assert chosen(asked[2].question, True, True, True) == "bob"  # which it was not given before
    assert np.array_equal(policy.scores(asked), router.scores(asked))
