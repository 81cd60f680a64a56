"""The store: one opened database and its parts, from runs and episodes to the keys of the endpoint; how it is, and
whether it was written to."""

from __future__ import annotations

import secrets
import shlex
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection, and_, func, select
from sqlalchemy import text as sql

from storage.rows.engine import (
    address,
    connect,
    database_url,
    fetch_scalar,
    is_read_only,
    reading,
    schema_revision,
    url_without_password,
)
from storage.rows.schema import checkpoint, episode, run
from storage.rows.summaries import Health, RunStatus
from storage.shelves.attributions import Attributions
from storage.shelves.endpoint import Endpoint
from storage.shelves.episodes import Episodes, Views
from storage.shelves.labels import Labels, Reviews
from storage.shelves.learning import Checkpoints, Learning
from storage.shelves.lease import STALLED_AFTER_S
from storage.shelves.runs import Runs


@dataclass(eq=False)
class Watch:
    """Watches one database. SQLite tells a connection whether others have committed: one is kept for asking."""

    engine: Engine
    _mark: str = field(
        default_factory=lambda: secrets.token_hex(4)
    )  # versions of two watches are never equal
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asking: PoolProxiedConnection | None = None

    def version(self) -> str:
        """Equal to an earlier answer only if nothing was committed in between, by whichever process."""
        if self.engine.dialect.name == "sqlite":
            number = self._sqlite()
        else:
            number = fetch_scalar(self.engine, select(sql("pg_current_snapshot()::text")))
        return f"{self._mark}/{number}"

    def close(self) -> None:
        with self._lock:
            if self._asking is not None:
                self._asking.close()
                self._asking = None

    def _sqlite(self) -> Any:
        with self._lock:
            if self._asking is None:
                self._asking = self.engine.raw_connection()
                self._mark = secrets.token_hex(4)  # another connection counts from elsewhere
            cursor = self._asking.cursor()
            try:
                cursor.execute("PRAGMA data_version")
                row: Any = cursor.fetchone()
                return row[0]
            finally:
                cursor.close()


def sqlite_warning(version: tuple[int, ...]) -> str | None:
    """A word of caution for the SQLite versions with the WAL-reset bug (3.7.0 to 3.51.2, fixed in 3.51.3)."""
    if not (3, 7, 0) <= version <= (3, 51, 2):
        return None
    shown = ".".join(str(part) for part in version)
    return (
        f"SQLite {shown} has a rare bug that can damage a store which several processes write at once; "
        "3.51.3 mends it. Back the store up, and upgrade when your system offers it."
    )


def _size(file: Path) -> int:
    parts = (file, file.with_name(file.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _backup_hint(file: Path | None) -> str:
    if file is None:
        return "Use your database server's backup, such as pg_dump."
    copy = file.with_name(file.stem + "-backup.db")
    return f"sqlite3 {shlex.quote(str(file))} {shlex.quote(f'.backup {shlex.quote(str(copy))}')}"


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
        running = run.c.status == RunStatus.RUNNING
        silent = and_(running, func.coalesce(run.c.heartbeat, run.c.created) < self.now() - STALLED_AFTER_S)
        of_runs = select(func.count(), func.count().filter(running), func.count().filter(silent))
        of_episodes = select(func.count(), func.coalesce(func.sum(episode.c.turns), 0))
        with reading(self.engine) as connection:
            runs, active, stalled = connection.execute(of_runs.select_from(run)).one()
            episodes, turns = connection.execute(of_episodes.select_from(episode)).one()
            checkpoints = connection.execute(select(func.count()).select_from(checkpoint)).scalar_one()
            version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
        url = self.engine.url
        file = Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
        server = f"{url.get_backend_name()} {version}".strip()
        return Health(
            url=self.url,
            schema=schema_revision(self.engine),
            database=f"SQLite {sqlite3.sqlite_version}" if file else server,
            warning=sqlite_warning(sqlite3.sqlite_version_info) if file else None,
            runs=runs,
            running=active,
            stalled=stalled,
            episodes=episodes,
            turns=turns,
            checkpoints=checkpoints,
            size_bytes=_size(file) if file else None,
            free_bytes=shutil.disk_usage(file.parent).free if file else None,
            backup_hint=_backup_hint(file),
        )

    def version(self) -> str:
        """A name for what the store holds: equal to an earlier one only if nothing was written in between."""
        return self.watch.version()

    def close(self) -> None:
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
