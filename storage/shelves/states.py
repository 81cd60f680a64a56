"""Hidden states of large encoders, kept in a file of this machine so that no run reads a transcript again that another
has read. Nothing depends on them: what is lost is read again."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    Column,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from core.errors import StoreError
from storage.rows.engine import connect_file, fetch_rows, is_damaged, reading, writing
from storage.rows.full_episodes import chunks

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The most bytes of states that a file keeps; beyond them those that were not used for the longest time are dropped.
#: An evolution of the default size on recorded models reads some 450 MB of them.
MOST_BYTES = 10**9
#: How much is kept before the whole is measured again, and how much is left when something is dropped.
_MEASURED_AFTER, _LEFT = 1 / 64, 7 / 8
#: A state that is used is noted to be so, at most so often: seconds.
_NOTED_S = 3600.0

_tables = MetaData()
_kept = Table(
    "kept_state",
    _tables,
    Column("id", Integer, primary_key=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    Column("used", Float, nullable=False),  # Unix seconds
    Column("size", Integer, nullable=False),  # bytes
    # Of the state: a page that rots on the disk is no error to SQLite.
    Column("crc", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),  # float32, little-endian
    Index(None, "used", "size"),
)


class StateFile:
    """Such a file (a `core.coordinator.encoder.StateLedger`), opened when it is needed; several processes may use one
    at once. A damaged file is put aside and begun again; where the disk is full, nothing more is kept. Either is one
    warning, and no error."""

    def __init__(
        self, path: Path, *, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.path, self._most, self._clock = path, most_bytes, clock
        self._engine: Engine | None = None
        # By this the system tells the file that is open from another of its name.
        self._number: int | None = None
        self._unmeasured = most_bytes  # bytes kept since the whole was measured
        self._recalls = self._keeps = True  # until either fails
        self._told = False

    def recall(self, keys: Sequence[bytes]) -> Mapping[bytes, NDArray[np.float32]]:
        """The states that are kept of these keys."""
        if not (keys and self._recalls and (self._engine or self.path.exists())):
            return {}
        found = self._try(lambda engine: self._read(engine, keys))
        self._recalls = found is not None
        return found or {}

    def keep(self, states: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep these as well, in one transaction; one that is there already stays."""
        if states and self._keeps:
            self._keeps = self._try(lambda engine: self._write(engine, states)) is not None

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk."""
        return sum(file.stat().st_size for file in self._files() if file.exists())

    def remove(self) -> None:
        """Delete it. StoreError where another program holds it fast."""
        self.close()
        try:
            for file in self._files():
                file.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be deleted ({error.strerror}): try again when nothing runs."
            ) from error

    def close(self) -> None:
        """Let go of the file."""
        if self._engine:
            self._engine.dispose()
            self._engine = None

    def _files(self) -> list[Path]:
        return [self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm")]

    def _try(self, act: Callable[[Engine], T]) -> T | None:
        """What it gives; None where the file cannot be used."""
        try:
            try:
                return act(self._open())
            except StoreError as error:
                if not is_damaged(error) and not isinstance(error, _Rotten):
                    raise
                self._put_aside(error)
                return act(self._open())
        except (StoreError, OSError) as error:
            if not self._told:
                log.warning(
                    "From here on, what the encoder reads is not kept for later runs (%s): %s",
                    self.path,
                    error,
                )
            self._told = True
            return None

    def _open(self) -> Engine:
        if self._engine is None:
            self._number = self._number_now()
            self._engine = connect_file(self.path, _tables)
            self._number = self._number_now()
        return self._engine

    def _number_now(self) -> int | None:
        return self.path.stat().st_ino if self.path.exists() else None

    def _put_aside(self, error: StoreError) -> None:
        """Move a damaged file away, unless another process was faster."""
        self.close()
        if self._number != self._number_now():
            return
        aside = self.path.with_name(f"{self.path.stem}-damaged{self.path.suffix}")
        self.path.replace(aside)
        for file in self._files():
            file.unlink(missing_ok=True)
        log.warning(
            "The states that the encoder had read are in a damaged file (%s). It is put aside as %s, and they are read "
            "again.",
            error.__cause__ and str(getattr(error.__cause__, "orig", "")) or error,
            aside,
        )

    def _read(self, engine: Engine, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        query = select(_kept.c.key, _kept.c.used, _kept.c.crc, _kept.c.state)
        with reading(engine) as connection:
            rows = [
                row
                for chunk in chunks(keys)
                for row in connection.execute(query.where(_kept.c.key.in_(chunk)))
            ]
        found, now = {}, self._clock()
        for row in rows:
            if zlib.crc32(row.state) != row.crc or len(row.state) % 4:
                raise _Rotten("a state in it is not what was written")
            found[bytes(row.key)] = np.frombuffer(row.state, "<f4").astype(np.float32)
        if old := [row.key for row in rows if now - row.used > _NOTED_S]:
            with writing(engine) as connection:
                for chunk in chunks(old):
                    connection.execute(update(_kept).where(_kept.c.key.in_(chunk)).values(used=now))
        return found

    def _write(self, engine: Engine, states: Mapping[bytes, NDArray[np.float32]]) -> int:
        now = self._clock()
        bodies = {key: np.asarray(state, "<f4").tobytes() for key, state in states.items()}
        rows = [
            {"key": key, "used": now, "size": len(body), "crc": zlib.crc32(body), "state": body}
            for key, body in bodies.items()
        ]
        with writing(engine) as connection:
            connection.execute(insert(_kept).on_conflict_do_nothing(), rows)
        self._unmeasured += sum(map(len, bodies.values()))
        if self._unmeasured >= self._most * _MEASURED_AFTER:
            self._unmeasured = 0
            self._drop_oldest(engine)
        return len(rows)

    def _drop_oldest(self, engine: Engine) -> None:
        total = fetch_rows(engine, select(func.coalesce(func.sum(_kept.c.size), 0)))[0][0]
        if total <= self._most:
            return
        cut = 0.0
        for used, size in fetch_rows(engine, select(_kept.c.used, _kept.c.size).order_by(_kept.c.used)):
            if total <= self._most * _LEFT:
                break
            cut, total = used, total - size
        with writing(engine) as connection:
            connection.execute(delete(_kept).where(_kept.c.used <= cut))


class _Rotten(StoreError):
    """A value that is not what was written."""
