"""The figures of a policy diff: agreement, the first disagreement, divergence, which pick replaces which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.analysis.agreement import NEVER, Divergence, FirstDifferences, Ints
from ui.presentation.comparison import AgreementRate, pair_letter, pair_name
from ui.presentation.theme import FIRST_COLOUR, MODEL_COLOURS, NEUTRAL_COLOUR, layout
from ui.web.kit.figures import (
    Estimate,
    MatrixCell,
    band,
    estimates_figure,
    literal,
    matrix,
    ticks,
    unvalidated,
    values,
)

#: Dash and symbol of each line.
_LINES = (
    ("solid", "circle"),
    ("dash", "square"),
    ("dot", "diamond"),
    ("dashdot", "cross"),
    ("longdash", "x"),
    ("longdashdot", "star"),
    ("solid", "pentagon"),
)


def shares_figure(shares: Sequence[AgreementRate]) -> go.Figure:
    """Agreement of each line with its interval, first on top; a line's key travels as custom data."""
    return estimates_figure(
        [
            Estimate(one.name, one.rate, *one.interval, f"of {one.n:,} turns", one.key)
            for one in shares
            if one.rate is not None
        ],
        "share of turns with the same choice",
    )


def firsts_figure(found: FirstDifferences, ink: str) -> go.Figure:
    """Episodes by the first turn at which the two surely part, and those in which they never do. Striped: a turn
    before it was too close to call."""
    last = max(found.turns.tolist(), default=-1)
    places = [*range(last + 1), NEVER]
    names = [str(place + 1) for place in range(last + 1)] + ["never"]
    totals = [int((found.turns == place).sum()) for place in places]
    numbers = {
        "type": "scatter",
        "mode": "text",
        "x": list(range(len(places))),
        "y": totals,
        "text": [f"{total:,}" if total else "" for total in totals],
        "textposition": "top center",
        "textfont": {"size": 11, "color": ink},
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return unvalidated(
        [_first_bars(found, places, sure=True), _first_bars(found, places, sure=False), numbers],
        layout(
            280,
            barmode="stack",
            xaxis=ticks(names) | {"title": {"text": "first turn with another choice"}, "fixedrange": True},
            yaxis=values("episodes", range=[0, 1.12 * max([1, *totals])]),
            showlegend=True,
            legend=layout()["legend"] | {"traceorder": "normal"},
        ),
    )


def _first_bars(found: FirstDifferences, places: Sequence[int], *, sure: bool) -> dict[str, Any]:
    """The episodes of each first turn whose being the first is certain, or is not."""
    name = "certain" if sure else "perhaps earlier"
    colours = [FIRST_COLOUR if place != NEVER else NEUTRAL_COLOUR for place in places]
    return {
        "type": "bar",
        "name": name,
        "x": list(range(len(places))),
        "y": [int(((found.turns == place) & (found.sure == sure)).sum()) for place in places],
        "marker": {
            "color": colours if sure else "rgba(136,148,165,0.55)",
            "pattern": {"shape": "" if sure else "/", "size": 5},
        },
        "customdata": [place + 1 if place != NEVER else "never" for place in places],
        "hovertemplate": f"%{{customdata}}: %{{y:,}} episodes ({name})<extra></extra>",
    }


def divergence_figure(lines: Sequence[tuple[str, Sequence[Divergence]]]) -> go.Figure:
    """The mean divergence from the baseline turn by turn, a line per checkpoint; with one line the middle half of the
    turns as a band."""
    data = [_means(place, name, turns) for place, (name, turns) in enumerate(lines)]
    if len(lines) == 1 and (turns := lines[0][1]):
        x = [one.index + 1 for one in turns]
        low, high = [one.low for one in turns], [one.high for one in turns]
        data.insert(0, band(x, low, high, "rgba(47,118,214,0.16)", name="middle half of the turns"))
    most = max((one.index + 1 for _, turns in lines for one in turns), default=1)
    return unvalidated(
        data,
        layout(
            280,
            xaxis={
                "title": {"text": "turn"},
                "dtick": max(1, -(-most // 20)),
                "tick0": 1,
                "range": [0.6, most + 0.4],
                "fixedrange": True,
                "showgrid": False,
            },
            yaxis={"title": {"text": "nats"}, "rangemode": "tozero", "fixedrange": True},
        ),
    )


def _means(place: int, name: str, turns: Sequence[Divergence]) -> dict[str, Any]:
    dash, symbol = _LINES[place % len(_LINES)]
    return {
        "type": "scatter",
        "x": [one.index + 1 for one in turns],
        "y": [one.mean for one in turns],
        "name": literal(name, 40),
        "mode": "lines+markers",
        "line": {"color": MODEL_COLOURS[place % len(MODEL_COLOURS)], "width": 2, "dash": dash},
        "marker": {"symbol": symbol, "size": 9},
        "customdata": [
            f"{one.n:,} turns" + (f", {one.infinite:,} more infinite" if one.infinite else "")
            for one in turns
        ],
        "hovertemplate": "turn %{x}: KL %{y:.3f} (%{customdata})<extra></extra>",
    }


def confusion_figure(counts: Ints, models: Sequence[str], names: tuple[str, str], ink: str) -> go.Figure:
    """What B would pick (columns) where A would pick a row: counts, in the colour of their share of the row. Picks that
    neither makes are left out; the frames are agreement. A cell's key is A's pick and B's with a dash between."""
    order = np.argsort(-(counts.sum(axis=0) + counts.sum(axis=1)), kind="stable").tolist()
    down = [pair for pair in order if counts[pair].any()]
    across = [pair for pair in order if counts[:, pair].any()]
    words = {pair: literal(pair_name(pair, models), 40) for pair in order}

    def cell(a: int, b: int) -> MatrixCell:
        n = int(counts[a, b])
        hover = f"A: {words[a]}<br>B: {words[b]}<br>{n:,} turns"
        share = round(n / int(counts[a].sum()), 4)
        return MatrixCell(share, f"{n:,}" if n else "", hover, f"{a}-{b}" if n else "")

    figure = matrix(
        [[cell(a, b) for b in across] for a in down],
        [pair_letter(pair) for pair in down],
        [pair_letter(pair) for pair in across],
        ink,
        axes=(f"A, {literal(names[0], 40)}", f"B, {literal(names[1], 40)}"),
        most=1.0,
    )
    frames = [
        {
            "type": "rect",
            "x0": across.index(pair) - 0.48,
            "x1": across.index(pair) + 0.48,
            "y0": i - 0.48,
            "y1": i + 0.48,
            "line": {"color": NEUTRAL_COLOUR, "width": 1.5},
        }
        for i, pair in enumerate(down)
        if pair in across
    ]
    return figure.update_layout(
        height=110 + 27 * max(5, len(down)),
        xaxis={"side": "top", "tickangle": 0 if len(across) <= 12 else -90},
        margin_t=60,
        shapes=frames,
    )
