"""Figures of what follows what: the graph of moves, and a tree of the episodes of one task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from ui.answers.blocks import Arrow, Flow, Node, Tree
from ui.presentation.theme import (
    NEUTRAL_COLOUR,
    RIGHT,
    ROLE_STYLES,
    WRONG,
    ink_on,
    layout,
    model_colour,
    percent,
)
from ui.presentation.words import move_words
from ui.web.analysis.figures import key_of
from ui.web.kit.figures import BARE, CLICKABLE, TIGHT, literal, ticks


def flow(block: Flow) -> go.Figure:
    """Moves as marks and steps as arrows, thicker the more often; each can be clicked at its arrow head."""
    draw, stub = (_level_curve, (0.72, 0.0)) if block.level else (_arc, (0.38, 0.16))
    axis = {**BARE, "automargin": True}
    height = 60 + 34 * max(3, len(block.rows)) if block.level else 330
    figure = go.Figure(
        [*_arrows(block, draw, stub), _marks(block.nodes, block.models)],
        layout(height, showlegend=False, hovermode="closest", margin=TIGHT, xaxis=axis, yaxis=axis),
    )
    ends = (-0.4, len(block.columns) - 0.1) if block.level else (-0.6, len(block.columns) - 0.4)
    figure.update_xaxes(range=ends, **ticks([literal(one, 14) for one in block.columns]))
    figure.update_yaxes(
        range=[len(block.rows) - 0.4, -0.65], **ticks([literal(one, 26) for one in block.rows])
    )
    return figure


def _marks(nodes: Sequence[Node], models: Sequence[str]) -> go.Scatter:
    """Colour for the model, shape for the role, size for how often."""
    colours = [model_colour(one.move.model, models) for one in nodes]
    return go.Scatter(
        x=[one.at[0] for one in nodes],
        y=[one.at[1] for one in nodes],
        mode="markers+text",
        marker={
            "symbol": [ROLE_STYLES[one.move.role].symbol for one in nodes],
            "size": [11 + 34 * math.sqrt(one.share) for one in nodes],
            "color": colours,
            "opacity": 1,
            "line": {"width": 1, "color": "rgba(255,255,255,0.7)"},
        },
        text=[f"{100 * one.share:.0f}" if one.share >= 0.045 else "" for one in nodes],
        textfont={"size": 10, "color": [ink_on(colour) for colour in colours]},
        customdata=[
            (key_of(one.mark), f"{literal(move_words(one.move), 40)}<br>{one.detail}, {percent(one.share)}")
            for one in nodes
        ],
        **CLICKABLE,
    )


_Curve = tuple[list[float], list[float]]
_Draw = Callable[[tuple[float, float], tuple[float, float]], _Curve]


def _arrows(block: Flow, draw: _Draw, stub: tuple[float, float]) -> list[go.Scatter]:
    """Lines, heaviest on top, and one trace of heads that carry the keys. Beginnings and ends are short stubs: lines to
    two common nodes would cross everything else."""
    heaviest = max((one.share for one in block.arrows), default=1.0)
    found: list[Any] = []
    heads: list[tuple[Arrow, float, float, float]] = []
    for one in sorted(block.arrows, key=lambda one: one.share):
        xs, ys = draw(*_ends(one, stub))
        weight = one.share / heaviest
        found.append(
            go.Scatter(
                x=xs,
                y=ys,
                mode="lines",
                line={"width": 1 + 9 * weight, "color": _colour(one, block.models)},
                opacity=0.25 + 0.35 * weight,
                hoverinfo="skip",
            )
        )
        near = len(xs) * 3 // 5
        heads.append((one, xs[near], ys[near], _angle(xs, ys, near)))
    found.append(
        go.Scatter(
            x=[x for _, x, _, _ in heads],
            y=[y for _, _, y, _ in heads],
            mode="markers",
            marker={
                "symbol": "arrow",
                "size": [9 + 7 * one.share / heaviest for one, *_ in heads],
                "angle": [angle for _, _, _, angle in heads],
                "color": [_colour(one, block.models) for one, *_ in heads],
                "line": {"width": 1, "color": "rgba(255,255,255,0.8)"},
                "opacity": 1,
            },
            customdata=[(key_of(one.mark), _hover(one)) for one, *_ in heads],
            **CLICKABLE,
        )
    )
    return found


def _ends(one: Arrow, stub: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow begins and ends on the drawing."""
    known = one.start or one.end or (0.0, 0.0)
    before, after = (known[0] - stub[0], known[1] + stub[1]), (known[0] + stub[0], known[1] + stub[1])
    return one.start or before, one.end or after


def _colour(one: Arrow, models: Sequence[str]) -> str:
    return model_colour(one.model, models) if one.model else NEUTRAL_COLOUR


def _hover(one: Arrow) -> str:
    return f"{literal(one.name, 90)}<br>{one.n:,} times, {percent(one.share)}"


def _level_curve(start: tuple[float, float], end: tuple[float, float], n: int = 21) -> _Curve:
    """From left to right, level at both ends, as rivers of a Sankey diagram run."""
    (x0, y0), (x1, y1) = start, end
    ts = [i / (n - 1) for i in range(n)]
    return [x0 + t * (x1 - x0) for t in ts], [y0 + (3 - 2 * t) * t * t * (y1 - y0) for t in ts]


def _arc(start: tuple[float, float], end: tuple[float, float], n: int = 21) -> _Curve:
    """A quadratic curve to the left of the straight line; from a place to itself a loop above it."""
    (x0, y0), (x1, y1) = start, end
    if start == end:
        turns = [2 * math.pi * i / (n - 1) for i in range(n)]
        return [x0 + 0.2 * math.sin(t) for t in turns], [y0 - 0.24 + 0.24 * math.cos(t) for t in turns]
    dx, dy = x1 - x0, y1 - y0
    cx, cy = (x0 + x1) / 2 + 0.16 * dy, (y0 + y1) / 2 - 0.16 * dx
    ts = [i / (n - 1) for i in range(n)]
    return (
        [(1 - t) ** 2 * x0 + 2 * t * (1 - t) * cx + t * t * x1 for t in ts],
        [(1 - t) ** 2 * y0 + 2 * t * (1 - t) * cy + t * t * y1 for t in ts],
    )


def _angle(xs: Sequence[float], ys: Sequence[float], i: int) -> float:
    """Clockwise from up, as Plotly turns markers, on a drawing about twice as wide per unit as high."""
    dx, dy = xs[min(i + 1, len(xs) - 1)] - xs[i - 1], ys[min(i + 1, len(ys) - 1)] - ys[i - 1]
    return math.degrees(math.atan2(1.25 * dx, -dy))


def tree(block: Tree) -> go.Figure:
    """Episodes of one task merged by what they have in common from the beginning: width is how many, the last cell
    of each is how they ended."""
    found = block.paths
    cells = {"/": ("", f"{len(found)} episodes", NEUTRAL_COLOUR)}  # path -> parent, label, colour
    counts: Counter[str] = Counter()
    for one in found:
        mark = RIGHT if one.right else WRONG
        path = [
            (
                f"{ROLE_STYLES[move.role].letter}·{literal(move.model, 12)}",
                model_colour(move.model, one.models),
            )
            for move in one.moves
        ]
        here = "/"
        counts[here] += 1
        for text, colour in [*path, (f"{mark.glyph} {mark.word}", mark.colour)]:
            parent, here = here, f"{here}{text}/"
            cells.setdefault(here, (parent, text, colour))
            counts[here] += 1
    deepest = max((len(one.moves) for one in found), default=1) + 2
    return go.Figure(
        go.Icicle(
            ids=list(cells),
            labels=[text for _, text, _ in cells.values()],
            parents=[parent for parent, _, _ in cells.values()],
            values=[counts[path] for path in cells],
            branchvalues="total",
            marker={
                "colors": [colour for _, _, colour in cells.values()],
                "line": {"width": 1.5, "color": "rgba(255,255,255,0.9)"},
            },
            leaf={"opacity": 1},
            root={"color": NEUTRAL_COLOUR},
            tiling={"orientation": "v"},
            texttemplate="%{label}<br>%{value}",
            hovertemplate="%{label}: %{value} of " + str(len(found)) + " episodes<extra></extra>",
            sort=True,
            pathbar={"visible": False},
        ),
        layout(40 + 46 * deepest, margin={"l": 4, "r": 4, "t": 4, "b": 4}),
    )
