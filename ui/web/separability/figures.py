"""The figures of separability: clouds of decisions by class, and how well each class is read beside the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.analysis.curvature import gain_over_random_search
from core.analysis.separability import (
    PUBLISHED_ACCURACY,
    SPACE_WORDS,
    TARGET_WORDS,
    Accuracy,
    Projection,
    Score,
    Synthetic,
)
from core.heads import Array
from ui.presentation.theme import (
    CLASS_COLOURS,
    CLASS_SYMBOLS,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    SECOND_COLOUR,
    UNKNOWN_COLOUR,
    layout,
    model_colour,
)
from ui.web.kit.figures import TIGHT, MatrixCell, line_at, literal, matrix, note, ticks, unvalidated

#: Classes with a colour of their own; the smaller ones are one grey class.
MOST_CLASSES = len(CLASS_SYMBOLS)

#: More points than these are drawn smaller.
CROWD = 600
_BELOW = {"orientation": "h", "yanchor": "top", "xanchor": "left", "x": 0}


@dataclass(frozen=True, slots=True)
class ClassStyle:
    """How one class of points is drawn."""

    name: str
    colour: str
    symbol: str


def class_styles(labels: Sequence[str], slots: Sequence[str] = ()) -> dict[str, ClassStyle]:
    """A look per class. Models keep colour and symbol of their slot; other classes have theirs in order of name."""
    counts = Counter(labels)
    chosen = sorted(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_CLASSES])
    order = [name for name in slots if name in chosen] + [name for name in chosen if name not in slots]
    found = {}
    for position, name in enumerate(order):
        place = slots.index(name) if name in slots else position
        colour = model_colour(name, slots) if slots else CLASS_COLOURS[place % len(CLASS_COLOURS)]
        found[name] = ClassStyle(literal(name, 20), colour, CLASS_SYMBOLS[place % MOST_CLASSES])
    rest = ClassStyle("all others", UNKNOWN_COLOUR, "circle-open")
    return found | {name: rest for name in counts if name not in found}


def cloud(
    projection: Projection, labels: Sequence[str], styles: dict[str, ClassStyle], words: Sequence[str]
) -> go.Figure:
    """Points in the plane by class. `words` are what hovering says of each; `customdata` its position."""
    members: dict[ClassStyle, list[int]] = {look: [] for look in styles.values()}
    for position, name in enumerate(labels):
        members[styles[name]].append(position)
    xy = projection.xy.round(4)
    size = 8 if len(labels) <= CROWD else 6
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{look.name} ({len(own)})",
            "x": xy[own, 0].tolist(),
            "y": xy[own, 1].tolist(),
            "customdata": own,
            "hovertext": [words[i] for i in own],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {
                "color": look.colour,
                "symbol": look.symbol,
                "size": size,
                "opacity": 0.8,
                "line": {"width": 1, "color": look.colour},
            },
        }
        for look, own in members.items()
    ]
    axis = {"zeroline": False, "showgrid": False, "showticklabels": False, "ticks": "", "automargin": True}
    across, up = (axis | {"title": {"text": title, "standoff": 6}} for title in projection.axes)
    return unvalidated(
        data,
        layout(380, xaxis=across, yaxis=up, legend=_BELOW | {"y": -0.12}, margin=TIGHT, hovermode="closest"),
    )


def readings(measured: Sequence[Accuracy]) -> go.Figure:
    """Accuracy of both SVMs per target and space with the majority class as a bar, the paper's figures below."""
    rows = list(measured)[::-1]
    names = [f"{TARGET_WORDS[one.target]}<br>from {SPACE_WORDS[one.space]}" for one in rows]
    published = [PUBLISHED_ACCURACY[one.target, one.space] for one in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "majority class, this run",
            "x": [one.majority for one in rows],
            "y": [place + 0.16 for place in range(len(rows))],
            "width": 0.44,
            "marker": {"color": NEUTRAL_COLOUR, "opacity": 0.35},
            "hovertemplate": "always the majority class: %{x:.1%}<extra>this run</extra>",
        },
        _dots("linear SVM, this run", [one.linear for one in rows], 0.28, "diamond", FIRST_COLOUR),
        _dots("RBF SVM, this run", [one.rbf for one in rows], 0.06, "diamond-open", FIRST_COLOUR),
        _dots("linear SVM, paper", [one.linear for one in published], -0.2, "star", SECOND_COLOUR),
        _dots("RBF SVM, paper", [one.rbf for one in published], -0.38, "star-open", SECOND_COLOUR),
    ]
    return unvalidated(
        data,
        layout(
            110 + 84 * len(rows),
            xaxis={
                "range": [0, 1.04],
                "tickformat": ".0%",
                "dtick": 0.25,
                "zeroline": False,
                "title": {"text": "share read rightly"},
            },
            yaxis=ticks(names) | {"range": [-0.6, len(rows) - 0.4], "automargin": True, "showgrid": False},
            legend=_BELOW | {"y": -0.16},
            margin=TIGHT | {"t": 4},
        ),
    )


def synthetic_figure(found: Sequence[Synthetic], here: float | None) -> go.Figure:
    """Accuracy over the index of made-up states; `here` is the index of this run's, as a line."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "made-up states",
            "x": [one.index for one in found],
            "y": [one.accuracy for one in found],
            "line": {"color": FIRST_COLOUR, "width": 2},
            "marker": {"size": 8, "color": FIRST_COLOUR},
            "hovertemplate": "index %{x:.3f}: %{y:.1%} read rightly<extra></extra>",
        }
    ]
    shapes = [] if here is None else [line_at(x=here, width=2, dash="dot")]
    words = [] if here is None else [note("this run", x=here, y=0.02, yref="paper")]
    return unvalidated(
        data,
        layout(
            280,
            xaxis={"title": {"text": "separability index"}, "range": [-0.02, 1.02], "zeroline": False},
            yaxis={"tickformat": ".0%", "range": [0, 1.04], "title": {"text": "linear SVM"}},
            shapes=shapes,
            annotations=words,
            margin=TIGHT,
            showlegend=False,
        ),
    )


def curvature_matrix(curvature: Array, names: Sequence[str], ink: str) -> go.Figure:
    """Each block's norm with its sign, rows and columns by logit."""
    cells = [
        [
            MatrixCell(value, f"{value:.2f}", f"{literal(row, 24)} with {literal(column, 24)}: {value:.3f}")
            for column, value in zip(names, values, strict=True)
        ]
        for row, values in zip(names, curvature.tolist(), strict=True)
    ]
    return matrix(cells, names, names, ink, axes=("logit", "logit"), signed=True)


def gain_curve() -> go.Figure:
    """The bound of proposition 1 over generations, without its constants."""
    generations = np.arange(2.0, 61.0)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": generations.tolist(),
            "y": gain_over_random_search(generations).round(3).tolist(),
            "line": {"color": FIRST_COLOUR, "width": 2},
            "hovertemplate": "T = %{x}: %{y:.2f}<extra></extra>",
        }
    ]
    return unvalidated(
        data,
        layout(
            240,
            xaxis={"title": {"text": "generations T"}, "zeroline": False},
            yaxis={"title": {"text": "T / ln(16 T)"}, "rangemode": "tozero"},
            margin=TIGHT,
            showlegend=False,
        ),
    )


def _dots(name: str, scores: Sequence[Score], offset: float, symbol: str, colour: str) -> dict[str, Any]:
    """One mark per row, `offset` above its place, with a bar of one standard deviation where it is told."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [one.mean for one in scores],
        "y": [place + offset for place in range(len(scores))],
        "error_x": {"type": "data", "array": [one.std or 0 for one in scores], "thickness": 1.5, "width": 4},
        "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 1.5, "color": colour}},
        "customdata": [shown(one) for one in scores],
        "hovertemplate": f"{name}: %{{customdata}}<extra></extra>",
    }


def shown(score: Score) -> str:
    """`71.3 ± 1.6 %`, never broken over two lines; without a deviation `100.0 %`."""
    deviation = "" if score.std is None else f"\u00a0±\u00a0{100 * score.std:.1f}"
    return f"{100 * score.mean:.1f}{deviation}\u00a0%"
