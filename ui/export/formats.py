"""The formats an export can have: what each holds, how it is called and how much a browser may take of it."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from storage.filters import EpisodeFilter
from storage.selection import Selection, characters, count
from storage.store import Store

#: Beyond this many characters of text a download would fill the server's and the browser's memory.
MOST_CHARACTERS = 100_000_000

#: Fields of a filter whose option on the command line is called otherwise.
OPTIONS = {"end_reason": "end", "q": "where"}

Write = Callable[[Store, Selection, Path], object]


@dataclass(frozen=True, slots=True)
class Format:
    """One way to export: `most` episodes at a time in a browser; `texts` says whether it holds the texts."""

    words: str
    suffix: str
    mime: str
    holds: str
    most: int
    texts: bool
    write: Write

    def too_much(self, store: Store, selection: Selection) -> str:
        """Why a browser cannot take this, as half a sentence; empty when it can."""
        found = count(store, selection, self.most)
        if found.capped:
            return f"more than {self.most:,} episodes"
        if self.texts and (long := characters(store, selection)) > MOST_CHARACTERS:
            return f"{long / 1e6:,.0f} million characters of text, and the most is {MOST_CHARACTERS // 10**6}"
        return ""

    def made(self, store: Store, selection: Selection) -> Callable[[], BytesIO]:
        """What makes the file when it is asked for."""

        def make() -> BytesIO:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"export{self.suffix}"
                self.write(store, selection, path)
                return BytesIO(path.read_bytes())

        return make


def _jsonl(store: Store, selection: Selection, path: Path) -> object:
    from storage.interchange import export_episodes

    return export_episodes(store, selection, path)


def _csv(store: Store, selection: Selection, path: Path) -> object:
    from ui.export.sheet import export_csv

    return export_csv(store, selection, path)


def _episodes(store: Store, selection: Selection, path: Path) -> object:
    from storage.columns import export_parquet

    return export_parquet(store, selection, path, "episodes")


def _turns(store: Store, selection: Selection, path: Path) -> object:
    from storage.columns import export_parquet

    return export_parquet(store, selection, path, "turns")


def _labels(store: Store, selection: Selection, path: Path) -> object:
    from storage.columns import export_parquet

    return export_parquet(store, selection, path, "labels")


def _opinions(store: Store, selection: Selection, path: Path) -> object:
    from storage.columns import export_parquet

    return export_parquet(store, selection, path, "opinions")


def _pages(store: Store, selection: Selection, path: Path) -> object:
    from ui.export.bundle import export_pages

    return export_pages(store, selection, path)


FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "JSON Lines",
        ".jsonl.gz",
        "application/gzip",
        "Everything about each episode: question, every decision with its logits and hidden state, every text, "
        "with the checkpoints that played. The one format that can be imported again, here or by a colleague.",
        2_000,
        True,
        _jsonl,
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
        _csv,
    ),
    "parquet": Format(
        "Parquet, episodes",
        ".parquet",
        "application/vnd.apache.parquet",
        "One typed row per episode, for pandas, DuckDB or R: whole question and answers, models, seed, outcome, "
        "totals, times, and a column `label_NAME` for each name under which whole episodes are labelled.",
        100_000,
        False,
        _episodes,
    ),
    "turns": Format(
        "Parquet, turns",
        ".turns.parquet",
        "application/vnd.apache.parquet",
        "One typed row per turn: choice, logits and probabilities as lists, reply, reasoning, verdict, answer, "
        "tokens, cost, time, and a column `label_NAME` for each name under which turns, or words of them, are "
        "labelled.",
        10_000,
        True,
        _turns,
    ),
    "labels": Format(
        "Labels",
        ".labels.parquet",
        "application/vnd.apache.parquet",
        "Parquet, one typed row per label that counts: episode, turn and words it is about, name, value, note, author, "
        "time. Join it on `episode_id` and `turn`; each author has a row of their own, as agreement measures want it.",
        100_000,
        False,
        _labels,
    ),
    "opinions": Format(
        "Second opinions",
        ".opinions.parquet",
        "application/vnd.apache.parquet",
        "Parquet, one typed row per turn and checkpoint that read it again: that checkpoint's logits of models and "
        "roles, and whether it read exactly what the turn's own coordinator did. Join it on `episode_id` and `turn`.",
        100_000,
        False,
        _opinions,
    ),
    "html": Format(
        "Web pages",
        ".zip",
        "application/zip",
        "A page per episode and a list that leads to them, in one zip. They open from disk in any browser with no "
        "network, and print.",
        200,
        True,
        _pages,
    ),
}


def command(where: EpisodeFilter, form: str) -> str:
    """What to type to export the same from a terminal, quoted for a shell."""
    said = [
        f"--{OPTIONS.get(name, name).replace('_', '-')} {shlex.quote(value)}"
        for name, value in where.to_query().items()
    ]
    kind = "parquet" if form == "turns" else form
    return " ".join(["trinity export", *(said or ["--all"]), "--format", kind])
