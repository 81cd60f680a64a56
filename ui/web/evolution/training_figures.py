"""The figures of a planner's training: right answers and rewards with validation, shares stacked by iteration, plans
that cannot be read.

Like all figures here they are pure functions of what they show, and leave text and axes to the theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from core.planner.statistics import PlanStatistics
from core.workflow import PlanFault, Topology
from ui.presentation.theme import (
    CLASS_COLOURS,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    SECOND_COLOUR,
    model_colour,
)
from ui.presentation.workflows import FAULT_WORDS, TOPOLOGY_COLOURS
from ui.web.evolution.course import Training, at_place, part_of
from ui.web.evolution.figures import Choice, along_course, curve, stacked_figure, validated_points
from ui.web.kit.figures import literal, shares

#: First words of subtasks that have a colour of their own; the rarer ones are one area.
MOST_WORDS = 8
#: The name of that area.
REST = "others"


@lru_cache(maxsize=64)
def progress_figure(training: Training, axis: str, at: int, second: Training | None) -> go.Figure:
    """The share of right rollouts and the mean reward of every iteration, and the planner on held-apart tasks with its
    interval. `at` is the chosen iteration's place; a second training is in another colour."""
    x = training.axis(axis)
    data = [
        curve(x, training.of_rollouts("right"), "right rollouts", "solid", 2.5, FIRST_COLOUR),
        curve(x, training.of_updates("reward_mean"), "mean reward", "dot", 1.5, NEUTRAL_COLOUR, "%{y:.2f}"),
        validated_points(training, axis, "validation", "diamond", RIGHT_COLOUR),
    ]
    if second is not None:
        name, x = literal(second.name, 24), second.axis(axis)
        right = second.of_rollouts("right")
        data.append(curve(x, right, f"right rollouts, {name}", "solid", 2, SECOND_COLOUR))
        data.append(validated_points(second, axis, f"validation, {name}", "square", SECOND_COLOUR))
    return along_course(data, training, axis, at, 380, shares("share right, mean reward", range=[0, 1.04]))


# Shares, stacked


def topologies_figure(training: Training, family: str, axis: str, at: int, ink: str) -> go.Figure:
    """The shapes of the workflows that could be read."""
    choices: list[Choice] = [(shape.value, shape.value, TOPOLOGY_COLOURS[shape], "") for shape in Topology]
    return _stacked(training, family, axis, at, ink, choices, "topologies", None)


def models_figure(training: Training, family: str, place: int, axis: str, at: int, ink: str) -> go.Figure:
    """Who does the step at a place."""
    models = training.models
    choices: list[Choice] = [(one, literal(one, 14), model_colour(one, models), "") for one in models]
    return _stacked(training, family, axis, at, ink, choices, "models", place)


def subtasks_figure(training: Training, family: str, place: int, axis: str, at: int, ink: str) -> go.Figure:
    """With which word the subtask of the step at a place begins."""
    words = frequent_words(training, family, place)
    choices: list[Choice] = [
        (word, literal(word, 14), CLASS_COLOURS[number % len(CLASS_COLOURS)], "")
        for number, word in enumerate(words)
    ]
    return _stacked(
        training, family, axis, at, ink, [*choices, (REST, REST, NEUTRAL_COLOUR, "")], "subtasks", place
    )


def frequent_words(training: Training, family: str, place: int) -> list[str]:
    """The first words of the subtasks at a place that are most frequent over all iterations, the first ones of equals
    in the alphabet."""
    sums: dict[str, float] = {}
    for _, played in _known(training, family):
        for word, share in at_place(played.subtasks, place).items():
            sums[word] = sums.get(word, 0.0) + share
    return sorted(sums, key=lambda word: (-sums[word], word))[:MOST_WORDS]


def _stacked(
    training: Training,
    family: str,
    axis: str,
    at: int,
    ink: str,
    choices: Sequence[Choice],
    what: str,
    place: int | None,
) -> go.Figure:
    """The shares `what` of every iteration that has some, at a place of the step or in all."""
    x, known = training.axis(axis), []
    for number, played in _known(training, family):
        row = _row(played, what, place)
        if row:
            rest = {key: share for key, share in row.items() if key not in {one[0] for one in choices}}
            known.append((x[number], row | ({REST: sum(rest.values())} if rest else {})))
    return stacked_figure(
        [at for at, _ in known],
        [row for _, row in known],
        choices,
        training.axes[axis],
        (min(x), max(x) if len(x) > 1 else min(x) + 1),
        x[at],
        ink,
        300,
    )


def _row(played: PlanStatistics, what: str, place: int | None) -> dict[str, float]:
    shares: Mapping[Any, float] = getattr(played, what)
    return (
        dict(at_place(shares, place)) if place is not None else {str(key): one for key, one in shares.items()}
    )


def _known(training: Training, family: str) -> list[tuple[int, PlanStatistics]]:
    """(place of the iteration, what its episodes of a family came to)."""
    parts = ((number, part_of(played, family)) for number, played in enumerate(training.plays) if played)
    return [(number, part) for number, part in parts if part is not None]


# Plans


def faults_figure(training: Training, axis: str, at: int) -> go.Figure:
    """How many of the plans of every iteration could not be read, a bar in a colour for each reason."""
    x = training.axis(axis)
    known = [(x[number], one.rollouts) for number, one in enumerate(training.stats) if one.rollouts]
    seen = {fault for _, played in known for fault in played.faults}
    bars = [
        {
            "type": "bar",
            "x": [at for at, _ in known],
            "y": [played.faults.get(fault, 0) / max(1, played.n) for _, played in known],
            "name": FAULT_WORDS[fault],
            "marker": {"color": CLASS_COLOURS[number % len(CLASS_COLOURS)]},
            "hovertemplate": f"{FAULT_WORDS[fault]} %{{y:.1%}}<extra></extra>",
        }
        for number, fault in enumerate(fault for fault in PlanFault if fault in seen)
    ]
    yaxis = shares("share of rollouts", rangemode="tozero")
    return along_course(bars, training, axis, at, 320, yaxis, barmode="stack", showlegend=True)
