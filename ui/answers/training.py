"""Training: how a planner learns, which workflows it writes, who does their steps, plans that cannot be read, and the
kept planners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.planner.statistics import PlanStatistics
from core.workflow import PlanFault, Topology
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Address,
    Answer,
    Area,
    Areas,
    Bars,
    Block,
    Cell,
    Choice,
    Code,
    Column,
    Grid,
    Series,
    Table,
)
from ui.answers.learning import FREE, axis_choice, estimate, small, training_of
from ui.presentation.steps import FAULT_WORDS, TOPOLOGY_COLOURS, step_name, topologies_legend
from ui.presentation.theme import CLASS_COLOURS, NEUTRAL_COLOUR, model_colour, one_line, percent
from ui.presentation.words import size_words
from ui.runs.course import Training, at_place, part_of

#: First words of subtasks that have a colour of their own; the rarer ones are one area.
MOST_WORDS = 8
#: The name of that area.
REST = "others"


# Progress


def measures(asked: Asked) -> Answer:
    """What else tells how it learns, and what it took."""
    training, at, _ = training_of(asked)
    forced = "forced by the grammar" if training.forced else "readable"
    rollouts, updates = training.of_rollouts, training.of_updates

    freely = {FREE: training.free} if any(share is not None for share in training.free) else {}
    readable, signal = rollouts("readable"), updates("signal")
    steps, entropy = rollouts("steps_mean"), updates("entropy")
    replies = {"asked": updates("calls"), "from cache": updates("calls_saved")}
    found = [
        small(asked, "readable", {forced: readable, **freely}, None, "Readable plans", "Workflow"),
        small(asked, "signal", {"signal": signal}, None, "Groups with a learning signal", "Signal"),
        small(asked, "steps", {"steps": steps}, 1, "Steps per workflow"),
        small(asked, "entropy", {"entropy": entropy}, 2, "Token entropy", "Entropy"),
        small(asked, "divergence", {"divergence": updates("divergence")}, 3, "Divergence from the start"),
        small(asked, "replies", replies, 0, "Replies per iteration", "Cached reply"),
        small(asked, "tokens", {"tokens": training.tokens}, 0, "Pool tokens so far"),
    ]
    blocks = [one for one in found if any(line.points for line in one.traces)]
    notes: list[Block] = [
        "Divergence: mean KL divergence of its choices from those of the planner after its warm-up, in nats per token: "
        "0 means the same. A penalty keeps it small at first, so that the planner tries every model before it settles."
    ]
    if training.forced:
        measured = "" if freely else " This run did not measure it."
        notes.append(
            "While it is trained a grammar allows the planner nothing but plans that can be read, so 100 % says "
            "nothing about what it learned. Written freely: a small sample at each validation, without the grammar."
            f"{measured}"
        )
    forced = " (forced by the grammar)" * training.forced
    known = {
        f"{percent(readable[at])} of plans readable{forced}": readable[at],
        f"{percent(signal[at])} of groups with a learning signal": signal[at],
        f"{steps[at] or 0:.1f} steps per workflow": steps[at],
        f"{entropy[at] or 0:.2f} nats of entropy per token": entropy[at],
    }
    said = ", ".join(words for words, value in known.items() if value is not None)
    return Answer(
        "measures",
        "How does it learn?",
        f"Iteration {training.indices[at]}: {said or 'nothing is known'}.",
        blocks,
        notes,
    )


# Workflows


def _family(asked: Asked) -> Choice:
    training, _, _ = training_of(asked)
    families = {"": "All families", **{name: one_line(name, 30) for name in training.families}}
    return asked.choice("family", "Family of tasks", families, look="list")


def _step(asked: Asked) -> Choice:
    training, _, _ = training_of(asked)
    places = sorted({place for one in training.plays if one is not None for place, _ in one.models}) or [0]
    options = {str(place + 1): step_name(place).capitalize() for place in places}
    return asked.choice("step", "Step", options, look="list")


def _of(family: str) -> str:
    return f" of {one_line(family, 30)}" if family else ""


def shapes(asked: Asked) -> Answer:
    """The shapes of the workflows that could be read."""
    training, at, _ = training_of(asked)
    family, along = _family(asked), axis_choice(asked)
    colours = {shape.value: TOPOLOGY_COLOURS[shape] for shape in Topology}
    question = f"Which shapes do its workflows{_of(family.value)} have?"
    row = _row(training.plays[at], family.value, "topologies", None)
    said = _most(row) or "none could be read"
    return Answer(
        "shapes",
        question,
        f"Iteration {training.indices[at]}: {said}.",
        [_areas(asked, "topologies", None, colours)],
        [f"{topologies_legend().capitalize()} The start's are of its validation."],
        term="Shape",
        choices=[family, along],
    )


def _most(row: Mapping[str, float], n: int = 3) -> str:
    """The largest shares, as a part of a sentence."""
    most = sorted(row.items(), key=lambda one: -one[1])[:n]
    return ", ".join(f"{one_line(name, 40)} {percent(share)}" for name, share in most if share)


def steps(asked: Asked) -> Answer:
    """Who does a step, and with which word its subtask begins, over the iterations."""
    training, at, _ = training_of(asked)
    family, step = _family(asked).value, _step(asked)
    place, models = int(step.value) - 1, training.models
    words = frequent_words(training, family, place)
    colours = {word: CLASS_COLOURS[number % len(CLASS_COLOURS)] for number, word in enumerate(words)}
    by_model = {one: model_colour(one, models) for one in models}
    played, name = training.plays[at], step_name(place)
    said = _most(_row(played, family, "models", place))
    began = _most(_row(played, family, "subtasks", place))
    sentence = f"Iteration {training.indices[at]} has no workflow with such a step."
    if said and began:
        sentence = f"Iteration {training.indices[at]}, of the workflows with such a step: {said}; it begins: {began}."
    return Answer(
        "steps",
        f"Who does {name}{_of(family)}, and how does its subtask begin?",
        sentence,
        [
            _areas(asked, "models", place, by_model, small=True, title=f"Who does {name}", key="models"),
            _areas(
                asked,
                "subtasks",
                place,
                colours | {REST: NEUTRAL_COLOUR},
                small=True,
                title=f"First word of the subtask of {name}",
                key="subtasks",
            ),
        ],
        [
            "Of the workflows with such a step. First words: the most frequent ones over all iterations, and all "
            "others together."
        ],
        choices=[step],
    )


def frequent_words(training: Training, family: str, place: int) -> list[str]:
    """The first words of the subtasks at a place that are most frequent over all iterations, the first ones of equals
    in the alphabet."""
    sums: dict[str, float] = {}
    for played in training.plays:
        for word, share in _row(played, family, "subtasks", place).items():
            sums[word] = sums.get(word, 0.0) + share
    return sorted(sums, key=lambda word: (-sums[word], word))[:MOST_WORDS]


def _areas(asked: Asked, what: str, place: int | None, colours: Mapping[str, str], **look: Any) -> Areas:
    """The shares `what` of every iteration that has some, at a place of the step or in all; what has no colour of its
    own is among the rest."""
    training, at, _ = training_of(asked)
    axis, family = axis_choice(asked).value, _family(asked).value
    x, known = training.axis(axis), []
    for played, where in zip(training.plays, x, strict=True):
        if row := _row(played, family, what, place):
            rest = sum(share for name, share in row.items() if name not in colours)
            known.append((where, row | ({REST: rest} if rest else {})))
    areas = [Area(name, [row.get(name, 0.0) for _, row in known], colour) for name, colour in colours.items()]
    span = min(x), max(x) if len(x) > 1 else min(x) + 1
    return Areas([where for where, _ in known], areas, (training.axes[axis], "share"), x[at], span, **look)


def _row(played: PlanStatistics | None, family: str, what: str, place: int | None) -> dict[str, float]:
    """The shares `what` of an iteration's workflows of a family, at a place of the step or in all, by name."""
    part = None if played is None else part_of(played, family)
    if part is None:
        return {}
    shares: Mapping[Any, float] = getattr(part, what)
    return (
        dict(at_place(shares, place)) if place is not None else {str(key): one for key, one in shares.items()}
    )


def who(asked: Asked) -> Answer:
    """The workflows of the chosen iteration: who does which step, with which words, for which family."""
    training, at, _ = training_of(asked)
    index, family, step = training.indices[at], _family(asked).value, int(_step(asked).value) - 1
    question = f"Iteration {index}: who does which step{_of(family)}, and which word begins which subtask?"
    whole = training.plays[at]
    played = None if whole is None else part_of(whole, family)
    if whole is None or played is None or not played.models:
        return Answer("who", question, f"Iteration {index} has no workflow of these that could be read.")
    places = sorted({where for where, _ in played.models})
    names, words = (
        [step_name(one) for one in places],
        dict.fromkeys(name for _, name in sorted(played.subtasks)),
    )
    rows = [at_place(played.models, one) for one in places]
    blocks: list[Block] = [
        _grid(rows, names, training.models, ("step", "model"), "who", "Who does which step"),
        _grid(
            [at_place(played.subtasks, one) for one in places],
            names,
            list(words),
            ("step", "first word"),
            "words",
            "Which word begins which subtask",
        ),
    ]
    # The start beside it, so that what was learned is seen at one glance.
    blocks += [
        grid for one in dict.fromkeys([0, at]) if (grid := _by_family(training, one, step)) is not None
    ]
    firsts = "; ".join(f"{name} {_most(row, 1)}" for name, row in zip(names, rows, strict=True) if row)
    return Answer("who", question, f"Most often: {firsts}.", blocks)


def _by_family(training: Training, at: int, place: int) -> Grid | None:
    """Who does the step at a place in one iteration, by family of tasks; None where none has such a step."""
    played = training.plays[at]
    families = {} if played is None else played.families
    known = {name: row for name, one in families.items() if (row := at_place(one.models, place))}
    if not known:
        return None
    which = f"Iteration {training.indices[at]}" if at else "The start"
    title = f"{which}: who does {step_name(place)}, by family of tasks?"
    return _grid(
        list(known.values()), list(known), training.models, ("family", "model"), f"families_{at}", title
    )


def _grid(
    rows: Sequence[Mapping[str, float]],
    names: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    key: str,
    title: str,
) -> Grid:
    """Shares, a row for each of the `names`."""
    cells = [
        [Cell(row.get(column, 0.0), percent(row.get(column, 0.0))) for column in columns] for row in rows
    ]
    return Grid(names, columns, axes, cells, title=title, key=key, small=True)


# Plans


def faults(asked: Asked) -> Answer:
    """Plans that cannot be read, by the reason, over the iterations and in the chosen one."""
    training, at, _ = training_of(asked)
    question, played = "Why could plans not be read?", training.stats[at].rollouts
    known = {
        index: one.rollouts
        for index, one in zip(training.indices, training.stats, strict=True)
        if one.rollouts
    }
    seen = {fault for one in known.values() for fault in one.faults}
    if not seen:
        why = ": the grammar allows no others" if training.forced else ""
        return Answer("plans", question, f"Every plan of every rollout could be read{why}.", term="Workflow")
    series = [
        Series(FAULT_WORDS[fault], [one.faults.get(fault, 0) for one in known.values()], "kind")
        for fault in PlanFault
        if fault in seen
    ]
    blocks: list[Block] = [
        Bars([f"{index}" for index in known], series, ("iteration", "plans"), key="by_iteration")
    ]
    said = f"Iteration {training.indices[at]} has no rollouts."
    if played is not None:
        unread = sum(played.faults.values())
        said = f"Iteration {training.indices[at]}: {unread:,} of {played.n:,} plans, {percent(unread / played.n)}."
        blocks.append(
            Table.of(
                sorted(played.faults.items(), key=lambda one: -one[1]),
                Column("reason", "The plan is none, because", get=lambda one: FAULT_WORDS[one[0]]),
                Column("n", "Plans", "count", lambda one: one[1]),
                Column("share", "Of all", "share", lambda one: one[1] / played.n),
                key="reasons",
            )
        )
    note = "Of the rollouts of an iteration; where there are several reasons, the first counts."
    return Answer("plans", question, said, blocks, [note], term="Workflow")


# What is kept


def kept(asked: Asked) -> Answer:
    """The planners that were kept, how each did, and where its episodes and workflows are."""
    training, at, _ = training_of(asked)
    planners = asked.store.checkpoints.list(training.run, planners=True)
    question = "Which planners are kept?"
    if not planners:
        return Answer("kept", question, "No planner of this training is kept.")
    played = asked.store.checkpoints.policies_with_episodes()
    validated = dict(zip(training.indices, training.validations, strict=True))
    begun = {"warm-up": "after the warm-up", "start": "as it began"}

    def leads(page: str, **more: str) -> Any:
        return lambda one: Address(page, {"policy": one.policy, **more}) if one.policy in played else None

    def measured(one: Any) -> Any:
        found = validated.get(one.generation or 0)
        return estimate(found) if found else None

    table = Table.of(
        planners,
        Column("iteration", "Iteration", "count", lambda one: one.generation),
        Column("id", "Checkpoint", get=lambda one: one.id),
        Column("kind", "What it is", get=lambda one: begun.get(one.kind, one.kind)),
        Column("validated", "Validated", "estimate", measured),
        Column("size", "Size", get=lambda one: size_words(one.size_bytes)),
        Column("episodes", "Episodes", "link", leads("episodes")),
        Column("workflows", "Workflows", "link", leads("routing", part="workflows"), link="Show"),
        key="planners",
    )
    fitting = [one for one in planners if (one.generation or 0) <= training.indices[at]] or planners[:1]
    number = fitting[-1].generation or 0
    command = Code(commands(fitting[-1].id, number), key="commands")
    said = f"{len(planners)} planners; up to iteration {training.indices[at]} the last is {fitting[-1].id}."
    return Answer("kept", question, said, [table, command])


def commands(planner: str, iteration: int) -> str:
    """What to type to play a kept planner, and to take it elsewhere."""
    return (
        f"trinity run --policy conductor:{planner} --policy conductor:random --policy random --n 200\n"
        f"trinity checkpoints export {planner} ./conductor-{iteration}\n"
        f"trinity train --planner {planner} --name further"
    )
