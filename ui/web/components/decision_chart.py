"""The decision chart: a bar per model and per role and the joint grid of both, drawn in place, so that a step from turn
to turn changes it and does not build it anew. Its camera saves it as every figure is saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.episode import ROLE_ORDER
from ui.presentation.odds import JointCell, Option
from ui.presentation.theme import NEUTRAL_COLOUR, ROLE_STYLES, one_line
from ui.web.components import component
from ui.web.kit import state
from ui.web.kit.figures import file_name, image_format

_CAMERA = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M9 3 7.2 5H4a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2h16a2 2 0 0 0 '
    '2-2V7a2 2 0 0 0-2-2h-3.2L15 3zm3 15a5 5 0 1 1 0-10 5 5 0 0 1 0 10z"/></svg>'
)
_HTML = (
    f'<div class="decision"><svg class="odds" role="img"></svg><button type="button">{_CAMERA}</button></div>'
)
#: A cell of so much probability, or of the grid's most, is the darkest.
_DARKEST = 0.5


@dataclass(frozen=True, slots=True)
class Picking:
    """A grid from which a pair is picked: a click on a cell, a digit for the model or a role's first letter calls
    `on_pick(model, role)` with their places; Enter calls `on_accept`. `open` says which models may be picked."""

    open: Sequence[bool]
    on_pick: Callable[[int, int], None]
    on_accept: Callable[[], None]


def decision_chart(
    models: Sequence[Option],
    roles: Sequence[Option],
    *,
    key: str,
    what: str,
    grid: bool = True,
    picking: Picking | None = None,
) -> None:
    """Draw the options of one decision. `what` says in words what the chart shows; a screen reader hears after it every
    name with its odds."""
    data = chart_data(models, roles, key=key, what=what, grid=grid)
    if picking is None:
        component("decision_chart", _HTML)(key=key, data=data)
        return

    def picked() -> None:
        found = state.reported(key, "pick")
        if isinstance(found, list) and len(found) == 2:  # it comes from the browser
            model, role = found
            if model in range(len(models)) and picking.open[model] and role in range(len(roles)):
                picking.on_pick(model, role)

    pick = {"open": list(picking.open), "letters": [ROLE_STYLES[role].word[0] for role in ROLE_ORDER]}
    component("decision_chart", _HTML)(
        key=key, data={**data, "pick": pick}, on_pick_change=picked, on_accept_change=picking.on_accept
    )


def chart_data(
    models: Sequence[Option], roles: Sequence[Option], *, key: str, what: str, grid: bool = True
) -> dict[str, Any]:
    """What the chart is drawn from, foreign names cut to one line."""
    most = max([_DARKEST, *(joint.p for option in models for joint in option.joint)])
    heard = [f"{one_line(one.name, 28)} {one.words} {one.note}".strip() for one in (*models, *roles)]
    return {
        "models": [_bar(option) for option in models],
        "roles": [_bar(option) for option in roles],
        "columns": [one_line(option.name, 14) for option in models],
        "cells": [
            [_cell(f"{role.name} on {one.name}", one.joint[line], most) for one in models]
            for line, role in enumerate(roles if grid else ())
        ],
        "pick": None,
        "said": " ".join([what, *(f"{words}." for words in heard)]),
        "saved": {"name": file_name(key), "format": image_format()},
    }


def _cell(pair: str, joint: JointCell, most: float) -> dict[str, Any]:
    return {
        **{field: getattr(joint, field) for field in ("percent", "chosen", "likeliest", "proposed")},
        "heat": round(joint.p / most, 3),
        "title": f"{one_line(pair, 40)}: {joint.p:.4f}",
    }


def _bar(option: Option) -> dict[str, Any]:
    name = one_line(option.name, 28)
    logit = "" if option.logit is None else f", logit {option.logit:+.4f}"
    return {
        "name": name,
        "colour": option.colour or NEUTRAL_COLOUR,
        **{field: getattr(option, field) for field in ("p", "words", "chosen", "note", "other")},
        "title": f"{name}: {option.p:.4f}{logit}",
    }
