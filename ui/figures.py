"""The figures of an episode and of a pair of turns: doubt over turns, two choices.

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

import plotly.graph_objects as go

from core.episode import ROLE_ORDER, Decision, Role
from storage.summaries import LOW_MARGIN, TurnOutline
from ui.theme import FIRST_COLOUR, NEUTRAL_COLOUR, ROLE_LOOKS, SECOND_COLOUR, WARN_COLOUR, layout, one_line

_ENTROPY_COLOUR, _MARGIN_COLOUR = "#7C5CBF", "#0E8A8A"


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


def ticks(names: Sequence[str]) -> dict[str, Any]:
    """Positions named one by one, so that two names that are equal once cut stay two rows."""
    return {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}


def _position(value: object, order: Sequence[object]) -> int:
    return list(order).index(value) if value in order else -1


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
        _line(turns, [margin for _, _, _, margin in told], symbols, "margin (logits)", _MARGIN_COLOUR, "dot")
        | {"yaxis": "y2"},
    ]
    low = [(turn, margin) for turn, _, _, margin in told if margin is not None and margin < LOW_MARGIN]
    if low:
        data.append(
            {
                "type": "scatter",
                "x": [turn for turn, _ in low],
                "y": [margin for _, margin in low],
                "yaxis": "y2",
                "name": f"margin below {LOW_MARGIN:g}",
                "mode": "markers",
                "marker": {"symbol": "circle-open", "size": 17, "color": WARN_COLOUR, "line": {"width": 2}},
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
            # Each on a scale of its own: margins are often ten times an entropy.
            yaxis=_upwards("entropy"),
            yaxis2=_upwards("margin") | {"overlaying": "y", "side": "right", "showgrid": False},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            hovermode="x unified",
        ),
    )


def _upwards(title: str) -> dict[str, Any]:
    return {
        "rangemode": "tozero",
        "fixedrange": True,
        "nticks": 5,
        "tickmode": "auto",
        "title": {"text": title, "font": {"size": 11}},
    }


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
        ("A", a, a_models, FIRST_COLOUR),
        ("B", b, b_models, SECOND_COLOUR),
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
