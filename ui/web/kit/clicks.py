"""Charts whose points can be clicked: what a click writes down, or leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from ui.web.kit import state
from ui.web.kit.chart import plot


def clickable(
    figure: go.Figure, write: Callable[[str], object], *, key: str, alt: str, small: bool = True
) -> None:
    """A chart; a click on a point hands to `write`, before the page runs again, what the point carries as its custom
    data, the first of several values."""

    def clicked() -> None:
        points = state.points(key)
        carried = points[0].get("customdata") if points else None
        if carried not in (None, []):
            write(str(carried[0] if isinstance(carried, list) else carried))

    plot(figure, key=key, small=small, on_select=clicked, alt=alt)


def picked(figure: go.Figure, *, key: str, alt: str) -> Sequence[Any]:
    """A chart, and what the point that was clicked carries as its custom data: nothing when none was."""
    event = plot(figure, key=key, small=True, on_select="rerun", alt=alt)
    points = event["selection"]["points"]
    return points[0].get("customdata") or () if points else ()
