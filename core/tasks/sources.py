"""Files and members of archives as streams: JSON lists, JSON Lines, CSV, Parquet. What is larger than an import may be
is refused in one sentence, as is what cannot be read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO, cast

from core.errors import TaskError
from core.texts import check_encoding

#: The most that one file may hold, unpacked, and one of its entries; as `storage.files.interchange` has them.
MOST_BYTES, MOST_ENTRY = 4 * 2**30, 64 * 2**20
_CHUNK = 2**20
#: Rows of a Parquet file that are held at a time: a problem's tests are many megabytes.
_ROWS = 64


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or a member of a zip archive; `most_entry` is the most that one of its entries may hold, in bytes."""

    path: Path
    member: str = ""
    most_entry: int = MOST_ENTRY

    @property
    def name(self) -> str:
        """Its own name, as it is told."""
        return self.member.rpartition("/")[2] or self.path.name

    @property
    def stem(self) -> str:
        """Its name without what says how it is written."""
        name = self.name.removesuffix(".gz")
        return name.rpartition(".")[0] or name

    def refuse(self, why: str, entry: int | None = None) -> NoReturn:
        """TaskError about it, or about an entry of it, counted from 1."""
        where = self.name if entry is None else f"Entry {entry:,} of {self.name}"
        raise TaskError(f"{where} {why}")

    @contextmanager
    def bytes(self) -> Iterator[BinaryIO]:
        """Its bytes, unpacked. TaskError where they cannot be read."""
        try:
            with open(self.path, "rb") as file:
                if self.member:
                    with zipfile.ZipFile(file) as archive, archive.open(self.member) as inside:
                        yield cast(BinaryIO, inside)
                elif file.peek(2).startswith(b"\x1f\x8b"):
                    with gzip.GzipFile(fileobj=file) as inside:
                        yield cast(BinaryIO, inside)
                else:
                    yield file
        except FileNotFoundError:
            raise TaskError(f"There is no file {self.path}: give its path.") from None
        except (
            OSError,
            EOFError,
            zlib.error,
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
        ) as error:
            self.refuse(f"cannot be read ({getattr(error, 'strerror', None) or error}): fetch it again.")

    @contextmanager
    def text(self, newline: str | None = None) -> Iterator[TextIO]:
        """Its text, which has to be UTF-8. TaskError where it is not."""
        with self.bytes() as file:
            capped = io.BufferedReader(_Capped(file, self), _CHUNK)
            try:
                check_encoding(capped.peek(4)[:4])
                yield io.TextIOWrapper(capped, "utf-8-sig", newline=newline)
            except UnicodeDecodeError:
                self.refuse("is not UTF-8 text: save it as UTF-8.")
            except UnicodeError as error:
                self.refuse(f"cannot be read: {error}.")


class _Capped(io.RawIOBase):
    """Bytes of a source up to the most that are allowed."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self._file, self._source, self._left = file, source, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._file.read(len(buffer))
        self._left -= len(found)
        if self._left < 0:
            self._source.refuse(f"holds more than {MOST_BYTES // 2**30} GiB: add a part of it.")
        buffer[: len(found)] = found
        return len(found)


def json_items(source: Source) -> Iterator[tuple[int, Any]]:
    """What a JSON list holds, one after the other, each with its number from 1. TaskError for what is no such list."""
    decoder = json.JSONDecoder()
    with source.text() as file:
        text, at, over, number = file.read(_CHUNK).lstrip(), 1, False, 1
        if not text.startswith("["):
            source.refuse("is no JSON list.")
        while True:
            at = _past(text, at, " \t\r\n" if number == 1 else " \t\r\n,")
            found, end = None, at
            if at < len(text) and text[at] == "]":
                return
            try:
                if at < len(text):
                    found, end = decoder.raw_decode(text, at)
            except RecursionError:
                source.refuse("is nested too deeply.", number)
            except ValueError:
                end = at
            if end == at or (end == len(text) and not over):  # more of it may follow
                if over:
                    source.refuse("is not JSON, or the file is cut off: fetch it again.", number)
                if len(text) - at > source.most_entry:
                    source.refuse(f"is larger than {source.most_entry // 2**20} MiB.", number)
                more = file.read(max(_CHUNK, len(text) - at))
                text, at, over = text[at:] + more, 0, not more
                continue
            yield number, found
            number, at = number + 1, end


def _past(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


def json_lines(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of JSON Lines, each with the number of its line. TaskError that names the first bad line."""
    with source.text() as file:
        number = 0
        while line := file.readline(source.most_entry + 1):
            number += 1
            if len(line) > source.most_entry:
                most = source.most_entry // 2**20
                raise TaskError(f"Line {number:,} of {source.name} is longer than {most} MiB: shorten it.")
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                raise TaskError(f"Line {number:,} of {source.name} is no JSON object: write one a line.")
            yield number, found


def json_object(source: Source) -> Any:
    """The one value of a file of JSON; None where it is none."""
    with source.text() as file:
        text = file.read(source.most_entry + 1)
    try:
        return json.loads(text) if len(text) <= source.most_entry else None
    except (ValueError, RecursionError):
        return None


def csv_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows of a CSV, each with the number of the line that it ends on. The delimiter is the one of
    , ; and tab that the header has most of; a formula is the text that it is written as. TaskError for a row with more
    or fewer cells than the header, and for a quote that is not closed."""
    delimiter, width = delimiter_of(source), 0
    csv.field_size_limit(source.most_entry)
    with source.text(newline="") as file:
        read = csv.reader(_lines(file, source.most_entry), delimiter=delimiter, strict=True)
        try:
            for cells in read:
                if not any(cell.strip() for cell in cells):
                    continue
                if width and len(cells) != width:
                    raise TaskError(
                        f"Line {read.line_num:,} of {source.name} has {len(cells)} cells where its header has {width}: "
                        f"a text that holds the delimiter ({delimiter!r}) has to stand in quotes."
                    )
                width = width or len(cells)
                yield read.line_num, cells
        except csv.Error as error:
            raise TaskError(f"Line {read.line_num:,} of {source.name} is no CSV: {error}.") from None


def _lines(file: TextIO, most: int) -> Iterator[str]:
    while line := file.readline(most):
        yield line


def delimiter_of(source: Source) -> str:
    """The delimiter of a CSV, by its first line; what stands in quotes there is text."""
    with source.text(newline="") as file:
        first = re.sub(r'"(?:[^"]|"")*(?:"|$)', "", file.readline(_CHUNK))
    return max(",;\t", key=first.count)


def parquet_rows(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a Parquet file, each with its number from 1, without the columns in which it has nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(source.path) as file:
            if (
                sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
                > MOST_BYTES
            ):
                source.refuse(f"holds more than {MOST_BYTES // 2**30} GiB: add a part of it.")
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: value for name, value in row.items() if value is not None}
    except (OSError, pa.ArrowException) as error:
        source.refuse(f"cannot be read as Parquet ({str(error).splitlines()[0][:120]}).")


def sources_of(paths: list[Path]) -> tuple[list[Source], set[Path]]:
    """What files, folders and archives hold, in the order of their names, and which of the files came out of a folder,
    where others may lie beside them. An archive that is a log of Inspect stays whole. TaskError for a path that is not
    there and for an archive that cannot be read."""
    files: list[tuple[Path, bool]] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
            files += [(one, True) for one in inside]
        elif path.exists():
            files.append((path, False))
        else:
            raise TaskError(f"There is no file {path}: give the path of a file, a folder or a zip archive.")
    found: list[Source] = []
    for path, _ in files:
        if path.suffix == ".eval" or not zipfile.is_zipfile(path):
            found.append(Source(path))
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                members = [one.filename for one in archive.infolist() if not one.is_dir()]
        except (OSError, zipfile.BadZipFile) as error:
            raise TaskError(f"{path.name} cannot be read ({error}): fetch it again.") from None
        found += [Source(path, one) for one in members if "__MACOSX" not in one]
    return found, {path for path, from_folder in files if from_folder}
