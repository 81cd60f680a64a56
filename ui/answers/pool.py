"""Pool: how each model has been answering, what it costs in which role, what would happen without it; and whether
models keep to their roles, whether Thinkers refrain from answering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from core.analysis.metrics import ClusteredShare, wilson_interval
from core.episode import Flag, Role
from core.errors import TrinityError
from core.pocket import MODELS
from core.pool.circuits import FAILURES
from core.settings import POCKET_POOL
from storage.analysis.costs import (
    JUDGE,
    PLANNER,
    Spending,
    judging,
    planning,
    spending_by,
    sum_spending,
)
from storage.analysis.health import ModelHealth, model_health
from storage.analysis.reply_faults import LOUD, ReplyFaults, Share, reply_faults
from storage.analysis.routing import pool_order
from storage.analysis.verdicts import (
    MOST_PLANS,
    RoleCompliance,
    TurnGroup,
    VerdictOutcome,
    role_compliance,
    thinker_plans,
    turn_groups,
    turn_rates,
    with_lapse,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import SIDE, Asked, Row, Side, turns_table
from ui.answers.blocks import Address, Answer, Block, Cell, Column, Grid, Table, Way
from ui.answers.pages import Analysis, Part
from ui.answers.worth import without
from ui.presentation.theme import one_line, percent
from ui.presentation.words import dollars, pair_words, role_word, share_words
from ui.runs import wiring

#: The roles in the order in which a problem is usually worked on.
ROLES = (Role.THINKER, Role.WORKER, Role.VERIFIER)
_MOST_ASTRAY = 50
#: What replies may lack, as far as a picture shows it: the kind of lapse, its words.
_LACKS = {
    "failed": "failed",
    "no answer": "no answer",
    "no plan": "no plan",
    "no verdict": "no verdict",
    "cut": "cut",
}
#: Verifier turns that judged an answer, and those of them that accepted it.
_ACCEPTED = (VerdictOutcome.ACCEPTED_RIGHT, VerdictOutcome.ACCEPTED_WRONG)
_JUDGED = (*_ACCEPTED, VerdictOutcome.REVISED_RIGHT, VerdictOutcome.REVISED_WRONG)


class _Calls(NamedTuple):
    """What was asked of the pool in the episodes of a side: turns for which a model was asked, alike ones together,
    and what planning and judging cost each model."""

    health: Sequence[ModelHealth]
    groups: Sequence[TurnGroup]
    plans: Mapping[str, Spending]
    ratings: Mapping[str, Spending]
    lapses: Mapping[str, ReplyFaults]
    spent: Mapping[str, Spending]


def calls_in(store: Store, where: EpisodeFilter) -> _Calls:
    """What was asked in these episodes: live plays, forks and requests count as well, unless they are left out."""
    where = replace(where, forks=where.forks or "with")
    # A reply that was reused, no model was asked for; turns that forks carry are not among them.
    groups = [one for one in turn_groups(store, where) if Flag.REUSED not in one.flags]
    plans, ratings = planning(store, where, of_pool=True), judging(store, where)
    spent = spending_by(groups, lambda group: group.model)
    for apart in (plans, ratings):
        for name, more in apart.items():
            if summed := sum_spending([more, *([spent[name]] if name in spent else [])]):
                spent[name] = summed
    lapses = {one.model: one for one in reply_faults(groups)}
    return _Calls(model_health(store, where), groups, plans, ratings, lapses, spent)


def _calls(asked: Asked, side: Side) -> _Calls:
    return asked.read(calls_in, side.where)


def health(asked: Asked) -> Answer:
    """How the models have been answering."""
    rows = asked.rows(lambda side: _calls(asked, side).health)
    names = [f"{row.side.letter} {row.of.model}".strip() for row in rows]
    cells = [[_cell(_lack(asked, row, kind)) for kind in _LACKS] for row in rows]
    unasked = sum(one.n for side in asked.sides for one in _calls(asked, side).groups if not one.asked)
    planned = any(_calls(asked, side).plans for side in asked.sides)
    notes = [
        "Percent of the replies of a model in which something could be missing: an answer as a Worker, a plan as a "
        "Thinker, a verdict as a Verifier; cut are replies that hit their token limit. Live plays, forks and requests "
        "count too, unless they are left out."
    ]
    if unasked:
        notes.append(
            f"A call is a turn at which the model was asked{', or a plan that it wrote' * planned}. {unasked:,} more "
            f"turn{'s' * (unasked > 1)} of Verifiers came before any answer: no model is asked then."
        )
    return Answer(
        "health",
        "How have they been answering?",
        asked.each(lambda side: _health_words(_calls(asked, side))),
        [Grid(names, list(_LACKS.values()), ("model", "lacks"), cells), _health_table(asked, rows)]
        if rows
        else [],
        notes,
        ways=[
            Way(
                "Episodes that failed",
                Address("episodes", {**asked.sides[0].listed().params, "status": "missing"}),
            ),
            Way("Who is called in which role", Address("routing", {})),
            Way("Tiers and keys of the endpoint", Address("settings", {"part": "endpoint"})),
        ],
    )


def _health_words(found: _Calls) -> str:
    if not found.health:
        return "No model was asked in these episodes."
    calls, bad = sum(one.calls for one in found.health), sum(one.failed + one.lost for one in found.health)
    failed = (
        f"{bad:,} failed, {share_words(bad / calls, wilson_interval(bad, calls))}" if bad else "none failed"
    )
    said = [f"{len(found.health)} models answered {calls:,} calls; {failed}."]
    specialists = _specialists()
    for one in found.health:
        if one.lost:
            times = f"{one.lost:,} time{'s' * (one.lost > 1)}"
            said.append(f"{one.model} could not be asked {times}: those episodes are missing.")
        if one.replaced:
            times = f"{one.replaced:,} request{'s' * (one.replaced > 1)}"
            said.append(
                f"In {times} {one.model} could not be asked, and another model was asked in its place."
            )
        if one.rests_until:
            said.append(f"It failed {FAILURES} times in a row, so the endpoint leaves it alone for a minute.")
        lapses = found.lapses.get(one.model)
        loud = [name for name in (lapses.loud if lapses else ()) if name not in ("refused", "failed")]
        # What a pocket specialist cannot do is part of its world, no setting mends it.
        if loud and lapses and one.model not in specialists:
            shares = ", ".join(f"{name} in {percent(lapses.shares[name].value)}" for name in loud)
            said.append(
                f"{one.model} often gives replies that cannot be read ({shares}). Above {percent(LOUD)} look at its "
                "replies and its settings."
            )
    return " ".join(said)


def _specialists() -> set[str]:
    """The names that are pocket models here."""
    try:
        specs = wiring.pool_specs(wiring.settings().pool)
    except TrinityError:
        return {*MODELS}
    return {*MODELS} - {spec.name for spec in specs if spec.provider != POCKET_POOL}


def _lack(asked: Asked, row: Row[ModelHealth], kind: str) -> Share | None:
    lapses = _calls(asked, row.side).lapses.get(row.of.model)
    share = lapses.shares[kind] if lapses else None
    return share if share and share.n else None


def _cell(share: Share | None) -> Cell:
    return Cell(None) if share is None else Cell(share.value, f"{share.k:,} of {share.n:,} replies")


def _health_table(asked: Asked, rows: Sequence[Row[ModelHealth]]) -> Table:
    def lacks(kind: str, words: str, help: str) -> Column:
        return Column(
            kind.replace(" ", "_"), words, "share", lambda row: _value(_lack(asked, row, kind)), help
        )

    return Table.of(
        rows,
        SIDE,
        Column("model", "Model", get=lambda row: row.of.model),
        Column("calls", "Calls", "count", lambda row: row.of.calls),
        Column("p50", "Median, seconds", "number", lambda row: row.of.latency_p50_s, places=2),
        Column(
            "p95",
            "p95, seconds",
            "number",
            lambda row: row.of.latency_p95_s,
            "95 of 100 calls took no longer",
            2,
        ),
        Column(
            "tokens_per_s",
            "Tokens a second",
            "number",
            lambda row: row.of.tokens_per_s,
            "Written in a second of its calls, in which their prompts were read too",
            1,
        ),
        Column(
            "errors",
            "Errors",
            "share",
            lambda row: row.of.error_share,
            "Calls that failed, or could not be made at all",
        ),
        lacks("no answer", "No answer", "As a Worker, of its replies"),
        lacks("no plan", "No plan", "As a Thinker, of its replies"),
        lacks("no verdict", "No verdict", "As a Verifier, of its replies"),
        lacks("cut", "Cut", "Replies that hit their token limit"),
        Column(
            "accepts",
            "Accepts",
            "share",
            lambda row: _accepts(_calls(asked, row.side).groups, row.of.model),
            "As a Verifier: of the answers it judged",
        ),
        Column("cost", "Cost", "usd", lambda row: _cost(_calls(asked, row.side).spent.get(row.of.model))),
        Column(
            "rests_until",
            "Left alone until",
            "time",
            lambda row: row.of.rests_until,
            f"The endpoint asks a model that failed {FAILURES} times in a row only a minute later again",
        ),
        Column("last", "Last asked", "time", lambda row: row.of.last),
        Column(
            "open", "Episodes", "link", lambda row: row.side.listed(f'any(turn.model == "{row.of.model}")')
        ),
        key="models",
    )


def _value(share: Share | None) -> float | None:
    return None if share is None else share.value


def _cost(spent: Spending | None) -> float | None:
    return None if spent is None else spent.cost_usd


def _accepts(groups: Sequence[TurnGroup], model: str) -> float | None:
    judged = [one for one in groups if one.model == model and one.judgement in _JUDGED]
    n = sum(one.n for one in judged)
    return sum(one.n for one in judged if one.judgement in _ACCEPTED) / n if n else None


def spending(asked: Asked) -> list[Answer]:
    """Where tokens, or dollars where any are known, go."""
    return [
        _spending(side, _calls(asked, side), f"spending_{side.letter}".rstrip("_").lower())
        for side in asked.sides
        if _calls(asked, side).health
    ]


def _spending(side: Side, found: _Calls, key: str) -> Answer:
    """By model and role, and of models that plan workflows or judge answers for that."""
    models = list(dict.fromkeys([*(one.model for one in found.health), *found.ratings]))
    apart = {name: of for name, of in ((PLANNER, found.plans), (JUDGE, found.ratings)) if of}
    rows = [*(role_word(role) for role in ROLES), *apart]
    spent: dict[tuple[str, str], Spending | None] = {
        (model, role_word(role)): spending_by(
            [one for one in found.groups if (one.model, one.role) == (model, role)], lambda group: group.model
        ).get(model)
        for model in models
        for role in ROLES
    }
    spent |= {(model, name): of.get(model) for name, of in apart.items() for model in models}
    in_dollars = any(one and one.cost_usd for one in spent.values())
    unit = "dollars" if in_dollars else "tokens"
    amounts = {
        place: 0.0 if one is None else float(one.cost_usd or 0.0) if in_dollars else float(one.tokens)
        for place, one in spent.items()
    }
    total = sum(amounts.values()) or 1.0
    (model, role), most = max(amounts.items(), key=lambda one: one[1])
    cells = [[Cell(amounts.get((model, row), 0.0) / total) for model in models] for row in rows]
    of, amount = (
        f" of {side.letter}" if side.letter else "",
        dollars(total) if in_dollars else f"{total:,.0f} tokens",
    )
    return Answer(
        key,
        f"Where do the {unit}{of} go?",
        f"Most go to {model} as {role}: {percent(most / total)} of {amount}. All are counted, so there is no interval.",
        [Grid(rows, models, ("role", "model"), cells)],
    )


def missed(asked: Asked) -> Answer | None:
    """Who would be missed; None where nobody was asked. Turns that forks play again and again count once."""
    if not any(_calls(asked, side).health for side in asked.sides):
        return None
    sides = [
        replace(side, where=replace(side.where, forks="without"))
        if side.where.forks in (None, "with")
        else side
        for side in asked.sides
    ]
    return without(asked.alone(*sides))


# Whether models keep to their roles: questions of the page Verifier & cost


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


ANALYSIS = Analysis((Part("pool", "Pool", (health, spending, missed)),), everything=True)
