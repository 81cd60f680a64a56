"""What a run has spent, added up over its turns, plans and updates."""

from __future__ import annotations

from sqlalchemy import Engine, false, func, or_, select

from storage.rows.engine import reading
from storage.rows.schema import episode, learning_update, plan, run, turn


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
    learned = select(func.coalesce(func.max(learning_update.c.spent_usd), 0.0))
    with reading(engine) as connection:
        parts = (replies, plans, learned.where(learning_update.c.run_id == run_id))
        return float(sum(connection.execute(one).scalar_one() for one in parts))


def unread_usd(engine: Engine, run_id: str) -> float:
    """How much of what a run has spent went to answers that could not be read or broke off."""
    with reading(engine) as connection:
        learned = select(func.max(learning_update.c.unread_usd)).where(learning_update.c.run_id == run_id)
        if (found := connection.execute(learned).scalar()) is not None:
            return float(found)
        parts = (
            connection.execute(
                select(func.coalesce(func.sum(of.c.unread_usd), 0.0))
                .join(episode, episode.c.id == of.c.episode_id)
                .where(episode.c.run_id == run_id, of.c.unread_usd > 0, episode.c.fork_turn.is_(None) | own)
            ).scalar_one()
            for of, own in ((turn, turn.c.idx >= episode.c.fork_turn), (plan, false()))
        )
        return float(sum(parts))
