"""How the store is: where, which schema, how large, what is running or stalled, how to back it up."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from pathlib import Path

from sqlalchemy import Engine, and_, func, select

from storage.rows.engine import address, reading, schema_revision, url_without_password
from storage.rows.schema import checkpoint, episode, run
from storage.rows.summaries import Health, RunStatus
from storage.shelves.runs import STALLED_AFTER_S


def read_health(engine: Engine, now: float) -> Health:
    """The store's health at time `now` (Unix seconds)."""
    running = run.c.status == RunStatus.RUNNING
    silent = and_(running, func.coalesce(run.c.heartbeat, run.c.created) < now - STALLED_AFTER_S)
    of_runs = select(func.count(), func.count().filter(running), func.count().filter(silent))
    of_episodes = select(func.count(), func.coalesce(func.sum(episode.c.turns), 0))
    with reading(engine) as connection:
        runs, active, stalled = connection.execute(of_runs.select_from(run)).one()
        episodes, turns = connection.execute(of_episodes.select_from(episode)).one()
        checkpoints = connection.execute(select(func.count()).select_from(checkpoint)).scalar_one()
        version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
    file = Path(engine.url.database) if engine.dialect.name == "sqlite" and engine.url.database else None
    return Health(
        url=url_without_password(address(engine)),
        schema=schema_revision(engine),
        database=f"SQLite {sqlite3.sqlite_version}" if file else f"{engine.dialect.name} {version}".strip(),
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
    """Bytes of the database with its write-ahead log."""
    parts = (file, file.with_name(file.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _backup_hint(file: Path | None) -> str:
    if file is None:
        return "Use your database server's backup, such as pg_dump."
    copy = file.with_name(file.stem + "-backup.db")
    return f"sqlite3 {shlex.quote(str(file))} {shlex.quote(f'.backup {shlex.quote(str(copy))}')}"
