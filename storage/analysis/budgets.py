"""What recorded episodes would have come to under smaller turn budgets: cut after k turns, aggregated in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, func, select

from core.analysis.metrics import wilson_interval
from core.episode import EndReason, Status
from storage.filters.listing import total_if_all_known
from storage.rows.engine import fetch_rows
from storage.rows.schema import episode, turn
from storage.store import Store


@dataclass(frozen=True, slots=True)
class AtBudget:
    """The outcome had the turn budget been `budget`: `correct` of the `n` episodes that tell."""

    budget: int
    n: int
    correct: int
    turns: int  # played by all of them together
    tokens: int
    cost_usd: float | None  # None as soon as one turn has no known price

    @property
    def accuracy(self) -> float:
        """Share of right episodes."""
        return self.correct / self.n

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson interval of the accuracy, episodes taken as independent."""
        return wilson_interval(self.correct, self.n)


def accuracy_by_budget(store: Store, *where: ColumnElement[bool]) -> list[AtBudget]:
    """Accuracy and cost of the finished episodes that meet `where` (conditions on `storage.rows.schema.episode`), had
    each been cut after 1, 2, ... turns; what stood as the answer then is what counts. One query.

    An episode that ended by itself before the cut counts with its own end. One that ran into its own budget says
    nothing about larger ones and is left out there, so `n` falls where recorded budgets differ."""
    ended = episode.c.end_reason != EndReason.BUDGET
    last = turn.c.idx == episode.c.turns - 1
    right = case((last, episode.c.correct), else_=turn.c.correct_after)
    query = (
        select(
            episode.c.turns,
            ended,
            turn.c.idx,
            func.count(),
            func.sum(case((right.is_(True), 1), else_=0)),
            func.sum(func.coalesce(turn.c.tokens_in, 0) + func.coalesce(turn.c.tokens_out, 0)),
            total_if_all_known(turn.c.cost_usd),
        )
        .join(turn, turn.c.episode_id == episode.c.id)
        .where(*where, and_(episode.c.status == Status.FINISHED, turn.c.idx < episode.c.turns))
        .group_by(episode.c.turns, ended, turn.c.idx)
    )
    rows = fetch_rows(store.engine, query)
    longest = max((turns for turns, *_ in rows), default=0)
    return [_at(k, rows) for k in range(1, longest + 1)]


def _at(k: int, rows: Sequence[tuple[int, bool, int, int, int, int, float | None]]) -> AtBudget:
    """The episodes that reached turn k or ended by themselves before it, with all their turns up to there."""
    n = correct = played = tokens = 0
    cost: float | None = 0.0
    for turns, ended, idx, count, right, spent, paid in rows:
        if turns < k and not ended:
            continue
        if idx == min(k, turns) - 1:
            n, correct = n + count, correct + right
        if idx < k:
            played, tokens = played + count, tokens + spent
            cost = None if cost is None or paid is None else cost + paid
    return AtBudget(k, n, correct, played, tokens, cost)
