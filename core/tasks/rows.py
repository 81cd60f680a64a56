"""The rows of a file, whatever it is: JSON Lines, a JSON list, CSV or Parquet, each also compressed by gzip."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from core.errors import TaskError
from core.texts import check_encoding, well_formed

#: MMLU's own CSV files have no line of names: six cells, the last of which is a letter.
_WITHOUT_NAMES = ("question", "A", "B", "C", "D", "answer")
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
#: Characters of a cell; a problem's tests may stand in one.
_LONGEST_CELL = 1 << 30
#: Rows of a Parquet file that are held at a time.
_ROWS = 64


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file: its fields by name, None for those without a value; its place, for people; and its file."""

    fields: Mapping[str, Any]
    where: str
    file: Path

    def has(self, name: str) -> bool:
        """Whether there is a value, which NaN, by which tables say that there is none, is not."""
        value = self.fields.get(name)
        return value is not None and value == value

    def text(self, *names: str) -> str:
        """What stands in the first of these fields that the row has: a text that is not empty, or a number as one.
        ValueError, half a sentence, where there is none."""
        name = next((one for one in names if self.has(one)), None)
        if name is None:
            raise ValueError(f"has no '{names[0]}'")
        value = self.fields[name]
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(int(value)) if float(value).is_integer() else repr(value)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"needs a text for '{name}'")
        return well_formed(value.strip())


def rows_of(path: Path) -> Generator[Row]:
    """The rows of a file one after the other, of which few are held. TaskError, one sentence with the row's place, for
    what cannot be read; no rows for an empty file."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            file.seek(0)
            if begin == _PARQUET:
                yield from _parquet_rows(path)
            elif begin.startswith(_GZIP):
                with gzip.open(file) as inside:
                    yield from _text_rows(path, inside)
            else:
                yield from _text_rows(path, file)
    except FileNotFoundError:
        raise TaskError(f"There is no file {path}: give its path.") from None
    except UnicodeError as error:
        why = "it is not UTF-8 text: save it as UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise TaskError(f"The file {path} cannot be read: {why}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(
            f"The file {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None


def _text_rows(path: Path, content: io.BufferedReader | gzip.GzipFile) -> Iterator[Row]:
    begin = content.read(4096)
    content.seek(0)
    check_encoding(begin)
    first = begin.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    with io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
        if first == b"{":
            yield from _numbered(path, "Line", _json_lines(path, text))
        elif first == b"[":
            yield from _numbered(path, "Entry", enumerate(_json_list(path, text), start=1))
        elif first:
            yield from _numbered(path, "Row", _csv_rows(path, text))


def _numbered(path: Path, word: str, rows: Iterator[tuple[int, Any]]) -> Iterator[Row]:
    for number, fields in rows:
        where = f"{word} {number:,} of {path.name}"
        if not isinstance(fields, dict):
            raise TaskError(f"{where} is not a JSON object.")
        yield Row(fields, where, path)


def _json_lines(path: Path, text: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                raise TaskError(
                    f"Line {number:,} of {path.name} is not valid JSON: give the file as it was published."
                ) from None


def _json_list(path: Path, text: IO[str]) -> list[Any]:
    try:
        found = json.load(text)
    except UnicodeError:
        raise
    except (ValueError, RecursionError):
        raise TaskError(f"The file {path.name} is not valid JSON: give it as it was published.") from None
    return list(found)


def _csv_rows(path: Path, text: IO[str]) -> Iterator[tuple[int, Any]]:
    """Rows numbered as a table shows them: that of the names is the first."""
    csv.field_size_limit(_LONGEST_CELL)
    names: tuple[str, ...] = ()
    try:
        for number, cells in enumerate(csv.reader(text, strict=True), start=1):
            if not names and len(cells) == len(_WITHOUT_NAMES) and cells[-1].strip() in ("A", "B", "C", "D"):
                names = _WITHOUT_NAMES
            elif not names:
                names = tuple(cell.strip() for cell in cells)
                continue
            if any(cells):
                if len(cells) != len(names):
                    raise TaskError(
                        f"Row {number:,} of {path.name} has {len(cells)} cells and its first row {len(names)}: "
                        "give the file as it was published."
                    )
                yield number, {name: cell or None for name, cell in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise TaskError(f"The file {path.name} is not the CSV that it seems to be: {error}.") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(fields, f"Row {number:,} of {path.name}", path)
    except pyarrow.ArrowException as error:
        raise TaskError(f"The Parquet file {path} cannot be read: {str(error).splitlines()[0]}.") from None


#: Makes the line of a task file from a row, without its split. ValueError, half a sentence, for a faulty row.
ReadLine = Callable[[Row], dict[str, Any]]
