"""Reads for stepping through one episode: its head without turns, and its turns' decisions; no texts."""

from __future__ import annotations

from sqlalchemy import select

from core.episode import Decision, Episode
from core.errors import StoreError
from storage import mapping
from storage.engine import reading
from storage.schema import episode, state, task, turn
from storage.store import Store


def read_head(store: Store, episode_id: str) -> Episode:
    """The episode with its task and outcome but no turns; StoreError when there is no such episode."""
    with reading(store.engine) as connection:
        row = connection.execute(select(episode).where(episode.c.id == episode_id)).mappings().first()
        if row is None:
            raise StoreError(f"There is no episode {episode_id!r} in this store.")
        asked = connection.execute(select(task).where(task.c.key == row["task_key"])).mappings().one()
    return mapping.to_episode(row, mapping.to_task(asked), ())


def read_decision(store: Store, episode_id: str, index: int) -> Decision | None:
    """The decision of a turn that has begun, its reply written or not; None when there is no such turn."""
    here = (turn.c.episode_id == episode_id, turn.c.idx == index)
    held = (state.c.episode_id == episode_id, state.c.idx == index)
    with reading(store.engine) as connection:
        row = connection.execute(select(turn).where(*here)).mappings().first()
        hidden = connection.execute(select(state.c.hidden).where(*held)).scalar()
    return None if row is None else mapping.to_decision(row, bytes(hidden or b""))


def read_decisions(store: Store, episode_id: str) -> list[Decision]:
    """The decisions of every turn that has begun, in order, in one query."""
    query = (
        select(turn, state.c.hidden)
        .outerjoin(state, (state.c.episode_id == turn.c.episode_id) & (state.c.idx == turn.c.idx))
        .where(turn.c.episode_id == episode_id)
        .order_by(turn.c.idx)
    )
    with reading(store.engine) as connection:
        return [
            mapping.to_decision(row, bytes(row["hidden"] or b""))
            for row in connection.execute(query).mappings()
        ]
