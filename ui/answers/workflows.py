"""What the workflows of one policy are like, or of two set against each other: who does which step, how long they are,
their shapes and how those end, what steps may read, plans that cannot be read, and what later rounds change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.workflow import MOST_STEPS
from storage.analysis.routing import pool_order
from storage.analysis.workflows import RoundOutcome, WorkflowUse, any_workflow, workflow_use
from storage.filters.expression import AnyOf, Compare, Every, Name, write_expression
from ui.answers.asked import SIDE, Asked, Row, Side
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Cell,
    Choice,
    Column,
    Estimate,
    Estimates,
    Grid,
    Line,
    Mark,
    Table,
    Way,
)
from ui.presentation.steps import FAULT_WORDS, step_name, topologies_legend
from ui.presentation.theme import percent
from ui.presentation.words import share_words

_UNREAD = write_expression(Compare(Name("plan_fault"), "!=", None))
#: What a later round did, in words.
OUTCOMES: dict[RoundOutcome, str] = {
    RoundOutcome.KEPT: "The planner kept the answer",
    RoundOutcome.SAME: "A new workflow, the same answer",
    RoundOutcome.CHANGED: "A new workflow, another answer",
    RoundOutcome.NOT_RUN: "Its plan could not be read or run",
}


def there(asked: Asked) -> bool:
    """Whether any of the episodes that were asked for has a plan."""
    sides = asked.sides if asked.chosen else (asked.together,)
    return any(asked.read(any_workflow, side.where) for side in sides)


def _use(asked: Asked, side: Side) -> Mapping[str, WorkflowUse]:
    return asked.read(workflow_use, side.where)


def _planner(asked: Asked) -> Choice | None:
    """Whose workflows are shown where one side holds several policies: never a mixture."""
    found = {} if asked.compared else _use(asked, asked.sides[0])
    if len(found) < 2:
        return None
    return asked.choice("planner", "Whose workflows?", {one: asked.say(one) for one in found}, look="list")


def _parts(asked: Asked) -> dict[Side, WorkflowUse]:
    """The workflows of one policy, or those of A and of B, each with a side that counts its episodes alone."""
    if asked.compared:
        found = {side: _use(asked, side).get(side.where.policy or "") for side in asked.sides}
        return {side: use for side, use in found.items() if use is not None}
    [side], planner = asked.sides, _planner(asked)
    policy = planner.value if planner else next(iter(_use(asked, side)), None)
    if policy is None:
        return {}
    own = replace(side, name=asked.say(policy), where=replace(side.where, policy=policy))
    return {own: _use(asked, side)[policy]}


def _each(parts: Mapping[Side, WorkflowUse], words: Callable[[WorkflowUse], str]) -> str:
    """A line of words for each side, with its name."""
    return "\n".join(
        f"{side.title or side.name}: {line}" for side, use in parts.items() if (line := words(use))
    )


def _rows(parts: Mapping[Side, WorkflowUse], find: Callable[[WorkflowUse], Iterable[Any]]) -> list[Row[Any]]:
    return [Row(side, one) for side, use in parts.items() for one in find(use)]


def steps(asked: Asked) -> Answer:
    """What the workflows are like: their policies apart, and models by the place of the step."""
    parts, planner = _parts(asked), _planner(asked)
    lacking = [side.title for side in asked.sides if asked.compared and side not in parts]
    blocks: list[Block] = [_steps_grid(asked, parts)] if any(use.workflows for use in parts.values()) else []
    if planner:
        blocks.append(_overview(asked))
    return Answer(
        "workflows",
        "Who does which step of a workflow?",
        "\n".join(
            filter(
                None,
                [
                    _each(parts, _standing),
                    *[f"Without workflows here: {', '.join(lacking)}."] * bool(lacking),
                ],
            )
        ),
        blocks,
        [f"{'B minus A, in points' if len(parts) == 2 else 'Percent'} of the steps at a place, by model."],
        choices=[planner] if planner else (),
        ways=[Way(f"List them{f' of {side.letter}' * bool(side.letter)}", side.listed()) for side in parts],
    )


def _standing(use: WorkflowUse) -> str:
    mean = "" if use.steps_mean is None else f", {use.steps_mean:.1f} steps each"
    right = share_words(use.right.value or 0.0, use.right.ci95)
    return f"{use.episodes:,} finished episodes, {right} right, {use.workflows:,} workflows{mean}."


def _overview(asked: Asked) -> Table:
    """Every policy by itself: a mean over several would be of none of them."""
    found = _use(asked, asked.sides[0])
    return Table.of(
        found,
        Column("policy", "Policy", get=asked.say),
        Column("id", "Id", "id"),
        Column("right", "Right", "estimate", lambda policy: found[policy].right),
        Column("n", "Episodes", "count", lambda policy: found[policy].episodes),
        Column("steps", "Mean steps", "number", lambda policy: found[policy].steps_mean, places=1),
        Column(
            "readable",
            "Plans read",
            "share",
            lambda policy: found[policy].readable,
            "Of the planner's replies, those that are a workflow",
        ),
        Column(
            "open",
            "Alone",
            "link",
            lambda policy: asked.here("routing", policy=policy, planner=None),
            link="Show",
        ),
        key="policies",
    )


def _steps_grid(asked: Asked, parts: Mapping[Side, WorkflowUse]) -> Grid:
    """Shares of one policy, or B minus A."""
    models = list(dict.fromkeys(model for side in parts for model in asked.read(pool_order, side.where)))
    places = [place for place in range(MOST_STEPS) if any(use.lengths_from(place) for use in parts.values())]
    last = list(parts)[-1]

    def cell(place: int, model: str) -> Cell:
        shares = [use.share(place, model) for use in parts.values()]
        detail = ", ".join(
            f"{side.letter} {use.models[place, model]:,} of {use.lengths_from(place):,}".strip()
            for side, use in parts.items()
        )
        at = (Compare(Name("turn.step"), "==", place + 1), Compare(Name("turn.model"), "==", model))
        mark = Mark(to=last.listed(write_expression(AnyOf(Every(at)))))
        value = shares[-1] - shares[0] if len(shares) == 2 else shares[0]
        return Cell(value if any(shares) else None, detail, mark=mark)

    rows = [
        f"{step_name(place)} ({'/'.join(f'{use.lengths_from(place):,}' for use in parts.values())})"
        for place in places
    ]
    cells = [[cell(place, model) for model in models] for place in places]
    return Grid(rows, models, ("step", "model"), cells, signed=len(parts) == 2)


def lengths(asked: Asked) -> Answer | None:
    """How many steps a workflow has."""
    parts = {side: use for side, use in _parts(asked).items() if use.workflows}
    if not parts:
        return None

    def words(use: WorkflowUse) -> str:
        [(most, n)] = use.lengths.most_common(1)
        return f"most have {most} step{'s' * (most > 1)}: {percent(n / use.workflows)} of {use.workflows:,}."

    table = Table.of(
        _rows(
            parts, lambda use: [(n, count, count / use.workflows) for n, count in sorted(use.lengths.items())]
        ),
        SIDE,
        Column("steps", "Steps", "count", lambda row: row.of[0]),
        Column("share", "Share of workflows", "part", lambda row: row.of[2]),
        Column("n", "Workflows", "count", lambda row: row.of[1]),
    )
    return Answer("lengths", "How many steps has a workflow?", _each(parts, words), [table])


def shapes(asked: Asked) -> Answer | None:
    """Which shapes workflows have, and how these end."""
    parts = {side: use for side, use in _parts(asked).items() if use.topologies}
    if not parts:
        return None
    rows = _rows(parts, lambda use: sorted(use.topologies.items(), key=lambda one: (-one[1].n, one[0])))
    lines = [
        Line(row.of[0].value, Estimate.of(row.of[1]), Mark(to=_of_shape(row), side=row.side.letter))
        for row in rows
    ]

    def words(use: WorkflowUse) -> str:
        shape, share = max(use.topologies.items(), key=lambda one: one[1].n)
        right = share_words(share.value or 0.0, share.ci95)
        often = percent(share.n / use.episodes)
        return f"most often {shape.value}, in {often} of the episodes; {right} of these are right."

    return Answer(
        "shapes",
        "Which shapes do they have, and how do these end?",
        _each(parts, words),
        [Estimates(lines, "share answered right, with 95 % interval")],
        [f"Episodes of one task are taken together. {topologies_legend()}"],
    )


def _of_shape(row: Row[Any]) -> Address:
    return row.side.listed(write_expression(Compare(Name("topology"), "==", row.of[0].value)))


def access(asked: Asked) -> Answer | None:
    """How much of the earlier steps a step may read."""
    parts = {side: use for side, use in _parts(asked).items() if use.access}
    if not parts:
        return None

    def words(use: WorkflowUse) -> str:
        place, share = list(use.access.items())[-1]
        return f"{step_name(place)} may read {percent(share.value)} of the steps before it."

    table = Table.of(
        _rows(parts, lambda use: use.access.items()),
        SIDE,
        Column("step", "Step", "count", lambda row: row.of[0] + 1),
        Column("share", "Share of earlier steps that it may read", "part", lambda row: row.of[1].value),
        Column("read", "Read", "count", lambda row: row.of[1].k),
        Column("of", "Of", "count", lambda row: row.of[1].n),
    )
    return Answer("access", "How much may a step read?", _each(parts, words), [table])


def faults(asked: Asked) -> Answer | None:
    """Which of the planner's replies cannot be read."""
    if not (parts := _parts(asked)):
        return None

    def words(use: WorkflowUse) -> str:
        failed = f" {use.failed:,} more failed with their model." if use.failed else ""
        if not use.faults:
            return f"all {use.plans - use.failed:,} replies of the planner could be read.{failed}"
        return f"{use.faults.total():,} of {use.plans:,} replies could not be read.{failed}"

    table = Table.of(
        _rows(parts, lambda use: [(fault, n, n / use.plans) for fault, n in use.faults.most_common()]),
        SIDE,
        Column("fault", "Fault", "id", lambda row: row.of[0].value),
        Column("why", "Why it could not be read", get=lambda row: FAULT_WORDS[row.of[0]]),
        Column("share", "Share of replies", "part", lambda row: row.of[2]),
        Column("n", "Replies", "count", lambda row: row.of[1]),
    )
    return Answer(
        "faults",
        "Which plans cannot be read?",
        _each(parts, words),
        [table] if table.rows else [],
        ["Of the planner's replies, repeated tries counted, by the first reason that holds."],
        ways=[
            Way(
                f"Episodes{f' of {side.letter}' * bool(side.letter)} whose last plan could not be read",
                side.listed(_UNREAD),
            )
            for side, use in parts.items()
            if use.faults
        ],
    )


def rounds(asked: Asked) -> Answer | None:
    """What rounds after the first change."""
    parts = {side: use for side, use in _parts(asked).items() if use.rounds}
    if not parts:
        return None

    def words(use: WorkflowUse) -> str:
        before, after = (
            sum(getattr(one, f"right_{when}") for one in use.rounds.values()) for when in ("before", "after")
        )
        n = sum(one.n for one in use.rounds.values())
        return f"of {n:,} later rounds, {before:,} began with a right answer and {after:,} ended with one."

    table = Table.of(
        _rows(parts, lambda use: [(what, use.rounds[what]) for what in OUTCOMES if what in use.rounds]),
        SIDE,
        Column("outcome", "Rounds after the first", get=lambda row: OUTCOMES[row.of[0]]),
        Column("n", "Rounds", "count", lambda row: row.of[1].n),
        Column("right_before", "Right before", "count", lambda row: row.of[1].right_before),
        Column("right_after", "Right after", "count", lambda row: row.of[1].right_after),
    )
    return Answer("rounds", "What do later rounds change?", _each(parts, words), [table])


QUESTIONS = (steps, lengths, shapes, access, faults, rounds)
