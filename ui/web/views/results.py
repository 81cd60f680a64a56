"""Results: the paper's tables as `trinity reproduce` filled them in, each row with the paper's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.errors import ConfigError
from storage.store import Store
from ui.answers.blocks import Answer
from ui.answers.outcomes import folds
from ui.answers.results import Measured, answers_of, came_with_the_program, needs, played_here
from ui.export.page import analysis_page
from ui.presentation.theme import label, one_line
from ui.runs.paper.tables import SUBJECTS, TABLES, Runs, Table, read_rows, suites
from ui.runs.settings.batch import Suite
from ui.web.analysis.draw import draw, draw_measured
from ui.web.kit import state
from ui.web.kit.widgets import download

#: The tables of recorded models, which are no tables of the paper.
RECORDED, _RECORDED_WORDS = "recorded", "Recorded models: does coordinating pay on real models?"


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Results")
    found = suites(store)
    suite, runs = _choose_suite(found) if found else (None, {})
    chosen = _choose_table()
    table = TABLES.get(chosen, TABLES["all"])
    try:
        measured = _played(store.url, table.id, tuple(runs), store, suite, runs) or came_with_the_program(
            table
        )
    except ConfigError as error:
        st.error(label(str(error), 500), icon=":material/error:")
        measured = Measured(table, why="Nothing of this table can be shown: play it.")
    answers = [] if chosen == RECORDED else answers_of(measured)
    if chosen in (RECORDED, "all"):
        answers += _on_recorded_models()
    for one in answers:
        draw(one, "results")
    draw_measured(answers, "results")
    title = _RECORDED_WORDS if chosen == RECORDED else table.title
    saved = partial(analysis_page, "Results", {}, {title: answers})
    name = f"trinity-results-{chosen}.html"
    download("Save as a web page", saved, name, "text/html", key="results_save", type="tertiary")


def _on_recorded_models() -> list[Answer]:
    try:
        return folds.came_with_the_program()
    except ConfigError as error:
        st.error(label(str(error), 500), icon=":material/error:")
        return []


def _choose_table() -> str:
    """The table of the address, else the first; all of them stand in one list, by subject, with what they answer."""
    words = {
        table: f"{subject} · {TABLES[table].name}: {TABLES[table].question}"
        for subject, tables in SUBJECTS.items()
        for table in tables
    }
    words = {"all": words["all"], RECORDED: _RECORDED_WORDS, **words}
    return state.address_select(
        "Table: what do you want to know?",
        words,
        name="table",
        key="table_choice",
        default="all",
        widget="list",
        help="Open the list and type a word, such as cost, head or budget, to find a table.",
    )


def _choose_suite(found: Sequence[tuple[Suite, Runs]]) -> tuple[Suite, Runs]:
    """The newest, or the one in the address."""
    if len(found) == 1:
        return found[0]
    by_digest = {suite.digest: (suite, runs) for suite, runs in found}
    words = {
        suite.digest: f"{one_line(suite.tasks, 40)}, {suite.budget:,} episodes to learn from, {suite.n} test tasks"
        for suite, _ in found
    }
    return by_digest[state.address_select("Suite", words, name="suite", key="suite_choice")]


@st.cache_resource(max_entries=32, show_spinner="Reading the table …")
def _played(
    url: str, table_id: str, ids: tuple[str, ...], _store: Store, _suite: Suite | None, _runs: Runs
) -> Measured | None:
    """What the store holds of a table, None for nothing. Finished runs never change, so their ids say it all."""
    if _suite is None:
        return None
    table: Table = TABLES[table_id]
    [found] = played_here(_store, _suite, [table], read_rows(_store, _runs, needs(table)))
    return found if found.found or found.counted else None


if __name__ == "__main__":
    state.run(show)
