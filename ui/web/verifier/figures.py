"""Figures of verdicts and spend: turns to accept, accuracy by turn budget, cost against accuracy, shares of spend."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import plotly.graph_objects as go

from storage.analysis.budgets import AtBudget
from storage.analysis.costs import PolicyCost, frontier
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    SECOND_COLOUR,
    WRONG_COLOUR,
    layout,
    percent,
)
from ui.web.kit.axes import band, shares, values
from ui.web.kit.figures import CLICKABLE, error_bars, literal

#: A and B, or the only side: colour, dash and mark, so that colour is never alone.
SIDES = ((FIRST_COLOUR, "solid", "circle"), (SECOND_COLOUR, "dash", "square"))
#: Where the name of a mark may stand: never right above or below, where its interval is drawn.
_PLACES = ("top left", "top right", "bottom right", "bottom left", "middle right", "middle left")


def accepts(of: Mapping[tuple[int, bool], int]) -> go.Figure:
    """Episodes that a Verifier ended, by the turn of its ACCEPT; right below, wrong above and hatched."""
    turns = sorted({turn for turn, _ in of})
    bars = [
        go.Bar(
            x=turns,
            y=[of.get((turn, right), 0) for turn in turns],
            name=f"{mark} {word}",
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fgcolor": "rgba(255,255,255,0.55)", "fillmode": "overlay"},
            },
            hovertemplate=f"accepted at turn %{{x}}: %{{y:,}} {word}<extra></extra>",
        )
        for right, mark, word, colour, pattern in (
            (True, "●", "right", RIGHT_COLOUR, ""),
            (False, "✕", "wrong", WRONG_COLOUR, "/"),
        )
    ]
    return go.Figure(
        bars,
        layout(
            250,
            barmode="stack",
            xaxis={"dtick": 1, "title": {"text": "accepted at turn"}, "fixedrange": True},
            yaxis=values("episodes"),
        ),
    )


def covers_most(one: AtBudget, curve: Sequence[AtBudget]) -> bool:
    """Whether nearly all episodes count at this budget, so that it can be compared with the others."""
    return one.n >= 0.95 * max(other.n for other in curve)


def accuracy_by_budget_figure(curves: Sequence[tuple[str, Sequence[AtBudget]]]) -> go.Figure:
    """Accuracy had the turn budget been smaller, with its 95 % band; A solid, B dashed."""
    data: list[Any] = []
    top = max((high for _, curve in curves for _, high in (one.ci95 for one in curve)), default=1.0)
    for (name, curve), (colour, dash, symbol) in zip(curves, SIDES, strict=False):
        data.append(_band(curve, colour))
        data.append(
            go.Scatter(
                x=[one.budget for one in curve],
                y=[one.accuracy for one in curve],
                name=literal(name, 40),
                mode="lines+markers+text",
                line={"color": colour, "dash": dash, "width": 2},
                marker={
                    "symbol": [symbol if covers_most(one, curve) else f"{symbol}-open" for one in curve],
                    "size": 9,
                },
                text=[percent(one.accuracy) for one in curve],
                textposition=[_side_of(one, [other for _, other in curves]) for one in curve],
                textfont={"size": 11},
                cliponaxis=False,
                customdata=[(one.right.k, one.n, one.tokens / one.n) for one in curve],
                hovertemplate="at most %{x} turns: %{customdata[0]:,} of %{customdata[1]:,} right, "
                "%{customdata[2]:,.0f} tokens per episode<extra></extra>",
            )
        )
    return go.Figure(
        data,
        layout(
            300,
            showlegend=len(curves) > 1,
            xaxis={"dtick": 1, "title": {"text": "turn budget"}, "fixedrange": True},
            # Room for a number below a mark at 0.
            yaxis=shares("answered right", range=[-0.1 * top, min(1.08, 1.15 * top + 0.05)]),
        ),
    )


def _band(curve: Sequence[AtBudget], colour: str) -> dict[str, Any]:
    """The 95 % intervals of a curve as one tinted area."""
    low, high = [one.ci95[0] for one in curve], [one.ci95[1] for one in curve]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    fill = f"rgba({red},{green},{blue},0.15)"
    return band([one.budget for one in curve], low, high, fill, showlegend=False)


def _side_of(one: AtBudget, curves: Sequence[Sequence[AtBudget]]) -> str:
    """Where the number of a mark stands: below it where another curve lies above."""
    others = [other.accuracy for curve in curves for other in curve if other.budget == one.budget]
    return "bottom center" if (one.accuracy or 0.0) < max(value or 0.0 for value in others) else "top center"


def price_and_accuracy(
    found: Sequence[PolicyCost], say: Callable[[str], str], *, in_dollars: bool
) -> go.Figure:
    """Every policy by what an episode takes, in tokens or dollars, and how many it solves; the ones that no other beats
    in both are joined, solid and named. `say` names a token."""
    unit = "US dollars" if in_dollars else "tokens"
    known = [
        (one, spent / one.n)
        for one in found
        if one.n and (spent := one.cost_usd if in_dollars else one.tokens) is not None
    ]
    best = frontier((one.token, amount, one.accuracy.value or 0.0) for one, amount in known)
    ahead = [next(pair for pair in known if pair[0].token == name) for name in best]
    steps = go.Scatter(
        x=[amount for _, amount in ahead],
        y=[one.accuracy.value for one, _ in ahead],
        mode="lines",
        line={"color": NEUTRAL_COLOUR, "shape": "hv", "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    left, right = _room([amount for _, amount in known])
    return go.Figure(
        [steps, _policies(known, set(best), say, unit, (left, right))],
        layout(
            400,
            showlegend=False,
            hovermode="closest",
            xaxis={"title": {"text": f"{unit} per episode"}, "range": [left, right], "zeroline": False},
            yaxis={"title": {"text": "solved"}, "tickformat": ".0%", "rangemode": "tozero"},
        ),
    )


def _policies(
    known: Sequence[tuple[PolicyCost, float]],
    best: Set[str],
    say: Callable[[str], str],
    unit: str,
    ends: tuple[float, float],
) -> go.Scatter:
    """A mark for each policy and what an episode of it takes; `ends` are those of the axis."""
    left, right = ends
    intervals = [one.accuracy.ci95 for one, _ in known]
    values = [one.accuracy.value or 0.0 for one, _ in known]
    names = [  # the id in brackets is left to the pointer
        literal(re.sub(r" \(.*?\)", "", say(one.token)), 26) if one.token in best or len(known) <= 8 else ""
        for one, _ in known
    ]
    places = [
        ((amount - left) / (right - left), value) for (_, amount), value in zip(known, values, strict=True)
    ]
    return go.Scatter(
        x=[amount for _, amount in known],
        y=values,
        mode="markers+text",
        marker={
            "size": [12 if one.token in best else 8 for one, _ in known],
            "opacity": 1,  # sizes that differ would make them pale
            "symbol": ["diamond" if one.token in best else "circle-open" for one, _ in known],
            "color": [FIRST_COLOUR if one.token in best else NEUTRAL_COLOUR for one, _ in known],
        },
        text=names,
        textposition=label_sides(places, names, intervals),
        textfont={"size": 11},
        error_y=error_bars(values, intervals, "rgba(136,148,165,0.5)", 1, 3),
        customdata=[
            (
                one.token,
                f"{literal(say(one.token), 60)}<br>{percent(value)} of {one.n:,} right"
                f"<br>{amount:,.4g} {unit} per episode",
            )
            for (one, amount), value in zip(known, values, strict=True)
        ],
        **CLICKABLE,
    )


def _room(amounts: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis of prices, with room for names on both sides; from zero on where the cheapest is near it."""
    low, high = min(amounts, default=0.0), max(amounts, default=1.0)
    wide = max(high - low, 0.1 * high) or 1.0
    return max(0.0, low - 0.4 * wide), high + 0.4 * wide


def label_sides(
    points: Sequence[tuple[float, float]], names: Sequence[str], bars: Sequence[tuple[float, float]]
) -> list[str]:
    """On which side of its point each name stands, so that names cover neither each other, nor points, nor the
    `bars` (ends of intervals in y), nor leave the chart: `points` are (x, y), both from 0 to 1. Greedy, from the top
    down."""
    places: dict[int, str] = {}
    taken = [(x - 0.01, y - 0.015, x + 0.01, y + 0.015) for x, y in points]
    taken += [(x - 0.002, low, x + 0.002, high) for (x, _), (low, high) in zip(points, bars, strict=True)]
    for at in sorted(range(len(points)), key=lambda at: (-points[at][1], points[at][0])):
        boxes = {place: _box(*points[at], names[at], place) for place in _PLACES}
        places[at] = min(_PLACES, key=lambda place: _covered(boxes[place], taken))
        if names[at]:
            taken.append(boxes[places[at]])
    return [places[at] for at in range(len(points))]


def _box(x: float, y: float, name: str, place: str) -> tuple[float, float, float, float]:
    """What a name takes of a chart some 600 px wide: (left, bottom, right, top)."""
    long, high, gap = 0.0125 * len(name), 0.05, 0.012
    left = x - gap - long if place.endswith("left") else x + gap
    bottom = {"top": y + gap, "mid": y - high / 2, "bot": y - gap - high}[place[:3]]
    return left, bottom, left + long, bottom + high


def _covered(
    box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]
) -> float:
    """How much of it lies outside the chart or over what is there already."""
    left, bottom, right, top = box
    outside = max(0.0, -left) + max(0.0, right - 1)
    over = sum(
        max(0.0, min(right, other[2]) - max(left, other[0]))
        * max(0.0, min(top, other[3]) - max(bottom, other[1]))
        for other in taken
    )
    return 1000 * over + outside
