"""The parts that figures share: axes of names, bars, intervals, marks that can be clicked, text that means only itself.

Figures are pure functions of what they show, and have no colours of their own for text and axes: the page's theme
gives those, so that they read in light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ui.presentation.theme import one_line

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
