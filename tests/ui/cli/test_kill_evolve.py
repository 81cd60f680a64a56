"""SIGKILL to `trinity evolve`, twenty times, in model calls and around commits: nothing committed is lost, what is
resumed ends bit for bit as if it had never been disturbed, every episode is recorded once, and no reply that was stored
is asked for again."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from storage.rows.engine import fetch_rows
from storage.rows.schema import episode
from storage.store import open_store
from tests.builders.encoder import tiny_qwen3
from tests.ui.cli.dying import Nursery, last_run
from tests.ui.sums import Sums

pytestmark = pytest.mark.process

#: All deaths are of one evolution: each resumes what the last one left.
EVOLVE_DEATHS = int(os.environ.get("EVOLVE_DEATHS", "20"))

#: The tiny encoder's module: Transformers imports it, seconds of work, only when a model of the kind is loaded.
SMALL = ["--generations", 14, "--population", 8, "--replicates", 4, "--turns", 3, "--validate-every", 4]
SMALL += ["--record", "all"]


def generations(store_url: str, run: str) -> list[tuple[int, str | None]]:
    """(index, checkpoint) of every committed generation."""
    store = open_store(store_url)
    found = [(one.index, one.checkpoint_id) for one in store.learning.updates(run)]
    store.close()
    return found


def recorded(store_url: str, run: str) -> list[tuple[str, int | None, str, bool | None]]:
    """What is told of a run's episodes, whichever run it is."""
    query = select(episode.c.id, episode.c.generation, episode.c.strip, episode.c.correct)
    with closing(open_store(store_url)) as store:
        rows = fetch_rows(store.engine, query.where(episode.c.run_id == run).order_by(episode.c.id))
    return [(name.partition("-")[2], *rest) for name, *rest in rows]


def test_a_killed_evolution_loses_nothing_and_ends_the_same_bit_for_bit(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_ENCODER", str(tiny_qwen3(tmp_path / "encoder")))
    monkeypatch.setenv("ASKED_TWICE", str(tmp_path / "asked twice"))
    world.add_tasks_to_evolve_on()
    arguments = ["evolve", "--tasks", world.tasks, *map(str, SMALL)]
    undisturbed = world.trinity(*arguments, "--json").json
    expected = generations(world.store, undisturbed["run"])
    run = ""
    before: list[tuple[int, str | None]] = []
    born = Nursery(world)
    for number in range(EVOLVE_DEATHS):
        command = ["evolve", "--resume", "--name", run] if run else arguments
        born.die(command, number, calls=number % 3, commits=2 + number % 3)
        run = last_run(world.store)
        kept = generations(world.store, run)
        assert kept[: len(before)] == before
        assert [index for index, _ in kept] == [index for index, _ in expected][: len(kept)]
        before = kept
    assert 0 < len(before) < len(expected)
    assert (
        world.trinity("evolve", "--resume", "--name", run, "--json").json["digest"] == undisturbed["digest"]
    )
    assert recorded(world.store, run) == recorded(world.store, undisturbed["run"])
    assert not (tmp_path / "asked twice").exists()
    assert [index for index, _ in generations(world.store, run)] == list(range(len(expected)))
