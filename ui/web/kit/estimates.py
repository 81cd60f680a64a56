"""Estimates with their 95 % intervals, one line each: how every page draws shares and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from ui.presentation.theme import FIRST_COLOUR, NEUTRAL_COLOUR, layout, percent
from ui.web.kit.figures import CLICKABLE, error_bars, literal, named_axis, unvalidated


@dataclass(frozen=True, slots=True)
class Estimate:
    """One line: a plain name, a share or a difference of shares with the ends of its interval.

    `detail` is plain text that a pointer on the mark reads below name and interval, `key` what a click on it gives
    back. A line without a name is a gap."""

    name: str
    value: float
    low: float
    high: float
    detail: str = ""
    key: str = ""
    colour: str = FIRST_COLOUR
    symbol: str = "circle"


def estimates_figure(estimates: Sequence[Estimate], along: str, *, signed: bool = False) -> go.Figure:
    """Points with their intervals, first on top. `along` says what they measure. `signed`: differences in points
    around a line at zero, instead of shares from 0 to 100 %. A click's custom data begins with the line's `key`."""
    shown = estimates[::-1]
    scale = 100 if signed else 1  # the axis of a difference counts points, as the words above its marks do
    points = {
        "type": "scatter",
        "x": [scale * one.value for one in shown],
        "y": list(range(len(shown))),
        "mode": "markers+text",
        "cliponaxis": False,  # on a narrow page the words above a mark at an end are wider than the axis
        "marker": {
            "size": [11 if one.name else 0 for one in shown],
            "color": [one.colour for one in shown],
            "symbol": [one.symbol for one in shown],
            # Hollow marks need a line of some width to be seen on a dark page.
            "line": {"width": [2.5 if one.symbol.endswith("-open") else 0 for one in shown]},
            "opacity": 1,  # sizes that differ would make them pale
        },
        "text": [_value(one.value, signed) if one.name else "" for one in shown],
        "textposition": "top center",
        "textfont": {"size": 11},
        "error_x": error_bars(
            [scale * one.value for one in shown],
            [(scale * one.low, scale * one.high) for one in shown],
            NEUTRAL_COLOUR,
            1.5,
            5,
        ),
        "customdata": [[one.key, _hover(one, signed)] for one in shown],
        **CLICKABLE,
    }
    return unvalidated(
        [points],
        layout(
            max(132, 68 + 38 * len(shown)),
            showlegend=False,
            hovermode="closest",
            hoverdistance=40,
            margin={"l": 8, "r": 8, "t": 0, "b": 8},
            xaxis=_axis(along, signed),
            yaxis=named_axis(
                [literal(one.name, 48) for one in shown], zeroline=False, range=[-0.6, len(shown) - 0.25]
            ),
        ),
    )


def _axis(along: str, signed: bool) -> dict[str, Any]:
    if signed:
        look = {"zerolinecolor": NEUTRAL_COLOUR, "zerolinewidth": 2, "tickformat": "+.3~g"}
    else:  # wider than the shares: the words above a mark at an end must fit
        look = {"range": [-0.05, 1.05], "tickformat": ".0%", "dtick": 0.25}
    return {"zeroline": signed, "fixedrange": True, "title": {"text": along, "font": {"size": 11}}, **look}


def _value(value: float, signed: bool) -> str:
    return f"{100 * value:+.1f}" if signed else percent(value)


def _hover(one: Estimate, signed: bool) -> str:
    detail = f"<br>{literal(one.detail, 160)}" if one.detail else ""
    ends = f"{_value(one.low, signed)} to {_value(one.high, signed)}"
    return f"{literal(one.name, 60)}{detail}<br>95 % interval {ends}"
