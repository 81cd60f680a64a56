"""Whole episodes from rows and to rows: five queries read any number of them, texts and states included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, insert, select

from core.episode import Episode, Role, Task, Turn
from storage import mapping
from storage.mapping import Rows
from storage.schema import checkpoint, episode, override, state, task, text, turn
from storage.summaries import PendingReply

#: IN lists stay below every database's limit on bound values.
CHUNK = 500

Texts = dict[tuple[str, int], dict[str, str]]


def chunks(ids: Sequence[str], size: int = CHUNK) -> Iterator[Sequence[str]]:
    """The ids in lists short enough for IN."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def read_episodes(connection: Connection, ids: Sequence[str]) -> Iterator[Episode]:
    """The episodes with these ids and their finished turns, in that order; unknown ids are skipped."""
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


def insert_episode(
    connection: Connection,
    whole: Episode,
    started: float,
    finished: float | None,
    turn_started: Sequence[float],
) -> None:
    """Insert a whole episode at once; its run must be there, its id must be new."""
    row = {**birth_row(connection, whole, started), **mapping.outcome_row(whole), "finished": finished}
    connection.execute(insert(episode), row)
    turns, texts, states = [], [], []
    for one, at in zip(whole.turns, turn_started, strict=True):
        where = (whole.id, one.index)
        turns.append(
            {
                **mapping.asked_row(*where, one.decision, at),
                **mapping.replied_row(one.reply),
                **mapping.finished_row(one),
            }
        )
        prompt = {"prompt": mapping.prompt_text(one.messages)}
        texts += mapping.text_rows(*where, {**prompt, **mapping.reply_texts(one.reply)})
        if one.decision.hidden_state:
            states.append({"episode_id": whole.id, "idx": one.index, "hidden": one.decision.hidden_state})
    for table, rows in ((turn, turns), (text, texts), (state, states)):
        if rows:
            connection.execute(insert(table), rows)


def delete_episodes(connection: Connection, chosen: ColumnElement[bool]) -> int:
    """Delete episodes with all that is theirs alone: turns, texts, overrides, and tasks nobody else played."""
    ids = select(episode.c.id).where(chosen)
    connection.execute(delete(override).where(override.c.episode_id.in_(ids)))
    deleted = connection.execute(delete(episode).where(chosen)).rowcount
    played = select(episode.c.id).where(episode.c.task_key == task.c.key)
    connection.execute(delete(task).where(~exists(played)))
    return deleted


def keep_task(connection: Connection, played: Task) -> int:
    """The key of a task's row, inserted when its content is new."""
    row = mapping.task_row(played)
    key = connection.execute(select(task.c.key).where(task.c.digest == row["digest"])).scalar()
    if key is None:
        key = connection.execute(insert(task).returning(task.c.key), row).scalar_one()
    return int(key)


def birth_row(connection: Connection, born: Episode, started: float) -> dict[str, Any]:
    """The row of a new episode, linked to its task and, when its policy is a stored one, its checkpoint."""
    row = mapping.episode_row(born, keep_task(connection, born.task), started)
    known = connection.execute(
        select(checkpoint.c.id, checkpoint.c.generation).where(checkpoint.c.id == born.policy)
    ).first()
    if known is not None:
        row["checkpoint_id"] = known.id
        row["generation"] = known.generation if row["generation"] is None else row["generation"]
    return row
