"""Checkpoints and `trinity compare`: up to eight policies on the tasks that they share, with A as the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from core.conduct.planners import CONDUCTOR
from core.episode import Role
from storage.analysis.standings import ENTROPY_BIN, Course, courses
from storage.store import Store
from ui.answers import comparison, costs
from ui.answers.asked import Asked, Side
from ui.answers.blocks import Address, Answer, Cell, Column, Curve, Estimate, Grid, Mark, Point, Table, Way
from ui.answers.comparison import figures_of, played
from ui.answers.pages import Analysis, Part
from ui.presentation.theme import percent, signed_points
from ui.presentation.words import role_word

#: In the order in which a problem is usually worked on.
_ROLES = (Role.THINKER, Role.WORKER, Role.VERIFIER)


def _went(asked: Asked) -> list[tuple[Side, Course]]:
    return list(zip(asked.sides, asked.read(courses, played(asked)), strict=True))


def configs(store: Store, policies: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The configurations of those policies that are stored checkpoints."""
    return {one.id: one.config for one in store.checkpoints.list() if one.id in policies}


def _configs(asked: Asked) -> dict[str, Mapping[str, Any]]:
    return asked.read(configs, tuple(side.policy for side in played(asked)))


def routing(asked: Asked) -> Answer | None:
    """Whom B calls more than A, and whom less."""
    (_, a), (side, b), *_ = _went(asked)
    stored = _configs(asked)
    known = [stored[one.policy]["models"] for one in played(asked) if one.policy in stored]
    slots: Sequence[str] = known[0] if known else ()
    models = [*slots, *sorted({model for model, _ in (*a.routed, *b.routed)} - set(slots))]
    if not models:
        return None
    total_a, total_b = a.routed.total() or 1, b.routed.total() or 1

    def cell(model: str, role: Role) -> Cell:
        before, after = a.routed[model, role] / total_a, b.routed[model, role] / total_b
        detail = f"A {percent(before)}, B {percent(after)} of turns"
        return Cell(after - before, detail, mark=Mark(to=side.listed(model=model, role=role.value)))

    cells = [[cell(model, role) for model in models] for role in _ROLES]
    most, role, model = max(
        (
            (one, role, model)
            for role, of in zip(_ROLES, cells, strict=True)
            for model, one in zip(models, of, strict=True)
        ),
        key=lambda found: abs(found[0].value or 0.0),
    )
    said = (
        f"Most moved: {model} as {role.value.capitalize()}, {signed_points(most.value or 0.0)} points of all turns "
        f"({most.detail})."
    )
    pair = played(asked)[0].policy, side.played.policy
    ways = []
    if all(policy.startswith(CONDUCTOR) for policy in pair) and len(set(pair)) == 2:
        address = Address("routing", {"a": pair[0], "b": pair[1], "part": "workflows"})
        ways.append(Way("The workflows of both, on Routing", address))
    return Answer(
        "routing",
        "Whom does B call more, whom less?",
        said if most.value else "Both call the same models in the same roles equally often.",
        [Grid([role_word(role) for role in _ROLES], models, ("role", "model"), cells, signed=True)],
        ["Share of all turns, B minus A, in points. A cell leads to B's episodes with such a turn."],
        term="Routing",
        ways=ways,
    )


def _curve(
    asked: Asked,
    line: Callable[[Side, Course], Iterable[tuple[float, float, Mark]]],
    axes: tuple[str, str],
    key: str,
) -> Curve:
    """A line per side over (x, share, where it leads)."""
    return Curve(
        {
            side.title: [Point(x, Estimate(share, None), mark=mark) for x, share, mark in line(side, course)]
            for side, course in _went(asked)
        },
        axes,
        key=key,
    )


def lengths(asked: Asked) -> Answer:
    """How long episodes get."""
    longest = max((max(course.turns, default=0) for _, course in _went(asked)), default=0)

    def line(side: Side, course: Course) -> Iterable[tuple[float, float, Mark]]:
        total = course.turns.total() or 1
        for turns in range(1, longest + 1):
            only = side.listed(min_turns=str(turns), max_turns=str(turns))
            yield turns, course.turns[turns] / total, Mark(to=only, side=side.letter)

    means = [
        f"{side.letter} {one.summary.mean_turns or 0:.2f}"
        for side, one in zip(asked.sides, figures_of(asked), strict=True)
    ]
    return Answer(
        "lengths",
        "How long do episodes get?",
        f"Turns per episode, in the mean: {', '.join(means)}.",
        [_curve(asked, line, ("turns", "share of episodes"), "lengths")],
        ["The share of each policy's episodes by their number of turns. A point leads to them."],
        term="Turn budget",
    )


def entropies(asked: Asked) -> Answer | None:
    """How sure the choices are."""
    went = _went(asked)
    most = max((max(course.entropy, default=0) for _, course in went), default=0)
    if not any(course.entropy for _, course in went):
        return None

    def line(side: Side, course: Course) -> Iterable[tuple[float, float, Mark]]:
        for bar in range(most + 1 if course.entropy else 0):
            yield bar * ENTROPY_BIN, course.entropy[bar] / course.entropy.total(), Mark(side=side.letter)

    said = [
        f"{side.letter} {sum(bar * n for bar, n in course.entropy.items()) * ENTROPY_BIN / course.entropy.total():.2f}"
        for side, course in went
        if course.entropy
    ]
    return Answer(
        "entropies",
        "How sure are the choices?",
        f"Entropy of a choice in nats, about, in the mean (0: certain): {', '.join(said)}.",
        [_curve(asked, line, ("entropy (0: certain)", "share of decisions"), "entropies")],
        [
            f"The share of each policy's decisions by their entropy, in steps of {ENTROPY_BIN:g} nats. Policies "
            "without a head have no line."
        ],
        term="Entropy",
        ways=[Way("B's most undecided episodes", asked.sides[1].listed(order="entropy"))],
    )


def config(asked: Asked) -> Answer | None:
    """In which settings the checkpoints among them differ."""
    stored = _configs(asked)
    held = {side: flat(stored[side.played.policy]) for side in asked.sides if side.played.policy in stored}
    if len(held) < 2:
        return None
    keys = list(dict.fromkeys(key for of in held.values() for key in of))
    differing = [key for key in keys if len({of.get(key) for of in held.values()}) > 1]
    columns = [Column(side.letter, side.title, get=partial(_setting, of)) for side, of in held.items()]
    same = len(keys) - len(differing)
    policies = [side.played.policy for side in held]
    chosen = asked.sides[1].played.policy
    among = {"c": ",".join(policies), "with": chosen if chosen in policies[1:] else None}
    return Answer(
        "config",
        "What differs in their configuration?",
        f"{len(differing)} settings; {same} are the same in all of these checkpoints.",
        [Table.of(differing, Column("key", "Setting"), *columns, key="config")],
        ways=[Way("What would each choose at the same turns? Policy diff", Address("policy", among))],
    )


def _setting(config: Mapping[str, str], key: str) -> str:
    return config.get(key, "–")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as dotted keys and text values."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = str(value)
    return found


ANALYSIS = Analysis(
    (
        Part("result", "Result", comparison.QUESTIONS),
        Part(
            "course",
            "How they differ",
            (costs.cost, routing, lengths, entropies, costs.budget, config),
        ),
    )
)
