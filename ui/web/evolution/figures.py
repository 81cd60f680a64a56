"""The figures of an evolution: fitness with its noise, step size, cost, who is chosen, one generation's candidates.

Like all figures here they are pure functions of what they show, cached, and leave text and axes to the theme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from core.analysis.learning import LearningCurve
from core.episode import Role
from core.evolution.fitness import EpisodeStatistics
from storage.rows.summaries import CandidateSummary
from ui.presentation.learning import mean_words
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
from ui.web.evolution.course import (
    Course,
    Lineage,
    binomial_error,
    control_words,
    grouped,
    most_entropy,
    share_entropy,
    tasks_each,
)
from ui.web.kit.figures import (
    TIGHT,
    band,
    error_bars,
    line_at,
    literal,
    note,
    shares,
    titled,
    unvalidated,
    values,
)

#: Fill of a role's areas: pattern, and its words for the caption.
PATTERNS: dict[Role, tuple[str, str]] = {
    Role.THINKER: ("/", "striped"),
    Role.WORKER: ("", "plain"),
    Role.VERIFIER: (".", "dotted"),
}
_ROLE_COLOURS = {Role.THINKER: "#7C5CBF", Role.WORKER: "#0E8A8A", Role.VERIFIER: WARN_COLOUR}
_CONTROL_DASHES = ("longdash", "longdashdot", "dashdot")
#: (key, name, colour, pattern) of an area.
Choice = tuple[str, str, str, str]
#: Areas whose last share is below this are named on hover only.
_NAMED = 0.045


@lru_cache(maxsize=64)
def fitness_figure(lineage: Lineage, axis: str, at: int, second: Lineage | None) -> go.Figure:
    """Best, mean and median of every population, how far chance alone moves them, the mean on held-apart tasks
    with its interval, and lines for the controls. `at` is the chosen generation's position."""
    curves = [("best", "dot", 1.5), ("mean", "solid", 2.5), ("median", "dash", 1.5)]
    if lineage.plan is not None and lineage.plan.evolution.population == 1:
        curves = [("mean", "solid", 2.5)]  # of one candidate, best, mean and median are one
    data = _bands(lineage, axis)
    data += [
        curve(lineage.axis(axis), lineage.of_updates(what), what, dash, width, FIRST_COLOUR)
        for what, dash, width in curves
    ]
    data.append(validated_points(lineage, axis, "validation", "diamond", RIGHT_COLOUR))
    if second is not None:
        name = literal(second.name, 24)
        mean = second.of_updates("mean")
        data.append(curve(second.axis(axis), mean, f"mean, {name}", "solid", 2, SECOND_COLOUR))
        data.append(validated_points(second, axis, f"validation, {name}", "square", SECOND_COLOUR))
    data += _control_lines(lineage, axis)
    return along_course(data, lineage, axis, at, 380, shares("answered right", range=[0, 1.04]))


def along_course(
    data: list[dict[str, Any]],
    course: Course,
    axis: str,
    at: int,
    height: int,
    yaxis: dict[str, Any],
    **more: Any,
) -> go.Figure:
    """A figure along the updates, the chosen one marked."""
    return along(data, course.axis(axis)[at], course.axes[axis], height, yaxis, **more)


def along(
    data: list[dict[str, Any]], mark: float, title: str, height: int, yaxis: dict[str, Any], **more: Any
) -> go.Figure:
    """A figure along an x-axis called `title`, the place `mark` on it marked."""
    shared = {"margin": TIGHT, "hovermode": "x unified", "shapes": [cursor(mark)]}
    return unvalidated(data, layout(height, xaxis=_numbered(title, data), yaxis=yaxis, **shared, **more))


def _numbered(title: str, data: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """An x-axis with its title, of whole numbers alone where it counts few generations or iterations."""
    few = (
        title in ("generation", "iteration")
        and max((max(one["x"], default=0) for one in data), default=0) < 8
    )
    return titled(title, **({"dtick": 1} if few else {}), **more)


def _bands(lineage: Lineage, axis: str) -> list[dict[str, Any]]:
    """One standard error around the mean: of one candidate's fitness (light), of the population's mean (dark)."""
    candidate, population = {}, {}
    for place, one in enumerate(lineage.stats):
        if lineage.indices[place] > 0:
            if tasks := tasks_each(lineage, place):
                candidate[place] = binomial_error(one.mean, tasks)
            if (played := lineage.plays[place]) and math.isfinite(played.error):
                population[place] = played.error
    return [
        _band(lineage, axis, name, errors, shade)
        for name, errors, shade in (("one candidate", candidate, 0.16), ("the mean", population, 0.4))
        if errors
    ]


def _band(
    lineage: Lineage, axis: str, name: str, errors: Mapping[int, float], shade: float
) -> dict[str, Any]:
    """`errors`: the standard error of a generation's fitness, by its place."""
    x = lineage.axis(axis)
    low = [lineage.stats[place].mean - error for place, error in errors.items()]
    high = [lineage.stats[place].mean + error for place, error in errors.items()]
    fill, name = f"rgba(47,118,214,{shade})", f"± 1 standard error of {name}"
    return band([x[place] for place in errors], low, high, fill, name=name, showlegend=False)


def curve(
    x: list[float],
    y: Sequence[float | None],
    name: str,
    dash: str,
    width: float,
    colour: str,
    value: str = "%{y:.1%}",
) -> dict[str, Any]:
    """A line, or a mark where there is one value only; `value` is what a pointer on it reads after its name."""
    return {
        "type": "scatter",
        "x": x,
        "y": list(y),
        "name": name,
        "mode": "lines" if sum(one is not None for one in y) > 1 else "markers",
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertemplate": f"{name} {value}<extra></extra>",
    }


def validated_points(course: Course, axis: str, name: str, symbol: str, colour: str) -> dict[str, Any]:
    """What was validated, as marks with their intervals."""
    known = [(x, one) for x, one in zip(course.axis(axis), course.validations, strict=True) if one]
    shares = [one.share for _, one in known]
    told = [(one, *one.interval) for _, one in known]
    return {
        "type": "scatter",
        "x": [x for x, _ in known],
        "y": shares,
        "name": name,
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 9, "color": colour},
        "error_y": error_bars(shares, [one.interval for _, one in known], colour, 1.5, 4),
        "customdata": [f"{one.right} of {one.n}, {low:.1%} to {high:.1%}" for one, low, high in told],
        "hovertemplate": f"{name} %{{y:.1%}} (%{{customdata}})<extra></extra>",
    }


def _control_lines(lineage: Lineage, axis: str) -> list[dict[str, Any]]:
    """A grey line for each control, named with its value in the legend, where no name covers a mark."""
    x = lineage.axis(axis)
    ordered = sorted(lineage.controls.items(), key=lambda item: -item[1].accuracy)
    lines = []
    for place, (control, one) in enumerate(ordered):
        name = f"{literal(control_words(control), 44)} {one.accuracy:.1%}"
        dash = _CONTROL_DASHES[place % len(_CONTROL_DASHES)]
        line = curve([min(x), max(x)], [one.accuracy] * 2, name, dash, 1.5, NEUTRAL_COLOUR)
        lines.append(line | {"hoverinfo": "skip", "hovertemplate": None})
    return lines


def cursor(x: float) -> dict[str, Any]:
    """The chosen generation as every chart marks it."""
    return line_at(x=x, width=6, opacity=0.35) | {"layer": "below"}


#: (name, dash, one value per update) of a line.
Line = tuple[str, str, tuple[float | None, ...]]
#: What is measured now and then alone: the line goes on from one to the next, and each has a mark.
FREE = "written freely"
_SPARSE: dict[str, dict[str, Any]] = {FREE: {"mode": "lines+markers", "connectgaps": True}}


@lru_cache(maxsize=128)
def line_figure(
    course: Course, lines: tuple[Line, ...], axis: str, at: int, *, as_shares: bool = False
) -> go.Figure:
    """A few curves over the updates; `as_shares`: from 0 to 100 %."""
    colours, value = (FIRST_COLOUR, NEUTRAL_COLOUR), "%{y:.1%}" if as_shares else "%{y:,.4~g}"
    data = [
        curve(course.axis(axis), y, name, dash, 2, colours[place % 2], value) | _SPARSE.get(name, {})
        for place, (name, dash, y) in enumerate(lines)
    ]
    title = " and ".join(name for name, _, _ in lines)
    yaxis = shares(title, range=[0, 1.04]) if as_shares else values(title, rangemode="tozero")
    return along_course(data, course, axis, at, 190, yaxis | {"nticks": 5}, showlegend=len(lines) > 1)


@lru_cache(maxsize=64)
def learning_figure(learned: LearningCurve, at: int, beside: LearningCurve | None, name: str) -> go.Figure:
    """A probability by generation with its band; level, where the first generation was; dashed, another evolution,
    called `name`, at the same turns. `at` is the chosen generation's number."""
    data = [_means(learned, "", "solid", FIRST_COLOUR)]
    if all(mean.has_interval for mean in learned.means):
        low, high = [one.low for one in learned.means], [one.high for one in learned.means]
        data.insert(0, band(data[0]["x"], low, high, "rgba(47,118,214,0.22)", showlegend=False))
    if beside is not None:
        data.append(_means(beside, f"{literal(name, 24)}: ", "dash", SECOND_COLOUR))
    yaxis = shares("probability", range=[0, 1.03], nticks=3)
    figure = along(data, float(at), "generation", 170, yaxis, showlegend=False)
    figure.layout.shapes += (go.layout.Shape(line_at(y=learned.means[0].mean, width=1, dash="dot")),)
    return figure


def _means(learned: LearningCurve, name: str, dash: str, colour: str) -> dict[str, Any]:
    """A curve whose every point tells its interval."""
    x, means = [float(one) for one in learned.generations], learned.means
    line = curve(x, [one.mean for one in means], name, dash, 2, colour)
    told = [mean_words(one) for one in means]
    return line | {"customdata": told, "hovertemplate": f"{name}%{{customdata}}<extra></extra>"}


# Who is chosen


@lru_cache(maxsize=64)
def shares_figure(
    lineage: Lineage, by: str, axis: str, mark: float | None, span: tuple[float, float], ink: str
) -> go.Figure:
    """The share of every choice in all turns, stacked, generation after generation (the paper's figure 6). `span`
    is the x-axis, `mark` the chosen generation on it; names at the right are in `ink`."""
    known = [(at, one) for at, one in zip(lineage.axis(axis), lineage.plays, strict=True) if one]
    rows = [grouped(one.shares, by) for _, one in known]
    return stacked_figure(
        [at for at, _ in known], rows, _choices(lineage, by), lineage.axes[axis], span, mark, ink
    )


def stacked_figure(
    x: Sequence[float],
    rows: Sequence[Mapping[str, float]],
    choices: Sequence[Choice],
    title: str,
    span: tuple[float, float],
    mark: float | None,
    ink: str,
    height: int = 360,
) -> go.Figure:
    """Shares stacked along `x`, a row of them for each: those of the `choices`, from the bottom. `span` is the x-axis,
    `title` what it is, `mark` the chosen place on it; names at the right are in `ink`."""
    areas, names = [], []
    below = 0.0
    for key, name, colour, pattern in choices:
        y = [row.get(key, 0.0) for row in rows]
        areas.append(area(list(x), y, name, colour, pattern))
        last = y[-1] if y else 0.0
        if last >= _NAMED:
            names.append(note(name, ink=ink, xref="paper", x=1.01, y=below + last / 2))
        below += last
    # A dark line shows on areas of any colour.
    chosen = [] if mark is None else [line_at(x=mark, colour="#111827", width=2, dash="dot", opacity=0.35)]
    return unvalidated(
        areas,
        layout(
            height,
            xaxis=_numbered(title, areas, range=list(span)),
            yaxis=shares("share", range=[0, 1], showgrid=False),
            margin=TIGHT | {"r": 84},
            shapes=chosen,
            annotations=names,
        ),
    )


def area(x: list[float], y: list[float], name: str, colour: str, pattern: str) -> dict[str, Any]:
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


def _choices(lineage: Lineage, by: str) -> list[Choice]:
    """Each choice, from the bottom of the stack."""
    models = lineage.models
    if by == "model":
        return [(model, literal(model, 14), model_colour(model, models), "") for model in models]
    if by == "role":
        return [
            (role.value, ROLE_STYLES[role].word, _ROLE_COLOURS[role], pattern)
            for role, (pattern, _) in PATTERNS.items()
        ]
    return [
        (
            f"{model} {role.value}",
            f"{ROLE_STYLES[role].letter} · {literal(model, 12)}",
            model_colour(model, models),
            pattern,
        )
        for model in models
        for role, (pattern, _) in PATTERNS.items()
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
            value = "%{y:.1%}" if what == "accepted" else "%{y:.2f}"
            data.append(curve(one.axis(axis), y, literal(one.name, 24), dash, 2, colour, value))
    titles = {"entropy": "entropy", "accepted": "share accepted", "turns": "turns"}
    yaxis = values(titles.get(what, what), nticks=5, rangemode="tozero")
    if what == "accepted":
        yaxis |= {"tickformat": ".0%", "range": [0, 1.03]}
    elif what == "entropy":
        yaxis["range"] = [0, most_entropy(lineage.models, by) * 1.03]
    return along_course(data, lineage, axis, at, 190, yaxis, showlegend=second is not None)


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
    words = note(f"mean {mean:.1%}", xref="x domain", x=0.01, y=mean, yanchor="bottom")
    return unvalidated(
        [_candidate_points(known, x)],
        layout(
            380,
            xaxis=titled(title),
            yaxis=shares("fitness"),
            margin=TIGHT,
            shapes=[line_at(y=mean, width=1.5, dash="longdash")],
            annotations=[words],
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
