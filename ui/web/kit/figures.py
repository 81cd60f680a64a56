"""How figures are made and reach a page: axes, bands, intervals, lines of estimates, matrices, marks that can be
clicked, and the camera that saves them.

Figures are pure functions of what they show, and have no colours of their own for text and axes: the page's theme
gives those, so that they read in light and dark.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st

from ui.presentation.theme import (
    CHART_CONFIG,
    DIFFERENCE_SCALE,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    PROBABILITY_SCALE,
    layout,
    one_line,
    percent,
    signed_points,
)
from ui.web.kit import state

#: Of marks whose `customdata` are a key and a text: hovering shows the text, and a click leaves the others as they are.
CLICKABLE: dict[str, Any] = {
    "hovertemplate": "%{customdata[1]}<extra></extra>",
    "unselected": {"marker": {"opacity": 1}},
}


def unvalidated(data: list[dict[str, Any]], layout: dict[str, Any]) -> go.Figure:
    """A figure from plain dicts. Plotly's validation takes ten times as long; the tests validate instead."""
    return go.Figure(data=data, layout=layout, _validate=False)


def literal(text: str, limit: int = 28) -> str:
    """Foreign text for a Plotly label: one line, cut, its HTML escaped (Plotly reads a little HTML)."""
    return html.escape(one_line(text, limit), quote=False)


def ticks(names: Sequence[str]) -> dict[str, Any]:
    """Positions named one by one, so that two names that are equal once cut stay two rows."""
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}


def named_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis with a name at each position from 0 on, of a fixed range, with room for the names."""
    return {"automargin": True, "fixedrange": True, **ticks(names), **more}


def error_bars(
    values: Sequence[float], ends: Sequence[tuple[float, float]], colour: str, thickness: float, width: int
) -> dict[str, Any]:
    """The intervals `ends` (low, high) of values, as Plotly's `error_x` or `error_y`; sizes in pixels."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": colour,
        "thickness": thickness,
        "width": width,
    }


#: Steps between the ticks of an axis of shares that spans what there is, and so many of them at most.
_STEPS, _TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25), 5
#: Margins of a figure with nothing above it.
TIGHT = {"l": 8, "r": 8, "t": 8, "b": 8}
#: An axis that cannot be dragged, without grid and zero line.
BARE: dict[str, Any] = {"fixedrange": True, "showgrid": False, "zeroline": False}


def titled(words: str, **more: Any) -> dict[str, Any]:
    """A bare axis with its title."""
    return {"title": {"text": words}, **BARE, **more}


def title(words: str) -> dict[str, Any]:
    """The small title of an axis."""
    return {"text": words, "font": {"size": 11}}


def values(words: str, **more: Any) -> dict[str, Any]:
    """An axis of values that cannot be dragged, with its title."""
    return {"fixedrange": True, "automargin": True, "title": title(words), **more}


def shares(words: str, **more: Any) -> dict[str, Any]:
    """An axis of shares, in per cent."""
    fine = more.get("dtick", 1) < 0.01
    return values(words, tickformat=".1%" if fine else ".0%", **more)


def span(low: float, high: float) -> tuple[float, float, float]:
    """The ends of an axis of shares on which those from `low` to `high` can be told apart, and the step of its ticks:
    whole steps, within 0 and 1."""
    step = next(one for one in _STEPS if (high - low) / one <= _TICKS)
    begin, end = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    return max(0.0, round(begin, 6)), min(1.0, round(max(end, begin + step), 6)), step


def span_words(words: str, begin: float) -> str:
    """The title of such an axis: that it does not begin at 0."""
    return f"{words}<br>(the axis begins at {100 * begin:.3g} %)" if begin > 0 else words


def line_at(
    *,
    x: float | None = None,
    y: float | None = None,
    colour: str = NEUTRAL_COLOUR,
    opacity: float = 1.0,
    **stroke: Any,
) -> dict[str, Any]:
    """A line over the whole figure, as a shape of its layout: upright at `x` or level at `y`; `stroke` are its `width`
    and `dash`."""
    ends: dict[str, Any] = {"xref": "x domain", "x0": 0, "x1": 1, "y0": y, "y1": y}
    if x is not None:
        ends = {"yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {"type": "line", **ends, "line": {"color": colour, **stroke}, "opacity": opacity}


def tinted(colour: str, strength: float) -> str:
    """A #RRGGBB colour through which the ground shows, at a strength in 0 to 1."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{strength:g})"


def band(
    x: Sequence[float], low: Sequence[float], high: Sequence[float], fill: str, **more: Any
) -> dict[str, Any]:
    """A trace: the area between `low` and `high` in the colour `fill`, which no pointer feels."""
    return {
        "type": "scatter",
        "x": [*x, *x[::-1]],
        "y": [*high, *low[::-1]],
        "mode": "lines",
        "fill": "toself",
        "fillcolor": fill,
        "line": {"width": 0},
        "hoverinfo": "skip",
        **more,
    }


def note(text: str, *, ink: str | None = None, **place: Any) -> dict[str, Any]:
    """A small text that begins at its place, as an annotation of a layout; in `ink`, else in the page's own colour."""
    font = {"size": 11} if ink is None else {"size": 11, "color": ink}
    return {"text": text, "xanchor": "left", "showarrow": False, "font": font, **place}


#: What the camera on a figure saves, kept for this tab.
FIGURES_AS = "figures_as"
#: A format of saved figures -> its words.
IMAGE_FORMATS = {"svg": "SVG, sharp at any size", "png": "PNG, twice the size on screen"}
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")  # what a key may hold and the name of a file should not


def plot(figure: go.Figure, *, key: str, alt: str, small: bool = False, on_select: Any = "ignore") -> Any:
    """`st.plotly_chart` as this app draws it; returns what that returns. `small`: only the camera of the tool bar."""
    kind = image_format()
    saved = {"format": kind, "filename": file_name(key), "scale": 2 if kind == "png" else 1}
    config = CHART_CONFIG | {"toImageButtonOptions": saved}
    if small:
        config["modeBarButtons"] = [["toImage"]]
    return st.plotly_chart(
        figure, key=key, alt=alt, config=config, on_select=on_select, selection_mode="points"
    )


def image_format() -> Literal["svg", "png"]:
    """What the camera saves in this tab."""
    return "png" if st.session_state.get(FIGURES_AS) == "png" else "svg"


def file_name(figure: str) -> str:
    """What a saved figure is called, without its ending."""
    return f"trinity-{_NO_NAME.sub('-', figure)[:60]}"


def clickable(figure: go.Figure, write: Callable[[str], object], *, key: str, alt: str) -> None:
    """A chart; a click on a point hands to `write`, before the page runs again, what the point carries as its custom
    data, the first of several values."""

    def clicked() -> None:
        points = state.points(key)
        carried = points[0].get("customdata") if points else None
        if carried not in (None, []):
            write(str(carried[0] if isinstance(carried, list) else carried))

    plot(figure, key=key, small=True, on_select=clicked, alt=alt)


def picked(figure: go.Figure, *, key: str, alt: str) -> Sequence[Any]:
    """A chart, and what the point that was clicked carries as its custom data: nothing when none was."""
    event = plot(figure, key=key, small=True, on_select="rerun", alt=alt)
    points = event["selection"]["points"]
    return points[0].get("customdata") or () if points else ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """One line: a plain name, a share or a difference of shares with the ends of its interval.

    `detail` is plain text that a pointer on the mark reads below name and interval, `key` what a click on it gives
    back."""

    name: str
    value: float
    low: float
    high: float
    detail: str = ""
    key: str = ""
    colour: str = FIRST_COLOUR
    symbol: str = "circle"


def estimates_figure(
    estimates: Sequence[Estimate], along: str, *, signed: bool = False, zoomed: bool = False
) -> go.Figure:
    """Points with their intervals, first on top. `along` says what they measure. `signed`: differences in points
    around a line at zero, instead of shares from 0 to 100 %, or where `zoomed` of those that there are. A click's
    custom data begins with the line's `key`."""
    shown = estimates[::-1]
    scale = 100 if signed else 1  # the axis of a difference counts points, as the words above its marks do
    points = {
        "type": "scatter",
        "x": [scale * one.value for one in shown],
        "y": list(range(len(shown))),
        "mode": "markers+text",
        "cliponaxis": False,  # on a narrow page the words above a mark at an end are wider than the axis
        "marker": {
            "size": 11,
            "color": [one.colour for one in shown],
            "symbol": [one.symbol for one in shown],
            # Hollow marks need a line of some width to be seen on a dark page.
            "line": {"width": [2.5 if one.symbol.endswith("-open") else 0 for one in shown]},
        },
        "text": [_value(one.value, signed) for one in shown],
        "textposition": "top center",
        "textfont": {"size": 11},
        "error_x": error_bars(
            [scale * one.value for one in shown],
            [(scale * one.low, scale * one.high) for one in shown],
            NEUTRAL_COLOUR,
            1.5,
            5,
        ),
        "customdata": [[one.key, _hover(one, signed)] for one in shown],
        **CLICKABLE,
    }
    return unvalidated(
        [points],
        layout(
            max(132, 68 + 38 * len(shown)),
            showlegend=False,
            hovermode="closest",
            hoverdistance=40,
            margin={"l": 8, "r": 8, "t": 0, "b": 8},
            xaxis=_zoomed(along, shown) if zoomed and shown else _axis(along, signed),
            yaxis=named_axis(
                [literal(one.name, 52) for one in shown], zeroline=False, range=[-0.6, len(shown) - 0.25]
            ),
        ),
    )


def _axis(along: str, signed: bool) -> dict[str, Any]:
    if signed:
        look = {"zerolinecolor": NEUTRAL_COLOUR, "zerolinewidth": 2, "tickformat": "+.3~g"}
        return values(along, zeroline=True, **look)
    # Wider than the shares: the words above a mark at an end must fit.
    return shares(along, zeroline=False, range=[-0.05, 1.05], dtick=0.25)


def _zoomed(along: str, shown: Sequence[Estimate]) -> dict[str, Any]:
    begin, end, step = span(min(one.low for one in shown), max(one.high for one in shown))
    room = 0.06 * (end - begin)  # for the words above a mark at an end
    return shares(span_words(along, begin), zeroline=False, range=[begin - room, end + room], dtick=step)


def _value(value: float, signed: bool) -> str:
    return signed_points(value) if signed else percent(value)


def _hover(one: Estimate, signed: bool) -> str:
    detail = f"<br>{literal(one.detail, 160)}" if one.detail else ""
    ends = f"{_value(one.low, signed)} to {_value(one.high, signed)}"
    return f"{literal(one.name, 60)}{detail}<br>95 % interval {ends}"


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell of a matrix: its value for the colour (None: nothing there), its text, what hovering says (HTML
    escaped) and the key that a click gives back (empty: none)."""

    value: float | None
    text: str
    hover: str
    key: str = ""


def matrix(
    cells: Sequence[Sequence[MatrixCell]],
    rows: Sequence[str],
    columns: Sequence[str],
    ink: str,
    *,
    axes: tuple[str, str],
    signed: bool = False,
    most: float | None = None,
) -> go.Figure:
    """A heat map of cells, with escaped names of rows and columns; every cell can be clicked. `axes`: what rows and
    columns are, in a word or two; `signed`: differences
    around zero; `most`: the value of the strongest colour, else the largest in the matrix."""
    values = [abs(cell.value) for row in cells for cell in row if cell.value is not None]
    # The scale goes on beyond the largest value, so that the page's ink is readable on every cell.
    top = (most or max(values, default=0.0) or 1.0) / 0.62
    flat = [(x, y, cell) for y, row in enumerate(cells) for x, cell in enumerate(row)]
    heat = go.Heatmap(
        z=[[cell.value for cell in row] for row in cells],
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        colorscale=DIFFERENCE_SCALE if signed else PROBABILITY_SCALE,
        zmin=-top if signed else 0.0,
        zmax=top,
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="skip",
    )
    points = go.Scatter(
        x=[x for x, _, _ in flat],
        y=[y for _, y, _ in flat],
        mode="markers+text",
        marker={"symbol": "square", "size": 28, "opacity": 0},
        text=[cell.text for _, _, cell in flat],
        textfont={"color": ink, "size": 12},
        customdata=[(cell.key, cell.hover) for _, _, cell in flat],
        hovertemplate=CLICKABLE["hovertemplate"],
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}, "textfont": {"color": ink}},
    )
    axis = {"showgrid": False, "zeroline": False}
    return go.Figure(
        [heat, points],
        layout(
            90 + 36 * len(rows),
            showlegend=False,
            hovermode="closest",
            hoverdistance=-1,
            margin=TIGHT,
            xaxis=named_axis(
                columns, title=title(axes[1]), range=[-0.5, len(columns) - 0.5], side="top", **axis
            ),
            yaxis=named_axis(rows, title=title(axes[0]), range=[len(rows) - 0.5, -0.5], **axis),
        ),
    )
