"""A selection's list lines as CSV for spreadsheets: light columns, and no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from storage.drafts import drafted
from storage.engine import reading
from storage.said import LabelColumns, label_columns
from storage.selection import Selection, summaries
from storage.store import Store
from storage.summaries import EpisodeSummary
from ui.theme import plain

COLUMNS = tuple(field.name for field in fields(EpisodeSummary))

#: A spreadsheet takes a cell that begins so for a formula; the wide forms too, in some languages.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def export_csv(store: Store, selection: Selection, path: str | Path) -> int:
    """Write one line per episode, newest first, with a byte order mark so that spreadsheets read UTF-8, and a column
    per name of its labels; returns how many. The file appears whole or not at all; StoreError when it cannot be
    written."""
    with reading(store.engine) as connection:
        said = label_columns(connection, selection, of_turns=False)
    with drafted(Path(path)) as draft, draft.open("w", encoding="utf-8-sig", newline="") as file:
        return _write(summaries(store, selection), said, file)


def _write(episodes: Iterable[EpisodeSummary], said: LabelColumns, file: object) -> int:
    """Write the head line and a line per episode to a text file opened with `newline=""`."""
    sheet = csv.writer(file)  # type: ignore[arg-type]
    sheet.writerow([*COLUMNS, *(cell("label", title) for title in said.titles)])
    total = 0
    for one in episodes:
        row = {name: getattr(one, name) for name in COLUMNS} | said.of(one.id)
        sheet.writerow([cell(name, value) for name, value in row.items()])
        total += 1
    return total


def cell(name: str, value: object) -> object:
    """A value as a cell: times in ISO 8601 (UTC), text with what is hidden in it shown and harmless to a
    spreadsheet, numbers as they are, nothing for None."""
    if name in ("started", "finished"):
        return "" if value is None else datetime.fromtimestamp(float(str(value)), UTC).isoformat()
    if isinstance(value, tuple):
        return harmless(plain(" ".join(str(one) for one in value)))
    return harmless(plain(value)) if isinstance(value, str) else "" if value is None else value


def harmless(text: str) -> str:
    """The text with a quote before it when a spreadsheet would take it for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
