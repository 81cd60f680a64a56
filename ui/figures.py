"""The figures of a turn and of a pair of turns: softmaxes, the joint grid, doubt over turns, two choices.

Figures are pure functions of what they show, cached, and drawn without colours of their own for text and
axes: the page's theme gives those, so that they read in light and dark. Foreign names are escaped
(Plotly reads a little HTML).
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from unicodedata import east_asian_width

import plotly.graph_objects as go

from core.episode import ROLE_ORDER, Decision, Role
from storage.summaries import LOW_MARGIN, TurnOutline
from ui.theme import NEUTRAL_COLOUR, ROLE_LOOKS, layout, model_colour, one_line

#: Ends well before solid, so that the theme's text colour is readable on every cell of both pages.
_HEAT = [[0.0, "rgba(31,95,191,0.03)"], [1.0, "rgba(31,95,191,0.62)"]]
#: A dark line inside a light one: a ring that shows on any cell, light page or dark.
_RING = (("rgba(255,255,255,0.95)", 5), ("#111827", 2.5))
_SIDE_COLOURS = ("#1F5FBF", "#C77700")
_ENTROPY_COLOUR, _MARGIN_COLOUR = "#7C5CBF", "#0E8A8A"
_ROW_PX = 27


def drawn(data: list[dict[str, Any]], layout: dict[str, Any]) -> go.Figure:
    """A figure from its plain parts, not validated on every step (ten times slower); the tests do it."""
    return go.Figure(data=data, layout=layout, _validate=False)


def literal(text: str, limit: int = 28) -> str:
    """Foreign text for a Plotly label: one line, cut, its HTML escaped."""
    return html.escape(one_line(text, limit), quote=False)


def role_word(role: Role) -> str:
    """Shape and word, as every axis names a role."""
    look = ROLE_LOOKS[role]
    return f"{look.shape} {look.word}"


def share(p: float) -> str:
    """A probability in words: `62.1 %`, `<0.1 %`, never a rounded-away 0 or 100."""
    if 0 < p < 0.001:
        return "<0.1 %"
    if 0.999 < p < 1:
        return ">99.9 %"
    return f"{100 * p:.1f} %"


@lru_cache(maxsize=256)
def softmax_bars(decision: Decision, models: tuple[str, ...]) -> go.Figure:
    """Both softmaxes of one decision: a bar per model, below them a bar per role; the chosen ones solid
    and named."""
    rows = len(models) + len(ROLE_ORDER)
    gap = 0.9 / (rows + 0.9)
    split = (len(ROLE_ORDER) / rows) * (1 - gap)
    names, roles = [literal(name) for name in models], [role_word(role) for role in ROLE_ORDER]
    model_bars = _bars(
        names,
        decision.model_probs,
        [model_colour(name, models) for name in models],
        chosen=_position(decision.model, models),
        likeliest=_position(decision.argmax_model, models),
        allowed=decision.model_mask,
    )
    role_bars = _bars(
        roles,
        decision.role_probs,
        [NEUTRAL_COLOUR] * len(ROLE_ORDER),
        chosen=_position(decision.role, ROLE_ORDER),
        likeliest=_position(decision.argmax_role, ROLE_ORDER),
        allowed=decision.role_mask,
    )
    across: dict[str, Any] = {
        "range": [0, 1.45],
        "visible": False,
        "fixedrange": True,
        "automargin": False,
    }
    down: dict[str, Any] = {
        "autorange": "reversed",
        "fixedrange": True,
        "automargin": False,  # what has room enough is drawn once
        "ticks": "",
        "showgrid": False,
        "title": None,
    }
    return drawn(
        [model_bars, role_bars | {"xaxis": "x2", "yaxis": "y2"}],
        layout(
            rows * _ROW_PX + 30,
            xaxis=across,
            xaxis2=across | {"anchor": "y2"},
            yaxis=down | ticks(names) | {"domain": [split + gap, 1]},
            yaxis2=down | ticks(roles) | {"domain": [0, split], "anchor": "x2"},
            showlegend=False,
            margin={"l": room([*names, *roles]), "r": 0, "t": 4, "b": 4},
        ),
    )


def room(names: Sequence[str]) -> int:
    """Pixels that names of a vertical axis need at its left. Plotly can find that out itself, but draws the figure
    again for it, at every step through a replay."""
    wide = (sum(1 + (east_asian_width(c) in "WF") for c in html.unescape(name)) for name in names)
    return 14 + round(6.6 * max(wide, default=0))


def ticks(names: Sequence[str]) -> dict[str, Any]:
    """Positions named one by one, so that two names that are equal once cut stay two rows."""
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}


def _position(value: object, order: Sequence[object]) -> int:
    return list(order).index(value) if value in order else -1


def _bars(
    names: Sequence[str],
    probs: Sequence[float],
    colours: Sequence[str],
    *,
    chosen: int,
    likeliest: int,
    allowed: Sequence[bool],
) -> dict[str, Any]:
    """One horizontal bar trace; what is special about a bar is said in its text, not only by its look."""

    def words(i: int) -> str:
        if allowed and not allowed[i]:
            return "masked"
        said = [share(probs[i])]
        said += ["<b>chosen</b>"] if i == chosen else []
        said += ["argmax"] if i == likeliest != chosen else []
        return "  ".join(said)

    return {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(names))),
        "x": list(probs),
        "customdata": list(names),
        "text": [words(i) for i in range(len(names))],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {
            "color": list(colours),
            "opacity": [1.0 if i == chosen else 0.4 for i in range(len(names))],
        },
        "hovertemplate": "%{customdata}: %{x:.4f}<extra></extra>",
    }


@lru_cache(maxsize=256)
def joint_grid(decision: Decision, models: tuple[str, ...], ink: str) -> go.Figure:
    """Probability of every (role, model) pair in the colour `ink`; the chosen cell has a full ring, the
    likeliest a dashed one."""
    joint = [[m * r for m in decision.model_probs] for r in decision.role_probs]
    names, roles = [literal(name, 14) for name in models], [role_word(role) for role in ROLE_ORDER]
    columns, rows = list(range(len(models))), list(range(len(ROLE_ORDER)))
    chosen = (_position(decision.model, models), _position(decision.role, ROLE_ORDER))
    heat = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": joint,
        "zmin": 0,
        "zmax": max(0.5, max((max(row) for row in joint), default=0.5)),
        "colorscale": _HEAT,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": [[f"{ROLE_LOOKS[role].word} on {name}" for name in names] for role in ROLE_ORDER],
        "hovertemplate": "%{customdata}: %{z:.4f}<extra></extra>",
        "text": [
            [_percent(p, bold=(x, y) == chosen) for x, p in enumerate(row)] for y, row in enumerate(joint)
        ],
        "texttemplate": "%{text}",
        "textfont": {"color": ink, "size": 12},
    }
    likeliest = (_position(decision.argmax_model, models), _position(decision.argmax_role, ROLE_ORDER))
    rings = _ring(chosen) if min(chosen) >= 0 else []
    if likeliest != chosen and min(likeliest) >= 0:
        rings = _ring(likeliest, dash="dot") + rings
    axis: dict[str, Any] = {
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "automargin": False,
        "title": None,
    }
    wide = room(names) - room([])  # of the longest name; on a phone all of them have this many pixels:
    slanted = wide > 300 / max(1, len(names))
    return drawn(
        [heat],
        layout(
            len(rows) * 34 + 66,
            xaxis=axis | ticks(names) | {"side": "top", "tickangle": -40 if slanted else 0},
            yaxis=axis | ticks(roles) | {"autorange": "reversed"},
            margin={"l": room(roles), "r": 4, "t": round(24 + 0.64 * wide) if slanted else 40, "b": 4},
            shapes=rings,
        ),
    )


@lru_cache(maxsize=256)
def decision_figure(decision: Decision, models: tuple[str, ...], ink: str) -> go.Figure:
    """Both softmaxes, and below them the joint grid: one figure, because a page draws each anew at every step."""
    bars, grid = (
        softmax_bars(decision, models).to_plotly_json(),
        joint_grid(decision, models, ink).to_plotly_json(),
    )
    above, below = bars["layout"], grid["layout"]
    edges = [part["height"] - part["margin"]["t"] - part["margin"]["b"] for part in (above, below)]
    between = below["margin"]["t"]  # the names of the models stand there
    inner = sum(edges) + between
    foot, top = edges[1] / inner, (edges[1] + between) / inner

    def lifted(axis: dict[str, Any]) -> dict[str, Any]:
        return axis | {"domain": [top + (1 - top) * end for end in axis["domain"]]}

    return drawn(
        [*bars["data"], *(trace | {"xaxis": "x3", "yaxis": "y3"} for trace in grid["data"])],
        above
        | {
            "height": inner + above["margin"]["t"] + above["margin"]["b"],
            "yaxis": lifted(above["yaxis"]),
            "yaxis2": lifted(above["yaxis2"]),
            "xaxis3": below["xaxis"] | {"anchor": "y3"},
            "yaxis3": below["yaxis"] | {"anchor": "x3", "domain": [0, foot]},
            "shapes": [ring | {"xref": "x3", "yref": "y3"} for ring in below["shapes"]],
        },
    )


def _percent(p: float, *, bold: bool) -> str:
    shown = f"{100 * p:.0f}" if p >= 0.005 else "·"
    return f"<b>{shown}</b>" if bold else shown


def _ring(cell: tuple[int, int], dash: str = "solid") -> list[dict[str, Any]]:
    x, y = cell
    box = {"type": "rect", "x0": x - 0.47, "x1": x + 0.47, "y0": y - 0.45, "y1": y + 0.45}
    return [box | {"line": {"color": colour, "width": width, "dash": dash}} for colour, width in _RING]


def doubt_over_turns(outlines: Sequence[TurnOutline]) -> go.Figure | None:
    """Entropy (nats) and logit margin of every decision, low margins marked. None when no decision of the episode has
    them."""
    told = tuple((o.index + 1, o.role, o.entropy, o.margin) for o in outlines)
    if all(entropy is None and margin is None for _, _, entropy, margin in told):
        return None
    return _doubt(told)


@lru_cache(maxsize=256)
def _doubt(told: tuple[tuple[int, Role, float | None, float | None], ...]) -> go.Figure:
    turns = [turn for turn, _, _, _ in told]
    symbols = [ROLE_LOOKS[role].symbol for _, role, _, _ in told]
    data = [
        _line(
            turns, [entropy for _, _, entropy, _ in told], symbols, "entropy (nats)", _ENTROPY_COLOUR, "solid"
        ),
        _line(turns, [margin for _, _, _, margin in told], symbols, "margin (logits)", _MARGIN_COLOUR, "dot"),
    ]
    low = [(turn, margin) for turn, _, _, margin in told if margin is not None and margin < LOW_MARGIN]
    if low:
        data.append(
            {
                "type": "scatter",
                "x": [turn for turn, _ in low],
                "y": [margin for _, margin in low],
                "name": f"margin below {LOW_MARGIN:g}",
                "mode": "markers",
                "marker": {"symbol": "circle-open", "size": 17, "color": "#B85C00", "line": {"width": 2}},
                "hoverinfo": "skip",
            }
        )
    last = max(turns)
    return drawn(
        data,
        layout(
            190,
            xaxis={
                "range": [0.6, last + 0.4],
                "dtick": max(1, math.ceil(last / 20)),
                "tick0": 1,
                "fixedrange": True,
                "title": {"text": "turn"},
                "showgrid": False,
            },
            yaxis={"rangemode": "tozero", "fixedrange": True, "nticks": 5, "title": None},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            hovermode="x unified",
        ),
    )


def _line(
    turns: list[int], values: list[float | None], symbols: list[str], name: str, colour: str, dash: str
) -> dict[str, Any]:
    """One curve over the turns, its markers in the shapes of the roles."""
    return {
        "type": "scatter",
        "x": turns,
        "y": values,
        "name": name,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"symbol": symbols, "size": 9},
        "hovertemplate": f"turn %{{x}}: {name} %{{y:.3f}}<extra></extra>",
    }


@lru_cache(maxsize=256)
def two_choices(a: Decision, a_models: tuple[str, ...], b: Decision, b_models: tuple[str, ...]) -> go.Figure:
    """Both softmaxes of two decisions, A's bar above B's for every model and role; each side's choice is
    named. Slots are matched by name; a side without a slot, or without a head, has no bar there."""
    models = (*a_models, *(name for name in b_models if name not in a_models))
    names = [literal(name) for name in models] + [role_word(role) for role in ROLE_ORDER]
    data = []
    for side, decision, own, colour in (
        ("A", a, a_models, _SIDE_COLOURS[0]),
        ("B", b, b_models, _SIDE_COLOURS[1]),
    ):
        by_model = dict(zip(own, decision.model_probs, strict=False))
        by_role = dict(zip(ROLE_ORDER, decision.role_probs, strict=False))
        probs = [*(by_model.get(name) for name in models), *(by_role.get(role) for role in ROLE_ORDER)]
        picks = {_position(decision.model, models), len(models) + ROLE_ORDER.index(decision.role)}
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": side,
                "y": list(range(len(names))),
                "x": probs,
                "text": [
                    "" if p is None else f"{side} {share(p)}{'  <b>chosen</b>' if i in picks else ''}"
                    for i, p in enumerate(probs)
                ],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {
                    "color": colour,
                    "opacity": [1.0 if i in picks else 0.4 for i in range(len(names))],
                },
                "hovertemplate": f"{side}: %{{x:.4f}}<extra></extra>",
            }
        )
    border = {
        "type": "line",
        "xref": "x domain",
        "yref": "y",
        "x0": 0,
        "x1": 1,
        "y0": len(models) - 0.5,
        "y1": len(models) - 0.5,
        "line": {"color": NEUTRAL_COLOUR, "width": 1},
        "opacity": 0.5,
    }
    return drawn(
        data,
        layout(
            len(names) * 42 + 24,
            barmode="group",
            xaxis={"range": [0, 1.4], "visible": False, "fixedrange": True},
            yaxis=ticks(names)
            | {
                "autorange": "reversed",
                "fixedrange": True,
                "automargin": True,
                "showgrid": False,
                "title": None,
            },
            showlegend=False,
            margin={"l": 8, "r": 0, "t": 4, "b": 4},
            shapes=[border],
        ),
    )
