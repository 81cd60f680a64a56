"""Hidden states in bulk: exactly the recorded ones, of plays that count alone, few queries, and what cannot be used is
said; what there was to judge, and the best models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Table, update

from core.analysis.learning import AnswerState
from core.episode import Ask, Episode, Flag, Reply, Role, Turn
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
from storage.rows import schema
from storage.rows.engine import writing
from storage.rows.schema import at_turn
from storage.rows.summaries import RunKind
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, HashPolicy, births, ends, events, grade, pool, tasks
from tests.builders.pools import ScriptedPool, specs
from tests.builders.recorded import episode
from tests.builders.stores import filled_store, record_finished_run
from tests.storage.filters.test_lists import statements

WIDTH = 16


def played(run: str, n: int, policy: str, first: int = 0) -> list[Episode]:
    """Episodes of a policy with a head."""
    return [*ends(events(births(run, tasks(n), policy, first=first), HashPolicy(policy))).values()]


def _plays(store: Store, _: int) -> None:
    """In one run six tasks by a policy, four of them again, and three by another; in the next four by the first policy
    and four by one without a head."""
    hash_policy = [*played("r1", 6, "hash"), *played("r1", 4, "hash", 10)]
    record_finished_run(store, "r1", "run", {}, [*hash_policy, *played("r1", 3, "other", 50)])
    chance = ends(drive_many(births("r2", tasks(4), "random", first=20), RandomPolicy(MODELS), pool(), grade))
    record_finished_run(store, "r2", "run", {}, [*played("r2", 4, "hash"), *chance.values()])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = filled_store(tmp_path / "trinity.db", _plays)
    yield opened
    opened.close()


def turns_of(store: Store, run: str, *policies: str) -> list[Turn]:
    """The recorded turns of these policies in a run, by episode."""
    ids = sorted(one.id for one in store.episodes.of_run(run) if one.policy in policies)
    return [turn for one in ids for turn in store.episodes.get(one).turns]


def change_turn(store: Store, table: Table, of: Turn, **values: Any) -> None:
    with writing(store.engine) as connection:
        connection.execute(update(table).where(at_turn(table, of.episode_id, of.index)).values(values))


def test_points_are_the_recorded_decisions(store: Store) -> None:
    found, turns = read_states(store, "r1", "hash"), turns_of(store, "r1", "hash")
    assert found.total == len(turns) == len(found.turns)
    assert [(one.episode_id, one.index) for one in found.turns] == [(t.episode_id, t.index) for t in turns]
    hidden = [np.frombuffer(t.decision.hidden_state, "<f2") for t in turns]
    assert np.array_equal(found.points.hidden, np.array(hidden, dtype=np.float32))
    logits = [(*t.decision.model_logits, *t.decision.role_logits) for t in turns]
    assert np.array_equal(found.points.logits, np.array(logits, dtype=np.float32))
    assert found.points.models == tuple(t.decision.model for t in turns)
    assert [one.argmax_model for one in found.turns] == [t.decision.argmax_model for t in turns]
    family = {one.id: one.family for one in store.episodes.of_run("r1")}
    assert found.points.families == tuple(family[t.episode_id] for t in turns)
    assert found.slots == MODELS
    first = read_states(store, "r1", "hash", first_only=True)
    assert [one.episode_id for one in first.turns] == [t.episode_id for t in turns if t.index == 0]
    assert {one.index for one in first.turns} == {0}
    assert (len(first.turns), len(set(first.points.tasks))) == (10, 6), (
        "a task has one key, played twice or not"
    )


def test_a_sample_is_drawn_once_and_for_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = read_states(store, "r1", "hash")
    monkeypatch.setattr(hidden_states, "MOST_POINTS", 10)
    some = read_states(store, "r1", "hash")
    assert (len(some.turns), some.total) == (10, everything.total)
    assert set(some.turns) < set(everything.turns)
    assert some.turns == read_states(store, "r1", "hash").turns
    assert some.turns != everything.turns[:10]


def test_policies_with_states_are_offered_newest_run_and_last_generation_first(store: Store) -> None:
    for policy, generation in (("hash", 8), ("other", 30)):
        own = schema.episode.c.policy == policy, schema.episode.c.run_id == "r1"
        with writing(store.engine) as connection:
            connection.execute(update(schema.episode).where(*own).values(generation=generation))
    offered = policies_with_states(store)
    assert [(one.run_id, one.policy, one.generation, one.episodes) for one in offered] == [
        ("r2", "hash", None, 4),
        ("r1", "other", 30, 3),
        ("r1", "hash", 8, 10),
    ]
    assert offered[2].turns == read_states(store, "r1", "hash").total
    assert read_states(store, "r2", "random").turns == ()
    assert read_states(store, "rgone", "hash").total == 0


def test_choices_made_by_hand_and_numbers_that_are_none_are_left_out(store: Store) -> None:
    by_hand, broken = [turn for turn in turns_of(store, "r1", "hash") if turn.index == 0][:2]
    change_turn(store, schema.turn, by_hand, origin="override")
    too_large = np.array([np.inf] + [0] * 15, "<f2").tobytes()
    change_turn(store, schema.state, broken, hidden=too_large)
    found = read_states(store, "r1", "hash", first_only=True)
    assert (found.total, found.unusable, len(found.turns)) == (9, 1, 8)
    assert not {by_hand.episode_id, broken.episode_id} & {one.episode_id for one in found.turns}
    choices = read_choices(store, "r1", "hash")
    assert choices is not None
    assert len(choices.rewards) == 8  # an episode counts as a whole or not at all
    assert np.isfinite(choices.states).all()


@pytest.mark.parametrize("size", [3, 24])
def test_states_of_two_sizes_are_one_sentence(store: Store, size: int) -> None:
    change_turn(store, schema.state, turns_of(store, "r1", "hash")[3], hidden=b"\x00" * size)
    with pytest.raises(StoreError, match="of different sizes"):
        read_states(store, "r1", "hash")


def test_reading_takes_two_queries_and_no_text(store: Store) -> None:
    with statements(store) as asked:
        read_states(store, "r1", "hash")
    assert len(asked) == 2
    with statements(store) as offering:
        policies_with_states(store)
    assert len(offering) == 1
    assert not any(" text" in one or "body" in one for one in asked + offering)


def _counted_and_not(store: Store, _: int) -> None:
    """Two policies whose plays count, a third one's, and plays of the first that do not: live ones, forks, one with a
    turn by hand and one that two policies decided."""
    asked = [*played("r1", 6, "cone"), *played("r1", 2, "ctwo", 10), *played("r1", 4, "cthree", 20)]
    record_finished_run(store, "r1", "run", {}, asked)
    kinds: dict[str, RunKind] = {"rlive": "live", "rfork": "fork"}
    for run, kind in kinds.items():
        record_finished_run(store, run, kind, {}, played(run, 3, "cone"))
    one = episode("rtest-0", policy="cone")
    first = replace(one.turns[0], decision=replace(one.turns[0].decision, origin="override"))
    by_two = replace(episode("rtest-1", policy="cone", seed=2), deciders={1: "ctwo"})
    record_finished_run(store, "rtest", "run", {}, [replace(one, turns=(first, *one.turns[1:])), by_two])


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Store]:
    opened = filled_store(tmp_path / "trinity.db", _counted_and_not)
    yield opened
    opened.close()


def test_only_plays_that_count_are_read_and_every_state_is_the_recorded_one(counted: Store) -> None:
    found, turns = read_turn_states(counted, ["cone", "ctwo"], WIDTH), turns_of(counted, "r1", "cone", "ctwo")
    assert found.of == len(found) == len(turns)
    assert found.turns.tolist() == [turn.index for turn in turns]
    states = [np.frombuffer(turn.decision.hidden_state, "<f2") for turn in turns]
    assert np.array_equal(found.states, np.array(states, np.float64))
    assert found.policies == ("cone", "ctwo")
    assert not len(read_turn_states(counted, ["cone"], WIDTH + 1))  # of another encoder
    for turn, answer in zip(turns, found.answers, strict=True):
        if Flag.NOTHING_TO_JUDGE in turn.flags or turn.index == 0:
            assert answer is AnswerState.NONE
        elif turn.decision.role is Role.VERIFIER:
            assert answer is not AnswerState.NONE


def test_what_there_was_to_judge_follows_the_recorded_turns(store: Store) -> None:
    one = episode("rtest-0", ("36", "32"), policy="cone")  # T W V W V
    record_finished_run(store, "rtest", "run", {}, [one])
    found = read_turn_states(store, ["cone"], WIDTH // 2)
    none, unjudged, judged = AnswerState
    assert found.answers == (none, none, unjudged, judged, unjudged)


def test_of_many_turns_whole_episodes_are_drawn_always_the_same(
    counted: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = ["cone", "ctwo", "cthree"]
    whole = read_turn_states(counted, policies, WIDTH)
    monkeypatch.setattr(hidden_states, "MOST_TURNS", 20)
    some = read_turn_states(counted, policies, WIDTH)
    assert 0 < len(some) <= 20
    assert some.of == whole.of == len(whole)
    assert read_turn_states(counted, policies, WIDTH).episodes == some.episodes
    mine = [turn for one in some.episodes for turn in counted.episodes.get(one).turns]
    drawn = [np.frombuffer(turn.decision.hidden_state, "<f2") for turn in mine]
    assert np.array_equal(some.states, np.array(drawn, np.float64)), "all turns of those, and no others"


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
        number = int(ask.messages[0].content.split("plus ")[1].split("?")[0])
        knows = {"ada": number % 3 == 0, "bo": number % 3 == 1 and number % 9 != 1}.get(ask.model, False)
        return Reply(f"answer {number if knows else 'none of it'}")

    def play(run: str, kind: RunKind, n: int, policy: str) -> None:
        born = births(run, tasks(n), policy)
        over = ends(drive_many(born, HashPolicy(policy), ScriptedPool(specs(MODELS), able), grade))
        record_finished_run(store, run, kind, {}, [*over.values()])

    monkeypatch.setattr(hidden_states, "FEWEST_ANSWERS", 5)
    store.runs.delete("r1")
    store.runs.delete("r2")
    play("rone", "run", 72, "cone")
    found = best_models(store, MODELS)
    assert {family: one.model for family, one in found.items()} == {"math": "ada", "logic": "bo"}
    assert found["math"].right.value == 1
    assert 0.4 < (found["logic"].right.value or 0) < 0.9
    assert found["math"].rivals == ()
    play("rlive", "live", 30, "ctwo")  # a live play counts nowhere
    assert best_models(store, MODELS) == found
    assert best_models(store, ("ada", "bo")) == {}  # of another pool
