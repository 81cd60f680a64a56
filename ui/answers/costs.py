"""What a solved problem cost, where it went, and what a smaller turn budget would have done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from storage.analysis.costs import (
    JUDGE,
    PLANNER,
    PolicyCost,
    Spending,
    frontier,
    judging,
    planning,
    policy_costs,
    spending_by,
    sum_spending,
)
from storage.analysis.counterfactual import AtBudget, accuracy_by_budget
from storage.analysis.routing import counted_episodes
from storage.analysis.verdicts import turn_groups
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import SIDE, Asked, Row, Side, like_chance, named, prefers_nothing
from ui.answers.blocks import Address, Answer, Column, Curve, Estimate, Mark, Point, Points, Table
from ui.presentation.comparison import enumerated
from ui.presentation.theme import one_line, percent
from ui.presentation.words import dollars, role_word, share_words


def cost(asked: Asked) -> Answer:
    """What a solved problem cost, by policy, and whether policies that cost more solve more."""
    found = asked.rows(lambda side: asked.read(policy_costs, side.where))
    every = [row.of for row in found]
    names = {one.token: named(one, asked.say, every) for one in every}
    in_dollars = any(one.cost_usd for one in every)
    best = frontier(
        (one.token, spent, one.accuracy.value or 0.0)
        for one in every
        if one.n and (spent := _per_episode(one, in_dollars)) is not None
    )
    unknown = sum(one.cost_usd is None for one in every)
    notes = [
        "All episodes count towards what a solved problem took, failed ones too. The dotted line joins the policies "
        "than which no other is both cheaper and better; the axis of prices need not begin at zero.",
    ]
    if in_dollars and unknown:
        notes.append(
            f"{unknown} of these policies had replies without a known price: they have no price here."
        )
    if same := like_chance(
        [one.policy for one in every], asked.say, lambda policy: asked.read(prefers_nothing, policy)
    ):
        notes.append(same)
    return Answer(
        "cost",
        "What did a solved problem cost?",
        "\n".join([asked.each(lambda side: _solved_words(asked, side)), *_frontier_words(best, names)]),
        [_price_and_accuracy(found, names, best, in_dollars), _cost_table(found, names)],
        notes,
        term="Frontier",
    )


def _per_episode(one: PolicyCost, in_dollars: bool) -> float | None:
    spent = one.cost_usd if in_dollars else one.tokens
    return None if spent is None else spent / one.n


def _solved_words(asked: Asked, side: Side) -> str:
    found = asked.read(policy_costs, side.where)
    said = solved_cost(found)
    if asked.compared or (least := least_tokens(found)) is None:
        return said
    return f"{said} Least: {named(least, asked.say, found)}, {least.tokens / least.right:,.0f} tokens."


def solved_cost(found: Sequence[PolicyCost]) -> str:
    """What a solved problem took, in a sentence."""
    right, tokens = sum(one.right for one in found), sum(one.tokens for one in found)
    if not right:
        return "Nothing was solved."
    solved = f"{sum(one.n for one in found):,} played, {right:,} solved"
    if len(found) == 1:  # several policies play the same tasks: their shares have no common interval
        solved = f"{solved}: {share_words(found[0].accuracy.value or 0.0, found[0].accuracy.ci95)}"
    each = f"per solved problem ({solved})"
    words = f"{tokens / right:,.0f} tokens {each}"
    if any(one.cost_usd is None for one in found):
        return f"{words}. The cost in dollars is unknown: some replies have no known price."
    total = sum(one.cost_usd or 0.0 for one in found)
    if not total:
        return f"{words}. These models are free."
    return f"{dollars(total / right)} and {words}."


def least_tokens(found: Sequence[PolicyCost]) -> PolicyCost | None:
    """The policy whose solved problems took the fewest tokens each; None where there are not several."""
    solving = [one for one in found if one.right]
    return min(solving, key=lambda one: one.tokens / one.right) if len(solving) > 1 else None


def _frontier_words(best: Sequence[str], names: Mapping[str, str]) -> list[str]:
    if len(names) < 2:
        return []
    kept = enumerated([names[one] for one in best])
    return [f"No policy is both cheaper and better than {kept}."]


def _price_and_accuracy(
    found: Sequence[Row[PolicyCost]], names: Mapping[str, str], best: Sequence[str], in_dollars: bool
) -> Points:
    points = [
        Point(
            spent,
            Estimate.of(one.accuracy),
            re.sub(r" \(.*?\)", "", names[one.token]),  # the id in brackets is left to the pointer
            names[one.token],
            stands_out=one.token in best,
            mark=Mark(to=_episodes(Row(side, one)), side=side.letter),
        )
        for side, one in found
        if one.n and (spent := _per_episode(one, in_dollars)) is not None
    ]
    return Points(points, (f"{'US dollars' if in_dollars else 'tokens'} per episode", "solved"))


def _cost_table(found: Sequence[Row[PolicyCost]], names: Mapping[str, str]) -> Table:
    """A row per policy and side, best first; among equals the one that took fewer tokens."""
    return Table.of(
        sorted(found, key=lambda row: (-(row.of.accuracy.value or 0.0), row.of.tokens / row.of.n)),
        SIDE,
        Column("name", "Policy", get=lambda row: names[row.of.token], help="Alone"),
        Column("policy", "Id", "id", lambda row: row.of.policy),
        Column("setting", "Setting", "id", lambda row: row.of.setting),
        Column("accuracy", "Solved", "estimate", lambda row: row.of.accuracy),
        Column("episodes", "Episodes", "count", lambda row: row.of.n),
        Column("cost_usd", "Cost", "id", lambda row: row.of.cost_usd),
        Column(
            "cost_usd_per_solved", "Cost per solved", "usd", lambda row: row.of.per_solved(row.of.cost_usd)
        ),
        Column(
            "tokens_per_solved", "Tokens per solved", "number", lambda row: row.of.per_solved(row.of.tokens)
        ),
        Column(
            "seconds_per_solved",
            "Seconds per solved",
            "number",
            lambda row: row.of.per_solved(row.of.latency_s),
            places=2,
        ),
        Column(
            "accepted", "Accepted", "estimate", lambda row: row.of.accepted, "Ended by a Verifier's ACCEPT"
        ),
        Column("turns", "Turns", "number", lambda row: row.of.turns / row.of.n, "Mean per episode", 2),
        Column(
            "false_accept",
            "Wrong among accepted",
            "estimate",
            lambda row: row.of.false_accept,
            "Wrong among accepted",
        ),
        Column("open", "List", "link", _episodes),
        key="policies",
    )


def _episodes(row: Row[PolicyCost]) -> Address:
    return row.side.listed(row.of.expression, policy=row.of.policy)


def spending(asked: Asked) -> Answer:
    """Which roles and models what was spent went to."""
    tables, said = [], {}
    for side in asked.sides:
        groups = asked.read(turn_groups, side.where)
        beside = {
            name: sum_spending(asked.read(read, side.where).values())
            for name, read in ((PLANNER, planning), (JUDGE, judging))
        }
        apart = {
            name: one for name, one in beside.items() if one and one.tokens
        }  # a fixed workflow takes none
        costs = [*(one.cost_usd for one in groups), *(one.cost_usd for one in apart.values())]
        unit = "dollars" if any(costs) and None not in costs else "tokens"
        parts = {
            "role": spending_by(groups, lambda one: role_word(one.role)) | apart,
            "model": spending_by(groups, lambda one: one.model) | apart,
        }
        for words, found in parts.items():
            tables.append(_spent_table(side, words, found, unit))
        said[side] = _spent_words(parts["model"], unit)
    whole = "All replies are counted, none is drawn: these shares have no interval."
    return Answer("spending", "Where did it go?", asked.each(said.__getitem__), tables, [whole])


def _amount(one: Spending, unit: str) -> float:
    return one.cost_usd or 0.0 if unit == "dollars" else one.tokens


def _spent_words(found: Mapping[str, Spending], unit: str) -> str:
    whole = sum(_amount(one, unit) for one in found.values())
    if not whole:
        return "No model was asked here."
    name, most = max(found.items(), key=lambda one: _amount(one[1], unit))
    return f"Most to {one_line(name, 40)}: {percent(_amount(most, unit) / whole)} of {unit}."


def _spent_table(side: Side, words: str, found: Mapping[str, Spending], unit: str) -> Table:
    whole = sum(_amount(one, unit) for one in found.values()) or 1.0
    asked = (
        "Turns in which a model was asked; of a planner: the workflows that it wrote; of a judge: its ratings"
    )
    return Table.of(
        found.items(),
        Column(words, words.capitalize(), get=lambda one: one[0]),
        Column("share", f"Share of {unit}", "part", lambda one: _amount(one[1], unit) / whole),
        Column("replies", "Replies", "count", lambda one: one[1].n, asked),
        Column("tokens", "Tokens", "id", lambda one: one[1].tokens),
        Column("tokens_per_reply", "Tokens per reply", "number", lambda one: one[1].tokens_per_reply),
        Column("cost_usd", "Cost", "usd", lambda one: one[1].cost_usd),
        Column(
            "seconds_per_reply", "Seconds per reply", "number", lambda one: one[1].seconds_per_reply, places=3
        ),
        title=f"{side.title}: by {words}" if side.letter else f"By {words}",
        key=f"{words}s{side.letter}",
    )


def by_budget(store: Store, where: EpisodeFilter) -> list[AtBudget]:
    """Accuracy and spend of the episodes that count, had each been cut after 1, 2, ... turns."""
    return accuracy_by_budget(store, *counted_episodes(store, where))


def budget(asked: Asked) -> Answer:
    """What a smaller turn budget would have done."""
    curves = {side: asked.read(by_budget, side.where) for side in asked.sides}
    names = {side: side.title or side.name for side in asked.sides}
    lines = {names[side]: [_at(one, curve, side) for one in curve] for side, curve in curves.items()}
    tell = "Episodes that tell: one that ran into its own smaller budget says nothing about a larger one"
    table = Table.of(
        asked.rows(curves.__getitem__),
        SIDE,
        Column("budget", "Turn budget", "count", lambda row: row.of.budget),
        Column("solved", "Solved", "estimate", lambda row: row.of.right),
        Column("episodes", "Episodes", "count", lambda row: row.of.n, tell),
        Column("turns", "Turns per episode", "number", lambda row: row.of.turns / row.of.n, places=2),
        Column("tokens", "Tokens per episode", "number", lambda row: row.of.tokens / row.of.n),
        Column("cost_usd", "Cost per episode", "usd", _cost_per_episode),
    )
    notes = [
        "Recorded episodes, cut after so many turns: what stood as the answer then counts. An episode that a Verifier "
        "had ended earlier counts as it ended. No model is asked. Bands are 95 % intervals. A point leads to the "
        "episodes that go on beyond it."
    ]
    if any(one.faint for line in lines.values() for one in line):
        notes.append(
            "Hollow marks: there not all episodes tell, because some had a smaller budget of their own. Such a point "
            "is about other episodes than the one before it: choose one policy or run to compare like with like."
        )
    return Answer(
        "budget",
        "What would a smaller turn budget have done?",
        asked.each(lambda side: _budget_words(curves[side])),
        [Curve(lines, ("turn budget", "answered right")), table] if table.rows else [],
        notes,
    )


def _cost_per_episode(row: Row[AtBudget]) -> float | None:
    return None if row.of.cost_usd is None else row.of.cost_usd / row.of.n


def _covers_most(one: AtBudget, curve: Sequence[AtBudget]) -> bool:
    """Whether nearly all episodes count at this budget, so that it can be compared with the others."""
    return one.n >= 0.95 * max(other.n for other in curve)


def _at(one: AtBudget, curve: Sequence[AtBudget], side: Side) -> Point:
    detail = f"{one.tokens / one.n:,.0f} tokens per episode"
    mark = Mark(to=side.listed(min_turns=str(one.budget + 1)), side=side.letter)
    return Point(
        one.budget, Estimate.of(one.right), detail=detail, faint=not _covers_most(one, curve), mark=mark
    )


def _budget_words(curve: Sequence[AtBudget]) -> str:
    """What one turn, half of the turns and all of them would have solved."""
    if not curve:
        return "These episodes have no turns."
    full = [one for one in curve if _covers_most(one, curve)]
    some = dict.fromkeys([full[0], full[(len(full) - 1) // 2], full[-1]])
    shares = [f"{share_words(one.accuracy, one.ci95)} with {_turns(one.budget)}" for one in some]
    return f"Right would have been {', '.join(shares)}."


def _turns(n: int) -> str:
    return f"{n} turn{'' if n == 1 else 's'}"


QUESTIONS = (cost, spending)
