"""The parts that figures share: axes of names, bars, intervals, marks that can be clicked, text that means only itself.

Figures are pure functions of what they show, and have no colours of their own for text and axes: the page's theme
gives those, so that they read in light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ui.presentation.theme import layout, one_line

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


def horizontal_bars(
    values: Sequence[float],
    names: Sequence[str],
    colours: Sequence[str],
    words: Sequence[str],
    along: str,
    *,
    room: float = 1.3,
    customdata: Sequence[tuple[str, str]] | None = None,
) -> go.Figure:
    """Bars from the first, on top, to the last, `words` at the end of each. `along` says what their length is; the
    axis is `room` times as long as the longest bar. With `customdata`, a key and a text for hovering each, the bars can
    be clicked."""
    pointer = {"hoverinfo": "skip"} if customdata is None else {"customdata": customdata, **CLICKABLE}
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": list(values),
        "y": list(range(len(values))),
        "marker": {"color": list(colours)},
        "text": list(words),
        "textposition": "outside",
        "cliponaxis": False,
        **pointer,
    }
    return go.Figure(
        bars,
        layout(
            64 + 30 * len(values),
            showlegend=False,
            margin={"l": 8, "r": 8, "t": 0, "b": 8},
            xaxis={
                "title": {"text": along, "font": {"size": 11}},
                "showticklabels": False,
                "showgrid": False,
                "zeroline": False,
                "range": [0, room * max(values, default=1.0)],
                "fixedrange": True,
            },
            yaxis=named_axis(names, autorange="reversed"),
        ),
    )
