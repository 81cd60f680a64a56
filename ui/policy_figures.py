"""The figures of a policy diff: how often checkpoints agree, where they first part, how far apart, who for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.agreement import NEVER, Divergence, Firsts, Whole
from core.episode import ROLE_ORDER
from ui.estimates import Estimate, estimates_figure
from ui.figures import drawn, literal, ticks
from ui.head_figures import slot_letter
from ui.theme import FIRST_COLOUR, MODEL_COLOURS, NEUTRAL_COLOUR, PROBABILITY_SCALE, ROLE_LOOKS, layout

#: Dash and symbol of each line beside its colour.
_LINES = (
    ("solid", "circle"),
    ("dash", "square"),
    ("dot", "diamond"),
    ("dashdot", "cross"),
    ("longdash", "x"),
    ("longdashdot", "star"),
    ("solid", "pentagon"),
)
_PARTED, _PERHAPS = FIRST_COLOUR, "rgba(136,148,165,0.55)"


@dataclass(frozen=True, slots=True)
class Share:
    """One line of agreements: the share of `n` turns and its 95 % interval; `close` turns could not be told."""

    name: str
    rate: float | None
    interval: tuple[float, float]
    n: int
    close: int
    key: str = ""


def shares_figure(shares: Sequence[Share]) -> go.Figure:
    """Agreement of each line with its interval, first on top; a line's key travels as custom data."""
    return estimates_figure(
        [
            Estimate(one.name, one.rate, *one.interval, f"of {one.n:,} turns", one.key)
            for one in shares
            if one.rate is not None
        ]
    )


def firsts_figure(found: Firsts, ink: str) -> go.Figure:
    """Episodes by the first turn at which the two surely part, and those in which they never do. Striped: a turn
    before it was too close to call."""
    turns = sorted(set(found.turns[found.turns != NEVER].tolist()))
    last = max(turns, default=-1)
    places = [*range(last + 1), NEVER]
    names = [str(place + 1) for place in range(last + 1)] + ["never"]
    data: list[dict[str, Any]] = []
    for name, sure, pattern in (("certain", True, ""), ("perhaps earlier", False, "/")):
        counts = [int(((found.turns == place) & (found.sure == sure)).sum()) for place in places]
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": list(range(len(places))),
                "y": counts,
                "marker": {
                    "color": [_PARTED if place != NEVER else NEUTRAL_COLOUR for place in places]
                    if sure
                    else _PERHAPS,
                    "pattern": {"shape": pattern, "size": 5},
                },
                "customdata": [place + 1 if place != NEVER else "never" for place in places],
                "hovertemplate": f"%{{customdata}}: %{{y:,}} episodes ({name})<extra></extra>",
            }
        )
    totals = [int((found.turns == place).sum()) for place in places]
    data.append(
        {
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
    )
    return drawn(
        data,
        layout(
            280,
            barmode="stack",
            xaxis=ticks(names) | {"title": {"text": "first turn with another choice"}, "fixedrange": True},
            yaxis={"title": None, "fixedrange": True, "range": [0, 1.12 * max([1, *totals])]},
            showlegend=True,
            legend=layout()["legend"] | {"traceorder": "normal"},
        ),
    )


def divergence_figure(lines: Sequence[tuple[str, Sequence[Divergence]]]) -> go.Figure:
    """The mean divergence from the baseline turn by turn, a line per checkpoint; with one line the middle half of the
    turns as a band."""
    data: list[dict[str, Any]] = []
    if len(lines) == 1 and lines[0][1]:
        told = lines[0][1]
        x = [one.index + 1 for one in told]
        data.append(
            {
                "type": "scatter",
                "x": x + x[::-1],
                "y": [one.high for one in told] + [one.low for one in told][::-1],
                "mode": "lines",
                "fill": "toself",
                "fillcolor": "rgba(47,118,214,0.16)",
                "line": {"width": 0},
                "hoverinfo": "skip",
                "name": "middle half of the turns",
            }
        )
    for place, (name, told) in enumerate(lines):
        dash, symbol = _LINES[place % len(_LINES)]
        data.append(
            {
                "type": "scatter",
                "x": [one.index + 1 for one in told],
                "y": [one.mean for one in told],
                "name": literal(name, 40),
                "mode": "lines+markers",
                "line": {"color": MODEL_COLOURS[place % len(MODEL_COLOURS)], "width": 2, "dash": dash},
                "marker": {"symbol": symbol, "size": 9},
                "customdata": [
                    f"{one.n:,} turns" + (f", {one.infinite:,} more infinite" if one.infinite else "")
                    for one in told
                ],
                "hovertemplate": "turn %{x}: %{y:.3f} nats (%{customdata})<extra></extra>",
            }
        )
    most = max((one.index + 1 for _, told in lines for one in told), default=1)
    return drawn(
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


def pair_letter(pair: int) -> str:
    """A pick in short, as in every turn strip: `W·a`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return f"{ROLE_LOOKS[ROLE_ORDER[role]].letter}·{slot_letter(slot)}"


def pair_name(pair: int, models: Sequence[str]) -> str:
    """A pick in words, plain text: `Worker on atlas`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return f"{ROLE_LOOKS[ROLE_ORDER[role]].word} on {models[slot]}"


def confusion_figure(counts: Whole, models: Sequence[str], names: tuple[str, str], ink: str) -> go.Figure:
    """What B would pick (columns) where A would pick a row: counts, in the colour of their share of the row. Picks that
    neither makes are left out; the frames are agreement."""
    order = np.argsort(-(counts.sum(axis=0) + counts.sum(axis=1)), kind="stable").tolist()
    down = [pair for pair in order if counts[pair].any()]
    across = [pair for pair in order if counts[:, pair].any()]
    part = counts[np.ix_(down, across)]
    told = {pair: literal(pair_name(pair, models), 40) for pair in order}
    customdata = [
        [
            [f"{a}-{b}", f"A: {told[a]}<br>B: {told[b]}<br>{int(part[i, j]):,} turns"]
            for j, b in enumerate(across)
        ]
        for i, a in enumerate(down)
    ]
    heat = {
        "type": "heatmap",
        "x": list(range(len(across))),
        "y": list(range(len(down))),
        "z": (part / part.sum(axis=1, keepdims=True)).round(4).tolist(),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [*PROBABILITY_SCALE[:2], [1.0, "rgba(51,117,208,0.62)"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": customdata,
        "hovertemplate": "%{customdata[1]}<extra></extra>",
    }
    cells = [(i, j) for i in range(len(down)) for j in range(len(across)) if part[i, j]]
    numbers = {
        "type": "scatter",
        "mode": "text",
        "x": [j for _, j in cells],
        "y": [i for i, _ in cells],
        "text": [f"{int(part[i, j]):,}" for i, j in cells],
        "textfont": {"size": 11, "color": ink},
        "customdata": [customdata[i][j] for i, j in cells],
        "hovertemplate": "%{customdata[1]}<extra></extra>",
        "showlegend": False,
    }
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
    axis: dict[str, Any] = {"fixedrange": True, "showgrid": False, "zeroline": False, "automargin": True}
    return drawn(
        [heat, numbers],
        layout(
            110 + 27 * max(5, len(down)),
            xaxis=axis
            | ticks([pair_letter(pair) for pair in across])
            | {
                "side": "top",
                "title": {"text": f"B, {literal(names[1], 40)}"},
                "tickangle": 0 if len(across) <= 12 else -90,
            },
            yaxis=axis
            | ticks([pair_letter(pair) for pair in down])
            | {"autorange": "reversed", "title": {"text": f"A, {literal(names[0], 40)}"}},
            margin={"l": 8, "r": 8, "t": 60, "b": 8},
            shapes=frames,
        ),
    )
