"""The rows of a published task set, whatever its file is: JSON Lines, a JSON list, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.tasks.sources import Source, csv_rows, json_items, json_lines, parquet_rows
from core.texts import well_formed

#: MMLU's own CSV files have no line of names: six cells, the last of which is a letter.
_WITHOUT_NAMES = ("question", "A", "B", "C", "D", "answer")
#: Characters of an entry; a problem's tests may stand in one.
_MOST_ENTRY = 2**30


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
    source = Source(path, most_entry=_MOST_ENTRY)
    word, rows = _kind(source)
    for number, fields in rows:
        if not isinstance(fields, Mapping):
            source.refuse("is not a JSON object.", number)
        yield Row(fields, f"{word} {number:,} of {source.name}", path)


def _kind(source: Source) -> tuple[str, Iterator[tuple[int, Any]]]:
    """What a row is called, and the rows."""
    with source.bytes() as file:
        if file.read(4) == b"PAR1":
            return "Row", parquet_rows(source)
    with source.text() as text:
        first = text.read(4096).lstrip()[:1]
    if first == "{":
        return "Line", json_lines(source)
    if first == "[":
        return "Entry", json_items(source)
    return "Line", _csv_rows(source) if first else iter(())


def _csv_rows(source: Source) -> Iterator[tuple[int, dict[str, str | None]]]:
    names: tuple[str, ...] = ()
    for number, cells in csv_rows(source):
        if not names:
            if len(cells) != len(_WITHOUT_NAMES) or cells[-1].strip() not in ("A", "B", "C", "D"):
                names = tuple(cell.strip() for cell in cells)
                continue
            names = _WITHOUT_NAMES
        yield number, {name: cell or None for name, cell in zip(names, cells, strict=True)}


#: Makes the line of a task file from a row, without its split. ValueError, half a sentence, for a faulty row.
ReadLine = Callable[[Row], dict[str, Any]]
