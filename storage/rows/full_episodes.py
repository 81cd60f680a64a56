"""Whole episodes from rows and to rows: five queries for every few hundred of them, texts and states included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    select,
    update,
)

from core.episode import Episode, Judgement, Message, Plan, Reply, Task, Turn
from core.errors import StoreError
from core.play.private import NOT_KEPT, episode_without_texts
from storage.rows import mapping
from storage.rows.schema import (
    at_turn,
    checkpoint,
    episode,
    judgement,
    override,
    plan,
    same_turn,
    second_opinion,
    state,
    task,
    text,
    turn,
)

T = TypeVar("T")

#: IN lists stay below every database's limit on bound values.
CHUNK = 500

#: Episode id, turn index, model and messages of a reply.
ReplyKey = tuple[str, int, str, tuple[Message, ...]]
Texts = dict[tuple[str, int], dict[str, str]]


def chunks(ids: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def rows_among(
    connection: Connection, query: Select[Any], column: ColumnElement[str], values: Sequence[str]
) -> Iterator[RowMapping]:
    """The rows of a query in which a column has one of the values, in the order of the query within each chunk."""
    for chunk in chunks(values):
        yield from connection.execute(query.where(column.in_(chunk))).mappings()


def no_episode(episode_id: str) -> StoreError:
    return StoreError(f"The store holds no episode {episode_id}: `trinity episodes` lists those it has.")


@dataclass(frozen=True, slots=True)
class TimedEpisode:
    """A whole episode with its times (Unix seconds): of itself and of each of its turns."""

    episode: Episode
    started: float
    finished: float | None
    turn_started: Sequence[float]


def read_episodes(connection: Connection, ids: Sequence[str]) -> Iterator[Episode]:
    """The episodes with these ids and their finished turns, in that order; unknown ids are skipped."""
    return (one.episode for one in read_timed_episodes(connection, ids))


def read_timed_episodes(connection: Connection, ids: Sequence[str]) -> Iterator[TimedEpisode]:
    for chunk in chunks(ids):
        query = select(episode).where(episode.c.id.in_(chunk))
        rows = {row["id"]: row for row in connection.execute(query).mappings()}
        wanted = select(task).where(task.c.key.in_({row["task_key"] for row in rows.values()}))
        tasks = {row["key"]: mapping.to_task(row) for row in connection.execute(wanted).mappings()}
        turns, plans = _turns(connection, chunk), read_plans(connection, chunk)
        judged = read_judgements(connection, chunk)
        for row in (rows[one] for one in chunk if one in rows):
            played, started = turns[row["id"]]
            said = tuple(plans[row["id"]]), tuple(judged[row["id"]])
            made = mapping.to_episode(row, tasks[row["task_key"]], tuple(played), *said)
            yield TimedEpisode(made, row["started"], row["finished"], tuple(started))


def read_pending_replies(connection: Connection, run_id: str) -> dict[ReplyKey, Reply]:
    """The stored replies of a run whose turns were not finished."""
    query = (
        select(turn)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(
            episode.c.run_id == run_id,
            turn.c.stage == "replied",
            turn.c.error_kind.is_distinct_from("infrastructure"),  # it is asked anew
        )
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    rows = connection.execute(query).mappings().all()
    found = read_texts(connection, sorted({row["episode_id"] for row in rows}))
    pending = {}
    for row in rows:
        texts = found[row["episode_id"], row["idx"]]
        messages = mapping.to_messages(texts.get("prompt", ""))
        key = row["episode_id"], row["idx"], row["model"], messages
        pending[key] = mapping.to_reply(row, texts)
    return pending


def read_texts(connection: Connection, ids: Sequence[str]) -> Texts:
    """The texts of these episodes by (episode, index), then kind."""
    found: Texts = defaultdict(dict)
    query = select(text).where(text.c.kind != "partial")
    for row in rows_among(connection, query, text.c.episode_id, ids):
        found[row["episode_id"], row["idx"]][row["kind"]] = row["body"]
    return found


def _turns(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[list[Turn], list[float]]]:
    query = (
        select(turn, state.c.hidden)
        .outerjoin(state, same_turn(state))
        .where(turn.c.episode_id.in_(ids), turn.c.stage == "finished")
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    texts = read_texts(connection, ids)
    found: dict[str, tuple[list[Turn], list[float]]] = defaultdict(lambda: ([], []))
    for row in connection.execute(query).mappings():
        turns, started = found[row["episode_id"]]
        turns.append(mapping.to_turn(row, texts[row["episode_id"], row["idx"]], row["hidden"] or b""))
        started.append(row["started"])
    return found


def read_plans(connection: Connection, ids: Sequence[str]) -> dict[str, list[Plan]]:
    query = (
        select(plan)
        .where(plan.c.episode_id.in_(ids))
        .order_by(plan.c.episode_id, plan.c.round, plan.c.attempt)
    )
    found: dict[str, list[Plan]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        found[row["episode_id"]].append(mapping.to_plan(row))
    return found


def read_judgements(connection: Connection, ids: Sequence[str]) -> dict[str, list[Judgement]]:
    query = select(judgement).where(judgement.c.episode_id.in_(ids)).order_by(judgement.c.number)
    found: dict[str, list[Judgement]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        found[row["episode_id"]].append(mapping.to_judgement(row))
    return found


def insert_episodes(connection: Connection, some: Sequence[TimedEpisode]) -> None:
    """Insert full episodes, a statement per table and not per episode; their runs must be there, their ids new."""
    keys = insert_tasks(connection, [one.episode.task for one in some])
    generations = _generations(connection, {one.episode.policy for one in some})
    episodes, turns, texts, states, plans, judged = [], [], [], [], [], []
    for one in some:
        full = one.episode
        row = _episode_row(full, keys[full.task], generations, one.started)
        episodes.append({**row, **mapping.outcome_row(full), "finished": one.finished})
        plans += [mapping.plan_row(written, one.started) for written in full.plans]
        judged += [mapping.judgement_row(said, one.started) for said in full.judgements]
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
            states += mapping.state_rows(*where, played.decision)
    of_turns = ((turn, turns), (text, texts), (state, states), (judgement, judged))
    for table, rows in ((episode, episodes), (plan, plans), *of_turns):
        if rows:
            connection.execute(insert(table), rows)


def delete_episodes(connection: Connection, chosen: ColumnElement[bool]) -> int:
    """Delete episodes with all that only they have: turns, texts, overrides, and tasks that no other one played."""
    ids = select(episode.c.id).where(chosen)
    connection.execute(delete(override).where(override.c.episode_id.in_(ids)))
    deleted = connection.execute(delete(episode).where(chosen)).rowcount
    _delete_unplayed_tasks(connection)
    return deleted


def update_without_texts(connection: Connection, ids: Sequence[str]) -> None:
    """Take from episodes what stands of their texts outside of `text`: the question, answers, plans and what was read
    from replies. A task goes with its last episode."""
    for one in [*read_episodes(connection, ids)]:
        private = episode_without_texts(one)
        key = insert_tasks(connection, [private.task])[private.task]
        own = mapping.episode_row(private, key, 0.0)
        kept = {name: own[name] for name in ("task_key", "task_id", "question", "meta")}
        change = update(episode).where(episode.c.id == one.id)
        connection.execute(change.values({**kept, "answer": private.answer, "error": private.error}))
        for played in private.turns:
            reread = {**mapping.replied_row(played.reply), **mapping.finished_row(played)}
            connection.execute(update(turn).where(at_turn(turn, one.id, played.index)).values(reread))
        for written in private.plans:
            row = mapping.plan_row(written, 0.0)
            row.pop("at")
            same = and_(*(plan.c[name] == row.pop(name) for name in ("episode_id", "round", "attempt")))
            connection.execute(update(plan).where(same).values(row))
    connection.execute(delete(judgement).where(judgement.c.episode_id.in_(ids)))
    unfinished = and_(turn.c.episode_id.in_(ids), turn.c.stage != "finished", turn.c.error.is_not(None))
    connection.execute(update(turn).where(unfinished).values(error=NOT_KEPT))
    # By a digest a guess at what was said could be confirmed. Who read the same keeps that in common.
    read = select(turn.c.prompt_digest).where(same_turn(turn, second_opinion)).scalar_subquery()
    opinions = second_opinion.c.episode_id.in_(ids)
    connection.execute(delete(second_opinion).where(opinions, second_opinion.c.prompt_digest != read))
    connection.execute(update(second_opinion).where(opinions).values(prompt_digest=""))
    connection.execute(update(turn).where(turn.c.episode_id.in_(ids)).values(prompt_digest=""))
    _delete_unplayed_tasks(connection)


def _delete_unplayed_tasks(connection: Connection) -> None:
    played = select(episode.c.id).where(episode.c.task_key == task.c.key)
    connection.execute(delete(task).where(~exists(played)))


def insert_tasks(connection: Connection, played: Iterable[Task]) -> dict[Task, int]:
    rows = {one: mapping.task_row(one) for one in dict.fromkeys(played)}
    by_digest = {row["digest"]: row for row in rows.values()}
    known = _task_keys(connection, list(by_digest))
    if new := [row for digest, row in by_digest.items() if digest not in known]:
        connection.execute(insert(task), new)
        known |= _task_keys(connection, [row["digest"] for row in new])
    return {one: known[row["digest"]] for one, row in rows.items()}


def _task_keys(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    rows = rows_among(connection, select(task.c.digest, task.c.key), task.c.digest, digests)
    return {row["digest"]: row["key"] for row in rows}


def new_episode_row(connection: Connection, new: Episode, started: float) -> dict[str, Any]:
    """The row of a new episode, linked to its task and, when its policy is a stored one, its checkpoint."""
    row = mapping.task_row(new.task)
    if (key := connection.execute(_TASK_KEY, {"of": row["digest"]}).scalar()) is None:
        key = next(iter(connection.execute(_INSERT_TASK, row).inserted_primary_key or ()))
    stored = connection.execute(_GENERATION, {"of": new.policy}).first()
    return _episode_row(new, key, {new.policy: stored.generation} if stored else {}, started)


# For every episode that begins: making these statements takes longer than running them.
_TASK_KEY = select(task.c.key).where(task.c.digest == bindparam("of"))
_INSERT_TASK = insert(task)
_GENERATION = select(checkpoint.c.generation).where(checkpoint.c.id == bindparam("of"))


def _generations(connection: Connection, policies: Iterable[str]) -> dict[str, int | None]:
    query = select(checkpoint.c.id, checkpoint.c.generation)
    rows = rows_among(connection, query, checkpoint.c.id, sorted(policies))
    return {row["id"]: row["generation"] for row in rows}


def _episode_row(
    new: Episode, task_key: int, generations: Mapping[str, int | None], started: float
) -> dict[str, Any]:
    row = mapping.episode_row(new, task_key, started)
    row["checkpoint_id"] = new.policy if new.policy in generations else None
    if row["generation"] is None:
        row["generation"] = generations.get(new.policy)
    return row
