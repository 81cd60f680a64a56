"""Detects writes to the store: a version of its content that changes with every commit."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection, select
from sqlalchemy import text as sql

from storage.rows.engine import fetch_scalar


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
        """Give the connection back."""
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
