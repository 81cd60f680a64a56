"""The store: one opened database with its shelves (runs, episodes, checkpoints, evolution, labels, reviews, views)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from storage.checkpoints import Checkpoints
from storage.engine import connect, normalise
from storage.episodes import Episodes
from storage.evolution import Evolution
from storage.health import read_health
from storage.labels import Labels
from storage.reviews import Reviews
from storage.runs import Runs
from storage.summaries import Health
from storage.views import Views
from storage.watch import Watch


@dataclass(frozen=True)
class Store:
    """An opened store, its `url` without a password. Episodes are written by `storage.recorder.record`,
    files by `storage.interchange`."""

    url: str
    engine: Engine
    now: Callable[[], float]
    runs: Runs
    episodes: Episodes
    checkpoints: Checkpoints
    evolution: Evolution
    labels: Labels
    reviews: Reviews
    views: Views
    watch: Watch

    @property
    def address(self) -> str:
        """The URL with its password: for this user's own processes, never to be shown."""
        return self.engine.url.render_as_string(hide_password=False)

    def health(self) -> Health:
        """Where the store is, its schema, its size and what is running."""
        return read_health(self.engine, self.now())

    def version(self) -> str:
        """A name for what the store holds: equal to an earlier one only if nothing was written in between."""
        return self.watch.version()

    def close(self) -> None:
        """Give the connections back; the store cannot be used afterwards."""
        self.watch.close()
        self.engine.dispose()


def open_store(url: str | Path, now: Callable[[], float] = time.time) -> Store:
    """Open the store at a URL or plain path: created when absent, migrated when old.

    `now` gives Unix seconds. Raises StoreError, one sentence, for an address that is none, a folder that
    cannot be written, a file of another program, or a schema of a newer version.
    """
    address = normalise(str(url))
    engine = connect(address)
    return Store(
        url=address.render_as_string(hide_password=True),
        engine=engine,
        now=now,
        runs=Runs(engine, now),
        episodes=Episodes(engine),
        checkpoints=Checkpoints(engine, now),
        evolution=Evolution(engine),
        labels=Labels(engine, now),
        reviews=Reviews(engine),
        views=Views(engine, now),
        watch=Watch(engine),
    )
