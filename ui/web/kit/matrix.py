"""A matrix of model and role whose cells can be clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.episode import Role
from ui.presentation.theme import DIFFERENCE_SCALE, PROBABILITY_SCALE, layout
from ui.web.kit.axes import title
from ui.web.kit.figures import CLICKABLE, named_axis

#: The rows, in the order in which a problem is usually worked on.
ROLES = (Role.THINKER, Role.WORKER, Role.VERIFIER)


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
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=named_axis(columns, title=title(axes[1]), range=[-0.5, len(columns) - 0.5], **axis),
            yaxis=named_axis(rows, title=title(axes[0]), range=[len(rows) - 0.5, -0.5], **axis),
        ),
    )
