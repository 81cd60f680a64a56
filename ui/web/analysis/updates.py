"""Figures along the updates of an evolution or a training: lines with their bands, stacked shares, and the strip of
what every generation would choose. Pure functions of what they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.episode import ROLE_ORDER
from storage.analysis.counterfactual import Rescored
from ui.answers.blocks import Area, Areas, Strip, Trace, Trend
from ui.presentation.comparison import slot_letter
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    ROLE_STYLES,
    SECOND_COLOUR,
    ink_on,
    layout,
    model_colour,
)
from ui.web.kit.figures import (
    TIGHT,
    band,
    error_bars,
    line_at,
    literal,
    named_axis,
    note,
    shares,
    tinted,
    titled,
    unvalidated,
    values,
)

#: Colour and mark of a line.
_TONES = {
    "first": (FIRST_COLOUR, "circle"),
    "second": (SECOND_COLOUR, "square"),
    "right": (RIGHT_COLOUR, "diamond"),
    "neutral": (NEUTRAL_COLOUR, "circle"),
}
#: Areas whose last share is below this are named on hover only.
_NAMED = 0.045
#: What stands in a cell whose choice hangs on rounding.
UNSURE = "?"
#: At most so many letters side by side: more would run into each other.
_LETTERS = 62
_ROW_PX = 22
#: From this probability on a cell hides the page's ground.
_STRONG = 0.6


def trend(block: Trend) -> go.Figure:
    """Lines along the updates, with bands of what chance alone does to them and the chosen update marked."""
    data = [
        _band(name, ends, FIRST_COLOUR, 0.16 + 0.24 * place)
        for place, (name, ends) in enumerate(block.bands.items())
    ]
    data += [drawn for one in block.traces for drawn in _trace(one, block.places)]
    yaxis = values(block.axes[1], rangemode="tozero")
    if block.places is None:
        yaxis = shares(block.axes[1], range=[0, 1.04])
    if block.top is not None:
        yaxis["range"] = [0, 1.04 * block.top]
    if block.small:
        yaxis["nticks"] = 5
    return unvalidated(
        data,
        layout(
            190 if block.small else 380,
            xaxis=_updates(block.axes[0], data),
            yaxis=yaxis,
            margin=TIGHT,
            hovermode="x unified",
            showlegend=len(block.traces) > 1,
            shapes=[line_at(x=block.at, width=6, opacity=0.35) | {"layer": "below"}],
        ),
    )


def _updates(title: str, data: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """An x-axis with its title, of whole numbers alone where it counts few generations or iterations."""
    longest = max((max(one["x"], default=0) for one in data), default=0)
    steps = {"dtick": 1} if title in ("generation", "iteration") and longest < 8 else {}
    return titled(title, **steps, **more)


def _band(
    name: str, ends: Sequence[tuple[float, float, float]], colour: str, strength: float
) -> dict[str, Any]:
    x, low, high = ([one[part] for one in ends] for part in range(3))
    return band(x, low, high, tinted(colour, strength), name=name, showlegend=False)


def _trace(one: Trace, places: int | None) -> Iterator[dict[str, Any]]:
    """A line, or a mark where it has one value only, over its band where it has intervals; marks have bars instead."""
    colour, symbol = _TONES[one.tone]
    points = [point for point in one.points if point.estimate.value is not None]
    heights = [point.estimate.value or 0.0 for point in points]
    ends = [point.estimate.ci95 or (height, height) for point, height in zip(points, heights, strict=True)]
    bars, look = {}, one.look if len(points) > 1 else "markers"
    if one.look == "markers":
        bars = {"error_y": error_bars(heights, ends, colour, 1.5, 4)}
    elif any(point.estimate.ci95 for point in points):
        found = [(point.x, *end) for point, end in zip(points, ends, strict=True)]
        yield _band(one.name, found, colour, 0.22 if one.tone == "first" else 0.1)
    name, value = literal(one.name, 44), "%{y:.1%}" if places is None else f"%{{y:,.{places}f}}"
    yield {
        "type": "scatter",
        "x": [point.x for point in points],
        "y": heights,
        "name": name,
        "mode": look,
        "line": {"color": colour, "width": 2, "dash": one.dash},
        "marker": {"symbol": symbol, "size": 9 if look == "markers" else 6, "color": colour},
        "customdata": [literal(point.detail, 60) for point in points],
        "hovertemplate": f"{name} {value} %{{customdata}}<extra></extra>",
        **bars,
    }


def areas(block: Areas, ink: str) -> go.Figure:
    """Shares stacked along the updates; names at the right are in `ink`."""
    drawn, names, below = [], [], 0.0
    for one in block.areas:
        drawn.append(_area(block.x, one))
        last = one.shares[-1] if one.shares else 0.0
        if last >= _NAMED:
            names.append(note(literal(one.name, 14), ink=ink, xref="paper", x=1.01, y=below + last / 2))
        below += last
    # A dark line shows on areas of any colour.
    mark = (
        [] if block.at is None else [line_at(x=block.at, colour="#111827", width=2, dash="dot", opacity=0.35)]
    )
    return unvalidated(
        drawn,
        layout(
            300 if block.small else 360,
            xaxis=_updates(block.axes[0], drawn, range=list(block.span)),
            yaxis=shares(block.axes[1], range=[0, 1], showgrid=False),
            margin=TIGHT | {"r": 84},
            shapes=mark,
            annotations=names,
        ),
    )


def _area(x: Sequence[float], one: Area) -> dict[str, Any]:
    """One area of the stack, from the ones below it."""
    white = {"fgcolor": "rgba(255,255,255,0.75)", "bgcolor": one.colour, "size": 7, "solidity": 0.22}
    return {
        "type": "scatter",
        "x": list(x),
        "y": list(one.shares),
        "name": literal(one.name, 28),
        "stackgroup": "all",
        "mode": "lines",
        "line": {"width": 0.5, "color": one.colour},
        "fillcolor": one.colour,
        "fillpattern": {"shape": one.pattern, **white},
        "hovertemplate": f"{literal(one.name, 28)} %{{y:.1%}}<extra></extra>",
        "hoveron": "points",
        "showlegend": False,
    }


# What every generation would choose


def strip(block: Strip, ink: str) -> go.Figure:
    """A row per recorded turn, a column per generation: the model as colour, stronger when surer; the letters of role
    and slot, in `ink`, wherever a choice begins to stand."""
    found = block.found
    n_lines, n_generations = found.slots.shape
    # Each slot has a unit of the scale to itself, from pale to full.
    z = np.where(found.unsure, -0.5, found.slots + 0.02 + 0.96 * np.clip(found.chances, 0.0, 1.0))
    colours = [model_colour(model, found.models) for model in found.models]
    heat = {
        "type": "heatmap",
        "x": list(range(n_generations)),
        "y": list(range(n_lines)),
        "z": z.round(3).tolist(),
        "zmin": -1,
        "zmax": len(found.models),
        "colorscale": _slot_scale(colours),
        "showscale": False,
        "xgap": 0 if n_generations > _LETTERS / 2 else 1,
        "ygap": 2,
        "customdata": _hover(found),
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    letters = {
        "type": "scatter",
        "mode": "text",
        "textposition": "middle right",
        "hoverinfo": "skip",
        "showlegend": False,
        **_letters(found, colours, ink),
    }
    legend = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [None],
            "y": [None],
            "name": f"{slot_letter(slot)} {literal(model, 14)}",
            "marker": {"symbol": "square", "size": 10, "color": colours[slot]},
        }
        for slot, model in enumerate(found.models)
    ]
    return unvalidated([heat, letters, *legend], _strip_layout(found, block.at, ink))


def _strip_layout(found: Rescored, at: int, ink: str) -> dict[str, Any]:
    """Axes, a line above every episode's first turn, and a box around the generation nearest to `at`."""
    n_lines, n_generations = found.slots.shape
    here = min(range(n_generations), key=lambda column: abs(found.generations[column] - at))
    episodes = [row for row in range(1, n_lines) if found.lines[row].index == 0]
    box = {
        "type": "rect",
        "x0": here - 0.5,
        "x1": here + 0.5,
        "y0": -0.5,
        "y1": n_lines - 0.5,
        "line": {"color": ink, "width": 2},
    }
    shown = range(0, n_generations, max(1, round(n_generations / 12)))
    return layout(
        n_lines * _ROW_PX + 92,
        xaxis=titled(
            "generation", tickvals=list(shown), ticktext=[str(found.generations[column]) for column in shown]
        ),
        yaxis=named_axis(
            [_line_name(found, row) for row in range(n_lines)],
            autorange="reversed",
            showgrid=False,
            zeroline=False,
        ),
        margin=TIGHT,
        shapes=[*(line_at(y=row - 0.5, width=1.5) for row in episodes), box],
    )


def _slot_scale(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale over [-1, slots]: grey below 0, then each slot's colour from pale to full."""
    span = len(colours) + 1
    scale: list[list[Any]] = [[0.0, "rgba(136,148,165,0.25)"], [1 / span, "rgba(136,148,165,0.25)"]]
    for slot, colour in enumerate(colours):
        scale.append([(slot + 1) / span, tinted(colour, 0.12)])
        scale.append([(slot + 2) / span, tinted(colour, 0.95)])
    return scale


def _line_name(found: Rescored, row: int) -> str:
    line = found.lines[row]
    family = f"{literal(line.episode.family, 12)} " if line.index == 0 else ""
    return f"{family}{line.index + 1}"


def _hover(found: Rescored) -> list[list[str]]:
    return [
        [
            f"generation {generation}, turn {line.index + 1}: {_choice_words(found, row, column)}"
            for column, generation in enumerate(found.generations)
        ]
        for row, line in enumerate(found.lines)
    ]


def _choice_words(found: Rescored, row: int, column: int) -> str:
    at = row, column
    if found.unsure[at]:
        return "too close to tell"
    role, model = ROLE_STYLES[ROLE_ORDER[found.roles[at]]].word, found.models[found.slots[at]]
    return f"{role} on {literal(model, 24)}, {found.chances[at]:.0%}, lead {found.leads[at]:.2f} logits"


def _letters(found: Rescored, colours: Sequence[str], ink: str) -> dict[str, Any]:
    """The letters of role and slot at the first of the columns in which a choice stands, where these can hold them;
    black or white on a strong colour, else in `ink`."""
    n_columns = len(found.generations)
    least = min(n_columns, max(1, round(n_columns / _LETTERS * 4)))
    choices = np.where(found.unsure, -1, found.slots * len(ROLE_ORDER) + found.roles)
    x, y, text, inks = [], [], [], []
    for row, choice in enumerate(choices):
        changes = np.flatnonzero(np.diff(choice)) + 1
        for begin, end in pairwise([0, *changes.tolist(), n_columns]):
            if end - begin < least:
                continue
            slot, unsure = found.slots[row, begin], found.unsure[row, begin]
            strong = not unsure and found.chances[row, begin] > _STRONG
            role = ROLE_STYLES[ROLE_ORDER[found.roles[row, begin]]].letter
            x.append(begin - 0.45)
            y.append(row)
            inks.append(ink_on(colours[slot]) if strong else ink)
            text.append(UNSURE if unsure else f"<b>{role}</b>{slot_letter(slot)}")
    return {"x": x, "y": y, "text": text, "textfont": {"size": 11, "color": inks}}
