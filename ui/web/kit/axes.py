"""Axes that stay where they are, straight lines across a figure, and its margins: what figures of many pages share."""

from __future__ import annotations

from typing import Any

from ui.presentation.theme import NEUTRAL_COLOUR

#: Margins of a figure with nothing above it.
TIGHT = {"l": 8, "r": 8, "t": 8, "b": 8}
#: An axis that cannot be dragged, without grid and zero line.
BARE: dict[str, Any] = {"fixedrange": True, "showgrid": False, "zeroline": False}
#: An axis of values that cannot be dragged, and one of shares.
VALUES: dict[str, Any] = {"fixedrange": True, "title": None}
SHARES: dict[str, Any] = {**VALUES, "tickformat": ".0%"}


def titled(title: str, **more: Any) -> dict[str, Any]:
    """A bare axis with its title."""
    return {"title": {"text": title}, **BARE, **more}


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
