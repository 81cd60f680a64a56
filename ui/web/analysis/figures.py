"""Figures of an answer's blocks: estimates, grids, bars, curves, marks and clouds; pure functions of what they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from ui.answers.blocks import Bars, Cell, Cloud, Curve, Dot, Estimates, Grid, Mark, Point, Points
from ui.presentation.theme import (
    CLASS_COLOURS,
    CLASS_SYMBOLS,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    SECOND_COLOUR,
    UNKNOWN_COLOUR,
    WRONG_COLOUR,
    layout,
    model_colour,
    one_line,
    one_lines,
    percent,
)
from ui.web.kit.figures import (
    CLICKABLE,
    TIGHT,
    Estimate,
    MatrixCell,
    band,
    error_bars,
    estimates_figure,
    line_at,
    literal,
    matrix,
    shares,
    span,
    span_words,
    tinted,
    title,
    unvalidated,
    values,
)

#: A and B, or the only side, and further ones: colour, dash and mark, so that colour is never alone.
SIDES = (
    (FIRST_COLOUR, "solid", "circle"),
    (SECOND_COLOUR, "dash", "square"),
    *zip((*CLASS_COLOURS[1:6], CLASS_COLOURS[7]), ("dot", "dashdot") * 3, CLASS_SYMBOLS, strict=False),
)
#: Classes with a colour of their own, the smaller ones are one grey class; more points than `CROWD` are drawn smaller.
MOST_CLASSES, CROWD = len(CLASS_SYMBOLS), 600
#: Where the name of a mark may stand: never right above or below, where its interval is drawn.
_PLACES = ("top left", "top right", "bottom right", "bottom left", "middle right", "middle left")
#: A name beside a line, with what is counted, has so many characters.
_NAME = 52
_TONES = {
    "right": (RIGHT_COLOUR, ""),
    "wrong": (WRONG_COLOUR, "/"),
    "neutral": (NEUTRAL_COLOUR, ""),
    "unsure": (NEUTRAL_COLOUR, "/"),
}


def _look(side: str) -> tuple[str, str, str]:
    return SIDES["ABCDEFGH".index(side)]


def key_of(mark: Mark) -> str:
    """What a click on a mark gives back: what it looks into, as addresses name it, else its page's parameters."""
    if mark.to is not None:
        return repr(sorted(mark.to.params.items(), key=str))
    return f"{mark.into}#B" if mark.into and mark.side == "B" else mark.into


def estimates(block: Estimates) -> go.Figure:
    """Points with their intervals; a mark's shape and colour are its side's, hollow where it is faint."""
    found = []
    for one in block.lines:
        colour, _, symbol = _look(one.mark.side)
        share = one.estimate.value or 0.0
        low, high = one.estimate.ci95 or (share, share)
        counts = f" · {one.estimate.k:,} of {one.estimate.n:,}" if one.estimate.n is not None else ""
        name = f"{one.mark.side} · {one.name}" if one.mark.side else one.name
        found.append(
            Estimate(
                f"{one_line(name, _NAME - len(counts))}{counts}",
                share,
                low,
                high,
                key=key_of(one.mark),
                colour=NEUTRAL_COLOUR if one.plain else colour,
                symbol=f"{symbol}-open" if one.faint else symbol,
            )
        )
    return estimates_figure(found, block.along, signed=block.signed, zoomed=block.zoomed)


def grid(block: Grid, ink: str) -> go.Figure:
    """A heat map whose cells can be clicked; numbers are percent, or points of a difference."""
    return matrix(
        [
            [
                MatrixCell(
                    cell.value,
                    ("" if cell.value is None else block.words(cell.value)) + cell.sign,
                    _hover(row, column, cell),
                    key_of(cell.mark),
                )
                for column, cell in zip(block.columns, of, strict=True)
            ]
            for row, of in zip(block.rows, block.cells, strict=True)
        ],
        [literal(one, 30) for one in one_lines(block.rows, 30)],
        [literal(one, 14) for one in one_lines(block.columns, 14)],
        ink,
        axes=block.axes,
        signed=block.signed,
        most=block.top,
    )


def _hover(row: str, column: str, cell: Cell) -> str:
    ends = f"<br>95 % {percent(cell.ci95[0])} to {percent(cell.ci95[1])}" if cell.ci95 else ""
    return f"{literal(row, 80)}, {literal(column, 80)}: {literal(cell.detail, 80)}{ends}"


def bars(block: Bars) -> go.Figure:
    """Counts by group, stacked; what is wrong is hatched."""
    data, level = [], block.level
    groups = [literal(group, 30) for group in block.groups]
    keys = [key_of(mark) for mark in block.marks] or [""] * len(groups)
    for place, one in enumerate(block.series):
        colour, pattern = _TONES.get(one.tone, (CLASS_COLOURS[place % len(CLASS_COLOURS)], ""))
        look = {"shape": pattern, "fgcolor": "rgba(255,255,255,0.55)", "fillmode": "overlay"}
        data.append(
            go.Bar(
                x=list(one.counts) if level else groups,
                y=groups if level else list(one.counts),
                orientation="h" if level else "v",
                name=one.name,
                marker={"color": colour, "pattern": look},
                customdata=[
                    (key, f"{block.axes[0]} {group}: {n:,} {one.name}")
                    for key, group, n in zip(keys, groups, one.counts, strict=True)
                ],
                **CLICKABLE,
            )
        )
    axis = {"type": "category", "title": {"text": "" if level else block.axes[0]}, "fixedrange": True}
    counts = values(block.axes[1])
    if level:
        axis |= {"autorange": "reversed", "automargin": True}
        # On a phone each of several kinds has a line of its own in the legend.
        height = 90 + 26 * len(groups) + 24 * max(0, len(data) - 2)
        return go.Figure(data, layout(height, barmode="stack", xaxis=counts, yaxis=axis))
    return go.Figure(data, layout(250, barmode="stack", xaxis=axis, yaxis=counts))


#: Along so few whole numbers each has a tick: a browser hangs where each of 92,160 episodes has one.
_WHOLE_TICKS = 20


def curve(block: Curve) -> go.Figure:
    """Shares along x, each line in its side's look; with their 95 % bands where two at most have intervals."""
    data: list[Any] = []
    lines = list(block.lines.values())
    top = max((_ends(one)[1] for line in lines for one in line), default=1.0)
    for (name, line), (colour, dash, symbol) in zip(block.lines.items(), cycle(SIDES), strict=False):
        banded = [one for one in line if one.estimate.ci95] if len(lines) < 3 else []
        if banded:
            data.append(_band(banded, colour))
        data.append(
            go.Scatter(
                x=[one.x for one in line],
                # The browser would round 56.25 % up, all our words round it down.
                y=[
                    None if one.estimate.value is None else round(one.estimate.value, block.places or 3)
                    for one in line
                ],
                name=literal(name, 40),
                mode="lines+markers+text" if banded else "lines+markers",
                line={"color": colour, "dash": dash, "width": 2},
                marker={"symbol": [f"{symbol}-open" if one.faint else symbol for one in line], "size": 9},
                text=[percent(one.estimate.value) for one in line],
                textposition=[_side_of(one, lines) for one in line],
                textfont={"size": 11},
                cliponaxis=False,
                customdata=[(key_of(one.mark), _point_words(block, name, one)) for one in line],
                **CLICKABLE,
            )
        )
    along = [float(one.x) for line in lines for one in line]
    few = max(along, default=0.0) - min(along, default=0.0) <= _WHOLE_TICKS
    steps = {"dtick": 1} if few and all(x.is_integer() for x in along) else {}
    return go.Figure(
        data,
        layout(
            300,
            showlegend=len(lines) > 1,
            xaxis={"title": {"text": block.axes[0]}, "fixedrange": True, **steps},
            # Room for a number below a mark at 0.
            yaxis=shares(block.axes[1], range=[-0.1 * top, min(1.08, 1.15 * top + 0.05)])
            if block.places is None
            else values(block.axes[1]),
        ),
    )


def _point_words(block: Curve, name: str, one: Point) -> str:
    found = one.estimate
    counts = (
        "" if found.n is None else f", {found.n:,}" if found.k is None else f", {found.k:,} of {found.n:,}"
    )
    detail = f"<br>{literal(one.detail, 80)}" if one.detail else ""
    value = percent(found.value) if block.places is None else f"{found.value:.{block.places}f}"
    return f"{literal(name, 40)}<br>{one.x:g} {block.axes[0]}: {value}{counts}{detail}"


def _ends(one: Point) -> tuple[float, float]:
    return one.estimate.ci95 or (one.estimate.value or 0.0, one.estimate.value or 0.0)


def _band(line: Sequence[Point], colour: str) -> dict[str, Any]:
    """The 95 % intervals of a curve as one tinted area."""
    low, high = [_ends(one)[0] for one in line], [_ends(one)[1] for one in line]
    return band([one.x for one in line], low, high, tinted(colour, 0.15), showlegend=False)


def _side_of(one: Point, lines: Sequence[Sequence[Point]]) -> str:
    """Where the number of a mark stands: below it where another curve lies above."""
    others = [other.estimate.value or 0.0 for line in lines for other in line if other.x == one.x]
    return "bottom center" if (one.estimate.value or 0.0) < max(others) else "top center"


def marks(block: Points) -> go.Figure:
    """Every mark by x and its share; the ones that stand out are joined, solid and named."""
    ahead = sorted((one.x, one.estimate.value) for one in block.points if one.stands_out)
    steps = go.Scatter(
        x=[x for x, _ in ahead],
        y=[share for _, share in ahead],
        mode="lines",
        line={"color": NEUTRAL_COLOUR, "shape": "hv", "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    left, right = _room([one.x for one in block.points])
    bottom, top, axis = _heights(block)
    return go.Figure(
        [steps, _marks(block, (left, right), (bottom, top))],
        layout(
            340,
            showlegend=False,
            hovermode="closest",
            xaxis={"title": title(block.axes[0]), "range": [left, right], "zeroline": False},
            yaxis=axis,
            shapes=[] if block.level is None else [line_at(y=block.level, width=1.5, dash="longdash")],
        ),
    )


def _heights(block: Points) -> tuple[float, float, dict[str, Any]]:
    """The ends of the axis of shares, with room for names above and below, and that axis."""
    ends = [end for one in block.points for end in _ends(one)]
    begin, end, step = span(min(ends, default=0.0), max(ends, default=1.0))
    if not block.zoomed:
        begin, step = 0.0, 0.2 if end > 0.5 else 0.1
    room = 0.08 * (end - begin)
    bottom, top = begin - (room if begin else 0.0), end + room
    words = span_words(block.axes[1], begin)
    return bottom, top, shares(words, range=[bottom, top], dtick=step, zeroline=False, fixedrange=False)


def _marks(block: Points, across: tuple[float, float], up: tuple[float, float]) -> go.Scatter:
    points, (left, right), (bottom, top) = block.points, across, up
    intervals = [_ends(one) for one in points]
    heights = [one.estimate.value or 0.0 for one in points]
    names = [literal(one.name, 26) if one.stands_out or len(points) <= 8 else "" for one in points]

    def height_of(share: float) -> float:
        return (share - bottom) / (top - bottom)

    places = [
        ((one.x - left) / (right - left), height_of(height))
        for one, height in zip(points, heights, strict=True)
    ]
    bars = [(height_of(low), height_of(high)) for low, high in intervals]
    return go.Scatter(
        x=[one.x for one in points],
        y=heights,
        mode="markers+text",
        marker={
            "size": [12 if one.stands_out else 8 for one in points],
            "opacity": 1,  # sizes that differ would make them pale
            "symbol": ["diamond" if one.stands_out else "circle-open" for one in points],
            "color": [FIRST_COLOUR if one.stands_out else NEUTRAL_COLOUR for one in points],
        },
        text=names,
        textposition=label_sides(places, names, bars),
        textfont={"size": 11},
        error_y=error_bars(heights, intervals, "rgba(136,148,165,0.5)", 1, 3),
        customdata=[
            (
                key_of(one.mark),
                f"{literal(one.detail, 60)}<br>{percent(height)} of {one.estimate.n or 0:,} right"
                f"<br>{one.x:,.4g} {block.axes[0]}",
            )
            for one, height in zip(points, heights, strict=True)
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
    outside = max(0.0, -left) + max(0.0, right - 1) + max(0.0, -bottom) + max(0.0, top - 1)
    over = sum(
        max(0.0, min(right, other[2]) - max(left, other[0]))
        * max(0.0, min(top, other[3]) - max(bottom, other[1]))
        for other in taken
    )
    return 1000 * over + outside


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


def cloud(block: Cloud) -> go.Figure:
    """Points in the plane by class; a click in the legend hides a class."""
    styles = class_styles([one.name for one in block.dots], block.slots)
    members: dict[ClassStyle, list[Dot]] = {look: [] for look in styles.values()}
    for one in block.dots:
        members[styles[one.name]].append(one)
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{look.name} ({len(own)})",
            "x": [one.x for one in own],
            "y": [one.y for one in own],
            "customdata": [(key_of(one.mark), literal(one.detail, 160)) for one in own],
            "marker": {
                "color": look.colour,
                "symbol": look.symbol,
                "size": 8 if len(block.dots) <= CROWD else 6,
                "opacity": 0.8,
                "line": {"width": 1, "color": look.colour},
            },
            **CLICKABLE,
        }
        for look, own in members.items()
    ]
    axis = {"zeroline": False, "showgrid": False, "showticklabels": False, "ticks": "", "automargin": True}
    across, up = (axis | {"title": {"text": title, "standoff": 6}} for title in block.axes)
    below = {"orientation": "h", "yanchor": "top", "xanchor": "left", "x": 0, "y": -0.12}
    return unvalidated(
        data, layout(380, xaxis=across, yaxis=up, legend=below, margin=TIGHT, hovermode="closest")
    )
