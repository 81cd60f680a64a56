"""What a store may forget: hidden states or texts of chosen episodes, whole episodes or runs, previewed, then gone at
once.

Only what is over can go; of a run of the endpoint each request that was played, as nobody ever resumes one. What people
or other recordings depend on (labels, forks, their parents) is kept unless it is asked for too. An episode notes when
something of it was removed, so that pages can say so.

A request to the endpoint is a question of whoever asked, and no task of a set: with its texts the question and the
answer go too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    and_,
    cast,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)

from core.episode import Removable, Status
from core.errors import ConfigError, StoreError
from core.play.private import NOT_KEPT
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.rows.engine import fetch_scalar, reading, writing
from storage.rows.full_episodes import chunks, delete_episodes, update_without_texts
from storage.rows.mapping import REMOVED
from storage.rows.schema import checkpoint, episode, judgement, plan, run, state, task, text
from storage.rows.summaries import RunStatus
from storage.shelves.labels import is_labelled
from storage.store import Store

What = Removable | Literal["episodes", "runs"]

#: What can be removed, in words.
WORDS: dict[What, str] = {
    "states": "hidden states",
    "prompts": "what models were sent",
    "texts": "all texts of turns",
    "episodes": "whole episodes",
    "runs": "whole runs",
}
#: What is lost with it, in one sentence.
LOST: dict[What, str] = {
    "states": "Recomputation, Neighbours, Separability and other checkpoints' choices can no longer be computed from "
    "these episodes; choices, texts and outcomes stay.",
    "prompts": "Replies and reasoning stay; what each model was sent is gone, and these episodes cannot be forked.",
    "texts": "Choices, verdicts, answers and costs stay; nothing that was said can be read or searched, and these "
    "episodes cannot be forked. Of requests to the endpoint the question and the answer go too.",
    "episodes": "Everything of them goes: turns, texts, choices, outcomes, labels; their runs stay, without them.",
    "runs": "Everything of them goes: episodes, turns, texts, labels, checkpoints, generations.",
}
#: The column that holds what can be removed of episodes, and in which of its table's rows.
_HELD: dict[What, tuple[Column[Any], list[ColumnElement[bool]]]] = {
    "states": (state.c.hidden, []),
    "prompts": (text.c.body, [text.c.kind == "prompt"]),
    "texts": (text.c.body, []),
}
_OVER = run.c.status.in_((RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.FAILED))
#: A run of the endpoint that broke off: nobody resumes it.
_BROKE_OFF = and_(run.c.kind == "serve", run.c.status == RunStatus.INTERRUPTED)
#: An episode that nobody goes on with: of a run that is over, or a request that was played, however its run stands.
_EPISODE_IS_OVER = exists(
    select(run.c.id).where(
        run.c.id == episode.c.run_id,
        or_(_OVER, _BROKE_OFF, and_(run.c.kind == "serve", episode.c.status != Status.RUNNING)),
    )
)
#: A request to the endpoint whose question is still there.
_ASKED = and_(
    episode.c.question != NOT_KEPT,
    exists(select(run.c.id).where(run.c.id == episode.c.run_id, run.c.kind == "serve")),
)
#: What the replies of planners and judges lose with it. What each step was asked to do stays, as choices, verdicts,
#: answers and ratings do.
_APART: dict[What, dict[str, str]] = {
    "prompts": {"prompt": ""},
    "texts": {"prompt": "", "reply": "", "reasoning": ""},
}
_child = episode.alias("child")
_FORKED = exists(select(_child.c.id).where(_child.c.parent_episode_id == episode.c.id))
#: Why an episode is kept although it was chosen -> the condition.
_LEANT_ON: dict[str, ColumnElement[bool]] = {
    "labelled": is_labelled(),
    "forked, and compared with their forks": _FORKED,
    "forks or their baseline": episode.c.parent_episode_id.is_not(None),
}


@dataclass(frozen=True, slots=True)
class Pruning:
    """What is removed: `episodes` that lose something, the `runs` that go altogether, rows and about how many bytes.
    `retained`: chosen episodes, or runs, that stay, by reason."""

    what: What
    episodes: int
    rows: int
    size_bytes: int
    runs: tuple[str, ...] = ()
    retained: Mapping[str, int] = field(default_factory=dict)


def preview(store: Store, what: What, where: EpisodeFilter, *, everything: bool = False) -> Pruning:
    """What `prune` would remove now. Nothing is changed."""
    with reading(store.engine) as connection:
        return _found(connection, what, where, everything)[0]


def prune(store: Store, what: What, where: EpisodeFilter, *, everything: bool = False) -> Pruning:
    """Remove it in one transaction; returns what went. `everything`: also what labels and forks lean on.

    The file keeps its size, to be used again, until `compact`.
    """
    with writing(store.engine) as connection:
        found, ids = _found(connection, what, where, everything)
        if what == "runs":
            for chunk in chunks(found.runs):
                delete_episodes(connection, episode.c.run_id.in_(chunk))
                connection.execute(delete(run).where(run.c.id.in_(chunk)))
            return found
        if what == "episodes":
            for chunk in chunks(ids):
                delete_episodes(connection, episode.c.id.in_(chunk))
            return found
        column, kinds = _HELD[what]
        for chunk in chunks(ids):
            held = column.table.c.episode_id.in_(chunk)
            connection.execute(delete(column.table).where(held, *kinds))
            for apart in (plan, judgement) if what in _APART else ():
                emptied = update(apart).where(apart.c.episode_id.in_(chunk)).values(_APART[what])
                connection.execute(emptied)
            if what == "texts":
                requests = select(episode.c.id).where(episode.c.id.in_(chunk), _ASKED)
                update_without_texts(connection, connection.execute(requests).scalars().all())
            _note(connection, chunk, what, store.now())
    return found


def compact(store: Store) -> None:
    """Give freed pages back to the disk (SQLite's VACUUM): it needs as much room again while it works. StoreError
    where another program writes or the database is a server, which does so by itself."""
    if store.engine.dialect.name != "sqlite":
        raise StoreError("This store is a database server: it frees space by itself.")
    raw = store.engine.raw_connection()
    try:
        for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            raw.cursor().execute(statement)
    except Exception as error:
        raise StoreError(
            f"The file could not be made smaller ({error}): try again when nothing runs."
        ) from error
    finally:
        raw.close()


def last_removed(store: Store, what: Removable, where: EpisodeFilter | Sequence[str]) -> str | None:
    """The latest such date among episodes of a filter or with these ids."""
    chosen = (
        conditions(_all_kinds(where), store.engine.dialect.name)
        if isinstance(where, EpisodeFilter)
        else [episode.c.id.in_(where)]
    )
    day: str | None = fetch_scalar(store.engine, select(func.max(episode.c[REMOVED[what]])).where(*chosen))
    return day


def _found(
    connection: Connection, what: What, where: EpisodeFilter, everything: bool
) -> tuple[Pruning, list[str]]:
    chosen = conditions(_all_kinds(where), connection.dialect.name)
    if what == "runs":
        return _runs(connection, chosen, everything), []
    firm, soft = {"of runs that are not over": not_(_EPISODE_IS_OVER)}, {} if everything else _LEANT_ON
    if what == "episodes":
        ids, retained = _free(connection, episode, and_(*chosen), firm, soft)
        size = sum(_bytes_within(connection, episode.c.id.in_(chunk)) for chunk in chunks(ids))
        return Pruning(what, len(ids), len(ids), size, retained=retained), ids
    column, kinds = _HELD[what]
    owner = column.table.c.episode_id
    has: ColumnElement[bool] = exists(select(owner).where(owner == episode.c.id, *kinds))
    if what == "texts":
        has = or_(has, _ASKED)
    ids, retained = _free(connection, episode, and_(has, *chosen), firm, soft)
    rows = size = 0
    for chunk in chunks(ids):
        measured = select(func.count(), _bytes(connection, column)).where(owner.in_(chunk), *kinds)
        n, length = connection.execute(measured).one()
        rows, size = rows + n, size + int(length)
        if what == "texts":
            asked = select(func.count(), _bytes(connection, task.c.question + task.c.conversation))
            asked = asked.join_from(episode, task, task.c.key == episode.c.task_key)
            n, length = connection.execute(asked.where(episode.c.id.in_(chunk), _ASKED)).one()
            rows, size = rows + n, size + int(length)
    return Pruning(what, len(ids), rows, size, retained=retained), ids


def _free(
    connection: Connection,
    table: Table,
    wanted: ColumnElement[bool],
    firm: Mapping[str, ColumnElement[bool]],
    soft: Mapping[str, ColumnElement[bool]],
) -> tuple[list[str], dict[str, int]]:
    """The ids of the wanted rows that nothing holds back, and how many are held back by each reason. A row that
    several firm reasons hold back is counted under the first."""
    retained = {}
    for words, why in firm.items():
        retained[words] = _count(connection, table, wanted, why)
        wanted = and_(wanted, not_(why))
    retained |= {words: _count(connection, table, wanted, why) for words, why in soft.items()}
    query = select(table.c.id).where(wanted, *map(not_, soft.values())).order_by(table.c.id)
    return list(connection.execute(query).scalars()), {words: n for words, n in retained.items() if n}


def _all_kinds(where: EpisodeFilter) -> EpisodeFilter:
    """Forks and samples take room like any episode: they are kept for what they are, and counted, not overlooked."""
    return replace(where, forks=where.forks or "with", samples=where.samples or "with")


def _runs(connection: Connection, chosen: list[ColumnElement[bool]], everything: bool) -> Pruning:
    """The runs of which every episode was chosen, unless something outside of them leans on one."""
    of = episode.c.run_id == run.c.id
    matching = exists(select(episode.c.id).where(of, *chosen))
    inside = select(episode.c.id).where(of)
    # "Not chosen" is asked of ids: a condition that is unknown for a row must keep its run.
    others = exists(inside.where(episode.c.id.not_in(select(episode.c.id).where(*chosen))))
    played = select(episode.c.id).join(checkpoint, checkpoint.c.id == episode.c.checkpoint_id)
    forked_elsewhere = select(_child.c.id).where(
        _child.c.parent_episode_id == episode.c.id, _child.c.run_id != episode.c.run_id
    )
    leant_on = {
        "whose checkpoints other runs played with": exists(
            played.where(checkpoint.c.run_id == run.c.id, episode.c.run_id != run.c.id)
        ),
        "with labels": exists(inside.where(is_labelled())),
        "with episodes that were forked": exists(inside.where(exists(forked_elsewhere))),
    }
    firm = {"of which not every episode is chosen": others, "that are not over": not_(or_(_OVER, _BROKE_OFF))}
    ids, retained = _free(connection, run, matching, firm, {} if everything else leant_on)
    episodes = size = 0
    for chunk in chunks(ids):
        episodes += _count(connection, episode, episode.c.run_id.in_(chunk))
        size += _bytes_within(connection, episode.c.run_id.in_(chunk))
        weights = select(func.coalesce(func.sum(checkpoint.c.size_bytes), 0)).where(
            checkpoint.c.run_id.in_(chunk), checkpoint.c.folder.is_(None)
        )
        size += connection.execute(weights).scalar_one()
    return Pruning("runs", episodes, len(ids), int(size), tuple(ids), retained)


def _bytes_within(connection: Connection, chosen: ColumnElement[bool]) -> int:
    ids = select(episode.c.id).where(chosen)
    totals = (
        select(_bytes(connection, column)).where(column.table.c.episode_id.in_(ids))
        for column in (state.c.hidden, text.c.body)
    )
    return sum(int(connection.execute(total).scalar_one()) for total in totals)


def _bytes(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The bytes of a column's values, without what indexes and pages add."""
    if connection.dialect.name == "sqlite":
        return func.coalesce(func.sum(func.length(cast(column, LargeBinary))), 0)
    return func.coalesce(func.sum(func.octet_length(column)), 0)


def _count(connection: Connection, table: Table, *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())


def _note(connection: Connection, ids: Sequence[str], what: Removable, at: float) -> None:
    day = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
    connection.execute(update(episode).where(episode.c.id.in_(ids)).values({REMOVED[what]: day}))


_HOURS = {"h": 1, "d": 24, "w": 168}
_LONGEST_DAYS = 36_500


def began_before(age: str, now: float) -> str:
    """The condition that an episode began before an age or a date, see `moment_of`, in the filter language."""
    return f'started < "{moment_of(age, now).isoformat(timespec="seconds")}"'


def moment_of(age: str, now: float) -> datetime:
    """When an age (`24h`, `90d`, `12w`) or a date (`2026-08-01`) was; ConfigError for what is neither. `now` in Unix
    seconds."""
    if found := re.fullmatch(r"(\d{1,5})([hdw])", age.strip()):
        hours = int(found[1]) * _HOURS[found[2]]
        return datetime.fromtimestamp(now, UTC) - timedelta(hours=min(hours, 24 * _LONGEST_DAYS))
    try:
        at = datetime.fromisoformat(age.strip())
    except ValueError:
        raise ConfigError(f"'{age}' is not an age: write 90d or 12w, or a date such as 2026-08-01.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
