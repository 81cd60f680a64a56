"""The formats of an export: what each holds, its name, how much of it a browser can take, and its files for people.

JSON Lines and Parquet are written by `storage.files`; here are the pages, as a zip with a list that leads to them, and
the sheet: light columns, and no cell that a spreadsheet would run.
"""

from __future__ import annotations

import csv
import pkgutil
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from core.errors import StoreError
from storage.files.atomic import atomic_file
from storage.files.parquet import label_columns
from storage.files.selection import (
    Selection,
    count_characters,
    count_episodes,
    last_count,
    selected_ids,
    stream_summaries,
)
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter, as_expression
from storage.rows.engine import reading
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.presentation.theme import plain

#: Beyond this many characters of text a download would fill the server's and the browser's memory.
MOST_CHARACTERS = 100_000_000
#: More pages than this in one zip are refused: nobody opens them, and JSON Lines holds more in less room.
MOST_PAGES = 1000
#: The columns of a sheet; those of labels follow.
COLUMNS = tuple(field.name for field in fields(EpisodeSummary))
#: A spreadsheet takes a cell that begins so for a formula; the wide forms too, in some languages.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Format:
    """One way to export: `most` episodes at a time in a browser; `texts` says whether it holds the texts."""

    words: str
    suffix: str
    mime: str
    holds: str
    most: int
    texts: bool
    writer: str  # `module:function`, imported on first use: some are slow to import. It writes step by step.

    def too_much(self, store: Store, selection: Selection) -> str:
        """Why a browser cannot take this, as half a sentence; empty when it can."""
        found = count_episodes(store, selection, self.most)
        if found.capped:
            return f"more than {self.most:,} episodes"
        if self.texts and (long := count_characters(store, selection)) > MOST_CHARACTERS:
            return f"{long / 1e6:,.0f} million characters of text, and the most is {MOST_CHARACTERS // 10**6}"
        return ""

    def write(self, store: Store, selection: Selection, path: Path) -> None:
        """Write the file; StoreError when it cannot be written."""
        last_count(pkgutil.resolve_name(self.writer)(store, selection, path), None)

    def deferred(self, store: Store, selection: Selection) -> Callable[[], BytesIO]:
        """A function that makes the file when the browser asks for it."""

        def make() -> BytesIO:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"export{self.suffix}"
                self.write(store, selection, path)
                return BytesIO(path.read_bytes())

        return make


FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "JSON Lines",
        ".jsonl.gz",
        "application/gzip",
        "Everything about each episode: question, every decision with its logits and hidden state, every text, "
        "with the checkpoints that played. The one format that can be imported again, here or by a colleague. Its "
        "turns (`index`, `fork_turn`) count from 0, for programs; everywhere else turns count from 1.",
        2_000,
        True,
        "storage.files.interchange:write_episodes",
    ),
    "csv": Format(
        "CSV",
        ".csv",
        "text/csv",
        "One line per episode with the columns of the list, for a spreadsheet, and a column for each name under which "
        "whole episodes are labelled (`label_quality`; where people disagree: `good | bad`). Questions and answers "
        "are cut, hidden characters are made visible, and a text that a spreadsheet would run as a formula has a quote "
        "before it.",
        100_000,
        False,
        "ui.export.formats:write_csv",
    ),
    "parquet": Format(
        "Parquet",
        ".parquet.zip",
        "application/zip",
        "Four typed tables in one zip, for pandas, DuckDB or R. `episodes`: a row each, with whole question and "
        "answers, models, seed, outcome, totals, times. `turns`: choice, logits and probabilities as lists, reply, "
        "reasoning, verdict, answer, tokens, cost, time. Both have a column `label_NAME` for each name of a label. "
        "`labels`: a row per label that counts, each author's for itself, as agreement measures want it. `opinions`: "
        "the logits of each checkpoint that read a turn again. Join them on `episode_id` and `turn`.",
        10_000,
        True,
        "ui.export.formats:write_tables",
    ),
    "html": Format(
        "HTML",
        ".html.zip",
        "application/zip",
        "A page per episode and a list that leads to them, in one zip. They open from disk in any browser with no "
        "network, and print.",
        200,
        True,
        "ui.export.formats:write_pages",
    ),
}


def command(where: EpisodeFilter, form: str) -> str:
    """The command that exports the same from a terminal, quoted for a shell. ExpressionError for an unreadable `q`."""
    if where == WHOLE_STORE:
        where = EpisodeFilter()  # which --all means
    own = {name: value for name in ("run", "policy", "flag") if (value := getattr(where, name)) is not None}
    rest = as_expression(where.without(*own))
    options = [f"--{name} {shlex.quote(value)}" for name, value in own.items()]
    options += [f"--where {shlex.quote(rest)}"] if rest else []
    return " ".join(["trinity export", *(options or ["--all"]), "--format", form])


def write_page(page: str, path: Path) -> None:
    """Write a page; StoreError when the place cannot be written."""
    with atomic_file(path) as draft:
        draft.write_text(page, encoding="utf-8")


def write_pages(store: Store, selection: Selection, path: str | Path) -> Iterator[int]:
    """Write a zip with `index.html` and a page per episode, one episode in memory at a time: how many are written,
    after each of them. The same store gives the same bytes."""
    from ui.export.page import episode_page, index_page, read_played

    if count_episodes(store, selection, MOST_PAGES).capped:
        raise StoreError(
            f"These are more than {MOST_PAGES:,} pages: narrow the selection, or use JSON Lines."
        )
    with reading(store.engine) as connection:
        selected_ids(connection, selection)
    listed = list(stream_summaries(store, selection))
    with atomic_file(Path(path)) as draft, zipfile.ZipFile(draft, "w") as pages:
        words = f"{len(listed):,} {'episode' if len(listed) == 1 else 'episodes'}"
        pages.writestr(_entry("index.html"), index_page(listed, words))
        for total, one in enumerate(listed, start=1):
            pages.writestr(_entry(f"{one.id}.html"), episode_page(read_played(store, one.id)))
            yield total


def write_tables(store: Store, selection: Selection, path: str | Path) -> Iterator[str]:
    """Write a zip with a Parquet file for each kind of row: which is written, after each of them."""
    from storage.files.parquet import ROW_KINDS, export_parquet

    with atomic_file(Path(path)) as draft, zipfile.ZipFile(draft, "w") as tables:
        for name in ROW_KINDS:
            with tempfile.TemporaryDirectory() as folder:
                table = Path(folder) / f"{name}.parquet"
                export_parquet(store, selection, table, name)
                entry = _entry(table.name, zipfile.ZIP_STORED)
                with table.open("rb") as source, tables.open(entry, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target)
            yield name


def _entry(name: str, packing: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # no clock in it
    entry.external_attr, entry.compress_type = 0o644 << 16, packing
    return entry


def write_csv(store: Store, selection: Selection, path: str | Path) -> Iterator[int]:
    """Write one line per episode, newest first, with a byte order mark so that spreadsheets read UTF-8, and a column
    per name of its labels: how many are written, after each of them. The file appears complete or not at all."""
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
    """A value as a cell: times in ISO 8601 (UTC), text with hidden characters made visible and, with a quote before it,
    harmless to a spreadsheet, numbers as they are, nothing for None."""
    if value is None:
        return ""
    if name in ("started", "finished"):
        return datetime.fromtimestamp(float(str(value)), UTC).isoformat()
    if isinstance(value, tuple):
        value = " ".join(str(one) for one in value)
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
