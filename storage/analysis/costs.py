"""What turns and policies consumed, and what a solved problem cost; aggregated in SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Flag
from storage.analysis.routing import counted_episodes
from storage.analysis.standings import SETTING, Setting
from storage.analysis.verdicts import TurnGroup
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import DECIDER, read_shares, sum_if_all_known, total, total_if_all_known
from storage.rows.engine import fetch_rows, reading
from storage.rows.schema import episode, plan, run
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Spending:
    """What some turns consumed; None: a price is unknown. `n` are those in which a model was asked, `anew` those of
    them that no earlier reply answered: only they took time."""

    n: int
    anew: int
    tokens: int
    cost_usd: float | None
    latency_s: float

    @property
    def tokens_per_reply(self) -> float | None:
        return self.tokens / self.n if self.n else None

    @property
    def seconds_per_reply(self) -> float | None:
        """Of those that took time; None where none did."""
        return self.latency_s / self.anew if self.anew else None


def spending_by(groups: Iterable[TurnGroup], key: Callable[[TurnGroup], str]) -> dict[str, Spending]:
    """Turns put together by `key`, most tokens first."""
    parts: defaultdict[str, list[Spending]] = defaultdict(list)
    for group in groups:
        asked, tokens = group.n if group.asked else 0, group.tokens_in + group.tokens_out
        anew = 0 if Flag.REUSED in group.flags else asked
        parts[key(group)].append(Spending(asked, anew, tokens, group.cost_usd, group.latency_s))
    return _most_first((name, _together(of)) for name, of in parts.items())


def _most_first(found: Iterable[tuple[str, Spending]]) -> dict[str, Spending]:
    return dict(sorted(found, key=lambda one: (-one[1].tokens, one[0])))


#: What whoever writes workflows is called beside roles and models.
PLANNER = "Planner"


def planning(store: Store, where: EpisodeFilter, *, of_pool: bool = False) -> dict[str, Spending]:
    """What planners consumed to write workflows, by who wrote them (a model of the pool, or a policy), most tokens
    first; `of_pool`: models alone. Forks carry their parents' plans, which count for these. One query."""
    query = (
        select(
            plan.c.planner,
            func.count(),
            func.count(),  # a plan is never one that another run had got
            func.coalesce(func.sum(plan.c.tokens_in), 0) + func.coalesce(func.sum(plan.c.tokens_out), 0),
            total_if_all_known(plan.c.cost_usd),
            total(plan.c.latency_s),
        )
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(*counted_episodes(store, where), episode.c.fork_turn.is_(None))
        .group_by(plan.c.planner)
    )
    query = query.where(of_the_pool()) if of_pool else query
    rows = fetch_rows(store.engine, query)
    return _most_first((planner, Spending(*amounts)) for planner, *amounts in rows)


def together(found: Iterable[Spending]) -> Spending | None:
    """The sum of several; None of none."""
    parts = list(found)
    return _together(parts) if parts else None


def _together(parts: Sequence[Spending]) -> Spending:
    return Spending(
        sum(one.n for one in parts),
        sum(one.anew for one in parts),
        sum(one.tokens for one in parts),
        sum_if_all_known(one.cost_usd for one in parts),
        fsum(one.latency_s for one in parts),
    )


def of_the_pool() -> ColumnElement[bool]:
    """That a plan was written by a model of its episode's pool and not by a planner of its own."""
    return episode.c.models.contains('"' + plan.c.planner + '"')


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """How a policy (MIXED: two of them) did under one setting and what its finished episodes consumed. `setting` is
    None where the policy has been played under one alone."""

    policy: str
    setting: Setting | None
    turns: int
    tokens: int
    cost_usd: float | None
    latency_s: float
    accuracy: ClusteredShare  # right episodes of all
    accepted: ClusteredShare  # of all, those that a Verifier ended
    false_accept: ClusteredShare  # wrong ones among those that a Verifier ended
    accepts: dict[tuple[int, bool], int]  # (turns played, right) -> episodes that a Verifier ended

    @property
    def token(self) -> str:
        """Tells it from the others: POLICY, with @SETTING where it has one."""
        return self.policy if self.setting is None else f"{self.policy}{self.setting.suffix}"

    @property
    def expression(self) -> str | None:
        return None if self.setting is None else self.setting.expression

    @property
    def n(self) -> int:
        return self.accuracy.n

    @property
    def right(self) -> int:
        return self.accuracy.k

    def per_solved(self, amount: float | None) -> float | None:
        """An amount shared out over the solved problems; None where there are none, or it is unknown."""
        return None if amount is None or not self.right else amount / self.right


def policy_costs(store: Store, where: EpisodeFilter) -> list[PolicyCost]:
    """Every policy with finished episodes, once for each setting it was played under, most episodes first. Two
    queries."""
    accepted = episode.c.end_reason == EndReason.ACCEPTED
    right = func.coalesce(episode.c.correct, False)
    ended = case((accepted, True), else_=False)
    whose = (DECIDER, *SETTING)
    keys = (*whose, episode.c.turns, ended, right)
    query = (
        select(
            *keys,
            func.count(),
            func.sum(episode.c.tokens_in + episode.c.tokens_out),
            total_if_all_known(episode.c.cost_usd),
            total(episode.c.latency_s),
        )
        .join(run, run.c.id == episode.c.run_id)
        .where(*counted_episodes(store, where))
    )
    n = len(whose)
    rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    with reading(store.engine) as connection:
        for row in connection.execute(query.group_by(*keys)):
            rows.setdefault(tuple(row[:n]), []).append(tuple(row[n:]))
        falsely = accepted & right.is_(False)
        shares = read_shares(
            connection, query, whose, (right.is_(True), None), (accepted, None), (falsely, accepted)
        )
    settings = Counter(policy for policy, *_ in shares)
    found = []
    for (policy, *columns), shares_of in shares.items():
        setting = Setting(*columns) if settings[policy] > 1 else None
        found.append(_policy_cost(policy, setting, rows[policy, *columns], shares_of))
    return sorted(found, key=lambda one: (-one.n, one.token))


def _policy_cost(
    policy: str, setting: Setting | None, rows: Sequence[tuple[Any, ...]], shares: Sequence[ClusteredShare]
) -> PolicyCost:
    accuracy, accepted_by, false_accept = shares
    accepts: Counter[tuple[int, bool]] = Counter()
    for played, accepted, right, count, *_ in rows:
        if accepted:
            accepts[played, bool(right)] += count
    return PolicyCost(
        policy,
        setting,
        sum(played * count for played, _, _, count, *_ in rows),
        sum(used for *_, used, _, _ in rows),
        sum_if_all_known(paid for *_, paid, _ in rows),
        fsum(waited for *_, waited in rows),
        accuracy,
        accepted_by,
        false_accept,
        dict(accepts),
    )


def frontier(points: Iterable[tuple[str, float, float]]) -> list[str]:
    """Names of the (name, price, accuracy) that no other beats in both, cheapest first."""
    best, found = float("-inf"), []
    for name, _, accuracy in sorted(points, key=lambda one: (one[1], -one[2], one[0])):
        if accuracy > best:
            best = accuracy
            found.append(name)
    return found
