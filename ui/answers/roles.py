"""Whether the models keep to what their roles ask for, and whether Thinkers refrain from answering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from core.analysis.metrics import ClusteredShare
from core.episode import Role
from storage.analysis.routing import pool_order
from storage.analysis.verdicts import (
    MOST_PLANS,
    RoleCompliance,
    role_compliance,
    thinker_plans,
    turn_groups,
    turn_rates,
    with_lapse,
)
from ui.answers.asked import SIDE, Asked, Row, Side, turns_table
from ui.answers.blocks import Address, Answer, Block, Cell, Column, Grid, Table
from ui.presentation.theme import one_line
from ui.presentation.words import pair_words, role_word, share_words

#: The roles in the order in which a problem is usually worked on.
ROLES = (Role.THINKER, Role.WORKER, Role.VERIFIER)
_MOST_ASTRAY = 50


def _compliance(asked: Asked, side: Side) -> list[RoleCompliance]:
    return role_compliance(asked.read(turn_groups, side.where), asked.read(turn_rates, side.where))


def kept(asked: Asked) -> Answer:
    """Who keeps to what its role asks for."""
    found = asked.rows(
        lambda side: sorted(_compliance(asked, side), key=lambda one: one.compliant.value or 0.0)
    )
    table = Table.of(
        found,
        SIDE,
        Column("model", "Model", get=lambda row: row.of.model),
        Column("role", "Role", "role", lambda row: row.of.role),
        Column("kept", "Kept to it", "estimate", lambda row: row.of.compliant),
        Column("turns", "Turns", "count", lambda row: row.of.compliant.n, "Those in which a model was asked"),
        Column("failed", "No reply at all", "count", lambda row: row.of.failed),
        Column("open", "Where it did not", "link", _lapses),
    )
    return Answer(
        "kept",
        "Do the models keep to their roles?",
        asked.each(lambda side: _kept_words(_compliance(asked, side))),
        [*(_kept_grid(asked, side) for side in asked.sides), table],
        [
            "Of the turns in which a model was asked, the share whose reply had what its role asks for: a Thinker a "
            "readable plan, a Worker an answer, a Verifier one clear verdict. A missing plan, answer or verdict is the "
            "model's fault, not the coordinator's."
        ],
    )


def _lapses(row: Row[RoleCompliance]) -> Address | None:
    kept = row.of.compliant
    return row.side.listed(with_lapse(row.of.model, row.of.role)) if kept.k < kept.n else None


def _kept_words(found: Sequence[RoleCompliance]) -> str:
    if not found:
        return "No model was asked here."
    least = min(found, key=lambda one: one.compliant.value or 0.0)
    share = least.compliant
    if share.k == share.n:
        return (
            f"Always: each of {sum(one.compliant.n for one in found):,} replies had what its role asks for."
        )
    whole = sum(one.compliant.k for one in found) / sum(one.compliant.n for one in found)
    who = pair_words(least.role, one_line(least.model, 40))
    return (
        f"In {100 * whole:.0f} % of all turns. Least: {who}, {share_words(share.value or 0.0, share.ci95)} of "
        f"{share.n:,}."
    )


def _kept_grid(asked: Asked, side: Side) -> Grid:
    found = {(one.role, one.model): one for one in _compliance(asked, side)}
    models = [name for name in asked.read(pool_order, side.where) if any(name == model for _, model in found)]

    def cell(role: Role, model: str) -> Cell:
        one = found.get((role, model))
        if one is None:
            return Cell(None, "never")
        share = one.compliant
        return Cell(share.value, f"{share.k:,} of {share.n:,} turns", ci95=share.ci95)

    return Grid(
        [role_word(role) for role in ROLES],
        models,
        ("role", "model"),
        [[cell(role, model) for model in models] for role in ROLES],
        top=1.0,
        title=side.title,
        key=f"grid{side.letter}",
    )


def refrained(asked: Asked) -> Answer:
    """Whether Thinkers kept to planning, read from what they said when somebody asks."""
    read = asked.choice("plans", "Plans", {"": "Close them", "read": "Read what Thinkers said"}, look="flip")
    blocks: list[Block] = []
    said = "Not read yet: it is found in what Thinkers said, which takes a moment."
    if read.value:
        said = asked.each(lambda side: _plans(asked, side, blocks))
    return Answer(
        "plans",
        "Did Thinkers refrain from answering?",
        said,
        blocks,
        [
            "A Thinker is asked for a plan. It strays when its reply can be read as a Worker's answer or as a "
            f"Verifier's verdict. The newest {MOST_PLANS:,} replies are read at most."
        ],
        choices=[read],
    )


def _plans(asked: Asked, side: Side, blocks: list[Block]) -> str:
    """The sentence of a side; its tables are added to `blocks`."""
    found = thinker_plans(asked.store, side.where)
    if not found:
        return "No Thinker has said anything here."
    gave: dict[str, Counter[str]] = {}
    for one in found:
        gave.setdefault(one.model, Counter())[one.breach or "plan"] += 1
    shares = {
        name: ClusteredShare.counted((one.task, not one.breach) for one in found if one.model == name)
        for name in gave
    }
    blocks.append(
        Table.of(
            sorted(gave, key=lambda name: (shares[name].value or 0.0, name)),
            Column("model", "Model"),
            Column("kept", "Kept to planning", "estimate", shares.__getitem__),
            Column("answer", "Gave an answer", "count", lambda name: gave[name]["answer"]),
            Column("verdict", "Gave a verdict", "count", lambda name: gave[name]["verdict"]),
            Column("read", "Replies read", "count", lambda name: shares[name].n),
            title=side.title,
            key=f"thinkers{side.letter}",
        )
    )
    if astray := [one.turn for one in found if one.breach][:_MOST_ASTRAY]:
        title = "Turns in which a Thinker strayed, the newest first"
        blocks.append(turns_table(asked, astray, title, f"astray{side.letter}"))
    every = ClusteredShare.counted((one.task, not one.breach) for one in found)
    return f"{share_words(every.value or 0.0, every.ci95)} of {every.n:,} replies kept to planning."


QUESTIONS = (kept, refrained)
