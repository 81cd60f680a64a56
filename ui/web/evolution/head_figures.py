"""The figures of an evolution's heads: what each generation would choose at pinned turns, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.episode import ROLE_ORDER
from storage.analysis.counterfactual import Rescored
from ui.presentation.comparison import slot_letter
from ui.presentation.theme import ROLE_STYLES, ink_on, layout, model_colour
from ui.web.kit.figures import TIGHT, line_at, literal, named_axis, titled, unvalidated

#: What stands in a cell whose choice hangs on rounding.
UNSURE = "?"
#: At most so many letters side by side: more would run into each other.
_LETTERS = 62
_ROW_PX = 22
#: From this probability on a cell hides the page's ground.
_STRONG = 0.6


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
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        scale.append([(slot + 1) / span, f"rgba({red},{green},{blue},0.12)"])
        scale.append([(slot + 2) / span, f"rgba({red},{green},{blue},0.95)"])
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
