"""Export runs or episodes to a `trinity-jsonl` file and import them, all or nothing (see `storage/lines.py`).

Importing a file twice changes nothing; an id that the store knows with other content is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from sqlalchemy import Connection, insert, update
from sqlalchemy.exc import IntegrityError

from core.checkpoint import Checkpoint
from core.episode import Status
from core.errors import CheckpointError, ImportFormatError
from storage import evolution
from storage.checkpoints import checkpoint_row, keep
from storage.drafts import drafted
from storage.engine import reading, writing
from storage.labels import insert_line
from storage.lines import (
    FORMAT,
    ID,
    VERSION,
    VERSIONS,
    Body,
    CheckpointLine,
    EndLine,
    EpisodeLine,
    GenerationLine,
    HeaderLine,
    LabelLine,
    Line,
    OptimiserLine,
    RunLine,
    dump,
    parse,
)
from storage.outgoing import lines_of, lines_of_some, runs_of, stored_twin
from storage.schema import checkpoint, optimiser, run
from storage.selection import Selection, ids_of
from storage.store import Store
from storage.summaries import GenerationSummary
from storage.whole import insert_episode

#: What a file may hold, unpacked: beyond these it is taken for a bomb.
MAX_LINE_BYTES = 64 * 2**20
MAX_BYTES = 4 * 2**30
MAX_RATIO = 200  # unpacked bytes per packed byte; JSON of episodes packs 5 to 40 times


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import added, by kind of line, and how many lines the store already had."""

    file: Path
    runs: tuple[str, ...]
    added: dict[str, int]
    unchanged: int

    def __str__(self) -> str:
        new = ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in self.added.items() if n)
        return f"{self.file.name}: {new or 'nothing new'}, {self.unchanged} already there"


def export_runs(store: Store, run_ids: Sequence[str], path: str | Path) -> dict[str, int]:
    """Write runs with their checkpoints, generations and episodes; returns the lines written by kind.

    The file appears whole or not at all; a name ending in `.gz` is gzipped. The same store gives the same
    bytes. StoreError for an unknown run or a place that cannot be written.
    """
    with reading(store.engine) as connection:
        return _write(Path(path), run_ids, lines_of(connection, run_ids))


def export_episodes(store: Store, selection: Selection, path: str | Path) -> dict[str, int]:
    """The same for single episodes: with the runs they are of and the checkpoints that played them, but
    without the rest of those runs. StoreError also for an unknown episode, or none."""
    with reading(store.engine) as connection:
        ids = ids_of(connection, selection)
        run_ids = runs_of(connection, ids)
        return _write(Path(path), run_ids, lines_of_some(connection, run_ids, ids))


def _write(path: Path, run_ids: Sequence[str], body: Iterable[Line]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    with drafted(path) as draft, _packed(draft, path.suffix == ".gz") as file:
        digest = hashlib.sha256()
        for line in chain([HeaderLine(runs=tuple(run_ids))], body):
            content = dump(line)
            digest.update(content)
            file.write(content)
            counts[line.kind] += 1
        counts.pop("header")
        file.write(dump(EndLine(counts=counts, sha256=digest.hexdigest())))
    return dict(counts)


def import_runs(store: Store, path: str | Path) -> list[ImportReport]:
    """Import a file, or every `.jsonl` and `.jsonl.gz` file of a folder, in the order of their names."""
    path = Path(path)
    if not path.is_dir():
        return [import_file(store, path)]
    files = sorted(found for found in path.iterdir() if found.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise ImportFormatError(f"The folder {path} holds no .jsonl or .jsonl.gz file to import.")
    return [import_file(store, file) for file in files]


def import_file(store: Store, path: str | Path) -> ImportReport:
    """Import one file in one transaction: all of it or, on any fault, nothing.

    ImportFormatError, with the line's number, for a file that is truncated, foreign, of another version,
    damaged, oversized, or at odds with what the store holds under the same id.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            return import_stream(store, raw, path)
    except OSError as error:
        raise ImportFormatError(f"The file {path} cannot be read: {error.strerror or error}.") from error


def import_stream(store: Store, raw: BinaryIO, path: Path) -> ImportReport:
    """The same for an opened file that can be sought in, such as an upload; `path` is what it is called."""
    try:
        with writing(store.engine) as connection:
            return _Reader(path.name, connection).read(path, _unpacked(raw, path.name))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ImportFormatError(f"{path.name} is truncated or damaged: its gzip stream breaks.") from error


@dataclass
class _Reader:
    """One import under way."""

    name: str
    connection: Connection
    number: int = 0
    runs: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)

    def read(self, path: Path, contents: Iterator[bytes]) -> ImportReport:
        """Everything, or an ImportFormatError."""
        digest, over = hashlib.sha256(), False
        for content in contents:
            self.number += 1
            if over:
                raise self.fault("comes after the end mark")
            line = self._parsed(content)
            if isinstance(line, EndLine):
                if line.sha256 != digest.hexdigest() or line.counts != dict(self.counts):
                    raise self.fault("does not match the lines before it: the file was changed")
                over = True
            elif isinstance(line, HeaderLine):
                self.runs = line.runs
            else:
                self.counts[line.kind] += 1
                self._take(line)
            digest.update(content)
        if not over:
            raise ImportFormatError(
                f"{self.name} is truncated: its end mark is missing after line {self.number}."
            )
        return ImportReport(path, self.runs, dict(self.added), self.counts.total() - self.added.total())

    def fault(self, what: str) -> ImportFormatError:
        """An error about the current line."""
        return ImportFormatError(f"{self.name}, line {self.number}, {what}. Nothing was imported.")

    def _parsed(self, content: bytes) -> Line:
        if not content.endswith(b"\n"):
            raise self.fault("breaks off: the file is truncated")
        try:
            line = parse(content)
        except ValueError as error:
            what = "is not the header of a trinity-jsonl file" if self.number == 1 else str(error)
            raise self.fault(what) from error
        if (self.number == 1) is not isinstance(line, HeaderLine):
            raise self.fault(
                "is not the header of a trinity-jsonl file" if self.number == 1 else "is a second header"
            )
        if isinstance(line, HeaderLine) and (line.format != FORMAT or line.version not in VERSIONS):
            raise self.fault(
                f"says {line.format} version {line.version}, and only {FORMAT} up to version {VERSION} is known"
            )
        return line

    def _take(self, line: Body) -> None:
        """Add the line, unless the store has its twin."""
        self._check(line)
        twin = stored_twin(self.connection, line)
        if twin not in (None, line):
            raise self.fault(f"contradicts the store, which holds another {line.kind} under the same id")
        try:
            if twin is None:
                _add(self.connection, line)
                self.added[line.kind] += 1
            elif isinstance(line, CheckpointLine):  # came with what it played, and its own run comes now
                orphan = (checkpoint.c.id == line.id, checkpoint.c.run_id.is_(None))
                self.connection.execute(update(checkpoint).where(*orphan).values(run_id=line.run))
        except IntegrityError as error:
            raise self.fault("refers to something that is neither in the file nor in the store") from error

    def _check(self, line: Body) -> None:
        """What a single value's type cannot say."""
        match line:
            case RunLine() if line.id not in self.runs:
                raise self.fault(f"is run {line.id}, which the header does not name")
            case RunLine() if line.status in ("queued", "running"):
                raise self.fault("is a run that is still running")
            case CheckpointLine():
                try:
                    made = Checkpoint.from_bytes(line.config, line.weights)
                except CheckpointError as error:
                    raise self.fault(f"holds a checkpoint that cannot be used ({error})") from error
                if made.id != line.id:
                    raise self.fault(f"calls checkpoint {made.id} {line.id}")
            case EpisodeLine():
                whole = line.episode
                if not re.fullmatch(ID, whole.id):
                    raise self.fault("is an episode whose id is no name that a link can hold")
                if whole.run_id not in self.runs:
                    raise self.fault(f"belongs to run {whole.run_id}, which the header does not name")
                if whole.status is Status.RUNNING:
                    raise self.fault("is an episode that is still running")
                if [(turn.episode_id, turn.index) for turn in whole.turns] != [
                    (whole.id, index) for index in range(len(line.turn_started))
                ]:
                    raise self.fault("has turns that are not numbered through")


def _add(connection: Connection, line: Body) -> None:
    match line:
        case RunLine():
            row = line.model_dump(exclude={"run_kind", "config"})
            row["kind"], row["config"] = line.run_kind, json.dumps(line.config)
            connection.execute(insert(run), row)
        case CheckpointLine():
            keep(
                connection,
                checkpoint_row(
                    line.id,
                    line.config,
                    line.weights,
                    run_id=line.run,
                    generation=line.generation,
                    kind=line.head_kind,
                    created=line.created,
                ),
            )
        case GenerationLine():
            fields = {name: getattr(line, name) for name in GenerationLine.model_fields}
            entry = GenerationSummary(
                run_id=line.run,
                **{k: v for k, v in fields.items() if k not in ("kind", "run", "candidates")},
            )
            evolution.write(connection, entry, line.candidates)
        case OptimiserLine():
            row = {"run_id": line.run, "generation": line.generation, "state": line.state}
            connection.execute(insert(optimiser), row)
        case LabelLine():
            insert_line(connection, line)
        case EpisodeLine():
            insert_episode(connection, line.episode, line.started, line.finished, line.turn_started)


@contextmanager
def _packed(draft: Path, gzipped: bool) -> Iterator[BinaryIO]:
    """The draft, gzipped on its way when so named."""
    with draft.open("wb") as raw:
        if gzipped:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                yield cast("BinaryIO", file)
        else:
            yield raw


def _unpacked(raw: BinaryIO, name: str) -> Iterator[bytes]:
    """The file's lines, unpacked as they are read; ImportFormatError for more than a file may hold."""
    gzipped = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    file = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if gzipped else raw
    total = 0
    while content := file.readline(MAX_LINE_BYTES + 1):
        total += len(content)
        if len(content) > MAX_LINE_BYTES or total > MAX_BYTES:
            raise ImportFormatError(
                f"{name} is too large: a line or the whole is beyond what an export writes."
            )
        if gzipped and total > MAX_LINE_BYTES and total > MAX_RATIO * raw.tell():
            raise ImportFormatError(
                f"{name} unpacks to far more than an export would: it was not made by trinity."
            )
        yield content
