"""Stores that are there at once: the first of a kind is made, the others of a test run are copies of its file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import update

from core.episode import Episode
from storage.rows.engine import writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.schema import run
from storage.rows.summaries import RunKind, UpdateSummary
from storage.store import Store, open_store
from tests.zygote import FOLDER

#: A digest of the models that answered, as a run of the product has one.
POOL = "3fa9c2d155"


def new_store(path: Path | str, now: Callable[[], float] = time.time) -> Store:
    """A store that holds nothing, opened; `now` gives Unix seconds."""
    empty_store(path)
    return open_store(path, now=now)


def begin_run(
    store: Store, run_id: str, kind: RunKind, config: Mapping[str, Any], name: str | None = None
) -> None:
    """A run whose models are recorded, like every one that the product plays."""
    store.runs.create(run_id, kind, config, name=name)
    store.runs.note_pool(run_id, POOL)


def mark_samples(store: Store, *run_ids: str) -> None:
    """Make these runs ones that came with the program."""
    with writing(store.engine) as connection:
        connection.execute(update(run).where(run.c.id.in_(run_ids)).values(purpose="sample"))


def empty_store(path: Path | str) -> None:
    """The file of a store that holds nothing."""
    _put(_file(_nothing), path)


def filled_store(path: Path | str, fill: Callable[[Store, int], None], n: int = 0) -> Store:
    """A store of its own that `fill` filled, given `n`, opened."""
    _put(_file(fill, n), path)
    return open_store(path)


def copy_store(source: Path | str, target: Path | str) -> None:
    """Write all that one store's file holds to another, even while either is open."""
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


def _nothing(store: Store, n: int) -> None:
    pass


@cache
def _file(fill: Callable[[Store, int], None], n: int = 0) -> bytes:
    """The file of a store that was filled and closed, which the processes of a test run share."""
    with TemporaryDirectory(dir=os.environ.get(FOLDER)) as folder:
        path = Path(folder) / "trinity.db"
        kept = Path(folder).with_name(f"{fill.__module__}.{fill.__qualname__}.{n}.db")
        if FOLDER in os.environ and kept.exists():
            return kept.read_bytes()
        store = open_store(path)
        fill(store, n)
        store.close()
        made = path.read_bytes()
        if FOLDER in os.environ:
            path.rename(kept)  # at once whole, whoever else makes it meanwhile
        return made


def _put(file: bytes, path: Path | str) -> None:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file)


def kept_generation(
    run: str,
    index: int,
    best: float,
    mean: float,
    median: float,
    sigma: float,
    episodes: int,
    wall_s: float,
    checkpoint_id: str | None = None,
    stats: Mapping[str, Any] | None = None,
) -> UpdateSummary:
    """A generation of an evolution with this fitness, as the store keeps it."""
    fitness = {"best": best, "mean": mean, "median": median, "sigma": sigma}
    kept = {**fitness, **(stats or {})}
    return UpdateSummary(run, index, episodes, wall_s, checkpoint_id=checkpoint_id, stats=kept)


def record_finished_run(
    store: Store,
    run_id: str,
    kind: RunKind,
    config: Mapping[str, Any],
    episodes: Sequence[Episode],
    pool: str = POOL,
) -> None:
    """Store a run that is over, with its finished episodes, all at once."""
    at = store.now()
    begin_run(store, run_id, kind, config)
    store.runs.note_pool(run_id, pool)
    with writing(store.engine) as connection:
        insert_episodes(connection, [TimedEpisode(one, at, at, [at] * len(one.turns)) for one in episodes])
    store.runs.finish(run_id)
