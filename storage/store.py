"""The store: one opened database and its parts, from runs and episodes to the keys of the endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from storage.rows.engine import address, connect, database_url, is_read_only, url_without_password
from storage.rows.summaries import Health
from storage.rows.watch import Watch
from storage.shelves.attributions import Attributions
from storage.shelves.checkpoints import Checkpoints
from storage.shelves.endpoint import Endpoint
from storage.shelves.episodes import Episodes
from storage.shelves.health import read_health
from storage.shelves.labels import Labels
from storage.shelves.learning import Learning
from storage.shelves.reviews import Reviews
from storage.shelves.runs import Runs
from storage.shelves.saved_views import Views


@dataclass(frozen=True)
class Store:
    """An opened store, its `url` without a password. Episodes are written by `storage.recorder.record`,
    files by `storage.files.interchange`."""

    url: str
    engine: Engine
    now: Callable[[], float]
    runs: Runs
    episodes: Episodes
    checkpoints: Checkpoints
    learning: Learning
    attributions: Attributions
    labels: Labels
    reviews: Reviews
    views: Views
    endpoint: Endpoint
    watch: Watch

    @property
    def address(self) -> str:
        """The URL with its password: for this user's own processes, never to be shown."""
        return address(self.engine).render_as_string(hide_password=False)

    @property
    def read_only(self) -> bool:
        """Whether it was opened by an address that ends in `?mode=ro`: nothing can be written."""
        return is_read_only(self.engine)

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
    """Open the store at a URL or plain path: created when absent, migrated when old; one whose address ends in
    `?mode=ro` is only read.

    `now` gives Unix seconds. Raises StoreError, one sentence, for an address that is none, a folder that
    cannot be written, a file of another program, or a schema of a newer version.
    """
    engine = connect(database_url(str(url)))
    return Store(
        url=url_without_password(address(engine)),
        engine=engine,
        now=now,
        runs=Runs(engine, now),
        episodes=Episodes(engine),
        checkpoints=Checkpoints(engine, now),
        learning=Learning(engine),
        attributions=Attributions(engine),
        labels=Labels(engine, now),
        reviews=Reviews(engine),
        views=Views(engine, now),
        endpoint=Endpoint(engine, now),
        watch=Watch(engine),
    )
