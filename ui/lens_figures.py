"""The figures of a second look at a decision: what made a lead, what the turns have used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from storage.summaries import TurnOutline
from ui.figures import drawn, literal, ticks
from ui.lens import Part
from ui.theme import FIRST_COLOUR, NEUTRAL_COLOUR, SECOND_COLOUR, layout, model_colour

#: So many turns are drawn as bars; more as areas, which stay quick.
_MOST_BARS = 200
#: What a course can be measured by, as the address says it -> its words and its unit.
MEASURES = {
    "tokens": ("Tokens", "tokens"),
    "cost": ("Cost", "USD"),
    "time": ("Time", "seconds"),
}


def part_name(part: Part, width: int, others: int) -> str:
    """What a summand is called: a number of the state, a direction that the head reads, the turn, or all others."""
    if part.place < 0:
        return f"all {others:,} others"
    if part.place < width:
        return f"h[{part.place}]"
    return f"turn[{part.place - width}]" if width else f"direction {part.place}"


def parts_figure(parts: Sequence[Part], width: int, total: int) -> go.Figure:
    """What each part gives to the difference of two logits, the largest on top: rightwards for the choice."""
    names = [part_name(part, width, total - len(parts) + 1) for part in parts]
    reach = max((abs(part.gives) for part in parts), default=1.0) * 1.45
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(parts))),
        "x": [part.gives for part in parts],
        "text": [f"{part.gives:+.3f}" for part in parts],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {
            "color": [
                NEUTRAL_COLOUR if one.place < 0 else FIRST_COLOUR if one.gives >= 0 else SECOND_COLOUR
                for one in parts
            ]
        },
        "customdata": [
            [name, "" if part.value != part.value else f"<br>the number itself is {part.value:.4f}"]
            for name, part in zip(names, parts, strict=True)
        ],
        "hovertemplate": "%{customdata[0]} gives %{x:+.4f}%{customdata[1]}<extra></extra>",
    }
    return drawn(
        [bars],
        layout(
            len(parts) * 22 + 16,
            xaxis={
                "range": [-reach, reach],
                "fixedrange": True,
                "showticklabels": False,
                "showgrid": False,
                "zeroline": True,
                "zerolinecolor": NEUTRAL_COLOUR,
                "title": None,
            },
            yaxis=ticks(names)
            | {
                "autorange": "reversed",
                "fixedrange": True,
                "automargin": True,
                "showgrid": False,
                "title": None,
            },
            showlegend=False,
            margin={"l": 8, "r": 8, "t": 4, "b": 4},
        ),
    )


def spent(outline: TurnOutline, measure: str) -> float | None:
    """What one turn used; None for a cost without a known price."""
    if measure == "cost":
        return outline.cost_usd
    return outline.latency_s if measure == "time" else float(outline.tokens_in + outline.tokens_out)


def spend_over_turns(
    outlines: Sequence[TurnOutline], models: tuple[str, ...], measure: str
) -> go.Figure | None:
    """What the turns so far have used together, by model, the models stacked in slot order. None when nothing of it
    is known."""
    told = tuple((one.model, spent(one, measure)) for one in outlines if one.stage == "finished")
    if not any(value is not None for _, value in told):
        return None
    return _spend(told, models, measure)


@lru_cache(maxsize=256)
def _spend(told: tuple[tuple[str, float | None], ...], models: tuple[str, ...], measure: str) -> go.Figure:
    turns = list(range(1, len(told) + 1))
    used = [name for name in models if any(model == name for model, _ in told)]
    used += sorted({model for model, _ in told} - set(models))
    data: list[dict[str, Any]] = []
    for name in used:
        so_far, total = [], 0.0
        for model, value in told:
            total += (value or 0.0) if model == name else 0.0
            so_far.append(total)
        colour = model_colour(name, models)
        looks: dict[str, Any] = {"type": "bar", "marker": {"color": colour}}
        if len(told) > _MOST_BARS:
            looks = {
                "type": "scatter",
                "mode": "lines",
                "stackgroup": "all",
                "line": {"color": colour, "width": 1},
            }
        data.append(
            looks
            | {
                "x": turns,
                "y": so_far,
                "name": literal(name),
                "hovertemplate": f"{literal(name)}: %{{y:,.4~g}}<extra></extra>",
            }
        )
    return drawn(
        data,
        layout(
            200,
            xaxis={
                "range": [0.6, len(told) + 0.6],
                "fixedrange": True,
                "title": {"text": "turn"},
                "showgrid": False,
                "dtick": max(1, -(-len(told) // 20)),
                "tick0": 1,
            },
            yaxis={
                "rangemode": "tozero",
                "fixedrange": True,
                "nticks": 5,
                "title": {"text": MEASURES[measure][1]},
            },
            barmode="stack",
            bargap=0.35,
            hovermode="x unified",
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
        ),
    )
