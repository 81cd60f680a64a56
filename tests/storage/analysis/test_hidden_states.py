"""Hidden states in bulk: exactly the recorded ones, few queries, and what cannot be used is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import update

from core.episode import Episode, EpisodeFinished, Task
from core.errors import StoreError
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from storage.analysis import hidden_states
from storage.analysis.hidden_states import policies_with_states, read_choices, read_states
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.schema import episode, state, turn
from storage.store import Store
from tests.builders.play import MODELS, HashPolicy, births, events, grade, pool, tasks
from tests.builders.stores import new_store
from tests.storage.filters.test_lists import statements


def played(store: Store, run: str, chosen: list[Task], policy: str, first: int = 0) -> list[Episode]:
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
    for run in ("r1", "r2"):
        opened.runs.create(run, "run", {})
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
                update(episode).where(episode.c.id == whole[0].id).values(generation=generation)
            )
    assert [one.policy for one in policies_with_states(store)] == ["c30", "c8", "own"]


def test_choices_made_by_hand_and_numbers_that_are_none_are_left_out(store: Store) -> None:
    whole = played(store, "r1", tasks(5), "hash")
    with writing(store.engine) as connection:
        connection.execute(
            update(turn).where(turn.c.episode_id == whole[0].id, turn.c.idx == 0).values(origin="override")
        )
        too_large = np.array([np.inf] + [0] * 15, "<f2").tobytes()
        connection.execute(
            update(state).where(state.c.episode_id == whole[1].id, state.c.idx == 0).values(hidden=too_large)
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
        changed = update(state).where(state.c.episode_id == whole[1].id)
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
