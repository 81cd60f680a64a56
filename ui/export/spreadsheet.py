"""A selection's list lines as CSV for spreadsheets: light columns, and no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from storage.files.atomic import atomic_file
from storage.files.parquet import label_columns
from storage.files.selection import Selection, last_count, stream_summaries
from storage.rows.engine import reading
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.presentation.theme import plain

COLUMNS = tuple(field.name for field in fields(EpisodeSummary))

#: A spreadsheet takes a cell that begins so for a formula; the wide forms too, in some languages.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def export_csv(store: Store, selection: Selection, path: str | Path) -> int:
    """Write one line per episode, newest first, with a byte order mark so that spreadsheets read UTF-8, and a column
    per name of its labels; returns how many. The file appears complete or not at all; StoreError when it cannot
    be written."""
    return last_count(write_csv(store, selection, path), 0)


def write_csv(store: Store, selection: Selection, path: str | Path) -> Iterator[int]:
    """`export_csv` step by step: how many lines are written, after each of them."""
    with reading(store.engine) as connection:
        labels = label_columns(connection, selection, of_turns=False)
    with atomic_file(Path(path)) as draft, draft.open("w", encoding="utf-8-sig", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow([*COLUMNS, *(cell("label", title) for title in labels.titles)])
        for total, one in enumerate(stream_summaries(store, selection), start=1):
            row = {name: getattr(one, name) for name in COLUMNS} | labels.of(one.id)
            sheet.writerow([cell(name, value) for name, value in row.items()])
            yield total


def cell(name: str, value: object) -> object:
    """A value as a cell: times in ISO 8601 (UTC), text with hidden characters made visible and harmless to a
    spreadsheet, numbers as they are, nothing for None."""
    if name in ("started", "finished"):
        return "" if value is None else datetime.fromtimestamp(float(str(value)), UTC).isoformat()
    if isinstance(value, tuple):
        return harmless(plain(" ".join(str(one) for one in value)))
    return harmless(plain(value)) if isinstance(value, str) else "" if value is None else value


def harmless(text: str) -> str:
    """The text with a quote before it when a spreadsheet would take it for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
