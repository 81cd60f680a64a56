"""The figures of an evolution's heads: what each generation would choose at pinned turns, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from core.episode import ROLE_ORDER
from storage.analysis.rescoring import Rescored
from ui.presentation.policy_diff import slot_letter
from ui.presentation.theme import DIFFERENCE_SCALE, NEUTRAL_COLOUR, ROLE_STYLES, ink_on, layout, model_colour
from ui.presentation.words import role_word
from ui.web.evolution.figures import cursor
from ui.web.kit.figures import literal, ticks, unvalidated

#: What stands in a cell whose choice hangs on rounding.
UNSURE = "?"
#: At most so many letters side by side: more would run into each other.
_LETTERS = 62
_ROW_PX = 22
#: From this probability on a cell hides the page's ground.
_STRONG = 0.6
_MARKERS = ("circle", "diamond", "square", "cross", "x", "star", "hexagon", "pentagon")


@lru_cache(maxsize=32)
def choices_strip(found: Rescored, at: int, ink: str) -> go.Figure:
    """A row per recorded turn, a column per generation: the model as colour, stronger when surer; the letters of role
    and slot wherever a choice begins to stand. `at` is the chosen generation's number, letters are in `ink`."""
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
    return unvalidated([heat, letters, *legend], _strip_layout(found, at, ink))


def _strip_layout(found: Rescored, at: int, ink: str) -> dict[str, Any]:
    """Axes, a line above every episode's first turn, and a box around the generation nearest to `at`."""
    n_lines, n_generations = found.slots.shape
    here = min(range(n_generations), key=lambda column: abs(found.generations[column] - at))
    borders = [
        {
            "type": "line",
            "xref": "x domain",
            "x0": 0,
            "x1": 1,
            "y0": row - 0.5,
            "y1": row - 0.5,
            "line": {"color": NEUTRAL_COLOUR, "width": 1.5},
        }
        for row in range(1, n_lines)
        if found.lines[row].index == 0
    ]
    box = {
        "type": "rect",
        "x0": here - 0.5,
        "x1": here + 0.5,
        "y0": -0.5,
        "y1": n_lines - 0.5,
        "line": {"color": ink, "width": 2},
    }
    shown = range(0, n_generations, max(1, round(n_generations / 12)))
    bare = {"fixedrange": True, "showgrid": False, "zeroline": False}
    return layout(
        n_lines * _ROW_PX + 92,
        xaxis=bare
        | {
            "title": {"text": "generation"},
            "tickmode": "array",
            "tickvals": list(shown),
            "ticktext": [str(found.generations[column]) for column in shown],
        },
        yaxis=bare
        | ticks([_line_name(found, row) for row in range(n_lines)])
        | {"autorange": "reversed", "automargin": True},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        shapes=[*borders, box],
    )


def _slot_scale(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale over [-1, slots]: grey below 0, then each slot's colour from pale to full."""
    span = len(colours) + 1
    scale: list[list[Any]] = [[0.0, "rgba(136,148,165,0.25)"], [1 / span, "rgba(136,148,165,0.25)"]]
    for slot, colour in enumerate(colours):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        scale.append([(slot + 1) / span, f"rgba({red},{green},{blue},0.12)"])
        scale.append([(slot + 2) / span, f"rgba({red},{green},{blue},0.95)"])
    return scale


def _line_name(found: Rescored, row: int) -> str:
    line = found.lines[row]
    family = f"{literal(line.episode.family, 12)} " if line.index == 0 else ""
    return f"{family}{line.index + 1}"


def _hover(found: Rescored) -> list[list[str]]:
    names = [literal(model, 24) for model in found.models]
    rows = []
    for row, line in enumerate(found.lines):
        cells = []
        for column, generation in enumerate(found.generations):
            what = (
                "too close to tell"
                if found.unsure[row, column]
                else f"{ROLE_STYLES[ROLE_ORDER[found.roles[row, column]]].word} on {names[found.slots[row, column]]}, "
                f"{found.chances[row, column]:.0%}, lead {found.leads[row, column]:.2f} logits"
            )
            cells.append(f"generation {generation}, turn {line.index + 1}: {what}")
        rows.append(cells)
    return rows


def _letters(found: Rescored, colours: Sequence[str], ink: str) -> dict[str, Any]:
    """The letters of role and slot at the first of the columns in which a choice stands, where these can hold them;
    black or white on a strong colour, else in `ink`."""
    x, y, text, inks = [], [], [], []
    n_lines, n_columns = found.slots.shape
    least = max(1, round(n_columns / _LETTERS * 4))
    for row in range(n_lines):
        begin = 0
        for column in range(1, n_columns + 1):
            if column < n_columns and _same(found, row, begin, column):
                continue
            if column - begin >= min(least, n_columns):
                x.append(begin - 0.45)
                y.append(row)
                unsure = found.unsure[row, begin]
                strong = not unsure and found.chances[row, begin] > _STRONG
                inks.append(ink_on(colours[found.slots[row, begin]]) if strong else ink)
                role = ROLE_STYLES[ROLE_ORDER[found.roles[row, begin]]].letter
                text.append(UNSURE if unsure else f"<b>{role}</b>{slot_letter(found.slots[row, begin])}")
            begin = column
    return {"x": x, "y": y, "text": text, "textfont": {"size": 11, "color": inks}}


def _same(found: Rescored, row: int, one: int, other: int) -> bool:
    if found.unsure[row, one] or found.unsure[row, other]:
        return bool(found.unsure[row, one] and found.unsure[row, other])
    return bool(
        found.slots[row, one] == found.slots[row, other] and found.roles[row, one] == found.roles[row, other]
    )


# Weights


def row_names(models: Sequence[str]) -> list[str]:
    """The logits in head order: models, then roles with their shapes."""
    return [literal(model, 14) for model in models] + [role_word(role) for role in ROLE_ORDER]


def norms_figure(
    norms: NDArray[np.float64], generations: Sequence[int], models: Sequence[str], at: int
) -> go.Figure:
    """The length of each logit's row [generations, rows] by generation."""
    data = []
    every = max(1, len(generations) // 8)
    for row, name in enumerate(row_names(models)):
        model = row < len(models)
        symbol = _MARKERS[row % len(_MARKERS)] if model else ROLE_STYLES[ROLE_ORDER[row - len(models)]].symbol
        data.append(
            {
                "type": "scatter",
                "x": list(generations),
                "y": norms[:, row].round(4).tolist(),
                "name": name,
                "mode": "lines+markers",
                "line": {
                    "color": model_colour(models[row], models) if model else NEUTRAL_COLOUR,
                    "width": 2,
                    "dash": "solid" if model else "dot",
                },
                "marker": {"symbol": symbol, "size": 8, "maxdisplayed": len(generations) // every + 1},
                "hovertemplate": f"{name} %{{y:.3f}}<extra></extra>",
            }
        )
    return unvalidated(
        data,
        layout(
            400,
            xaxis={
                "title": {"text": "generation"},
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
            },
            yaxis={"rangemode": "tozero", "fixedrange": True, "title": None},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            hovermode="closest",
            shapes=[cursor(at)],
        ),
    )


def cosine_figure(values: NDArray[np.float64], models: Sequence[str], ink: str) -> go.Figure:
    """The cosine between every two rows of a head, in numbers and colours."""
    names = row_names(models)
    known = np.where(np.isfinite(values), values, 0.0)
    shown = [
        ["" if row == column else _two(one) if np.isfinite(one) else "–" for column, one in enumerate(line)]
        for row, line in enumerate(values.tolist())
    ]
    heat = {
        "type": "heatmap",
        "x": list(range(len(names))),
        "y": list(range(len(names))),
        "z": known.round(4).tolist(),
        "zmin": -1,
        "zmax": 1,
        "colorscale": DIFFERENCE_SCALE,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "text": shown,
        "texttemplate": "%{text}",
        "textfont": {"color": ink, "size": 10},
        "customdata": [[f"{one} and {other}" for other in names] for one in names],
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
    }
    axis: dict[str, Any] = {"fixedrange": True, "showgrid": False, "zeroline": False, "automargin": True}
    return unvalidated(
        [heat],
        layout(
            400,
            xaxis=axis | ticks(names) | {"tickangle": -45},
            yaxis=axis | ticks(names) | {"autorange": "reversed"},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
        ),
    )


def _two(value: float) -> str:
    """Two places, no sign on nothing: `.31`, `−.04`, `1`."""
    rounded = f"{abs(value):.2f}"
    body = "1" if rounded == "1.00" else rounded[1:]
    return ("−" if value < 0 and rounded != "0.00" else "") + body
