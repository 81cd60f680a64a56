"""Figures of routing: a matrix whose cells can be clicked, the graph of moves, bars of a first move, a tree of
replicates."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from storage.analysis.regret import Replicate
from storage.analysis.routing import ModelInRole, Traffic
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
from ui.presentation.words import move_key, move_words, role_word
from ui.web.kit.axes import BARE, TIGHT
from ui.web.kit.figures import CLICKABLE, horizontal_bars, literal, ticks
from ui.web.kit.matrix import ROLES

#: Links drawn in a graph; the table below it has all.
MOST_LINKS = 24


# The graph of moves


@dataclass(frozen=True, slots=True)
class _Link:
    """One arrow: where it begins and ends on the drawing, its weight in 0 to 1, colour, words and key."""

    start: tuple[float, float]
    end: tuple[float, float]
    weight: float
    colour: str
    hover: str
    key: str


def move_graph(traffic: Traffic, models: Sequence[str]) -> go.Figure:
    """Who followed whom, all turns together: models are columns and roles rows, as in the matrix; arrows are the
    most frequent links, thicker the more often, and each can be clicked at its arrow head."""
    at = {
        ModelInRole(model, role): (float(x), float(y))
        for x, model in enumerate(models)
        for y, role in enumerate(ROLES)
    }
    steps = traffic.steps()
    total = sum(steps.values()) or 1
    links = []
    for (here, there), n in steps.most_common(MOST_LINKS):
        known = [at[move] for move in (here, there) if move is not None]
        # Beginnings and ends are short stubs: lines to two common nodes would cross everything else.
        begin = known[0] if here else (known[0][0] - 0.38, known[0][1] + 0.16)
        end = known[-1] if there else (known[-1][0] + 0.38, known[-1][1] + 0.16)
        links.append(
            _Link(
                begin,
                end,
                n / total,
                model_colour(here.model, models) if here and there else NEUTRAL_COLOUR,
                f"{literal(move_words(here, 'the beginning'), 40)} → {literal(move_words(there), 40)}"
                f"<br>{n:,} times, {percent(n / total)} of all steps",
                step_key(here, there),
            )
        )
    marks = [
        _Mark(
            at[move],
            move,
            traffic.share(move),
            f"{n:,} turns, {percent(traffic.share(move))} of all",
            move_key(move),
        )
        for move in at
        if (n := traffic.turns[move])
    ]
    figure = _drawing([*_arrows(links, _arc), _marks(marks, models)], 330)
    figure.update_xaxes(range=[-0.6, len(models) - 0.4], **ticks([literal(model, 14) for model in models]))
    figure.update_yaxes(range=[2.5, -0.65], **ticks([role_word(role) for role in ROLES]))
    return figure


def moves_by_turn(traffic: Traffic, models: Sequence[str]) -> go.Figure:
    """Who followed whom, turn by turn: columns are turns, rows the moves made, arrows the most frequent links."""
    links = [one for one in traffic.links.most_common() if one[0][1] is not None][: 2 * MOST_LINKS]
    shown = {move for (_, here, there), _ in links for move in (here, there) if move is not None}
    moves = [move for role in ROLES for model in models if (move := ModelInRole(model, role)) in shown]
    row = {move: float(y) for y, move in enumerate(moves)}
    last = max((at for (at, _, _), _ in links), default=1)
    arrows = [
        _Link(
            (float(at), row[here]),
            (at + 0.72, row[here]) if there is None else (at + 1.0, row[there]),
            n / max(1, traffic.episodes),
            model_colour(here.model, models),
            f"turn {at}: {literal(move_words(here), 40)} → {literal(move_words(there), 40)}"
            f"<br>{n:,} episodes, {percent(n / max(1, traffic.episodes))}",
            f"{step_key(here, there)}@{at}",
        )
        for (at, here, there), n in links
        if here in row and (there is None or there in row) and here is not None
    ]
    marks = [
        _Mark(
            (float(at), row[move]),
            move,
            n / max(1, traffic.episodes),
            f"{n:,} episodes",
            f"{move_key(move)}@{at - 1}",
        )
        for at in range(1, last + 1)
        for move in moves
        if (n := sum(k for (to, _, there), k in traffic.links.items() if to == at - 1 and there == move))
    ]
    figure = _drawing([*_arrows(arrows, _level_curve), _marks(marks, models)], 60 + 34 * max(3, len(moves)))
    turns = range(1, last + 1)
    figure.update_xaxes(
        range=[0.6, last + 0.9], tickvals=list(turns), ticktext=[f"turn {turn}" for turn in turns]
    )
    figure.update_yaxes(range=[len(moves) - 0.4, -0.6], **ticks([_axis_name(move) for move in moves]))
    return figure


def _drawing(data: Sequence[Any], height: int) -> go.Figure:
    axis = {**BARE, "automargin": True}
    return go.Figure(
        data,
        layout(height, showlegend=False, hovermode="closest", margin=TIGHT, xaxis=axis, yaxis=axis),
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """A move on the drawing: where, its weight in 0 to 1, words and key."""

    at: tuple[float, float]
    move: ModelInRole
    weight: float
    words: str
    key: str


def _marks(marks: Sequence[_Mark], models: Sequence[str]) -> go.Scatter:
    """Colour for the model, shape for the role, size for how often."""
    colours = [model_colour(one.move.model, models) for one in marks]
    return go.Scatter(
        x=[one.at[0] for one in marks],
        y=[one.at[1] for one in marks],
        mode="markers+text",
        marker={
            "symbol": [ROLE_STYLES[one.move.role].symbol for one in marks],
            "size": [11 + 34 * math.sqrt(one.weight) for one in marks],
            "color": colours,
            "opacity": 1,
            "line": {"width": 1, "color": "rgba(255,255,255,0.7)"},
        },
        text=[f"{100 * one.weight:.0f}" if one.weight >= 0.045 else "" for one in marks],
        textfont={"size": 10, "color": [ink_on(colour) for colour in colours]},
        customdata=[(one.key, f"{literal(move_words(one.move), 40)}<br>{one.words}") for one in marks],
        **CLICKABLE,
    )


_Curve = tuple[list[float], list[float]]
_Draw = Callable[[tuple[float, float], tuple[float, float]], _Curve]


def _arrows(links: Sequence[_Link], draw: _Draw) -> list[go.Scatter]:
    """Lines, heaviest on top, and one trace of heads that carry the keys."""
    heaviest = max((link.weight for link in links), default=1.0)
    found, heads = [], []
    for link in sorted(links, key=lambda one: one.weight):
        xs, ys = draw(link.start, link.end)
        weight = link.weight / heaviest
        found.append(
            go.Scatter(
                x=xs,
                y=ys,
                mode="lines",
                line={"width": 1 + 9 * weight, "color": link.colour},
                opacity=0.25 + 0.35 * weight,
                hoverinfo="skip",
            )
        )
        near = len(xs) * 3 // 5
        heads.append((link, xs[near], ys[near], _angle(xs, ys, near)))
    found.append(
        go.Scatter(
            x=[x for _, x, _, _ in heads],
            y=[y for _, _, y, _ in heads],
            mode="markers",
            marker={
                "symbol": "arrow",
                "size": [9 + 7 * link.weight / heaviest for link, _, _, _ in heads],
                "angle": [angle for _, _, _, angle in heads],
                "color": [link.colour for link, _, _, _ in heads],
                "line": {"width": 1, "color": "rgba(255,255,255,0.8)"},
                "opacity": 1,
            },
            customdata=[(link.key, link.hover) for link, _, _, _ in heads],
            **CLICKABLE,
        )
    )
    return found


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


def step_key(here: ModelInRole | None, there: ModelInRole | None) -> str:
    """A step as an address names it; None is the beginning, or the end, of an episode."""
    return f"{move_key(here) if here else 'start'}>{move_key(there) if there else 'end'}"


# First moves and replicates


def first_moves(traffic: Traffic, models: Sequence[str], most: int = 10) -> go.Figure:
    """Episodes by their first move, most frequent on top, with how many of them ended right."""
    found = traffic.first().most_common(most)
    total = sum(traffic.first().values()) or 1
    shares = [n / total for _, n in found]
    return horizontal_bars(
        shares,
        [_axis_name(move) for move, _ in found],
        [model_colour(move.model, models) for move, _ in found],
        [
            f"{percent(share)}, {100 * traffic.opened_right[move] / n:.0f} % right"
            for share, (move, n) in zip(shares, found, strict=True)
        ],
        "share of episodes",
        room=1.6,
        customdata=[
            (
                f"{move_key(move)}@0",
                f"{literal(move_words(move), 40)}<br>{n:,} episodes, {traffic.opened_right[move]:,} right",
            )
            for move, n in found
        ],
    )


def _axis_name(move: ModelInRole) -> str:
    return f"{ROLE_STYLES[move.role].shape} {literal(move_words(move), 24)}"


def replicate_tree(found: Sequence[Replicate]) -> go.Figure:
    """Episodes of one task merged by what they have in common from the beginning: width is how many, the last cell
    of each is how they ended."""
    cells = {"/": ("", f"{len(found)} episodes", NEUTRAL_COLOUR)}  # path -> parent, label, colour
    counts: Counter[str] = Counter()
    for one in found:
        models, mark = json.loads(one.models), RIGHT if one.correct else WRONG
        path = [
            (f"{ROLE_STYLES[move.role].letter}·{literal(move.model, 12)}", model_colour(move.model, models))
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


def role_rows(models: Sequence[str]) -> list[list[ModelInRole]]:
    """The moves of a matrix: a row per role, a column per model."""
    return [[ModelInRole(model, role) for model in models] for role in ROLES]
