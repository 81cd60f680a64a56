"""The survey of a slow encoder: told while it goes on, kept when it is stopped, and smaller where reading is slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.coordinator import encoder as encoders
from core.coordinator.encoder import Encoder, load_encoder
from core.evolution.evolve import Generation
from core.pocket import threads
from storage.shelves.states import StateFile
from storage.store import Store
from tests.builders.encoder import tiny_qwen3
from tests.builders.stores import new_store
from tests.ui.runs.test_learning import evolution
from ui.runs import evolution as evolutions
from ui.runs import play as playing
from ui.runs.evolution import EvolutionParts
from ui.runs.lease import owner
from ui.runs.plans import Preparation, plan_of, preparation_of
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store, in a process for which every encoder is a large one and every step is told."""
    monkeypatch.setattr(threads, "SMALL", 0)
    monkeypatch.setattr(encoders, "_HANDED_OVER_S", 0.0)
    monkeypatch.setattr(playing, "TOLD_S", 0.0)
    opened = new_store(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def states(tmp_path: Path) -> Iterator[StateFile]:
    file = StateFile(tmp_path / "states.db")
    yield file
    file.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_qwen3(tmp_path / "encoder")


def parts(folder: Path, states: StateFile, sketches: int | None = 70) -> EvolutionParts:
    """An evolution on an encoder that has just been loaded."""
    encoder = load_encoder(folder)
    encoder.ledger = states
    made = evolution("sep", encoder)
    return replace(made, plan=replace(made.plan, sketches=sketches))


@pytest.mark.integration
def test_a_survey_that_was_stopped_goes_on_where_it_was(
    store: Store, states: StateFile, folder: Path
) -> None:
    first = parts(folder, states)
    run, _ = enqueue(store, first.plan, Ticket(1_700_000_000, "nonce"), owner=owner())
    events = play(store, run, first)
    told = [next(events) for _ in range(40)]
    assert [(one.done, one.of) for one in told] == [(n, 70) for n in range(1, 41)]
    noted = preparation_of(store.runs.get(run))
    assert noted is not None
    assert (noted.done, noted.of, noted.what) == (40, 70, "sketched transcripts read")
    assert noted.left_s is not None
    assert "40 of 70 sketched transcripts read, about " in noted.words
    events.close()
    assert store.runs.get(run).status == "interrupted"

    again = parts(folder, states)
    events = play(store, run, again)
    told = [next(events) for _ in range(70)]
    assert all(isinstance(one, Preparation) for one in told)
    assert again.encoder.forwards <= 30, "what was read is not read again"
    assert next(one for one in events if isinstance(one, Generation)).index == 0
    events.close()
    kept = store.runs.get(run)
    assert (plan_of(kept, EvolutionPlan).sketches, preparation_of(kept)) == (70, None)

    undisturbed = load_encoder(folder)
    once = replace(parts(folder, states), encoder=undisturbed)
    other, _ = enqueue(store, once.plan, Ticket(1_700_000_001, "other"), owner=owner())
    events = play(store, other, once)
    assert [next(events).done for _ in range(70)][-1] == 70
    next(one for one in events if isinstance(one, Generation))
    events.close()
    one, two = (store.learning.updates(name)[0].stats for name in (run, other))
    assert one["mean_state"] == two["mean_state"]
    assert one["steps"] == two["steps"]


@pytest.mark.integration
def test_a_person_may_stop_a_survey(store: Store, states: StateFile, folder: Path) -> None:
    made = parts(folder, states)
    run, _ = enqueue(store, made.plan, Ticket(1_700_000_000, "nonce"), owner=owner())
    events = play(store, run, made)
    next(events)
    store.runs.cancel(run)
    assert not [*events]
    assert store.runs.get(run).status == "interrupted"
    assert made.encoder.forwards < 5


@pytest.mark.parametrize(("speed", "n"), [(10.0, 64), (110.0, 128), (1e6, 256)])
def test_it_reads_as_many_sketches_as_a_minute_allows(
    store: Store, states: StateFile, folder: Path, monkeypatch: pytest.MonkeyPatch, speed: float, n: int
) -> None:
    made = parts(folder, states, None)
    monkeypatch.setattr(Encoder, "tokens_per_s", lambda _: speed)
    chosen, why = evolutions._sketches(made.plan, made.encoder, made.tasks)
    assert chosen == n
    assert [f"on {n} sketched transcripts" in one for one in why] == [True] * (n < 256)
    kept = replace(made.plan, sketches=99)
    assert evolutions._sketches(kept, made.encoder, made.tasks) == (99, []), "chosen once"
