"""Interchange files to import, good and edited, and a store to export."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.checkpoint import Checkpoint
from storage.files.interchange import write_episodes, write_runs
from storage.files.selection import Selection, last_count
from storage.recorder import record
from storage.rows.summaries import CandidateSummary
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, tasks
from tests.builders.stores import kept_generation

_DATA = Path(__file__).parents[1] / "storage" / "data"
GOLDEN = _DATA / "golden.jsonl"
#: With forks, a swapped coordinator and a missing episode.
GOLDEN_FORKS = _DATA / "golden_forks.jsonl"


def fill(store: Store) -> Checkpoint:
    """An evolution run with a checkpoint, and a run played with it and another policy."""
    one = checkpoint(MODELS, parent_run="r0")
    store.runs.create("r0", "evolve", {"population": 2, "note": "naïve ☃"})
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes(), run_id="r0", generation=0)
    entry = kept_generation("r0", 0, 0.5, 0.375, 0.375, 0.1, 8, 1.5, one.id, {"entropy": 0.7})
    store.learning.add(
        entry,
        candidates=[CandidateSummary(0, 0.5, 4), CandidateSummary(1, None, 4, 4)],
        state=b"\x00state\xff",
    )
    store.runs.finish("r0")
    store.runs.create("r1", "run", {"seed": 0})
    for first, policy in ((0, one.id), (3, "hash")):
        for _ in record(store, events(births("r1", tasks(3), policy, first=first), HashPolicy(policy))):
            pass
    store.runs.finish("r1")
    return one


def contents(store: Store) -> dict[str, Any]:
    """Everything a reader can see."""
    runs = store.runs.list()
    episodes = [one for run in runs for one in store.episodes.of_run(run.id)]
    return {
        "runs": {run.id: (run.kind, run.status, run.config, run.created, run.finished) for run in runs},
        "episodes": {
            one.id: (one, store.episodes.get(one.id), store.episodes.outline(one.id)) for one in episodes
        },
        "checkpoints": {one.id: (one, store.checkpoints.weights(one.id)) for one in store.checkpoints.list()},
        "generations": [(store.learning.updates(run.id), store.learning.state(run.id)) for run in runs],
        "candidates": store.learning.candidates("r0", 0),
    }


def edited(change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """The golden file with changed lines and an end mark that fits them."""
    lines = change(GOLDEN.read_bytes().splitlines(keepends=True)[:-1])
    counts: dict[str, int] = {}
    for line in lines[1:]:
        kind = line.split(b'"')[3].decode() if line.startswith(b'{"kind":') else "?"
        counts[kind] = counts.get(kind, 0) + 1
    end = {"kind": "end", "counts": counts, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return b"".join(lines) + json.dumps(end).encode() + b"\n"


def swap(old: bytes, new: bytes, line: int = -1) -> bytes:
    """The golden file with `old` once replaced in one line."""

    def change(lines: list[bytes]) -> list[bytes]:
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)
        return lines

    return edited(change)


def export_runs(store: Store, run_ids: Sequence[str], path: Path) -> dict[str, int]:
    """Write a file of these runs; the lines written by kind."""
    return last_count(write_runs(store, run_ids, path), {})


def export_episodes(store: Store, selection: Selection, path: Path) -> dict[str, int]:
    """Write a file of single episodes; the lines written by kind."""
    return last_count(write_episodes(store, selection, path), {})
