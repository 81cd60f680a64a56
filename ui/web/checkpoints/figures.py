"""The figures of policies side by side: routing moved, lengths, doubt, budgets, and the difference by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.analysis.comparison import Comparison
from storage.analysis.counterfactual import AtBudget
from storage.analysis.standings import ENTROPY_BIN, Course
from ui.presentation.theme import CLASS_COLOURS, CLASS_SYMBOLS, layout, one_line, percent
from ui.presentation.words import role_word
from ui.web.kit.axes import shares as shares_axis
from ui.web.kit.estimates import Estimate, estimates_figure
from ui.web.kit.figures import literal
from ui.web.kit.matrix import ROLES, MatrixCell, matrix

_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, slots=True)
class PolicyStyle:
    """A policy in a figure: its name, and the colour, symbol and dash of its place in the order."""

    name: str
    colour: str
    symbol: str
    dash: str


def policy_styles(names: Sequence[str]) -> list[PolicyStyle]:
    """One look per policy, at most eight of them."""
    return [
        PolicyStyle(literal(name, 40), CLASS_COLOURS[i], CLASS_SYMBOLS[i], _DASHES[i % len(_DASHES)])
        for i, name in enumerate(names)
    ]


def shares(course: Course, models: Sequence[str]) -> list[list[float]]:
    """Share of all turns by role (rows, in ROLES) and model (columns)."""
    total = course.routed.total() or 1
    return [[course.routed[model, role] / total for model in models] for role in ROLES]


def routing_change(a: Course, b: Course, models: Sequence[str], ink: str) -> go.Figure:
    """Share of turns by role and model, B minus A in points; hovering shows both shares. A cell's key is the place of
    its model and its role, with a space between."""
    share_a, share_b = shares(a, models), shares(b, models)
    cells = [
        [
            MatrixCell(
                after - before,
                _signed(round(100 * (after - before))),
                f"{role_word(role)} on {literal(model, 40)}<br>A {percent(before)}, B {percent(after)} of turns",
                f"{place} {role.value}",
            )
            for place, (model, before, after) in enumerate(zip(models, *rows, strict=True))
        ]
        for role, *rows in zip(ROLES, share_a, share_b, strict=True)
    ]
    columns = [literal(model, 14) for model in models]
    return matrix(
        cells, [role_word(role) for role in ROLES], columns, ink, axes=("role", "model"), signed=True
    )


def _signed(points: int) -> str:
    return f"{points:+d}" if points else "0"


def by_turns(courses: Sequence[Course], styles: Sequence[PolicyStyle]) -> go.Figure:
    """Share of each policy's episodes by number of turns. A point carries (policy's place, turns)."""
    longest = max((max(one.turns, default=0) for one in courses), default=0)
    series = [
        [(turns, one.turns[turns] / (one.turns.total() or 1), turns) for turns in range(1, longest + 1)]
        for one in courses
    ]
    return _lines(styles, series, "turns", "share of episodes", "%{x} turns: %{y:.1%} of episodes", dtick=1)


def by_entropy(courses: Sequence[Course], styles: Sequence[PolicyStyle]) -> go.Figure:
    """Share of each policy's decisions by their entropy in nats; policies without a head have no line."""
    most = max((max(one.entropy, default=0) for one in courses), default=0)
    series = [
        [(i * ENTROPY_BIN, one.entropy[i] / one.entropy.total(), i) for i in range(most + 1) if one.entropy]
        for one in courses
    ]
    return _lines(
        styles,
        series,
        "entropy (0: certain)",
        "share of decisions",
        "entropy about %{x:.2f}: %{y:.1%} of decisions",
    )


def by_budget(budgets: Sequence[Sequence[AtBudget]], styles: Sequence[PolicyStyle]) -> go.Figure:
    """Accuracy had each episode been cut after k turns. A point carries (policy's place, k)."""
    series = [[(at.budget, at.accuracy, at.budget) for at in side if at.n] for side in budgets]
    return _lines(styles, series, "turn budget", "answered right", "%{x} turns: %{y:.1%} right", dtick=1)


def _lines(
    styles: Sequence[PolicyStyle],
    series: Sequence[Sequence[tuple[float, float, int]]],
    along: str,
    up: str,
    hover: str,
    **axis: int,
) -> go.Figure:
    """One line per policy over (x, share, what a click means)."""
    traces = [
        go.Scatter(
            x=[x for x, _, _ in line],
            y=[
                round(y, 3) for _, y, _ in line
            ],  # the browser would round 56.25 % up, all our words round it down
            customdata=[(i, meant) for _, _, meant in line],
            mode="lines+markers",
            name=look.name,
            line={"color": look.colour, "dash": look.dash, "width": 2},
            marker={"symbol": look.symbol, "size": 9},
            cliponaxis=False,
            hovertemplate=f"{hover}<extra>{look.name}</extra>",
        )
        for i, (look, line) in enumerate(zip(styles, series, strict=True))
        if line
    ]
    return go.Figure(
        traces,
        layout(
            320,
            showlegend=True,
            margin={"l": 8, "r": 8, "t": 30, "b": 8},
            xaxis={"title": {"text": along}, "showgrid": False, **axis},
            yaxis=shares_axis(up, rangemode="tozero", nticks=6),
        ),
    )


def by_family(families: Mapping[str, Comparison]) -> go.Figure:
    """B minus A with its 95 % interval in each task family, one line each; a click gives the family back."""
    return estimates_figure(
        [
            Estimate(
                f"{one_line(name, 24)} ({found.n:,})",
                found.difference.difference,
                found.difference.low,
                found.difference.high,
                f"points over {found.n:,} tasks",
                name,
            )
            for name, found in families.items()
        ],
        "accuracy of B minus A, in points",
        signed=True,
    )
