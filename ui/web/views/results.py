"""Results: the paper's tables as `trinity reproduce` filled them in, each row with the paper's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from core.analysis.metrics import FEWEST_SEEDS
from core.episode import Protocol
from core.errors import ConfigError
from storage.store import Store
from ui.presentation.theme import (
    CLASS_COLOURS,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    SECOND_COLOUR,
    label,
    layout,
    one_line,
    percent,
)
from ui.presentation.words import distinct
from ui.runs.paper.results import Differences, Results, file_of, on_fewer_seeds, seeds_words, shipped
from ui.runs.paper.tables import (
    COUNTED,
    DEFAULT_BUDGETS,
    SUBJECTS,
    TABLES,
    Cells,
    PlayedRow,
    RowResult,
    Runs,
    Table,
    cells,
    needed,
    outcomes,
    stored,
    suites,
)
from ui.runs.settings.batch import Suite
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.kit.figures import error_bars, literal, ticks
from ui.web.kit.widgets import nothing_here

_ROW_PX = 34


def show() -> None:
    store = state.store()
    st.title("Results")
    st.caption(
        "The paper's tables, played on a pool of one's own. The paper's own numbers stand beside them: they are of "
        "seven large models, so compare how rows relate to each other, never how good they are."
    )
    found = suites(store)
    suite, runs = _choose_suite(found) if found else (None, {})
    table = TABLES[_choose_table()]
    st.subheader(table.title)
    if table.measure in COUNTED and (counted := cells(store, table, _played(store, table, runs))):
        _counted(table, counted, "Here")
    elif played := _outcomes(store.url, table.id, tuple(runs), store, runs):
        _measured(table, played, "Here", Differences.of([(table, played)]), "this table")
        _look_into(played)
    else:
        _came_with_the_program(table)
        _play_it(store, table)
    if suite is not None:
        _about(suite, table)


def _choose_table() -> str:
    """The table of the address, else the first; all of them stand in one list, by subject, with what they answer."""
    words = {
        table: f"{subject} · {TABLES[table].name}: {TABLES[table].question}"
        for subject, tables in SUBJECTS.items()
        for table in tables
    }
    return state.address_select(
        "Table: what do you want to know?",
        words,
        name="table",
        key="table_choice",
        default="all",
        widget="list",
        help="Open the list and type a word, such as cost, head or budget, to find a table.",
    )


def _came_with_the_program(table: Table) -> None:
    """The rows of a table that were measured elsewhere, marked as such, where the store has none of it."""
    try:
        results = shipped(file_of(table))
    except ConfigError as error:
        st.error(label(str(error), 500), icon=":material/error:")
        return
    found = results.outcomes(table) if results and table.measure not in COUNTED else []
    counted = results.cells.get(table.id, {}) if results else {}
    if results is None or not (found or counted):
        nothing_here("No row of this table is stored, and none came with the program.")
        return
    st.info(
        f"Shipped with the program, measured on {label(results.measured, 20)}, not on this machine.",
        icon=":material/inventory_2:",
    )
    if counted:
        _counted(table, counted, "Shipped with the program")
    else:
        differences = _shipped_differences(file_of(table))
        _measured(
            table, found, "Shipped with the program", differences, "the tables that came with the program"
        )
    _conditions(results, table)


def _conditions(results: Results, table: Table) -> None:
    known = results.conditions
    tasks = {one.n for one in results.rows if one.n and one.row in {row.key for row in table.rows}}
    parts = [
        (known.budget, "{:,} episodes that every learner might play" + _more(table)),
        (tasks.pop() if len(tasks) == 1 else None, f"{{}} {_split(table)} tasks for each seed"),
        (known.turns, "turn budget {}"),
        (known.pool, "pool: {}"),
        (known.tasks, "tasks: {}"),
        (None if known.protocol is Protocol.PAPER else known.protocol, "protocol: {}"),
        (results.program, "version {}"),
    ]
    conditions = "; ".join(words.format(value) for value, words in parts if value is not None)
    with st.expander(
        "How this was measured, and what to keep in mind", icon=":material/info:", expanded=True
    ):
        st.markdown("\n".join(f"- {label(one, 1000)}" for one in (conditions, *results.notes) if one))


def _play_it(store: Store, table: Table) -> None:
    with st.container(border=True):
        st.markdown("**Measure it on this machine**, from a terminal:")
        st.code(f"trinity reproduce {table.id} --seeds 0,1,2", language=None)
        st.caption(
            "Table 4 of the pocket world takes some hours on two cores. With `--budget 3000 --seeds 0` it is a "
            "quick look. The rows then stand here in the place of those that came with the program."
        )
        if not store.runs.list(limit=1):
            return
        st.markdown("What is recorded already tells something, without waiting:")
        with st.container(horizontal=True, gap="medium"):
            state.page_link("checkpoints", "Compare the recorded coordinators", icon=":material/balance:")
            words = "What a solved problem cost"
            state.page_link("verifier", words, icon=":material/fact_check:", part="cost")


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


@st.cache_data(max_entries=32, show_spinner="Reading the table …")
def _outcomes(url: str, table_id: str, ids: tuple[str, ...], _store: Store, _runs: Runs) -> list[RowResult]:
    """Finished runs never change, so their ids say it all."""
    table = TABLES[table_id]
    return [] if table.measure in COUNTED else outcomes(table, _played(_store, table, _runs))


def _played(store: Store, table: Table, runs: Runs) -> Mapping[str, Sequence[PlayedRow]]:
    return stored(store, runs, {row.key for row in needed([table])})


@st.cache_data(show_spinner="Allowing for all differences …")
def _shipped_differences(name: str) -> Differences | None:
    """Those of all tables of a file that came with the program."""
    results = shipped(name)
    measured = [one for one in TABLES.values() if one.measure not in COUNTED and file_of(one) == name]
    return None if results is None else Differences.of((one, results.outcomes(one)) for one in measured)


def _measured(
    table: Table,
    found: Sequence[RowResult],
    where: str,
    differences: Differences | None,
    among: str,
) -> None:
    """The rows as figures beside the paper's, and as a table; which of the `differences` hold `among` all."""
    in_paper = any(table.row(one.row).published in table.published.rows for one in found)
    here, paper = st.columns([3, 2], gap="large") if in_paper else (st.container(), None)
    unit = (
        "mean output tokens per question"
        if table.measure == "tokens"
        else f"share of {_split(table)} tasks solved"
    )
    with here:
        st.markdown(f"**{where}**: {unit}, 95 % interval over seeds and tasks")
        alt = "; ".join(f"{one.label} {_shown(table, one.value.mean)}" for one in found)
        plot(here_figure(table, found), key="here", small=True, alt=alt)
    if paper is not None:
        with paper:
            name = table.published.name
            st.markdown(f"**The paper** ({name}): {', '.join(table.published.columns)}")
            plot(paper_figure(table, found), key="paper", small=True, alt=f"The paper's {name}")
    frame = table_frame(table, found, differences)
    st.dataframe(frame, hide_index=True, width="stretch", height="content")
    told = on_fewer_seeds(table, found)
    if differences is not None and differences.column in frame:
        told.append(differences.words(among))
    if told:
        st.caption(" ".join(told))
    if table.note:
        st.caption(table.note)
    learners = [one for one in found if mean_curve(one)]
    if table.curves and learners:
        st.markdown(
            "**Accuracy against episodes**: share of validation tasks solved after so many episodes, those for labels "
            "counted; the mean over seeds, and the seeds from lowest to highest"
        )
        plot(
            curves_figure(learners),
            key="curves",
            alt="; ".join(f"{one.label} ends at {percent(mean_curve(one)[-1][1])}" for one in learners),
        )


def _split(table: Table) -> str:
    """Settings are chosen on validation tasks; all else is measured on test tasks."""
    return "validation" if all(row.on == "validation" for row in table.rows) else "test"


def _more(table: Table) -> str:
    """What is said of a coordinator that had more than the others."""
    more = any(row.how == "evolved:default" for row in table.rows)
    return (
        f" ({DEFAULT_BUDGETS} times as many for the coordinator of trinity evolve as it is)" if more else ""
    )


def here_figure(table: Table, found: Sequence[RowResult]) -> go.Figure:
    """Each row's mean with its interval, and its seeds as small marks; first row on top."""
    shown = list(found)[::-1]
    seeds = [(value, place) for place, one in enumerate(shown) for value in one.by_seed.values()]
    reference = table.reference.key if table.reference else ""
    means = go.Scatter(
        x=[one.value.mean for one in shown],
        y=list(range(len(shown))),
        mode="markers+text",
        cliponaxis=False,  # on a phone the words above a mark near 0 are wider than what is left of it
        marker={
            "size": 11,
            "color": [FIRST_COLOUR if one.row == reference else NEUTRAL_COLOUR for one in shown],
        },
        text=[_shown(table, one.value.mean) for one in shown],
        textposition="top center",
        textfont={"size": 11},
        error_x=error_bars(
            [one.value.mean for one in shown],
            [(one.value.low, one.value.high) for one in shown],
            NEUTRAL_COLOUR,
            thickness=1.5,
            width=5,
        ),
        hovertext=[
            f"{literal(one.label, 60)}: {_shown(table, one.value.mean)}, 95 % interval "
            f"{_interval(table, one)}"
            for one in shown
        ],
        hoverinfo="text",
    )
    by_seed = go.Scatter(
        x=[value for value, _ in seeds],
        y=[place - 0.22 for _, place in seeds],
        mode="markers",
        marker={"size": 5, "symbol": "line-ns-open", "color": NEUTRAL_COLOUR},
        hoverinfo="skip",
    )
    axis = {"rangemode": "tozero"} if table.measure == "tokens" else {"range": [0, 1.02], "tickformat": ".0%"}
    names = [literal(one.label, 44) for one in shown]
    return go.Figure([means, by_seed], _layout(names, axis, showlegend=False))


def mean_curve(one: RowResult) -> list[tuple[int, float, float, float]]:
    """(episodes, mean, lowest, highest) over the seeds, at the points that all seeds have."""
    by_seed = [dict(curve) for curve in (one.curves or {}).values()]
    shared = sorted(set.intersection(*(set(curve) for curve in by_seed))) if by_seed else []
    values = [(at, [curve[at] for curve in by_seed]) for at in shared]
    return [(at, sum(found) / len(found), min(found), max(found)) for at, found in values]


def curves_figure(learners: Sequence[RowResult]) -> go.Figure:
    """Each learner's mean over its seeds as a line, with a band from the lowest to the highest."""
    traces = []
    for one, colour in zip(learners, cycle(CLASS_COLOURS), strict=False):
        at, mean, low, high = (list(column) for column in zip(*mean_curve(one), strict=True))
        name = literal(one.label, 40)
        band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        traces += [
            go.Scatter(x=at, y=high, legendgroup=name, **band),
            go.Scatter(x=at, y=low, legendgroup=name, fill="tonexty", fillcolor=faded(colour), **band),
            go.Scatter(
                x=at,
                y=mean,
                mode="lines+markers",
                name=name,
                legendgroup=name,
                line={"color": colour, "width": 2},
                hovertemplate="%{x:,} episodes: %{y:.1%}<extra>" + name + "</extra>",
            ),
        ]
    axes = {"xaxis": {"title": {"text": "episodes"}, "rangemode": "tozero"}}
    return go.Figure(
        traces,
        layout(
            380,
            **axes,
            yaxis={"tickformat": ".0%", "rangemode": "tozero"},
            legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0},
        ),
    )


def faded(colour: str) -> str:
    """A colour given as #rrggbb, nearly transparent."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _layout(names: Sequence[str], axis: Mapping[str, object], **more: object) -> dict[str, Any]:
    """A chart with a row for each name, the last on top, whose numbers stand on `axis`. Both charts have the same
    margins, with room for a legend, so that a row stands at one height in both."""
    return layout(
        80 + _ROW_PX * len(names),
        margin={"l": 8, "r": 8, "t": 44, "b": 36},
        xaxis={**axis, "zeroline": False},
        yaxis={"automargin": True, "range": [-0.6, len(names) - 0.2], **ticks(names)},
        **more,
    )


def paper_figure(table: Table, found: Sequence[RowResult]) -> go.Figure:
    """The paper's numbers of the same rows, one letter-marked dot per benchmark, its average solid."""
    shown, published = list(found)[::-1], table.published
    missing = [math.nan] * len(published.columns)
    symbols = cycle(["circle-open", "square-open", "diamond-open", "triangle-up-open"])
    traces = []
    for column, (name, symbol) in enumerate(zip(published.columns, symbols, strict=False)):
        marker = {"size": 8, "symbol": symbol, "color": NEUTRAL_COLOUR}
        if name == "average":
            marker = {"size": 11, "symbol": "circle", "color": SECOND_COLOUR}
        # Plotly draws no mark where a number is missing.
        values = [published.rows.get(table.row(one.row).published, missing)[column] for one in shown]
        traces.append(
            go.Scatter(
                x=values,
                y=list(range(len(shown))),
                mode="markers",
                name=name,
                marker=marker,
                hovertemplate=f"{name} %{{x}}<extra></extra>",
            )
        )
    names = [literal(table.row(one.row).published or "not in the paper", 30) for one in shown]
    return go.Figure(traces, _layout(names, {"rangemode": "tozero"}))


def _shown(table: Table, value: float) -> str:
    return f"{value:,.0f}" if table.measure == "tokens" else percent(value)


def _interval(table: Table, one: RowResult) -> str:
    found = one.value
    if found.has_interval:
        return f"{_shown(table, found.low)} to {_shown(table, found.high)}"
    return f"needs {FEWEST_SEEDS} seeds" if 0 < len(one.by_seed) < FEWEST_SEEDS else "not known"


def _signed(table: Table, value: float) -> str:
    return f"{value:+,.0f}" if table.measure == "tokens" else f"{100 * value:+.1f}"


def table_frame(
    table: Table, found: Sequence[RowResult], differences: Differences | None = None
) -> pd.DataFrame:
    """The table as text: ours with its interval, the difference to its reference and whether it holds among all
    `differences`, families, seeds, the paper's."""
    among = "" if differences is None or len(differences.ps) < 2 else differences.column
    rows = []
    for one in found:
        less = paper = ""
        if (against := table.difference(one)) is not None:
            less = _signed(table, against.mean)
            if against.has_interval:
                less += f" ({_signed(table, against.low)} to {_signed(table, against.high)})"
            if few := seeds_words(table, one, found):
                less += f", {few}"
        name = table.row(one.row).published
        published = table.published.rows.get(name, ())
        if values := [f"{value:g}" for value in published if not math.isnan(value)]:
            paper = f"{name}: {' / '.join(values)}"
        rows.append(
            {
                "row": one_line(one.label, 80),
                "measured": _shown(table, one.value.mean),
                "95 % interval": _interval(table, one),
                table.compared: less,
                **({among: differences.mark(table, one)} if differences is not None and among else {}),
                **{family: _shown(table, value) for family, value in one.by_family.items()},
                "seeds": ", ".join(_shown(table, value) for value in one.by_seed.values()),
                "paper": paper,
            }
        )
    frame = pd.DataFrame(rows)
    droppable = [name for name in (table.compared, among, "seeds", "paper") if name in frame]
    empty = [name for name in droppable if not frame[name].any()]
    return frame.drop(columns=empty)


def _look_into(found: Sequence[RowResult]) -> None:
    """The turns behind a row: its episodes and its evolution, seed by seed."""
    behind = [one for one in found if one.kept]
    if not behind:
        return
    st.markdown("**Look into a row**")
    words = distinct({str(index): one.label for index, one in enumerate(behind)})
    place = st.selectbox(
        "Row",
        range(len(behind)),
        format_func=lambda index: words[str(index)],
        key="row",
        label_visibility="collapsed",
    )
    with st.container(horizontal=True, gap="medium"):
        for run in behind[place].kept:
            seed = f"Seed {run.seed}: its episodes"
            state.page_link("episodes", seed, icon=":material/table_rows:", run=run.run_id)
            if run.evolution:
                seed = f"Seed {run.seed}: its evolution"
                state.page_link("evolution", seed, icon=":material/timeline:", run=run.evolution)


def _counted(table: Table, counted: Cells, where: str) -> None:
    """A counted table beside the paper's."""
    here, paper = st.columns(2, gap="large")
    with here:
        st.markdown(f"**{where}**" + (": share of turns by model, all seeds" if _is_shares(table) else ""))
        st.dataframe(_cells_frame(table, counted), width="stretch")
    with paper:
        slots = ", its pool's slots A0 to A6" if _is_shares(table) else ""
        st.markdown(f"**The paper** ({table.published.name}){slots}")
        scale = 100 if _is_shares(table) else 1
        published: Cells = {
            name: dict(zip(table.published.columns, (value / scale for value in values), strict=True))
            for name, values in table.published.rows.items()
        }
        st.dataframe(_cells_frame(table, published), width="stretch")
    if table.note:
        st.caption(table.note)


def _is_shares(table: Table) -> bool:
    return table.measure == "selection"


def _cells_frame(table: Table, cells: Cells) -> pd.DataFrame:
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    shown = percent if _is_shares(table) else "{:,.0f}".format
    return pd.DataFrame(
        {one_line(name, 40): [shown(row.get(name, 0.0)) for row in cells.values()] for name in names},
        index=pd.Index(
            [one_line(name, 40) for name in cells], name="family" if table.measure != "parameters" else "head"
        ),
    )


def _about(suite: Suite, table: Table) -> None:
    apart = ", that nothing was evolved, validated or chosen on" if _split(table) == "test" else ""
    with st.expander("How this was measured", icon=":material/info:"):
        st.markdown(
            f"- Every learner may play **{suite.budget:,} episodes**{_more(table)} (the paper's budget is 30,720); the "
            "generation "
            "that does best on validation tasks is measured, sampling, as the paper does.\n"
            f"- **{suite.n} {_split(table)} tasks**, the same for every row{apart}; turn budget "
            f"{suite.turns}.\n"
            "- Intervals allow for the chance of tasks and of seeds (Student's t). The small marks show each seed.\n"
            f"- Pool: {label(suite.pool)}. Encoder: {label(suite.encoder)}. Tasks: {label(suite.tasks)}."
        )
        st.code(f"trinity reproduce {table.id} --budget {suite.budget} --n {suite.n}", language=None)


if __name__ == "__main__":
    state.run(show)
