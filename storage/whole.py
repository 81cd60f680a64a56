"""Whole episodes from their rows: five queries for any number of them, texts and hidden states included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, and_, select

from core.episode import Episode, Role, Turn
from storage import mapping
from storage.mapping import Rows
from storage.schema import episode, state, task, text, turn
from storage.summaries import PendingReply

#: IN lists stay below every database's limit on bound values.
CHUNK = 500

Texts = dict[tuple[str, int], dict[str, str]]


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids in lists short enough for IN."""
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def read_episodes(connection: Connection, ids: Sequence[str]) -> Iterator[Episode]:
    """The episodes with these ids and their finished turns, in the order of the ids; unknown ids are skipped."""
    for chunk in chunks(ids):
        rows = connection.execute(select(episode).where(episode.c.id.in_(chunk))).mappings().all()
        keys = {row["task_key"] for row in rows}
        tasks = {
            row["key"]: mapping.to_task(row)
            for row in connection.execute(select(task).where(task.c.key.in_(keys))).mappings()
        }
        turns = _turns(connection, chunk)
        found = {
            row["id"]: mapping.to_episode(row, tasks[row["task_key"]], tuple(turns[row["id"]]))
            for row in rows
        }
        yield from (found[one] for one in chunk if one in found)


def read_pending(connection: Connection, run_id: str) -> list[PendingReply]:
    """The stored replies of a run whose turns were not finished."""
    rows = (
        connection.execute(
            select(turn)
            .join(episode, episode.c.id == turn.c.episode_id)
            .where(episode.c.run_id == run_id, turn.c.stage == "replied")
            .order_by(turn.c.episode_id, turn.c.idx)
        )
        .mappings()
        .all()
    )
    texts = read_texts(connection, sorted({row["episode_id"] for row in rows}))
    return [_pending(row, texts[row["episode_id"], row["idx"]]) for row in rows]


def read_texts(connection: Connection, ids: Sequence[str]) -> Texts:
    """The texts of these episodes by (episode, index), then kind."""
    found: Texts = defaultdict(dict)
    for chunk in chunks(ids):
        query = select(text.c.episode_id, text.c.idx, text.c.kind, text.c.body).where(
            text.c.episode_id.in_(chunk), text.c.kind != "partial"
        )
        for episode_id, index, kind, body in connection.execute(query):
            found[episode_id, index][kind] = body
    return found


def _turns(connection: Connection, ids: Sequence[str]) -> dict[str, list[Turn]]:
    rows = (
        connection.execute(
            select(turn)
            .where(and_(turn.c.episode_id.in_(ids), turn.c.stage == "finished"))
            .order_by(turn.c.episode_id, turn.c.idx)
        )
        .mappings()
        .all()
    )
    texts = read_texts(connection, ids)
    hidden: dict[tuple[str, int], bytes] = {}
    for episode_id, index, held in connection.execute(select(state).where(state.c.episode_id.in_(ids))):
        hidden[episode_id, index] = bytes(held)
    found: dict[str, list[Turn]] = defaultdict(list)
    for row in rows:
        key = row["episode_id"], row["idx"]
        found[row["episode_id"]].append(mapping.to_turn(row, texts[key], hidden.get(key, b"")))
    return found


def _pending(row: Rows, texts: dict[str, Any]) -> PendingReply:
    return PendingReply(
        episode_id=row["episode_id"],
        index=row["idx"],
        model=row["model"],
        role=Role(row["role"]),
        messages=mapping.to_messages(texts.get("prompt", "")),
        reply=mapping.to_reply(row, texts),
    )
