"""Attributions in the store: read again as they were, never for another transcript, and gone with their episode."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import func, select

from core.analysis.attribution import (
    QUESTION,
    Attribution,
    Lead,
    PartLeftOut,
    WordAttribution,
    WordLeftOut,
)
from core.episode import Role
from storage.recorder import record
from storage.rows.engine import reading
from storage.rows.schema import attribution
from storage.shelves.attributions import AttributedTurn
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.recorded import MODELS, episode, events_of

CHOSEN, RIVAL = ("alpha", Role.WORKER), ("bravo", Role.WORKER)
PARTS = Attribution(
    CHOSEN,
    RIVAL,
    Lead(1.5, CHOSEN, 0.5),
    (PartLeftOut(QUESTION, 2.0, Lead(-0.5, RIVAL, 0.71)), PartLeftOut(0, -0.25, Lead(1.75, CHOSEN, 0.4))),
    (1.0, -0.5, 0.0, 0.1, 0.2, 0.3),
)
WORDS = WordAttribution((WordLeftOut(QUESTION, 0, 4, 0.5), WordLeftOut(0, 2, 9, -1e-7)), 2, 3)


@pytest.fixture
def store(fresh: Store) -> Store:
    fresh.runs.create("rtest", "run", {})
    list(record(fresh, events_of(episode("e-1"))))
    kept = checkpoint(MODELS, seed=1)
    fresh.checkpoints.add(kept.id, kept.to_config(), kept.to_bytes())
    return fresh


@pytest.fixture
def turn(store: Store) -> AttributedTurn:
    [kept] = store.checkpoints.list()
    return AttributedTurn("e-1", 1, kept.id, "d" * 32)


def rows(store: Store) -> int:
    with reading(store.engine) as connection:
        return int(connection.execute(select(func.count()).select_from(attribution)).scalar_one())


def test_what_is_kept_is_read_again_as_it_was(store: Store, turn: AttributedTurn) -> None:
    assert (store.attributions.parts(turn), store.attributions.words(turn)) == (None, None)
    store.attributions.add(turn, PARTS)
    store.attributions.add(turn, WORDS)
    assert (store.attributions.parts(turn), store.attributions.words(turn)) == (PARTS, WORDS)
    more = WordAttribution((*WORDS.words, WordLeftOut(1, 0, 1, 0.0)), 3, 3, "gradients", 0.1, 0.01)
    store.attributions.add(turn, more)  # in the place of what was kept
    assert store.attributions.words(turn) == more
    assert rows(store) == 2


def test_what_was_found_for_another_transcript_is_not_used(store: Store, turn: AttributedTurn) -> None:
    store.attributions.add(turn, PARTS)
    for other in (
        AttributedTurn(turn.episode_id, turn.index, turn.checkpoint_id, "e" * 32),
        AttributedTurn(turn.episode_id, 2, turn.checkpoint_id, turn.digest),
        AttributedTurn(turn.episode_id, turn.index, "cother", turn.digest),
    ):
        assert store.attributions.parts(other) is None


def test_it_goes_with_its_episode_and_is_not_kept_for_one_that_is_gone(
    store: Store, turn: AttributedTurn
) -> None:
    store.attributions.add(turn, PARTS)
    store.episodes.delete(["e-1"])
    assert rows(store) == 0
    store.attributions.add(turn, PARTS)
    assert rows(store) == 0


def test_no_text_of_the_transcript_is_kept(store: Store, turn: AttributedTurn) -> None:
    store.attributions.add(turn, WORDS)
    with reading(store.engine) as connection:
        body = json.loads(connection.execute(select(attribution.c.body)).scalar_one())
    assert set(body["words"][0]) == {"part", "start", "end", "gives"}
