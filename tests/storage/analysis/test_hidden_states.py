"""Hidden states in bulk: exactly the recorded ones, of plays that count alone, few queries, and what cannot be used is
said; what there was to judge, and the best models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import update

from core.analysis.learning import AnswerState
from core.episode import Ask, Episode, EpisodeFinished, Flag, Reply, Role, Task
from core.errors import StoreError
from core.heads import softmax
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from storage.analysis import hidden_states
from storage.analysis.counterfactual import probabilities
from storage.analysis.hidden_states import (
    best_models,
    policies_with_states,
    read_choices,
    read_states,
    read_turn_states,
)
from storage.recorder import record
from storage.rows import schema
from storage.rows.engine import writing
from storage.rows.summaries import RunKind
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, grade, pool, tasks
from tests.builders.pools import ScriptedPool, specs
from tests.builders.recorded import episode, events_of
from tests.builders.stores import new_store
from tests.storage.filters.test_lists import statements


def played(store: Store, run: str, chosen: Sequence[Task], policy: str, first: int = 0) -> list[Episode]:
    """Episodes of a policy with a head, recorded."""
    born = births(run, chosen, policy, first=first)
    return [
        happened.episode
        for happened in record(store, events(born, HashPolicy(policy)))
        if isinstance(happened, EpisodeFinished)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "trinity.db")
    kinds: dict[str, RunKind] = {"r1": "run", "r2": "run", "rlive": "live", "rfork": "fork", "rtest": "run"}
    for run, kind in kinds.items():
        opened.runs.create(run, kind, {})
    yield opened
    opened.close()


def test_points_are_the_recorded_decisions(store: Store) -> None:
    whole = played(store, "r1", tasks(8), "hash")
    played(store, "r1", tasks(3), "other", first=50)
    found = read_states(store, "r1", "hash")
    turns = [turn for one in sorted(whole, key=lambda one: one.id) for turn in one.turns]
    assert found.total == len(turns) == len(found.turns)
    assert [(one.episode_id, one.index) for one in found.turns] == [(t.episode_id, t.index) for t in turns]
    hidden = [np.frombuffer(t.decision.hidden_state, "<f2") for t in turns]
    assert np.array_equal(found.points.hidden, np.array(hidden, dtype=np.float32))
    logits = [(*t.decision.model_logits, *t.decision.role_logits) for t in turns]
    assert np.array_equal(found.points.logits, np.array(logits, dtype=np.float32))
    assert found.points.models == tuple(t.decision.model for t in turns)
    assert [one.argmax_model for one in found.turns] == [t.decision.argmax_model for t in turns]
    family = {one.id: one.task.family for one in whole}
    assert found.points.families == tuple(family[t.episode_id] for t in turns)
    assert found.slots == MODELS


def test_a_task_has_one_key_however_often_it_was_played(store: Store) -> None:
    played(store, "r1", tasks(4), "hash")
    played(store, "r1", tasks(4), "hash", first=10)
    found = read_states(store, "r1", "hash", first_only=True)
    assert len(found.turns) == 8
    assert len(set(found.points.tasks)) == 4


def test_first_turns_only(store: Store) -> None:
    whole = played(store, "r1", tasks(6), "hash")
    found = read_states(store, "r1", "hash", first_only=True)
    assert {one.index for one in found.turns} == {0}
    assert [one.episode_id for one in found.turns] == sorted(one.id for one in whole)


def test_a_sample_is_drawn_once_and_for_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    played(store, "r1", tasks(12), "hash")
    everything = read_states(store, "r1", "hash")
    monkeypatch.setattr(hidden_states, "MOST_POINTS", 10)
    some = read_states(store, "r1", "hash")
    assert (len(some.turns), some.total) == (10, everything.total)
    assert set(some.turns) < set(everything.turns)
    assert some.turns == read_states(store, "r1", "hash").turns
    assert some.turns != everything.turns[:10]


def test_policies_without_states_are_not_offered(store: Store) -> None:
    played(store, "r1", tasks(3), "hash")
    played(store, "r2", tasks(4), "hash")
    chance = births("r2", tasks(4), "random", first=20)
    list(record(store, drive_many(chance, RandomPolicy(MODELS), pool(), grade)))
    offered = policies_with_states(store)
    assert [(one.run_id, one.policy, one.episodes) for one in offered] == [
        ("r2", "hash", 4),
        ("r1", "hash", 3),
    ]
    assert offered[1].turns == read_states(store, "r1", "hash").total
    assert read_states(store, "r2", "random").turns == ()
    assert read_states(store, "rgone", "hash").total == 0


def test_generations_are_offered_last_one_first(store: Store) -> None:
    for generation, policy in ((8, "c8"), (30, "c30"), (None, "own")):
        whole = played(store, "r1", tasks(1), policy, first=(generation or 0) * 10)
        with writing(store.engine) as connection:
            connection.execute(
                update(schema.episode).where(schema.episode.c.id == whole[0].id).values(generation=generation)
            )
    assert [one.policy for one in policies_with_states(store)] == ["c30", "c8", "own"]


def test_choices_made_by_hand_and_numbers_that_are_none_are_left_out(store: Store) -> None:
    whole = played(store, "r1", tasks(5), "hash")
    with writing(store.engine) as connection:
        connection.execute(
            update(schema.turn)
            .where(schema.turn.c.episode_id == whole[0].id, schema.turn.c.idx == 0)
            .values(origin="override")
        )
        too_large = np.array([np.inf] + [0] * 15, "<f2").tobytes()
        connection.execute(
            update(schema.state)
            .where(schema.state.c.episode_id == whole[1].id, schema.state.c.idx == 0)
            .values(hidden=too_large)
        )
    found = read_states(store, "r1", "hash", first_only=True)
    assert (found.total, found.unusable, len(found.turns)) == (4, 1, 3)
    assert not {whole[0].id, whole[1].id} & {one.episode_id for one in found.turns}
    choices = read_choices(store, "r1", "hash")
    assert choices is not None
    assert len(choices.rewards) == 3  # an episode counts as a whole or not at all
    assert np.isfinite(choices.states).all()


@pytest.mark.parametrize("size", [3, 24])
def test_states_of_two_sizes_are_one_sentence(store: Store, size: int) -> None:
    whole = played(store, "r1", tasks(5), "hash")
    with writing(store.engine) as connection:
        changed = update(schema.state).where(schema.state.c.episode_id == whole[1].id)
        connection.execute(changed.values(hidden=b"\x00" * size))
    with pytest.raises(StoreError, match="of different sizes"):
        read_states(store, "r1", "hash")


def test_reading_takes_two_queries_and_no_text(store: Store) -> None:
    played(store, "r1", tasks(20), "hash")
    with statements(store) as asked:
        read_states(store, "r1", "hash")
    assert len(asked) == 2
    with statements(store) as offering:
        policies_with_states(store)
    assert len(offering) == 1
    assert not any(" text" in one or "body" in one for one in asked + offering)


WIDTH = 16


def test_only_plays_that_count_are_read_and_every_state_is_the_recorded_one(store: Store) -> None:
    whole = [*played(store, "r1", tasks(6), "cone"), *played(store, "r1", tasks(2), "ctwo", 10)]
    played(store, "r1", tasks(4), "cthree", 20)  # nobody asked for it
    played(store, "rlive", tasks(3), "cone", 30)  # live
    played(store, "rfork", tasks(3), "cone", 40)  # forks
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


def test_the_best_model_of_a_family_is_the_one_whose_first_answers_are_right_most_often(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    monkeypatch.setattr(hidden_states, "FEWEST_ANSWERS", 5)
    play("r1", tasks(72), "cone", 0)
    found = best_models(store, MODELS)
    assert {family: one.model for family, one in found.items()} == {"math": "ada", "logic": "bo"}
    assert found["math"].right.value == 1
    assert 0.4 < (found["logic"].right.value or 0) < 0.9
    assert found["math"].rivals == ()
    play("rlive", tasks(30), "ctwo", 1000)  # a live play counts nowhere
    assert best_models(store, MODELS) == found
    assert best_models(store, ("ada", "bo")) == {}  # of another pool
