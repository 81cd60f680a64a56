"""Results: the paper's tables as they were played here, or came with the program, beside the paper's own numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from core.analysis.metrics import FEWEST_SEEDS, Mean
from core.episode import Protocol
from storage.store import Store
from ui.answers.blocks import (
    Address,
    Answer,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    Curve,
    Estimate,
    Estimates,
    Grid,
    Line,
    Mark,
    Point,
    Series,
    Table,
    Way,
)
from ui.presentation.comparison import difference_words
from ui.presentation.theme import one_line, percent
from ui.presentation.words import share_words
from ui.runs.paper.results import Differences, Results, file_of, on_fewer_seeds, seeds_words, shipped
from ui.runs.paper.tables import (
    COUNTED,
    DEFAULT_BUDGETS,
    TABLES,
    Cells,
    PlayedRow,
    RowResult,
    StoredRow,
    cells,
    needed,
    outcomes,
)
from ui.runs.paper.tables import Table as PaperTable
from ui.runs.settings.batch import Suite


@dataclass(frozen=True, eq=False)
class Measured:
    """A table with what was measured of it, by a suite or elsewhere (`shipped`); `differences` are those that are
    allowed for together, `among` where they stand. `why`: why there is nothing."""

    table: PaperTable
    found: Sequence[RowResult] = ()
    counted: Cells = field(default_factory=dict)
    differences: Differences | None = None
    among: str = "this table"
    suite: Suite | None = None
    shipped: Results | None = None
    why: str = ""

    @property
    def is_tokens(self) -> bool:
        """Whether tokens are counted, of which fewer are better, and not tasks."""
        return self.table.measure == "tokens"

    @property
    def reference(self) -> RowResult | None:
        """The row that the others are put against."""
        return next((one for one in self.found if one.row == getattr(self.table.reference, "key", "")), None)


def played_here(
    store: Store, suite: Suite, tables: Sequence[PaperTable], played: Mapping[str, Sequence[PlayedRow]]
) -> list[Measured]:
    """What a store holds of these tables for a suite."""
    found = {one.id: outcomes(one, played) for one in tables if one.measure not in COUNTED}
    differences = Differences.of((one, found[one.id]) for one in tables if one.id in found)
    among = "this table" if len(tables) == 1 else "these tables"
    why = "The store holds nothing of this table for this suite: leave --show out to play it."
    return [
        Measured(
            one,
            found.get(one.id, ()),
            cells(store, one, played) if one.measure in COUNTED else {},
            differences,
            among,
            suite,
            why=why,
        )
        for one in tables
    ]


def came_with_the_program(table: PaperTable) -> Measured:
    """What was measured of a table elsewhere. ConfigError for a damaged file."""
    results = shipped(file_of(table))
    found = results.outcomes(table) if results and table.measure not in COUNTED else []
    counted = results.cells.get(table.id, {}) if results else {}
    why = "No row of this table is stored, and none came with the program."
    differences = _differences_of_file(file_of(table), results.measured) if results and found else None
    return Measured(
        table, found, counted, differences, "the tables that came with the program", shipped=results, why=why
    )


@cache
def _differences_of_file(name: str, measured: str) -> Differences:
    """Those of all tables of a file that came with the program, `measured` on that day."""
    results = shipped(name)
    tables = [one for one in TABLES.values() if one.measure not in COUNTED and file_of(one) == name]
    return (
        Differences.of((one, results.outcomes(one)) for one in tables)
        if results
        else Differences({}, frozenset())
    )


def needs(table: PaperTable) -> set[str]:
    """The keys of the rows that have to be played for a table."""
    return {row.key for row in needed([table])}


def answers_of(one: Measured) -> list[Answer]:
    """What a table says, and how its learners came there where it shows that."""
    if one.counted:
        return [_counted(one)]
    if not one.found:
        return [
            Answer(f"table_{one.table.id}", _question(one), one.why, measured=_play(one), ways=_ways(one))
        ]
    return [_rows(one), *_learning(one)]


def _question(one: Measured) -> str:
    question = one.table.question
    return f"{question[:1].upper()}{question[1:]}"


# What is measured


def _rows(one: Measured) -> Answer:
    return Answer(
        f"table_{one.table.id}",
        _question(one),
        _sentence(one),
        [_picture(one), _table(one)],
        [*_beside(one), *_conditions(one), *_play(one)],
        ways=_ways(one),
    )


def _value(one: Measured, value: float) -> str:
    return f"{value:,.0f}" if one.is_tokens else percent(value)


def _with_interval(one: Measured, found: Mean) -> str:
    if not found.has_interval:
        return f"{_value(one, found.mean)} (an interval needs {FEWEST_SEEDS} seeds)"
    if one.is_tokens:
        return f"{found.mean:,.0f} ({found.low:,.0f} to {found.high:,.0f})"
    return share_words(found.mean, (found.low, found.high))


def _sentence(one: Measured) -> str:
    """The reference, the best of the others, whether they differ, and a table by family; or the best and the least."""
    where = _where(one)
    unit = "tokens" if one.is_tokens else "of the tasks"
    first = one.reference
    others = sorted(
        (row for row in one.found if row is not first and row.row != "union"),
        key=lambda row: row.value.mean * (1 if one.is_tokens else -1),
    )
    if first is None or not others:
        best, *rest = [*others, *([first] if first else [])] or list(one.found)
        last = f"; last: {rest[-1].label}, {_with_interval(one, rest[-1].value)}" if rest else ""
        return f"{where}Best: {best.label}, {_with_interval(one, best.value)} {unit}{last}."
    best = others[0]
    less = _less(one, best)
    holds = one.differences.mark(one.table, best) if one.differences and len(one.differences.ps) > 1 else ""
    held = {"yes": ", which holds", "no": ", which does not hold"}.get(holds, "")
    among = f"{held} among {len(one.differences.ps)} differences" if held and one.differences else ""
    rule = next((row for row in others if row.row.startswith("by-family")), best)
    simplest = f" The simplest rule, {rule.label}: {_with_interval(one, rule.value)}." * (rule is not best)
    return (
        f"{where}{first.label}: {_with_interval(one, first.value)} {unit}. Best of the others: "
        f"{best.label}, {_with_interval(one, best.value)}; {less} on the same seeds{among}.{simplest}"
    )


def _where(one: Measured) -> str:
    """That it was not measured here, where that is so."""
    if one.shipped is None:
        return ""
    return f"Shipped with the program, measured on {one.shipped.measured}, not on this machine. "


def _less(one: Measured, row: RowResult) -> str:
    found = one.table.difference(row)
    if found is None:
        return "no difference is known"
    ends = (found.low, found.high) if found.has_interval else None
    if one.is_tokens:
        return f"{found.mean:+,.0f}" + (f" ({ends[0]:+,.0f} to {ends[1]:+,.0f})" if ends else "")
    return f"{difference_words(found.mean, ends)} points"


def _picture(one: Measured) -> Block:
    if one.is_tokens:
        counts = [round(row.value.mean) for row in one.found]
        series = Series("output tokens", counts)
        return Bars(
            [row.label for row in one.found], [series], ("", "mean output tokens per question"), level=True
        )
    lines = [
        Line(row.label, Estimate.of(row.value), plain=row is not one.reference, mark=Mark())
        for row in one.found
    ]
    return Estimates(lines, f"share of {_split(one.table)} tasks solved, over seeds and tasks")


def _table(one: Measured) -> Table:
    """A row each: the mean with its interval, the difference, families, the paper's numbers. Programs have more."""
    tokens = one.is_tokens
    measured = (
        [
            Column("measured", "Tokens", "count", lambda row: round(row.value.mean)),
            Column("low", "95 %, from", "count", lambda row: _end(row.value, "low")),
            Column("high", "to", "count", lambda row: _end(row.value, "high")),
        ]
        if tokens
        else [Column("measured", "Solved", "estimate", lambda row: row.value)]
    )
    against: Callable[[RowResult], Any] = (
        (lambda row: _number(getattr(one.table.difference(row), "mean", None), round))
        if tokens
        else (lambda row: _estimate(one.table.difference(row)))
    )
    families = sorted({family for row in one.found for family in row.by_family})
    paper = one.table.published

    def family(name: str) -> Column:
        kind, scale = ("count", round) if tokens else ("share", float)
        return Column(f"of_{name}", name, kind, lambda row: _number(row.by_family.get(name), scale))  # type: ignore[arg-type]

    def of_paper(place: int, name: str) -> Column:
        return Column(
            f"paper_{place}", f"Paper: {name}", "number", lambda row: _papers(one, row, place), places=1
        )

    holds = one.differences.column if one.differences and len(one.differences.ps) > 1 else ""
    return Table.of(
        one.found,
        Column("row", "", "data", lambda row: row.row),
        Column("label", "Row", get=lambda row: row.label),
        *measured,
        Column("less", one.table.compared, "count" if tokens else "difference", against),
        Column("few", "Only over", get=lambda row: seeds_words(one.table, row, one.found)),
        *(
            [Column("holds", holds, get=lambda row: one.differences and one.differences.mark(one.table, row))]
            if holds
            else []
        ),
        *(family(name) for name in families),
        *(of_paper(place, name) for place, name in enumerate(paper.columns)),
        Column("mean", "", "data", lambda row: row.value.mean),
        Column("ci95", "", "data", lambda row: _ends(row.value)),
        Column("by_family", "", "data", lambda row: row.by_family),
        Column("by_seed", "", "data", lambda row: row.by_seed),
        Column("against_coordinator", "", "data", lambda row: _against(one.table.difference(row))),
        Column(
            "paper",
            "",
            "data",
            lambda row: {"row": _published(one, row), "values": _all_papers(one, row)},
        ),
        Column("runs", "", "data", lambda row: [run.run_id for run in row.kept]),
        Column("evolutions", "", "data", lambda row: [run.evolution for run in row.kept if run.evolution]),
        title=one.table.title,
    )


def _number(value: float | None, scale: Callable[[float], float]) -> float | None:
    return None if value is None or math.isnan(value) else scale(value)


def _end(found: Mean, name: str) -> int | None:
    return round(getattr(found, name)) if found.has_interval else None


def _ends(found: Mean) -> tuple[float, float] | None:
    return (found.low, found.high) if found.has_interval else None


def _estimate(found: Mean | None) -> Estimate | None:
    return None if found is None else Estimate.of(found)


def _against(found: Mean | None) -> dict[str, Any] | None:
    return None if found is None else {"mean": found.mean, "ci95": _ends(found)}


def _published(one: Measured, row: RowResult) -> str:
    return one.table.row(row.row).published


def _all_papers(one: Measured, row: RowResult) -> list[float | None]:
    values = one.table.published.rows.get(_published(one, row), ())
    return [None if math.isnan(value) else value for value in values]


def _papers(one: Measured, row: RowResult, place: int) -> float | None:
    values = _all_papers(one, row)
    return values[place] if place < len(values) else None


def _beside(one: Measured) -> list[Block]:
    """What belongs beside the figures: the seeds, which differences hold, the paper's numbers."""
    notes: list[Block] = [
        "The paper's numbers are of seven large models: compare how rows relate to each other, never how good they are."
    ]
    if one.differences is not None and (words := one.differences.words(one.among)):
        notes.append(words)
    notes += [*on_fewer_seeds(one.table, one.found), *([one.table.note] if one.table.note else [])]
    paper = one.table.published
    if rows := [row for row in one.found if _published(one, row) in paper.rows]:
        cells = [[Cell(it, "" if it is None else f"{it:g}") for it in _all_papers(one, row)] for row in rows]
        names = [_published(one, row) for row in rows]
        title = f"The paper ({paper.name})"
        notes.append(
            Grid(names, paper.columns, ("row", "measure"), cells, title=title, key="papers", places=1)
        )
    kept = [(row, run) for row in one.found for run in row.kept]
    if kept:
        notes.append(
            Table.of(
                kept,
                Column("label", "Row", get=lambda at: at[0].label),
                Column("seed", "Seed", "count", lambda at: at[1].seed),
                Column(
                    "value",
                    "Measured",
                    "count" if one.is_tokens else "share",
                    lambda at: at[0].by_seed[at[1].seed],
                ),
                Column(
                    "episodes", "Its episodes", "link", lambda at: Address("episodes", {"run": at[1].run_id})
                ),
                Column("evolution", "Its evolution", "link", lambda at: _evolution(at[1]), link="Show"),
                title="Seed by seed",
                key="seeds",
            )
        )
    return notes


def _evolution(run: StoredRow) -> Address | None:
    return Address("evolution", {"run": run.evolution}) if run.evolution else None


def _learning(one: Measured) -> list[Answer]:
    """Accuracy against episodes, where the table shows its learners."""
    lines = {row.label: line for row in one.found if one.table.curves and (line := mean_curve(row))}
    if not lines:
        return []
    last = {label: line[-1] for label, line in lines.items()}
    best = max(last, key=lambda label: last[label][1])
    at, mean, low, high = last[best]
    curve = {
        label: [
            Point(float(at), Estimate(mean, None), detail=f"seeds {percent(low)} to {percent(high)}")
            for at, mean, low, high in line
        ]
        for label, line in lines.items()
    }
    return [
        Answer(
            f"learning_{one.table.id}",
            "How do learners come there?",
            f"{best} ends highest on validation tasks, at {percent(mean)} after {at:,} episodes (its seeds: "
            f"{percent(low)} to {percent(high)}).",
            [Curve(curve, ("episodes", "share of validation tasks solved"))],
            ["Episodes for labels count. The mean over the seeds, at the points that all of them have."],
        )
    ]


def mean_curve(one: RowResult) -> list[tuple[int, float, float, float]]:
    """(episodes, mean, lowest, highest) over the seeds, at the points that all seeds have."""
    by_seed = [dict(curve) for curve in (one.curves or {}).values()]
    shared = sorted(set.intersection(*(set(curve) for curve in by_seed))) if by_seed else []
    values = [(at, [curve[at] for curve in by_seed]) for at in shared]
    return [(at, sum(found) / len(found), min(found), max(found)) for at, found in values]


# What is counted


def _counted(one: Measured) -> Answer:
    """A table without intervals beside the paper's."""
    shares, paper = one.table.measure == "selection", one.table.published
    scale = 100 if shares else 1
    published: Cells = {
        name: dict(zip(paper.columns, (value / scale for value in values), strict=True))
        for name, values in paper.rows.items()
    }
    value, name, column = max(
        (value, name, column) for name, row in one.counted.items() for column, value in row.items()
    )
    where = _where(one)
    most = percent(value) if shares else f"{value:,.0f}"
    slots = ", its pool's slots A0 to A6" if shares else ""
    here = "Share of turns by model, all seeds" if shares else "Here"
    return Answer(
        f"table_{one.table.id}",
        _question(one),
        f"{where}Largest: {one_line(name, 40)}, {one_line(column, 40)}: {most}. Counts have no intervals.",
        [
            _grid(one, one.counted, here, "cells"),
            _grid(one, published, f"The paper ({paper.name}){slots}", "papers"),
        ],
        [*([one.table.note] if one.table.note else []), *_conditions(one), *_play(one)],
        ways=_ways(one),
    )


def _grid(one: Measured, found: Cells, title: str, key: str) -> Grid:
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    cells = [[Cell(row.get(name, 0.0)) for name in names] for row in found.values()]
    axes = ("head" if one.table.measure == "parameters" else "family", "of")
    places = None if one.table.measure == "selection" else 0
    return Grid(list(found), names, axes, cells, title=title, key=key, places=places)


# How it was measured


def _split(table: PaperTable) -> str:
    """Settings are chosen on validation tasks; all else is measured on test tasks."""
    return "validation" if all(row.on == "validation" for row in table.rows) else "test"


def _conditions(one: Measured) -> list[Block]:
    """Under which conditions a table was measured."""
    known = one.suite or (one.shipped and one.shipped.conditions)
    if not known:
        return []
    keys, table = {row.key for row in one.table.rows}, one.table
    tasks = {row.n for row in one.shipped.rows if row.n and row.row in keys} if one.shipped else {known.n}
    more = any(row.how == "evolved:default" for row in table.rows)
    times = (
        f" ({DEFAULT_BUDGETS} times as many for the coordinator of trinity evolve as it is)" if more else ""
    )
    apart = ", that nothing was evolved, validated or chosen on" if _split(table) == "test" else ""
    parts = [
        (known.budget, f"Every learner may play {{:,}} episodes{times}; the paper's budget is 30,720"),
        (tasks.pop() if len(tasks) == 1 else None, f"{{}} {_split(table)} tasks for each seed{apart}"),
        (known.turns, "turn budget {}"),
        (known.pool, "pool: {}"),
        (one.suite and one.suite.encoder, "encoder: {}"),
        (known.tasks, "tasks: {}"),
        (None if known.protocol is Protocol.PAPER else known.protocol, "protocol: {}"),
        (one.shipped and one.shipped.program, "version {}"),
    ]
    said = "; ".join(words.format(value) for value, words in parts if value is not None)
    notes = one.shipped.notes if one.shipped else ()
    return [
        f"{said}.",
        "The generation that does best on validation tasks is measured, sampling, as the paper does. Intervals allow "
        "for the chance of tasks and of seeds (Student's t).",
        *notes,
    ]


def _play(one: Measured) -> list[Block]:
    """What to type to measure it on this machine."""
    if one.suite is not None:
        again = f"trinity reproduce {one.table.id} --budget {one.suite.budget} --n {one.suite.n}"
        return [Code(again, title="Play it again, or more seeds")]
    return [
        Code(f"trinity reproduce {one.table.id} --seeds 0,1,2", title="Measure it on this machine"),
        "Table 4 of the pocket world takes some hours on two cores. With --budget 3000 --seeds 0 it is a quick look. "
        "The rows then stand here in the place of those that came with the program.",
    ]


def _ways(one: Measured) -> list[Way]:
    """What is recorded already tells something, without waiting."""
    if one.suite is not None:
        return []
    return [
        Way("Compare the recorded coordinators", Address("checkpoints", {})),
        Way("What a solved problem cost", Address("verifier", {"part": "cost"})),
    ]
