"""Export runs or episodes to a `trinity-jsonl` file and import them, all or nothing (see `storage/files/jsonl.py`).

Importing a file twice changes nothing; an id that the store knows with other content is refused.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from sqlalchemy import Connection, insert, update
from sqlalchemy.exc import IntegrityError

from core.checkpoint import Checkpoint
from core.errors import CheckpointError, ImportFormatError
from core.planner.card import PlannerCard, check_archive
from core.texts import check_encoding
from storage.files import validation
from storage.files.atomic import atomic_file
from storage.files.jsonl import (
    FORMAT,
    VERSION,
    Body,
    CheckpointLine,
    EndLine,
    EpisodeLine,
    Head,
    HeaderLine,
    LabelLine,
    Line,
    OptimiserLine,
    RunLine,
    UpdateLine,
    dump_line,
    known_values,
    lines_of_episodes,
    lines_of_labels,
    lines_of_runs,
    parse_line,
    row_of_line,
    runs_of,
    stored_episodes,
    stored_twin,
)
from storage.files.selection import Selection, selected_ids
from storage.rows.engine import reading, writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.schema import checkpoint, label, optimiser, run
from storage.rows.summaries import PLANNER_KINDS, UpdateSummary
from storage.shelves.labels import labelled_places
from storage.shelves.learning import checkpoint_row, insert_checkpoint, insert_update
from storage.store import Store

#: What a file may hold, unpacked: beyond these it is taken for a bomb.
MAX_LINE_BYTES = 64 * 2**20
MAX_BYTES = 4 * 2**30
MAX_RATIO = 200  # unpacked bytes per packed byte; JSON of episodes packs 5 to 40 times

#: Episodes and labels go into the store so many lines, or so many bytes, at a time.
BATCH_LINES, BATCH_BYTES = 500, 16 * 2**20

_NO_HEADER = "is not the header of a trinity-jsonl file"
_CONTRADICTION = "contradicts the store, which holds another {} under the same id"


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


def write_runs(store: Store, run_ids: Sequence[str], path: str | Path) -> Iterator[dict[str, int]]:
    """Write runs with their checkpoints, generations and episodes; gives the lines written by kind, after each line.

    The file appears whole or not at all; a name ending in `.gz` is gzipped. The same store gives the same
    bytes. StoreError for an unknown run or a place that cannot be written.
    """
    with reading(store.engine) as connection:
        yield from _write(Path(path), run_ids, lines_of_runs(connection, run_ids))


def write_episodes(store: Store, selection: Selection, path: str | Path) -> Iterator[dict[str, int]]:
    """Write single episodes with the runs they are of and the checkpoints that played them, but without the rest of
    those runs; gives the lines written by kind, after each line. StoreError for an unknown episode, or none."""
    with reading(store.engine) as connection:
        ids = selected_ids(connection, selection)
        run_ids = runs_of(connection, ids)
        yield from _write(Path(path), run_ids, lines_of_episodes(connection, run_ids, ids))


def _write(path: Path, run_ids: Sequence[str], body: Iterable[Line]) -> Iterator[dict[str, int]]:
    counts: Counter[str] = Counter()
    with atomic_file(path) as draft, _packed(draft, path.suffix == ".gz") as file:
        digest = hashlib.sha256()
        for line in chain([HeaderLine(runs=tuple(run_ids))], body):
            content = dump_line(line)
            digest.update(content)
            file.write(content)
            counts[line.kind] += line.kind != "header"
            yield dict(+counts)
        file.write(dump_line(EndLine(counts=+counts, sha256=digest.hexdigest())))


def import_runs(store: Store, path: str | Path) -> list[ImportReport]:
    """Import a file, or every `.jsonl` and `.jsonl.gz` file of a folder, in the order of their names."""
    return [import_file(store, file) for file in files_to_import(Path(path))]


def files_to_import(path: Path) -> list[Path]:
    """A file, or those of a folder that `import_runs` imports. ImportFormatError for a folder with none."""
    if not path.is_dir():
        return [path]
    files = sorted(found for found in path.iterdir() if found.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise ImportFormatError(f"The folder {path} holds no .jsonl or .jsonl.gz file to import.")
    return files


def import_file(
    store: Store, path: str | Path, opened: Callable[[Path], BinaryIO] = lambda path: path.open("rb")
) -> ImportReport:
    """Import one file in one transaction: all of it or, on any fault, nothing. `opened` is how it is opened.

    ImportFormatError, with the line's number, for a file that is truncated, foreign, of another version,
    damaged, oversized, or at odds with what the store holds under the same id.
    """
    path = Path(path)
    try:
        with opened(path) as raw:
            return import_stream(store, raw, path)
    except OSError as error:
        raise ImportFormatError(f"The file {path} cannot be read: {error.strerror or error}.") from error


def import_stream(store: Store, raw: BinaryIO, path: Path) -> ImportReport:
    """Import an opened, seekable file, such as an upload, in one transaction; `path` is its name in messages.
    ImportFormatError as in `import_file`."""
    try:
        with writing(store.engine) as connection:
            return _Reader(path.name, connection).read(path, _unpacked(raw, path.name))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ImportFormatError(f"{path.name} is truncated or damaged: its gzip stream breaks.") from error


@dataclass
class _Reader:
    """One import under way. Episodes and their labels wait until there are enough for one SQL statement."""

    name: str
    connection: Connection
    number: int = 0
    begun: bool = False  # whether the header has come
    runs: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    episodes: dict[str, tuple[int, EpisodeLine]] = field(default_factory=dict)  # waiting, by id
    labels: list[tuple[int, LabelLine]] = field(default_factory=list)  # waiting
    waiting_bytes: int = 0

    def read(self, path: Path, contents: Iterator[bytes]) -> ImportReport:
        digest, over = hashlib.sha256(), False
        for content in contents:
            self.number += 1
            if not (content := self._mended(content)):
                continue
            if over:
                raise self.fault("comes after the end mark")
            line = self._parsed(content)
            if isinstance(line, EndLine):
                self._flush()
                if line.sha256 != digest.hexdigest() or line.counts != dict(self.counts):
                    raise self.fault("does not match the lines before it: the file was changed")
                over = True
            elif isinstance(line, HeaderLine):
                self.begun, self.runs = True, line.runs
            else:
                self.counts[line.kind] += 1
                self._check(line)
                self._take(line, len(content))
            digest.update(content)
        if not over:
            raise ImportFormatError(
                f"{self.name} is truncated: its end mark is missing after line {self.number}."
            )
        return ImportReport(path, self.runs, dict(+self.added), self.counts.total() - self.added.total())

    def fault(self, what: str, number: int = 0) -> ImportFormatError:
        """An error about a line: `number`, or the current one."""
        return ImportFormatError(f"{self.name}, line {number or self.number}, {what}. Nothing was imported.")

    def _mended(self, content: bytes) -> bytes:
        """A line as it was written, before an editor put a byte order mark before the first one, other ends to all or
        empty lines between them. A fault for another encoding."""
        if self.number == 1:
            try:
                check_encoding(content)
            except UnicodeError as error:
                raise self.fault(f"cannot be read: {error}") from error
            content = content.removeprefix(codecs.BOM_UTF8)
        if content.endswith(b"\r\n"):
            content = content[:-2] + b"\n"
        return content if content.strip() else b""

    def _parsed(self, content: bytes) -> Line:
        if not content.endswith(b"\n"):
            raise self.fault("breaks off: the file is truncated")
        try:
            line = parse_line(content)
        except ValueError as error:
            raise self.fault(str(error) if self.begun else _NO_HEADER) from error
        if self.begun is isinstance(line, HeaderLine):
            raise self.fault("is a second header" if self.begun else _NO_HEADER)
        if isinstance(line, HeaderLine) and (line.format, line.version) != (FORMAT, VERSION):
            raise self.fault(
                f"says {line.format} version {line.version}, and only {FORMAT} version {VERSION} is known"
            )
        return line

    def _check(self, line: Body) -> None:
        try:
            validation.check_line(line)
        except ValueError as error:
            raise self.fault(str(error)) from error
        match line:
            case RunLine() if line.id not in self.runs:
                raise self.fault(f"is run {line.id}, which the header does not name")
            case RunLine() if line.status in ("queued", "running"):
                raise self.fault("is a run that is still running")
            case CheckpointLine():
                if (line.weights is None) is (line.folder is None):
                    raise self.fault("has an unusable value at weights (weights or a folder are allowed)")
                try:
                    made = _id_of(line)
                except CheckpointError as error:
                    raise self.fault(f"holds a checkpoint that cannot be used ({error})") from error
                if made != line.id:
                    raise self.fault(f"calls checkpoint {made} {line.id}")
            case EpisodeLine() if line.episode.run_id not in self.runs:
                raise self.fault("belongs to a run that the header does not name")

    def _take(self, line: Body, size: int) -> None:
        if not isinstance(line, EpisodeLine | LabelLine):
            self._flush()
            self._take_one(line)
            return
        if isinstance(line, LabelLine):
            self.labels.append((self.number, line))
        else:
            if line.episode.id in self.episodes:  # twice in the file: the second is held against the first
                self._flush()
            self.episodes[line.episode.id] = self.number, line
        self.waiting_bytes += size
        if len(self.episodes) + len(self.labels) >= BATCH_LINES or self.waiting_bytes >= BATCH_BYTES:
            self._flush()

    def _take_one(self, line: Head) -> None:
        twin = stored_twin(self.connection, line)
        if twin not in (None, line):
            raise self.fault(_CONTRADICTION.format(line.kind))
        try:
            if twin is None:
                _add(self.connection, line)
                self.added[line.kind] += 1
            elif isinstance(line, CheckpointLine):  # came with what it played, and its own run comes now
                orphan = (checkpoint.c.id == line.id, checkpoint.c.run_id.is_(None))
                self.connection.execute(update(checkpoint).where(*orphan).values(run_id=line.run))
        except IntegrityError as error:
            raise self.fault(validation.UNKNOWN) from error

    def _flush(self) -> None:
        episodes, labels = self.episodes, self.labels
        self.episodes, self.labels, self.waiting_bytes = {}, [], 0
        held = stored_episodes(self.connection, list(episodes))
        new = []
        for id_, (number, line) in episodes.items():
            if id_ not in held:
                new.append((number, line))
            elif held[id_] != line:
                raise self.fault(_CONTRADICTION.format("episode"), number)
        runs = known_values(self.connection, run.c.id, {line.episode.run_id for _, line in new})
        for number, line in new:
            if line.episode.run_id not in runs:
                raise self.fault(validation.UNKNOWN, number)
        insert_episodes(
            self.connection,
            [TimedEpisode(line.episode, line.started, line.finished, line.turn_started) for _, line in new],
        )
        self.added["episode"] += len(new)
        self._add_labels(labels)

    def _add_labels(self, labels: Sequence[tuple[int, LabelLine]]) -> None:
        about = list(dict.fromkeys(line.episode for _, line in labels))
        places = labelled_places(self.connection, about)
        stored = {line for lines in lines_of_labels(self.connection, about).values() for line in lines}
        new = []
        for number, line in labels:
            try:
                validation.check_place(line, places.get(line.episode))
            except ValueError as error:
                raise self.fault(str(error), number) from error
            if line not in stored:
                stored.add(line)
                new.append(line)
        if new:
            self.connection.execute(insert(label), [row_of_line(line) for line in new])
        self.added["label"] += len(new)


def _id_of(line: CheckpointLine) -> str:
    """The id that its content makes. CheckpointError for what is no checkpoint."""
    if line.head_kind not in PLANNER_KINDS:
        return Checkpoint.from_bytes(line.config, line.weights or b"").id
    if line.weights is not None:
        check_archive(line.weights)
    return PlannerCard.of(line.config).id


def _add(connection: Connection, line: Head) -> None:
    match line:
        case RunLine():
            connection.execute(insert(run), row_of_line(line))
        case CheckpointLine():
            fields = line.model_dump(exclude={"kind", "id", "run", "head_kind"})
            row = checkpoint_row(line.id, run_id=line.run, kind=line.head_kind, **fields)
            insert_checkpoint(connection, row)
        case UpdateLine():
            fields = line.model_dump(exclude={"kind", "run", "candidates"})
            insert_update(connection, UpdateSummary(run_id=line.run, **fields), line.candidates)
        case OptimiserLine():
            connection.execute(insert(optimiser), row_of_line(line))


@contextmanager
def _packed(draft: Path, gzipped: bool) -> Iterator[BinaryIO]:
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
