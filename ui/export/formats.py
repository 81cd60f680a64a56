"""The formats an export can have: what each holds, its name and how much of it a browser can take."""

from __future__ import annotations

import pkgutil
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from storage.files.selection import Selection, count_characters, count_episodes
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter, as_expression
from storage.store import Store

#: Beyond this many characters of text a download would fill the server's and the browser's memory.
MOST_CHARACTERS = 100_000_000


@dataclass(frozen=True, slots=True)
class Format:
    """One way to export: `most` episodes at a time in a browser; `texts` says whether it holds the texts."""

    words: str
    suffix: str
    mime: str
    holds: str
    most: int
    texts: bool
    writer: str  # `module:function`, imported on first use: some are slow to import

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
        pkgutil.resolve_name(self.writer)(store, selection, path)

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
        "storage.files.interchange:export_episodes",
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
        "ui.export.spreadsheet:export_csv",
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
        "ui.export.bundle:export_tables",
    ),
    "html": Format(
        "HTML",
        ".html.zip",
        "application/zip",
        "A page per episode and a list that leads to them, in one zip. They open from disk in any browser with no "
        "network, and print.",
        200,
        True,
        "ui.export.bundle:export_pages",
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
