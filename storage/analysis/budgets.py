"""What recorded episodes would have come to under smaller turn budgets: cut after k turns, aggregated in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, literal, or_, select

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Status
from storage.filters.clusters import read_shares
from storage.filters.listing import total_if_all_known
from storage.rows.engine import reading
from storage.rows.schema import episode, turn
from storage.store import Store


@dataclass(frozen=True, slots=True)
class AtBudget:
    """The outcome had the turn budget been `budget`, of the episodes that tell; those of one task fall together."""

    budget: int
    right: ClusteredShare
    turns: int  # played by all of them together
    tokens: int
    cost_usd: float | None  # None as soon as one turn has no known price

    @property
    def n(self) -> int:
        """How many episodes tell."""
        return self.right.n

    @property
    def accuracy(self) -> float:
        """Share of right episodes."""
        return self.right.k / self.right.n

    @property
    def ci95(self) -> tuple[float, float]:
        """The accuracy's interval."""
        return self.right.ci95


def accuracy_by_budget(store: Store, *where: ColumnElement[bool]) -> list[AtBudget]:
    """Accuracy and cost of the finished episodes that meet `where` (conditions on `storage.rows.schema.episode`), had
    each been cut after 1, 2, ... turns; what stood as the answer then is what counts. Two queries.

    An episode that ended by itself before the cut counts with its own end. One that ran into its own budget says
    nothing about larger ones and is left out there, so `n` falls where recorded budgets differ."""
    counted = and_(*where, episode.c.status == Status.FINISHED, turn.c.idx < episode.c.turns)
    ended = episode.c.end_reason != EndReason.BUDGET
    spent = (
        select(
            episode.c.turns,
            ended,
            turn.c.idx,
            func.count(),
            func.sum(func.coalesce(turn.c.tokens_in, 0) + func.coalesce(turn.c.tokens_out, 0)),
            total_if_all_known(turn.c.cost_usd),
        )
        .join(turn, turn.c.episode_id == episode.c.id)
        .where(counted)
        .group_by(episode.c.turns, ended, turn.c.idx)
    )
    with reading(store.engine) as connection:
        rows = connection.execute(spent).all()
        longest = max((turns for turns, *_ in rows), default=0)
        if not longest:
            return []
        first = select(literal(1).label("k")).cte("budgets", recursive=True)
        budgets = first.union_all(select(first.c.k + 1).where(first.c.k < longest))
        last = turn.c.idx == episode.c.turns - 1
        right = case((last, episode.c.correct), else_=turn.c.correct_after)
        stands = turn.c.idx == case((episode.c.turns < budgets.c.k, episode.c.turns), else_=budgets.c.k) - 1
        answers = (
            select(budgets.c.k)
            .select_from(episode)
            .join(budgets, or_(episode.c.turns >= budgets.c.k, ended))
            .join(turn, and_(turn.c.episode_id == episode.c.id, stands))
            .where(counted)
        )
        found = read_shares(connection, answers, [budgets.c.k], (right.is_(True), None))
    return [_at(k, share, rows) for (k,), [share] in sorted(found.items())]


def _at(k: int, right: ClusteredShare, rows: Sequence[Any]) -> AtBudget:
    """The episodes that reached turn k or ended by themselves before it, with all their turns up to there."""
    played = tokens = 0
    cost: float | None = 0.0
    for turns, ended, idx, count, used, paid in rows:
        if (turns >= k or ended) and idx < k:
            played, tokens = played + count, tokens + used
            cost = None if cost is None or paid is None else cost + paid
    return AtBudget(k, right, played, tokens, cost)
