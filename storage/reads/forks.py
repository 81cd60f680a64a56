"""Forked episodes: inserted with the turns they carry, found by their parent; digests that prove a parent
unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, select

from core.changes import Fork
from core.episode import Episode, Status
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import FORK, LIGHT, count_capped, to_summary
from storage.rows.engine import reading, writing
from storage.rows.full_episodes import TimedEpisode, chunks, insert_episodes, read_episodes, rows_among
from storage.rows.mapping import Rows, to_fork
from storage.rows.schema import episode, judgement, plan, state, text, turn
from storage.rows.summaries import CappedCount, EpisodeSummary
from storage.shelves.lease import check_owner
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Child:
    """A forked episode or one of its baseline. `spent_usd`: what its own turns cost, not those it carries, and
    rating them; None when a price is unknown."""

    summary: EpisodeSummary
    fork: Fork
    seed: int
    turn_budget: int
    argmax: bool
    left_out: tuple[str, ...]
    spent_usd: float | None

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def correct(self) -> bool | None:
        """How it ended; None while it is not over, or missing."""
        return bool(self.summary.correct) if self.summary.status is Status.FINISHED else None


def insert_children(store: Store, children: Iterable[Episode], owner: str | None = None) -> None:
    """Store new episodes with the turns they carry; one that is there already stays as it is. All or nothing.

    StoreError when their run is not this owner's any more."""
    by_own_id = {one.id: one for one in children}
    with writing(store.engine) as connection:
        for run_id in {one.run_id for one in by_own_id.values()}:
            check_owner(connection, run_id, owner)
        stored = rows_among(connection, select(episode.c.id), episode.c.id, list(by_own_id))
        known = {row["id"] for row in stored}
        at = store.now()
        new = [one for one in by_own_id.values() if one.id not in known]
        insert_episodes(connection, [TimedEpisode(one, at, None, [at] * len(one.turns)) for one in new])


def parents(store: Store, ids: Sequence[str]) -> dict[str, Episode]:
    with reading(store.engine) as connection:
        return {one.id: one for one in read_episodes(connection, ids)}


def newest_episodes(
    store: Store, where: EpisodeFilter, limit: int
) -> tuple[list[EpisodeSummary], CappedCount]:
    """The newest episodes a filter finds, and how many there are; forks only where it asks for them, so that forks of
    forks are never made unasked."""
    found = conditions(where, store.engine.dialect.name)
    newest = select(*LIGHT).where(*found).order_by(episode.c.started.desc(), episode.c.id.desc()).limit(limit)
    with reading(store.engine) as connection:
        total = count_capped(connection, select(episode.c.id).where(*found))
        return [to_summary(row) for row in connection.execute(newest).mappings()], total


def of_runs(store: Store, run_ids: Sequence[str]) -> dict[str, list[Child]]:
    """The children that runs have begun, by run, in the order of their ids."""
    found: dict[str, list[Child]] = {one: [] for one in run_ids}
    for child in _children(store, episode.c.run_id, run_ids):
        found[child.summary.run_id].append(child)
    return found


def of_parents(store: Store, parents: Sequence[str]) -> list[Child]:
    return _children(store, episode.c.parent_episode_id, parents)


def by_id(store: Store, ids: Sequence[str]) -> list[Child]:
    """The children with these ids, as far as they are there, in the order of their ids."""
    return _children(store, episode.c.id, ids)


def _children(store: Store, column: ColumnElement[str], values: Sequence[str]) -> list[Child]:
    """The children of which `column` has one of the values, in the order of their ids (chunk by chunk)."""
    begun = (turn.c.episode_id == episode.c.id, turn.c.idx >= episode.c.fork_turn, turn.c.stage != "asked")
    known = case((func.count() == func.count(turn.c.cost_usd), func.coalesce(func.sum(turn.c.cost_usd), 0.0)))
    played = select(known).where(*begun).correlate(episode).scalar_subquery()
    rated = select(func.coalesce(func.sum(judgement.c.cost_usd), 0.0))
    rated = rated.where(judgement.c.episode_id == episode.c.id).correlate(episode)
    spent = (played + rated.scalar_subquery()).label("spent_usd")
    own = (episode.c.seed, episode.c.turn_budget, episode.c.argmax, episode.c.left_out)
    query = (
        select(*LIGHT, *FORK, *own, spent)
        .where(episode.c.parent_episode_id.is_not(None), episode.c.fork_turn.is_not(None))
        .order_by(episode.c.id)
    )
    with reading(store.engine) as connection:
        return [_child(row) for row in rows_among(connection, query, column, values)]


def _child(row: Rows) -> Child:
    fork = to_fork(row)
    assert fork is not None  # the query asks for a parent
    names = ("seed", "turn_budget", "argmax", "spent_usd")
    return Child(to_summary(row), fork, left_out=row["left_out"] or (), **{name: row[name] for name in names})


def episode_digests(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """SHA-256 over every row of an episode, its plans, turns, texts and hidden states, by id; unknown ids are left
    out."""
    hashes = {one: hashlib.sha256() for one in ids}
    seen: set[str] = set()
    with reading(store.engine) as connection:
        for chunk in chunks(ids):
            for table, own, order in (
                (episode, episode.c.id, []),
                (plan, plan.c.episode_id, [plan.c.round, plan.c.attempt]),
                (turn, turn.c.episode_id, [turn.c.idx]),
                (judgement, judgement.c.episode_id, [judgement.c.number]),
                (text, text.c.episode_id, [text.c.idx, text.c.kind]),
                (state, state.c.episode_id, [state.c.idx]),
            ):
                for row in connection.execute(select(own, table).where(own.in_(chunk)).order_by(own, *order)):
                    hashes[row[0]].update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
                    seen.add(row[0])
    return {one: hashes[one].hexdigest() for one in ids if one in seen}
