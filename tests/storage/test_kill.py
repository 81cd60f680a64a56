"""SIGKILL during recording: what was acknowledged is there, the store is whole, the run is marked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from core.episode import Status
from storage.rows.summaries import RunStatus
from storage.store import open_store
from tests.storage.killing import killed_writers

pytestmark = pytest.mark.process

KILLS = 12
#: `trinity bench soak` has more of both.
MOST_HEARD = 60


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    found = killed_writers(tmp_path / "trinity.db", KILLS, MOST_HEARD)
    assert len(found.acknowledged) > 10 * KILLS
    assert found.episodes > KILLS  # many had ended
    assert found.lost == []
    assert found.integrity == ["ok"]
    store = open_store(tmp_path / "trinity.db", now=lambda: time.time() + 3600)
    assert len(store.runs.mark_interrupted()) == KILLS
    assert {run.status for run in store.runs.list(limit=100)} == {RunStatus.INTERRUPTED}
    for run in store.runs.list(limit=100):
        for one in store.episodes.unfinished(run.id):
            assert one.status is Status.INTERRUPTED
            assert [turn.index for turn in one.turns] == list(range(len(one.turns)))
    store.close()
