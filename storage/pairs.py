"""Two policies on the tasks they share: the 2x2 table of outcomes and its rows, aggregated in SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, Subquery, case, func, select

from core.episode import Status
from core.errors import StoreError
from storage.schema import episode
from storage.summaries import Flip, FlipCounts

_KINDS: dict[str, tuple[bool, bool]] = {
    "both_right": (True, True),
    "only_a": (True, False),
    "only_b": (False, True),
    "both_wrong": (False, False),
}


def flips(
    connection: Connection, a: str, b: str, run_a: str | None, run_b: str | None, kind: str | None, limit: int
) -> list[Flip]:
    """Shared tasks with both outcomes: those that differ first, then by task."""
    if kind is not None and kind not in _KINDS:
        raise StoreError(f"There is no kind of flip called {kind!r}: choose one of {', '.join(_KINDS)}.")
    pairs = _pairs(a, b, run_a, run_b).subquery()
    same = case((pairs.c.a_correct == pairs.c.b_correct, 1), else_=0)
    query = select(pairs).order_by(same, pairs.c.task_id, pairs.c.a_episode).limit(limit)
    if kind is not None:
        a_right, b_right = _KINDS[kind]
        query = query.where(pairs.c.a_correct.is_(a_right), pairs.c.b_correct.is_(b_right))
    return [Flip(**row) for row in connection.execute(query).mappings()]


def flip_counts(connection: Connection, a: str, b: str, run_a: str | None, run_b: str | None) -> FlipCounts:
    """The 2x2 table."""
    pairs = _pairs(a, b, run_a, run_b).subquery()
    query = select(pairs.c.a_correct, pairs.c.b_correct, func.count()).group_by(
        pairs.c.a_correct, pairs.c.b_correct
    )
    found = {(bool(right_a), bool(right_b)): n for right_a, right_b, n in connection.execute(query)}
    return FlipCounts(**{kind: found.get(outcome, 0) for kind, outcome in _KINDS.items()})


def _pairs(a: str, b: str, run_a: str | None, run_b: str | None) -> Select[Any]:
    """One row per task that both finished; of repeats, the first of each side."""
    first_a, first_b = _first(a, run_a), _first(b, run_b)
    one, other = episode.alias("a"), episode.alias("b")
    return (
        select(
            one.c.task_id,
            one.c.family,
            one.c.question,
            one.c.id.label("a_episode"),
            other.c.id.label("b_episode"),
            func.coalesce(one.c.correct, False).label("a_correct"),
            func.coalesce(other.c.correct, False).label("b_correct"),
        )
        .select_from(first_a)
        .join(first_b, first_a.c.task_key == first_b.c.task_key)
        .join(one, one.c.id == first_a.c.id)
        .join(other, other.c.id == first_b.c.id)
    )


def _first(policy: str, run: str | None) -> Subquery:
    own = episode.c.parent_episode_id.is_(None)  # a fork was begun by another policy, or by hand
    query = (
        select(episode.c.task_key, func.min(episode.c.id).label("id"))
        .where(episode.c.policy == policy, episode.c.status == Status.FINISHED, own)
        .group_by(episode.c.task_key)
    )
    return (query.where(episode.c.run_id == run) if run is not None else query).subquery()
