"""Who was called in which role, how often: aggregated in SQL over a policy's finished episodes of a run."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from core.episode import Role, Status
from storage.engine import reading
from storage.schema import episode, turn
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Routed:
    """`n` turns of one model in one role."""

    model: str
    role: Role
    n: int


def routing(store: Store, run_id: str, policy: str) -> list[Routed]:
    """The counts, largest first; empty when the policy has no finished episode in the run."""
    query = (
        select(turn.c.model, turn.c.role, func.count().label("n"))
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(
            episode.c.run_id == run_id,
            episode.c.policy == policy,
            episode.c.status == Status.FINISHED,
            turn.c.stage == "finished",
        )
        .group_by(turn.c.model, turn.c.role)
        .order_by(func.count().desc(), turn.c.model, turn.c.role)
    )
    with reading(store.engine) as connection:
        return [Routed(row.model, Role(row.role), row.n) for row in connection.execute(query)]


def chosen_by_family(store: Store, run_id: str) -> list[tuple[str, str, int]]:
    """(family, model, turns) over a run's finished episodes."""
    query = (
        select(episode.c.family, turn.c.model, func.count())
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(episode.c.run_id == run_id, episode.c.status == Status.FINISHED, turn.c.stage == "finished")
        .group_by(episode.c.family, turn.c.model)
        .order_by(episode.c.family, turn.c.model)
    )
    with reading(store.engine) as connection:
        return [(family, model, n) for family, model, n in connection.execute(query)]
