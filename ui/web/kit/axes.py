"""What figures of many pages share: axes that stay where they are, lines, bands and notes on them, margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ui.presentation.theme import NEUTRAL_COLOUR

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
    return values(words, tickformat=".0%", **more)


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
