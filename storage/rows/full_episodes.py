"""Whole episodes from rows and to rows: five queries read any number of them, texts and states included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, insert, select

from core.episode import Episode, Role, Task, Turn
from storage.rows import mapping
from storage.rows.schema import checkpoint, episode, override, state, task, text, turn
from storage.rows.summaries import PendingReply

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
    found = read_texts(connection, sorted({row["episode_id"] for row in rows}))
    pending = []
    for row in rows:
        texts = found[row["episode_id"], row["idx"]]
        messages, reply = mapping.to_messages(texts.get("prompt", "")), mapping.to_reply(row, texts)
        place = (row["episode_id"], row["idx"], row["model"], Role(row["role"]))
        pending.append(PendingReply(*place, messages, reply))
    return pending


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


@dataclass(frozen=True, slots=True)
class TimedEpisode:
    """A whole episode with its times (Unix seconds): of itself and of each of its turns."""

    episode: Episode
    started: float
    finished: float | None
    turn_started: Sequence[float]


def insert_episodes(connection: Connection, some: Sequence[TimedEpisode]) -> None:
    """Insert full episodes, a statement per table and not per episode; their runs must be there, their ids new."""
    keys = insert_tasks(connection, [one.episode.task for one in some])
    generations = _generations(connection, {one.episode.policy for one in some})
    episodes, turns, texts, states = [], [], [], []
    for one in some:
        full = one.episode
        birth = _episode_row(full, keys[full.task], generations, one.started)
        episodes.append({**birth, **mapping.outcome_row(full), "finished": one.finished})
        for played, at in zip(full.turns, one.turn_started, strict=True):
            where = (full.id, played.index)
            turns.append(
                {
                    **mapping.asked_row(*where, played.decision, at),
                    **mapping.replied_row(played.reply),
                    **mapping.finished_row(played),
                }
            )
            prompt = {"prompt": mapping.prompt_text(played.messages)}
            texts += mapping.text_rows(*where, {**prompt, **mapping.reply_texts(played.reply)})
            if played.decision.hidden_state:
                states.append(
                    {"episode_id": full.id, "idx": played.index, "hidden": played.decision.hidden_state}
                )
    for table, rows in ((episode, episodes), (turn, turns), (text, texts), (state, states)):
        if rows:
            connection.execute(insert(table), rows)


def delete_episodes(connection: Connection, chosen: ColumnElement[bool]) -> int:
    """Delete episodes with all that only they have: turns, texts, overrides, and tasks that no other episode
    played."""
    ids = select(episode.c.id).where(chosen)
    connection.execute(delete(override).where(override.c.episode_id.in_(ids)))
    deleted = connection.execute(delete(episode).where(chosen)).rowcount
    played = select(episode.c.id).where(episode.c.task_key == task.c.key)
    connection.execute(delete(task).where(~exists(played)))
    return deleted


def insert_tasks(connection: Connection, played: Iterable[Task]) -> dict[Task, int]:
    """The keys of tasks' rows, inserted where their content is new."""
    rows = {one: mapping.task_row(one) for one in dict.fromkeys(played)}
    by_digest = {row["digest"]: row for row in rows.values()}
    known = _task_keys(connection, list(by_digest))
    if new := [row for digest, row in by_digest.items() if digest not in known]:
        connection.execute(insert(task), new)
        known |= _task_keys(connection, [row["digest"] for row in new])
    return {one: known[row["digest"]] for one, row in rows.items()}


def _task_keys(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for chunk in chunks(digests):
        query = select(task.c.digest, task.c.key).where(task.c.digest.in_(chunk))
        found |= {digest: int(key) for digest, key in connection.execute(query)}
    return found


def new_episode_row(connection: Connection, new: Episode, started: float) -> dict[str, Any]:
    """The row of a new episode, linked to its task and, when its policy is a stored one, its checkpoint."""
    key = insert_tasks(connection, [new.task])[new.task]
    return _episode_row(new, key, _generations(connection, {new.policy}), started)


def _generations(connection: Connection, policies: Iterable[str]) -> dict[str, int | None]:
    """The generation of each policy that is a stored checkpoint."""
    found: dict[str, int | None] = {}
    for chunk in chunks(sorted(policies)):
        query = select(checkpoint.c.id, checkpoint.c.generation).where(checkpoint.c.id.in_(chunk))
        found |= {row.id: row.generation for row in connection.execute(query)}
    return found


def _episode_row(
    new: Episode, task_key: int, generations: Mapping[str, int | None], started: float
) -> dict[str, Any]:
    row = mapping.episode_row(new, task_key, started)
    if new.policy in generations:
        row["checkpoint_id"] = new.policy
        row["generation"] = generations[new.policy] if row["generation"] is None else row["generation"]
    else:
        row["checkpoint_id"] = None
    return row
