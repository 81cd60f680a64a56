"""The figures of an evolution: fitness with its noise, step size, cost, who is chosen, one generation's candidates.

Like all figures here they are pure functions of what they show, cached, and leave text and axes to the theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from core.episode import Role
from core.evolution.generation_stats import EpisodeStatistics
from storage.rows.summaries import CandidateSummary
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    ROLE_STYLES,
    SECOND_COLOUR,
    WARN_COLOUR,
    layout,
    model_colour,
)
from ui.web.evolution.lineage import (
    AXES,
    Lineage,
    binomial_error,
    control_words,
    grouped,
    most_entropy,
    pair_order,
    share_entropy,
    tasks_each,
)
from ui.web.kit.figures import literal, unvalidated

#: Fill of a role's areas: pattern, and its words for the caption.
PATTERNS: dict[Role, tuple[str, str]] = {
    Role.THINKER: ("/", "striped"),
    Role.WORKER: ("", "plain"),
    Role.VERIFIER: (".", "dotted"),
}
_ROLE_COLOURS = {Role.THINKER: "#7C5CBF", Role.WORKER: "#0E8A8A", Role.VERIFIER: WARN_COLOUR}
_CONTROL_DASHES = ("longdash", "longdashdot", "dashdot")
#: Areas whose last share is below this are named on hover only.
_NAMED = 0.045


@lru_cache(maxsize=64)
def fitness_figure(lineage: Lineage, axis: str, at: int, second: Lineage | None) -> go.Figure:
    """Best, mean and median of every population, how far chance alone moves them, the mean on held-apart tasks
    with its interval, and lines for the controls. `at` is the chosen generation's position."""
    x = lineage.axis(axis)
    places = [place for place, one in enumerate(lineage.generations) if one.index > 0]
    data = _bands(lineage, x, places)
    alone = (
        lineage.plan is not None and lineage.plan.evolution.population == 1
    )  # then best, mean and median are one
    for name, dash, width in (("best", "dot", 1.5), ("mean", "solid", 2.5), ("median", "dash", 1.5)):
        if alone and name != "mean":
            continue
        y = [getattr(lineage.generations[place], name) for place in places]
        data.append(_curve([x[place] for place in places], y, name, dash, width, FIRST_COLOUR))
    data.append(_validated(lineage, x, "validation", "diamond", RIGHT_COLOUR))
    if second is not None:
        theirs = second.axis(axis)
        drawn_places = [place for place, one in enumerate(second.generations) if one.index > 0]
        name = literal(second.name, 24)
        means = [second.generations[place].mean for place in drawn_places]
        data.append(
            _curve(
                [theirs[place] for place in drawn_places], means, f"mean, {name}", "solid", 2, SECOND_COLOUR
            )
        )
        data.append(_validated(second, theirs, f"validation, {name}", "square", SECOND_COLOUR))
    data += _control_lines(lineage, x)
    return unvalidated(
        data,
        layout(
            380,
            xaxis=_x_axis(axis),
            yaxis={"range": [0, 1.04], "tickformat": ".0%", "fixedrange": True, "title": None},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            hovermode="x unified",
            shapes=[cursor(x[at])],
        ),
    )


def _bands(lineage: Lineage, x: list[float], places: list[int]) -> list[dict[str, Any]]:
    """One standard error around the mean: of one candidate's fitness (light), of the population's mean (dark)."""
    found = []
    for name, shade in (("one candidate", 0.16), ("the mean", 0.4)):
        known, low, high = [], [], []
        for place in places:
            one, tasks = lineage.plays[place], tasks_each(lineage, place)
            n = tasks if name == "one candidate" else one.n if one else None
            if n:
                mean = lineage.generations[place].mean
                error = binomial_error(mean, n)
                known.append(x[place])
                low.append(mean - error)
                high.append(mean + error)
        if known:
            found.append(
                {
                    "type": "scatter",
                    "x": known + known[::-1],
                    "y": high + low[::-1],
                    "mode": "lines",
                    "fill": "toself",
                    "fillcolor": f"rgba(47,118,214,{shade})",
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                    "name": f"± 1 standard error of {name}",
                    "showlegend": False,
                }
            )
    return found


def _curve(
    x: list[float], y: Sequence[float | None], name: str, dash: str, width: float, colour: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": x,
        "y": list(y),
        "name": name,
        "mode": "lines" if len(x) > 1 else "markers",
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertemplate": f"{name} %{{y:.1%}}<extra></extra>",
    }


def _validated(lineage: Lineage, x: list[float], name: str, symbol: str, colour: str) -> dict[str, Any]:
    known = [(at, one) for at, one in zip(x, lineage.validations, strict=True) if one and one.n]
    ends = [one.interval for _, one in known]
    return {
        "type": "scatter",
        "x": [at for at, _ in known],
        "y": [one.accuracy for _, one in known],
        "name": name,
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 9, "color": colour},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [high - one.accuracy for (_, one), (_, high) in zip(known, ends, strict=True)],
            "arrayminus": [one.accuracy - low for (_, one), (low, _) in zip(known, ends, strict=True)],
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        },
        "customdata": [
            f"{one.right} of {one.n}, {low:.1%} to {high:.1%}"
            for (_, one), (low, high) in zip(known, ends, strict=True)
        ],
        "hovertemplate": f"{name} %{{y:.1%}} (%{{customdata}})<extra></extra>",
    }


def _control_lines(lineage: Lineage, x: list[float]) -> list[dict[str, Any]]:
    """A grey line for each control, named with its value in the legend, where no name covers a mark."""
    found = sorted(lineage.controls.items(), key=lambda item: -item[1].accuracy)
    return [
        _curve(
            [min(x), max(x)],
            [one.accuracy] * 2,
            f"{literal(control_words(name), 44)} {one.accuracy:.1%}",
            _CONTROL_DASHES[place % len(_CONTROL_DASHES)],
            1.5,
            NEUTRAL_COLOUR,
        )
        | {"hoverinfo": "skip", "hovertemplate": None}
        for place, (name, one) in enumerate(found)
    ]


def cursor(x: float) -> dict[str, Any]:
    """The chosen generation as every chart marks it."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": NEUTRAL_COLOUR, "width": 6},
        "opacity": 0.35,
        "layer": "below",
    }


def _x_axis(axis: str) -> dict[str, Any]:
    return {"title": {"text": AXES[axis]}, "fixedrange": True, "showgrid": False, "zeroline": False}


@lru_cache(maxsize=64)
def line_figure(
    lineage: Lineage, values: tuple[tuple[str, str, tuple[float | None, ...]], ...], axis: str, at: int
) -> go.Figure:
    """A few curves over the generations: `values` are (name, dash, one value per generation)."""
    x = lineage.axis(axis)
    data = []
    for place, (name, dash, y) in enumerate(values):
        curve = _curve(x, y, name, dash, 2, (FIRST_COLOUR, NEUTRAL_COLOUR)[place % 2])
        data.append(curve | {"hovertemplate": f"{name} %{{y:,.4~g}}<extra></extra>"})
    return unvalidated(
        data,
        layout(
            190,
            xaxis=_x_axis(axis),
            yaxis={"rangemode": "tozero", "fixedrange": True, "nticks": 5, "title": None},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            showlegend=len(values) > 1,
            hovermode="x unified",
            shapes=[cursor(x[at])],
        ),
    )


# Who is chosen


@lru_cache(maxsize=64)
def shares_figure(
    lineage: Lineage, by: str, axis: str, mark: float | None, span: tuple[float, float], ink: str
) -> go.Figure:
    """The share of every choice in all turns, stacked, generation after generation (the paper's figure 6). `span`
    is the x-axis, `mark` the chosen generation on it; names at the right are in `ink`."""
    known = [(at, one) for at, one in zip(lineage.axis(axis), lineage.plays, strict=True) if one]
    x = [at for at, _ in known]
    rows = [grouped(one.shares, by) for _, one in known]
    data: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    below = 0.0
    for key, name, colour, pattern in _areas(lineage, by):
        y = [row.get(key, 0.0) for row in rows]
        data.append(_area(x, y, name, colour, pattern))
        if y and y[-1] >= _NAMED:
            notes.append(_note(name, below + y[-1] / 2, ink))
        below += y[-1] if y else 0.0
    return unvalidated(
        data,
        layout(
            360,
            xaxis=_x_axis(axis) | {"range": list(span)},
            yaxis={
                "range": [0, 1],
                "tickformat": ".0%",
                "fixedrange": True,
                "title": None,
                "showgrid": False,
            },
            margin={"l": 8, "r": 84, "t": 8, "b": 8},
            shapes=[] if mark is None else [cursor(mark) | {"layer": "above", "line": _MARK}],
            annotations=notes,
        ),
    )


def _area(x: list[float], y: list[float], name: str, colour: str, pattern: str) -> dict[str, Any]:
    """One area of the stack, from the ones below it."""
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "name": name,
        "stackgroup": "all",
        "mode": "lines",
        "line": {"width": 0.5, "color": colour},
        "fillcolor": colour,
        "fillpattern": {
            "shape": pattern,
            "fgcolor": "rgba(255,255,255,0.75)",
            "bgcolor": colour,
            "size": 7,
            "solidity": 0.22,
        },
        "hovertemplate": f"{name} %{{y:.1%}}<extra></extra>",
        "hoveron": "points",
        "showlegend": False,
    }


#: A line that shows on areas of any colour.
_MARK = {"color": "#111827", "width": 2, "dash": "dot"}


def _note(name: str, y: float, ink: str) -> dict[str, Any]:
    """A name at the right of the area it belongs to."""
    return {
        "xref": "paper",
        "x": 1.01,
        "xanchor": "left",
        "y": y,
        "text": name,
        "showarrow": False,
        "font": {"size": 11, "color": ink},
    }


def _areas(lineage: Lineage, by: str) -> list[tuple[str, str, str, str]]:
    """(key, name, colour, pattern) of each area, from below."""
    models = lineage.models
    if by == "model":
        return [(m, literal(m, 14), model_colour(m, models), "") for m in models]
    if by == "role":
        return [
            (role.value, ROLE_STYLES[role].word, _ROLE_COLOURS[role], PATTERNS[role][0])
            for role in (Role.THINKER, Role.WORKER, Role.VERIFIER)
        ]
    return [
        (
            f"{model} {role.value}",
            f"{ROLE_STYLES[role].letter} · {literal(model, 12)}",
            model_colour(model, models),
            PATTERNS[role][0],
        )
        for model, role in pair_order(models)
    ]


@lru_cache(maxsize=64)
def manner_figure(
    lineage: Lineage, second: Lineage | None, what: str, by: str, axis: str, at: int
) -> go.Figure:
    """How populations play: the entropy of the shares, mean turns, or the share that a Verifier accepted; with the
    other evolution as a dashed line."""
    data = []
    for one, dash, colour in ((lineage, "solid", FIRST_COLOUR), (second, "dash", SECOND_COLOUR)):
        if one is not None:
            y = [None if played is None else manner(played, what, by) for played in one.plays]
            curve = _curve(one.axis(axis), y, literal(one.name, 24), dash, 2, colour)
            shown = "%{y:.1%}" if what == "accepted" else "%{y:.2f}"
            data.append(curve | {"hovertemplate": f"{literal(one.name, 24)} {shown}<extra></extra>"})
    upper = {"accepted": 1.0, "entropy": most_entropy(lineage.models, by)}.get(what)
    return unvalidated(
        data,
        layout(
            190,
            xaxis=_x_axis(axis),
            yaxis={
                "fixedrange": True,
                "nticks": 5,
                "title": None,
                "tickformat": ".0%" if what == "accepted" else "",
                "rangemode": "tozero",
                **({} if upper is None else {"range": [0, upper * 1.03]}),
            },
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            showlegend=second is not None,
            hovermode="x unified",
            shapes=[cursor(lineage.axis(axis)[at])],
        ),
    )


def manner(played: EpisodeStatistics, what: str, by: str) -> float:
    """One number of how a population played, by the names that `manner_figure` knows."""
    if what == "entropy":
        return share_entropy(played.shares, by)
    return played.accept_rate if what == "accepted" else played.turns_mean


# One generation's candidates


def candidates_figure(
    candidates: Sequence[CandidateSummary], distances: Sequence[float] | None, mean: float
) -> go.Figure:
    """Fitness of every candidate with one standard error of its tasks, against its distance from the mean; sorted by
    fitness where distances are unknown. A dashed line is the population's mean."""
    known = [one for one in candidates if one.fitness is not None]
    if distances is None:
        known.sort(key=lambda one: one.fitness or 0.0)
        x: list[float] = list(range(1, len(known) + 1))
        title = "candidates, the worst first"
    else:
        x = [distances[one.index] for one in known]
        title = "distance from the mean, in step sizes"
    line = {
        "type": "line",
        "xref": "x domain",
        "x0": 0,
        "x1": 1,
        "y0": mean,
        "y1": mean,
        "line": {"color": NEUTRAL_COLOUR, "width": 1.5, "dash": "longdash"},
    }
    note = {
        "xref": "x domain",
        "x": 0.01,
        "xanchor": "left",
        "y": mean,
        "yanchor": "bottom",
        "text": f"mean {mean:.1%}",
        "showarrow": False,
        "font": {"size": 11},
    }
    return unvalidated(
        [_candidate_points(known, x)],
        layout(
            380,
            xaxis={"title": {"text": title}, "fixedrange": True, "showgrid": False, "zeroline": False},
            yaxis={"tickformat": ".0%", "fixedrange": True, "title": None},
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            shapes=[line],
            annotations=[note],
        ),
    )


def _candidate_points(known: Sequence[CandidateSummary], x: Sequence[float]) -> dict[str, Any]:
    """Each candidate's fitness at its `x`, with one standard error of its tasks."""
    errors = [binomial_error(one.fitness or 0.0, one.rollouts - one.missing) for one in known]
    return {
        "type": "scatter",
        "x": x,
        "y": [one.fitness for one in known],
        "mode": "markers",
        "marker": {"size": 8, "color": FIRST_COLOUR, "opacity": 0.75, "symbol": "circle"},
        "error_y": {
            "type": "data",
            "array": errors,
            "color": "rgba(136,148,165,0.45)",
            "thickness": 1,
            "width": 0,
        },
        "customdata": [
            (one.index, one.rollouts - one.missing, one.missing, error)
            for one, error in zip(known, errors, strict=True)
        ],
        "hovertemplate": "candidate %{customdata[0]}: %{y:.1%} of %{customdata[1]} tasks"
        "<br>± %{customdata[3]:.1%}, %{customdata[2]} missing<extra></extra>",
        "showlegend": False,
    }
