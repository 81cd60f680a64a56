"""The panels of a training: progress, what its workflows are like, plans that cannot be read, the kept planners.

All of them mark the chosen iteration, `at` its place in the training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.planner.statistics import PlanStatistics
from core.workflow import PlanFault, Topology
from storage.store import Store
from ui.answers.blocks import Cell, Grid
from ui.presentation.glossary import define
from ui.presentation.steps import FAULT_WORDS, TOPOLOGY_COLOURS, step_name, topologies_legend
from ui.presentation.theme import (
    CLASS_COLOURS,
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RIGHT_COLOUR,
    SECOND_COLOUR,
    label,
    model_colour,
    one_line,
    percent,
)
from ui.presentation.words import size_words
from ui.web.analysis.figures import grid
from ui.web.evolution.course import Training, at_place, part_of
from ui.web.evolution.figures import (
    FREE,
    Choice,
    Line,
    along_course,
    curve,
    line_figure,
    stacked_figure,
    validated_points,
)
from ui.web.evolution.progress import axis_choice, chart, standings_chart
from ui.web.kit import state
from ui.web.kit.figures import literal, plot, shares
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here

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
    for index, played in _known(training, family):
        row = _row(played, what, place)
        if row:
            rest = {key: share for key, share in row.items() if key not in {one[0] for one in choices}}
            known.append((x[index], row | ({REST: sum(rest.values())} if rest else {})))
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


# Progress


def progress_panel(store: Store, training: Training, at: int, second: Training | None) -> list[str]:
    """Right rollouts, rewards and validation; what else tells how it learns, and what it took."""
    axis = axis_choice(training)
    standings_chart(training, "Is it better than what it began as?", define("Iteration"))
    chart(
        st.container(),
        "Is it getting better?",
        progress_figure(training, axis, at, second),
        key="training_progress",
        help=define("Rollout"),
        alt=f"Right rollouts and mean reward, and validation with intervals, by {training.axes[axis]}",
    )
    columns = st.columns(3)
    for place, (title, as_shares, help, lines) in enumerate(_small_charts(training)):
        chart(
            columns[place % 3],
            title,
            line_figure(training, lines, axis, at, as_shares=as_shares),
            key=f"training_small_{place}",
            help=help,
            alt=f"{title} by {training.axes[axis]}",
        )
    return [
        "Rollouts of an iteration are sampled for its own few questions, so that these lines go up and down by chance. "
        "Diamonds: the planner on held-apart tasks with its 95 % Wilson interval."
    ]


def _small_charts(training: Training) -> list[tuple[str, bool, str | None, tuple[Line, ...]]]:
    """The question that each answers, whether its values are shares, help, and its lines."""
    replies = tuple(
        (words, dash, training.of_updates(name))
        for words, dash, name in (("asked", "solid", "calls"), ("from cache", "dash", "calls_saved"))
    )
    one, two = training.of_rollouts, training.of_updates
    tokens = tuple(float(n) for n in training.tokens)
    return [
        ("Readable plans", True, _readable_words(training), tuple(_readable(training))),
        ("Groups with a learning signal", True, define("Signal"), (("signal", "solid", two("signal")),)),
        ("Steps per workflow", False, None, (("steps", "solid", one("steps_mean")),)),
        (
            "Token entropy",
            False,
            define("Entropy"),
            (("entropy", "solid", two("entropy")),),
        ),
        (
            "Divergence from the start",
            False,
            "Mean KL divergence of its choices from those of the planner after its warm-up, in nats per token: 0 means "
            "the same. A penalty keeps it small at first, so that the planner tries every model before it settles.",
            (("divergence", "solid", two("divergence")),),
        ),
        ("Replies per iteration", False, define("Cached reply"), replies),
        ("Pool tokens so far", False, None, (("tokens", "solid", tokens),)),
    ]


def _readable(training: Training) -> Iterator[Line]:
    forced = "forced by the grammar" if training.forced else "readable"
    yield forced, "solid", training.of_rollouts("readable")
    if any(share is not None for share in training.free):
        yield FREE, "dash", training.free


def _readable_words(training: Training) -> str:
    if not training.forced:
        return define("Workflow")
    measured = "" if any(share is not None for share in training.free) else " This run did not measure it."
    return (
        "While it is trained a grammar allows the planner nothing but plans that can be read, so 100 % says nothing "
        f"about what it learned. Written freely: a small sample at each validation, without the grammar.{measured}"
    )


# Workflows


def workflows_panel(store: Store, training: Training, at: int, second: Training | None) -> None:
    """Shapes, models and first words of subtasks by place of the step, over the iterations and in the chosen one."""
    if not any(training.plays):
        nothing_here("No workflow has been played yet.")
        return
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        families = {"": "All families", **{name: one_line(name, 30) for name in training.families}}
        family = state.address_select("Family of tasks", families, name="family", key="training_family")
        places = {str(place + 1): step_name(place).capitalize() for place in _places(training)}
        place = int(state.address_select("Step", places, name="step", key="training_step")) - 1
        axis = axis_choice(training)
    of = f" of {label(family, 30)}" if family else ""
    chart(
        st.container(),
        f"Which shapes do its workflows{of} have?",
        topologies_figure(training, family, axis, at, ink()),
        key="training_topologies",
        help=define("Shape"),
        alt=f"Stacked shares of the shapes of workflows by {training.axes[axis]}",
        caption=f"{topologies_legend().capitalize()} The start's are of its validation.",
    )
    left, right = st.columns(2)
    chart(
        left,
        f"Who does {step_name(place)}?",
        models_figure(training, family, place, axis, at, ink()),
        key="training_models",
        alt=f"Stacked shares of the models that do {step_name(place)} by {training.axes[axis]}",
        caption="Of the workflows with such a step.",
    )
    chart(
        right,
        f"How does the subtask of {step_name(place)} begin?",
        subtasks_figure(training, family, place, axis, at, ink()),
        key="training_subtasks",
        alt=f"Stacked shares of the first words of the subtasks of {step_name(place)} by {training.axes[axis]}",
        caption="By its first word; the most frequent ones, and all others together.",
    )
    _chosen_workflows(training, at, family, place)


def _chosen_workflows(training: Training, at: int, family: str, place: int) -> None:
    """The workflows of the chosen iteration: who does which step, for which family, with which words."""
    index, whole = training.indices[at], training.plays[at]
    played = None if whole is None else part_of(whole, family)
    if whole is None or played is None:
        nothing_here(f"Iteration {index} has none of these.")
        return
    places = sorted({where for where, _ in played.models})
    words = list(dict.fromkeys(name for _, name in sorted(played.subtasks)))
    steps = [step_name(one) for one in places]
    left, right = st.columns(2)
    with left, st.container(border=True):
        st.markdown(f"**Iteration {index}: who does which step?**")
        _shares_matrix(
            [at_place(played.models, one) for one in places], steps, training.models, "who", ("step", "model")
        )
    with right, st.container(border=True):
        st.markdown(f"**Iteration {index}: which word begins which subtask?**")
        _shares_matrix(
            [at_place(played.subtasks, one) for one in places], steps, words, "words", ("step", "first word")
        )
    # The start beside it, so that what was learned is seen at one glance.
    for column, one in zip(st.columns(2 if at else 1), [0, at] if at else [at], strict=True):
        with column:
            _by_family(training, one, place)


def _by_family(training: Training, at: int, place: int) -> None:
    """Who does the step at a place in one iteration, by family of tasks; nothing where none has such a step."""
    played = training.plays[at]
    families = {} if played is None else played.families
    known = {name: row for name, one in families.items() if (row := at_place(one.models, place))}
    if not known:
        return
    which = f"Iteration {training.indices[at]}" if at else "The start"
    with st.container(border=True):
        st.markdown(f"**{which}: who does {step_name(place)}, by family of tasks?**")
        rows, names = list(known.values()), list(known)
        _shares_matrix(rows, names, training.models, f"families_{at}", ("family", "model"))


def _places(training: Training) -> list[int]:
    """The places of steps that any workflow of it had."""
    return sorted({place for one in training.plays if one is not None for place, _ in one.models}) or [0]


def _shares_matrix(
    rows: Sequence[Mapping[str, float]],
    names: Sequence[str],
    columns: Sequence[str],
    key: str,
    axes: tuple[str, str],
) -> None:
    """Shares in percent, a row for each of the `names`; `axes` as in `matrix`."""
    if not rows:
        nothing_here("No workflow could be read.")
        return
    cells = [[Cell(row.get(column), percent(row.get(column, 0.0))) for column in columns] for row in rows]
    most = "; ".join(
        f"{name} {max(row, key=row.__getitem__)} {percent(max(row.values()))}"
        for name, row in zip(names, rows, strict=True)
        if row
    )
    figure = grid(Grid(names, columns, axes, cells), ink())
    plot(figure, key=f"training_matrix_{key}", small=True, alt=f"Most often: {most}")


# Plans


def plans_panel(store: Store, training: Training, at: int, second: Training | None) -> None:
    """Plans that cannot be read, by the reason, over the iterations and in the chosen one."""
    if not any(one.rollouts and one.rollouts.faults for one in training.stats):
        why = ": the grammar allows no others" if training.forced else ""
        nothing_here(f"Every plan of every rollout could be read{why}.", ":material/check:")
        return
    axis = axis_choice(training)
    chart(
        st.container(),
        "Why could plans not be read?",
        faults_figure(training, axis, at),
        key="training_faults",
        help=define("Workflow"),
        alt=f"Shares of the rollouts whose plan could not be read, by the reason, by {training.axes[axis]}",
        caption="Of the rollouts of an iteration; where there are several reasons, the first counts.",
    )
    index, played = training.indices[at], training.stats[at].rollouts
    if played is None:
        nothing_here(f"Iteration {index} has no rollouts.")
        return
    most = sorted(played.faults.items(), key=lambda one: -one[1])
    row_table(
        {
            "reason": text(f"Iteration {index}: the plan is none, because", width=320),
            "n": number("Plans", "localized"),
            "share": number("Of all", "%.1f %%"),
        },
        [(FAULT_WORDS[fault], n, 100 * n / played.n) for fault, n in most],
        key=f"training_faults_{index}",
    )


# What is kept


def kept_panel(store: Store, training: Training, at: int, second: Training | None) -> None:
    """The planners that were kept, how each did, and where its episodes and workflows are."""
    planners = store.checkpoints.list(training.run, planners=True)
    if not planners:
        nothing_here("No planner of this training is kept.")
        return
    played = store.checkpoints.policies_with_episodes()
    validated = dict(zip(training.indices, training.validations, strict=True))
    rows = []
    for one in planners:
        share = validated.get(one.generation or 0)
        there = one.policy in played
        rows.append(
            (
                one.generation,
                one.id,
                {"warm-up": "after the warm-up", "start": "as it began"}.get(one.kind, one.kind),
                f"{percent(share.share)} ({' to '.join(map(percent, share.interval))})" if share else "",
                size_words(one.size_bytes),
                state.href("episodes", policy=one.policy) if there else "",
                state.href("routing", policy=one.policy, part="workflows") if there else "",
            )
        )
    row_table(
        {
            "iteration": number("Iteration", width=80),
            "id": text("Checkpoint", width=130),
            "kind": text("What it is", width=140),
            "validated": text("Validated (95 % interval)", width=200),
            "size": text("Size", width=80),
            "episodes": link("Episodes", "List", width=80),
            "workflows": link("Workflows", "Show", width=80),
        },
        rows,
        key="training_kept",
        at_most=16,
        height=420,
        alt="The kept planners, one row each",
    )
    kept = [one for one in planners if (one.generation or 0) <= training.indices[at]] or planners[:1]
    commands(kept[-1].id, kept[-1].generation or 0)


def commands(planner: str, iteration: int) -> None:
    """What to type to play a kept planner, and to take it elsewhere."""
    st.markdown(f"**From a terminal, iteration {iteration}**")
    st.code(
        f"trinity run --policy conductor:{planner} --policy conductor:random --policy random --n 200\n"
        f"trinity checkpoints export {planner} ./conductor-{iteration}\n"
        f"trinity train --planner {planner} --name further",
        language=None,
        wrap_lines=True,
    )


Panel = Callable[[Store, Training, int, Training | None], Sequence[str] | None]
#: Panel in the address -> its words and what draws it; the first is meant when the address says nothing.
PANELS: dict[str, tuple[str, Panel]] = {
    "progress": ("Progress", progress_panel),
    "workflows": ("Workflows", workflows_panel),
    "plans": ("Unreadable plans", plans_panel),
    "kept": ("Kept planners", kept_panel),
}
