"""Learned routers by their names: what they learn from, and that they play on recorded models and on others."""

from __future__ import annotations

import pytest

from core.errors import ConfigError
from core.outcomes.lessons import TRIALS
from core.outcomes.routers import LEARNERS
from core.settings import data_folder
from tests.core.outcomes.tables import small_answers, small_table
from tests.ui.sums import Sums
from ui.runs.policies import pupil_of
from ui.runs.policy_kinds import POLICIES
from ui.runs.taught.routers import ROUTERS, router_features

MODELS = ("ann", "bob")


def test_every_learner_is_a_policy_and_says_what_it_reads() -> None:
    assert {*ROUTERS} == {*LEARNERS} - {"ridge", "labels"}  # which do more than that
    for word in LEARNERS:
        pupil = pupil_of(f"{word}:tfidf", MODELS)
        assert pupil is not None
        assert pupil.learns_from == ("questions", "validation")
        assert (pupil.reads, pupil.looks_up) == (False, True)
        told = pupil_of(f"{word}:family", MODELS)
        assert told is not None
        assert (told.id, told.reads) == (f"{word}:family", True)
        assert word in POLICIES


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("", ("states", False)),
        ("states", ("states", False)),
        ("tfidf", ("tfidf", False)),
        ("family", ("states", True)),
        ("tfidf:family", ("tfidf", True)),
    ],
)
def test_what_stands_behind_a_router_is_what_it_knows(rest: str, found: tuple[str, bool]) -> None:
    assert router_features("knn", rest) == found


@pytest.mark.parametrize("rest", ["words", "family:family", "tfidf:tfidf", ":family", "tfidf:"])
def test_a_router_that_knows_something_else_is_refused(rest: str) -> None:
    with pytest.raises(ConfigError, match="is nothing that knn knows of a question"):
        router_features("knn", rest)


@pytest.mark.integration
def test_routers_of_recorded_models_learn_from_the_table_and_ask_one_model_once(world: Sums) -> None:
    """Questions tell whether they are of law, which ann knows, or of physics, which bob knows."""
    small_table(data_folder(), small_answers(200), texts=True)
    names = ("logistic:tfidf", "ridge:tfidf:family", "labels:tfidf", "knn", "router", "labels")
    of = ("--pool", "outcomes:small", "--tasks", "outcomes:small", "--encoder", "pocket")
    said = world.done("run", *of, *(part for name in names for part in ("--policy", name)))
    with world.kept() as store:
        (run,) = store.runs.list()
        played = {
            name: [one for one in store.episodes.of_run(run.id) if one.policy == name] for name in names
        }
        for name, episodes in played.items():
            assert len(episodes) > 40, name
            assert {
                one.turns[0].decision.role.value for one in map(store.episodes.get, [episodes[0].id])
            } == {"worker"}
        right = {name: sum(bool(one.correct) for one in own) / len(own) for name, own in played.items()}
        first = store.episodes.get(played["logistic:tfidf"][0].id)
    assert len(first.turns) == 1
    assert right["logistic:tfidf"] == right["ridge:tfidf:family"] == right["labels:tfidf"] == 1.0
    assert min(right.values()) > 0.6  # the pocket encoder was not made for such questions
    assert f"logistic:tfidf: of {TRIALS} settings penalty" in said.out + said.err


@pytest.mark.integration
def test_a_router_without_a_text_to_read_is_refused_in_one_sentence(world: Sums) -> None:
    small_table(data_folder(), small_answers(80), texts=False)
    of = ("--pool", "outcomes:small", "--tasks", "outcomes:small")
    for name in ("knn:tfidf", "ridge:tfidf", "agree:logistic:tfidf", "sure:family"):
        said = world.refused("run", *of, "--policy", name)
        assert f"has no texts of its questions, so '{name}' has nothing to read" in said


@pytest.mark.integration
def test_a_router_of_models_that_are_asked_learns_from_what_they_answer(world: Sums) -> None:
    """The guesser is wrong where the first number is odd; the adder never is."""
    world.add_tasks("evolve", 12)
    world.add_tasks("validation", 6, first=70)
    world.done(
        "run",
        *world.test_tasks,
        "--validate",
        6,
        "--pool",
        world.folder / "pool.toml",
        "--policy",
        "ridge:tfidf:family",
        "--policy",
        "knn:tfidf",
        "--policy",
        "sure",
    )
    run, _ = world.last_run()
    with world.kept() as store:
        found = [store.episodes.get(one.id) for one in store.episodes.of_run(run.id)]
    assert {one.policy for one in found} == {"ridge:tfidf:family", "knn:tfidf", "sure"}
    assert {turn.decision.model for one in found for turn in one.turns} == {"adder"}
    assert all(one.correct for one in found)
