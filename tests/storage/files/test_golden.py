"""Files are read and written as ever, and what they say is what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.episode import Change, Fork, Status
from core.play.forking import prefix_digest
from storage.analysis.standings import policies_with_episodes
from storage.files.interchange import import_file
from storage.store import Store
from tests.builders.interchange import GOLDEN, GOLDEN_FORKS, export_runs
from tests.builders.stores import new_store


@pytest.mark.parametrize(("golden", "runs"), [(GOLDEN, ("r0", "r1")), (GOLDEN_FORKS, ("r1", "r2"))])
def test_a_golden_file_reads_and_writes_as_ever(
    other: Store, tmp_path: Path, golden: Path, runs: tuple[str, ...]
) -> None:
    """Change the format only with a new version number."""
    import_file(other, golden)
    assert {run.id for run in other.runs.list()} == {*runs}
    assert other.health().episodes == 6
    export_runs(other, runs, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == golden.read_bytes()
    assert import_file(other, golden).added == {}, "a file that was read before is known again"


def test_a_fork_an_error_and_a_decider_are_read_into_fields(other: Store) -> None:
    import_file(other, GOLDEN_FORKS)
    (parent, lost, steered), forks = (
        [other.episodes.get(one.id) for one in other.episodes.of_run(run)] for run in ("r1", "r2")
    )
    assert (parent.generation, parent.meta, parent.fork) == (7, {"note": "of a stranger"}, None)
    assert (lost.status, lost.error) == (Status.MISSING, "no route to host")
    assert (steered.deciders, steered.removed) == ({1: "random"}, {"states": "2026-11-05"})
    base = Fork(parent.id, 1, None, 0, prefix_digest(parent, 1), "0123456789abcdef")
    assert [one.fork for one in forks] == [
        base,
        replace(base, change=Change("reply", "answer 1"), number=1),
        replace(base, parent=steered.id, change=Change("model", "bo"), number=2),
    ]
    assert [one.left_out for one in forks] == [(), ("m2",), ("m2",)]
    assert [one.deciders for one in forks] == [{}, {}, {0: "hash", 1: "random"}]
    assert not any(one.meta for one in (lost, steered, *forks))


def test_name_and_purpose_of_a_run_travel_with_it(other: Store, tmp_path: Path) -> None:
    other.runs.create("r1", "evolve", {}, name="mine")
    other.runs.create("r2", "run", {}, purpose="sample")
    for run in ("r1", "r2"):
        other.runs.finish(run)
    export_runs(other, ["r1", "r2"], tmp_path / "again.jsonl")
    there = new_store(tmp_path / "there.db")
    import_file(there, tmp_path / "again.jsonl")
    assert [(run.name, run.purpose) for run in there.runs.list()] == [(None, "sample"), ("mine", "learning")]
    there.close()


def test_the_pool_of_a_run_travels_with_it(other: Store, tmp_path: Path) -> None:
    import_file(other, GOLDEN)
    other.runs.note_pool("r1", "3fa9c2d155aa0011")
    export_runs(other, ["r0", "r1"], tmp_path / "again.jsonl")
    there = new_store(tmp_path / "there.db")
    import_file(there, tmp_path / "again.jsonl")
    assert {one.setting.pool for one in policies_with_episodes(there)} == {"3fa9c2d155aa0011"}
    there.close()
