"""SIGKILL during recording: what was acknowledged is there, the store is whole, the run is marked."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from core.episode import Status
from storage.rows.summaries import RunStatus
from storage.store import open_store
from tests.storage.writer import Heard, write

pytestmark = pytest.mark.process

KILLS = 20
#: Fresh processes that need not import everything again.
START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["tests.storage.writer"])
STAGES = {"TurnStarted": 0, "Replied": 1, "Turn": 2}
STORED = {"asked": 0, "replied": 1, "finished": 2}


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Two writers at a time on one store, each killed at a random moment, twenty kills in all."""
    file = tmp_path / "trinity.db"
    open_store(file).close()
    acknowledged: list[Heard] = []
    for pair in range(KILLS // 2):
        for i, (process, heard) in enumerate([_writer(file, f"r{pair}{side}") for side in "ab"]):
            acknowledged.append(heard.recv())  # it is recording now
            time.sleep(0.01 * ((pair * 7 + i * 3) % 20))
            process.kill()
            process.join()
            acknowledged += _rest(heard)
    store = open_store(file, now=lambda: time.time() + 3600)
    held = {one.id: one for run in store.runs.list(limit=100) for one in store.episodes.of_run(run.id)}
    stages = {
        (turn.episode_id, turn.index): STORED[turn.stage]
        for one in held
        for turn in store.episodes.outline(one)
    }
    for kind, episode_id, index in acknowledged:
        assert episode_id in held
        if kind in STAGES:
            assert stages[episode_id, index] >= STAGES[kind]
        if kind == "EpisodeFinished":
            assert held[episode_id].status is Status.FINISHED
    assert len(acknowledged) > 10 * KILLS
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"]
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    assert len(store.runs.mark_interrupted()) == KILLS
    assert {run.status for run in store.runs.list(limit=100)} == {RunStatus.INTERRUPTED}
    for run in store.runs.list(limit=100):
        for one in store.episodes.unfinished(run.id):
            assert one.status is Status.INTERRUPTED
            assert [turn.index for turn in one.turns] == list(range(len(one.turns)))
    store.close()


def _writer(file: Path, run: str) -> tuple[ForkServerProcess, Connection[None, Heard]]:
    heard, said = START.Pipe(duplex=False)
    process = START.Process(target=write, args=(str(file), run, said))
    process.start()
    said.close()
    return process, heard


def _rest(heard: Connection[None, Heard]) -> Iterator[Heard]:
    """What was said before the kill; a message that the kill cut short was not heard."""
    with heard:
        try:
            while True:
                yield heard.recv()
        except (EOFError, OSError):
            return
