"""What a run has spent, added up over its turns, plans, generations and iterations."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Engine, Select, false, func, or_, select

from storage.rows.engine import reading
from storage.rows.schema import episode, generation, iteration, plan, run, turn


def spent_usd(engine: Engine, run_id: str) -> float:
    """What a run has spent in USD; which replies count as what, `Runs.spent_usd` says."""
    own = or_(episode.c.fork_turn.is_(None), turn.c.idx >= episode.c.fork_turn)
    replies = (
        select(func.coalesce(func.sum(func.coalesce(turn.c.cost_usd, turn.c.at_most_usd)), 0.0))
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(episode.c.run_id == run_id, run.c.kind != "evolve", own)
    )
    # Forks carry the plans of their parents.
    plans = (
        select(func.coalesce(func.sum(func.coalesce(plan.c.cost_usd, plan.c.at_most_usd)), 0.0))
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(episode.c.run_id == run_id, episode.c.fork_turn.is_(None))
    )
    trained = select(func.coalesce(func.max(iteration.c.spent_usd), 0.0)).where(iteration.c.run_id == run_id)
    with reading(engine) as connection:
        stats = json.loads(connection.execute(_last_stats(run_id)).scalar() or "{}")
        learning = stats.get("spent_usd", 0.0) + connection.execute(trained).scalar_one()
        asked = connection.execute(replies).scalar_one() + connection.execute(plans).scalar_one()
        return float(asked + learning)


def unread_usd(engine: Engine, run_id: str) -> float:
    """How much of what a run has spent went to answers that could not be read or broke off."""
    with reading(engine) as connection:
        stats = json.loads(connection.execute(_last_stats(run_id)).scalar() or "{}")
        if stats:
            return float(stats.get("unread_usd", 0.0))
        parts = (
            connection.execute(
                select(func.coalesce(func.sum(of.c.unread_usd), 0.0))
                .join(episode, episode.c.id == of.c.episode_id)
                .where(episode.c.run_id == run_id, of.c.unread_usd > 0, episode.c.fork_turn.is_(None) | own)
            ).scalar_one()
            for of, own in ((turn, turn.c.idx >= episode.c.fork_turn), (plan, false()))
        )
        return float(sum(parts))


def _last_stats(run_id: str) -> Select[Any]:
    """What the last generation of a run says of itself."""
    return (
        select(generation.c.stats)
        .where(generation.c.run_id == run_id)
        .order_by(generation.c.idx.desc())
        .limit(1)
    )
