"""Turns that heads can read again: of plays that count alone, with what there was to judge, and the best models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.analysis.learning import AnswerState
from core.episode import Ask, Episode, EpisodeFinished, Flag, Reply, Role, Task
from core.heads import softmax
from core.play.drive import drive_many
from storage.analysis import hidden_states
from storage.analysis.counterfactual import probabilities
from storage.analysis.hidden_states import best_models, read_turn_states
from storage.recorder import record
from storage.rows.summaries import RunKind
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, grade, tasks
from tests.builders.pools import ScriptedPool, specs
from tests.builders.recorded import episode, events_of
from tests.builders.stores import new_store

WIDTH = 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "trinity.db")
    kinds: tuple[tuple[str, RunKind], ...] = (("r1", "run"), ("r2", "live"), ("r3", "fork"), ("rtest", "run"))
    for run, kind in kinds:
        opened.runs.create(run, kind, {})
    yield opened
    opened.close()


def played(store: Store, run: str, chosen: Sequence[Task], policy: str, first: int = 0) -> list[Episode]:
    """Episodes of a policy with a head, recorded."""
    born = births(run, chosen, policy, first=first)
    return [
        one.episode
        for one in record(store, events(born, HashPolicy(policy)))
        if isinstance(one, EpisodeFinished)
    ]


def test_only_plays_that_count_are_read_and_every_state_is_the_recorded_one(store: Store) -> None:
    whole = [*played(store, "r1", tasks(6), "cone"), *played(store, "r1", tasks(2), "ctwo", 10)]
    played(store, "r1", tasks(4), "cthree", 20)  # nobody asked for it
    played(store, "r2", tasks(3), "cone", 30)  # live
    played(store, "r3", tasks(3), "cone", 40)  # forks
    one = episode("rtest-0", policy="cone")
    first = replace(one.turns[0], decision=replace(one.turns[0].decision, origin="override"))
    by_hand = replace(one, turns=(first, *one.turns[1:]))
    by_two = replace(episode("rtest-1", policy="cone", seed=2), deciders={1: "ctwo"})
    for one in (by_hand, by_two):
        list(record(store, events_of(one)))
    found = read_turn_states(store, ["cone", "ctwo"], WIDTH)
    turns = [turn for one in sorted(whole, key=lambda one: one.id) for turn in one.turns]
    assert found.of == len(found) == len(turns)
    assert found.turns.tolist() == [turn.index for turn in turns]
    states = [np.frombuffer(turn.decision.hidden_state, "<f2") for turn in turns]
    assert np.array_equal(found.states, np.array(states, np.float64))
    assert found.policies == ("cone", "ctwo")
    assert not len(read_turn_states(store, ["cone"], WIDTH + 1))  # of another encoder
    for turn, answer in zip(turns, found.answers, strict=True):
        if Flag.NOTHING_TO_JUDGE in turn.flags:
            assert answer is AnswerState.NONE
        elif turn.decision.role is Role.VERIFIER:
            assert answer is not AnswerState.NONE
        if turn.index == 0:
            assert answer is AnswerState.NONE


def test_what_there_was_to_judge_follows_the_recorded_turns(store: Store) -> None:
    one = episode("rtest-0", ("36", "32"), policy="cone")  # T W V W V
    list(record(store, events_of(one)))
    found = read_turn_states(store, ["cone"], WIDTH // 2)
    none, unjudged, judged = AnswerState
    assert found.answers == (none, none, unjudged, judged, unjudged)


def test_of_many_turns_whole_episodes_are_drawn_always_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(store, "r1", tasks(12), "cone")
    whole = read_turn_states(store, ["cone"], WIDTH)
    monkeypatch.setattr(hidden_states, "MOST_TURNS", 20)
    some = read_turn_states(store, ["cone"], WIDTH)
    assert 0 < len(some) <= 20
    assert some.of == whole.of == len(whole)
    assert read_turn_states(store, ["cone"], WIDTH).episodes == some.episodes
    for one in some.episodes:
        mine = store.episodes.get(one).turns
        assert len(mine) == sum(
            np.array_equal(np.frombuffer(turn.decision.hidden_state, "<f2"), state)
            for turn in mine
            for state in some.states
        )


def test_probabilities_are_each_heads_own_and_what_is_barred_has_none() -> None:
    heads = [checkpoint(), checkpoint(seed=1), checkpoint(seed=1, barred=("bo", "verifier"))]
    states = np.random.default_rng(0).normal(size=(5, 4))
    found = probabilities(heads, states, [0] * 5)
    assert found.models.shape == found.roles.shape == (5, 3, 3)
    assert np.allclose(found.models[:, 0], 1 / 3)
    z = states @ heads[1].head_vector.astype(np.float64).reshape(6, 4).T
    assert np.allclose(found.models[:, 1], softmax(z[:, :3]))
    assert np.allclose(found.roles[:, 1], softmax(z[:, 3:]))
    assert not found.models[:, 2, 1].any()
    assert not found.roles[:, 2, 2].any()
    assert np.allclose(found.models.sum(axis=2), 1)


def test_the_best_model_of_a_family_is_the_one_whose_first_answers_are_right_most_often(store: Store) -> None:
    """Ada is right in math, bo in logic but for one task in three, cy never; nobody is in code."""

    def able(ask: Ask) -> Reply:
        number = ask.messages[0].content.split("plus ")[1].split("?")[0]
        place = int(number) % 3
        knows = (ask.model == "ada" and place == 0) or (
            ask.model == "bo" and place == 1 and int(number) % 9 != 1
        )
        return Reply(f"answer {number if knows else 'none of it'}")

    def play(run: str, chosen: Sequence[Task], policy: str, first: int) -> None:
        born = births(run, chosen, policy, first=first)
        list(record(store, drive_many(born, HashPolicy(policy), ScriptedPool(specs(MODELS), able), grade)))

    play("r1", tasks(120), "cone", 0)
    found = best_models(store, MODELS)
    assert {family: one.model for family, one in found.items()} == {"math": "ada", "logic": "bo"}
    assert found["math"].right.value == 1
    assert 0.4 < (found["logic"].right.value or 0) < 0.9
    assert found["math"].rivals == ()
    play("r2", tasks(30), "ctwo", 1000)  # a live play counts nowhere
    assert best_models(store, MODELS) == found
    assert best_models(store, ("ada", "bo")) == {}  # of another pool
