"""Forked episodes: born with turns, found by their parent, and proof that the parent stayed as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, select

from core.episode import Episode, Status
from storage import paging
from storage.engine import reading, writing
from storage.filters import EpisodeFilter, conditions
from storage.listing import LIGHT, to_summary
from storage.runs import check_owner
from storage.schema import episode, state, text, turn
from storage.store import Store
from storage.summaries import Count, EpisodeSummary
from storage.whole import chunks, insert_episode, read_episodes


@dataclass(frozen=True, slots=True)
class Child:
    """A forked episode or one of its baseline. `spent_usd`: what its own turns cost, not those it carries; None
    when a price is unknown."""

    summary: EpisodeSummary
    parent_id: str
    turn: int  # 0-based
    seed: int
    turn_budget: int
    argmax: bool
    meta: Mapping[str, str]
    spent_usd: float | None

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.summary.id

    @property
    def correct(self) -> bool | None:
        """How it ended; None while it is not over, or missing."""
        return bool(self.summary.correct) if self.summary.status is Status.FINISHED else None


def begin(store: Store, children: Iterable[Episode], owner: str | None = None) -> None:
    """Store episodes that are born with turns; one that is there already stays as it is. All or nothing.

    StoreError when their run is not this owner's any more."""
    born = {one.id: one for one in children}
    with writing(store.engine) as connection:
        for run_id in {one.run_id for one in born.values()}:
            check_owner(connection, run_id, owner)
        known: set[str] = set()
        for chunk in chunks(list(born)):
            known |= set(connection.execute(select(episode.c.id).where(episode.c.id.in_(chunk))).scalars())
        at = store.now()
        for one in born.values():
            if one.id not in known:
                insert_episode(connection, one, at, None, [at] * len(one.turns))


def parents(store: Store, ids: Sequence[str]) -> dict[str, Episode]:
    """Whole episodes by id, as far as they are there."""
    with reading(store.engine) as connection:
        return {one.id: one for one in read_episodes(connection, ids)}


def originals(store: Store, where: EpisodeFilter, limit: int) -> tuple[list[EpisodeSummary], Count]:
    """The newest episodes a filter finds, and how many there are; forks only where it asks for them, so that forks of
    forks are never made unasked."""
    found = conditions(where, store.engine.dialect.name)
    newest = select(*LIGHT).where(*found).order_by(episode.c.started.desc(), episode.c.id.desc()).limit(limit)
    with reading(store.engine) as connection:
        total = paging.count(connection, select(episode.c.id).where(*found))
        return [to_summary(row) for row in connection.execute(newest).mappings()], total


def of_runs(store: Store, run_ids: Sequence[str]) -> dict[str, list[Child]]:
    """The children that runs have begun, by run, in the order of their ids."""
    found: dict[str, list[Child]] = {one: [] for one in run_ids}
    for chunk in chunks(run_ids):
        for child in _children(store, [episode.c.run_id.in_(chunk)]):
            found[child.summary.run_id].append(child)
    return found


def of_run(store: Store, run_id: str) -> list[Child]:
    """The children that one run has begun."""
    return of_runs(store, [run_id])[run_id]


def of_parents(store: Store, parents: Sequence[str]) -> list[Child]:
    """All children of these episodes, in the order of their ids."""
    found: list[Child] = []
    for chunk in chunks(parents):
        found += _children(store, [episode.c.parent_episode_id.in_(chunk)])
    return found


def by_id(store: Store, ids: Sequence[str]) -> list[Child]:
    """The children with these ids, as far as they are there, in the order of their ids."""
    found: list[Child] = []
    for chunk in chunks(ids):
        found += _children(store, [episode.c.id.in_(chunk)])
    return found


def _children(store: Store, where: Sequence[ColumnElement[bool]]) -> list[Child]:
    asked = (turn.c.episode_id == episode.c.id, turn.c.idx >= episode.c.fork_turn, turn.c.stage != "asked")
    known = case((func.count() == func.count(turn.c.cost_usd), func.coalesce(func.sum(turn.c.cost_usd), 0.0)))
    spent = select(known).where(*asked).correlate(episode).scalar_subquery().label("spent_usd")
    own = [
        episode.c[name]
        for name in ("parent_episode_id", "fork_turn", "seed", "turn_budget", "argmax", "meta")
    ]
    query = (
        select(*LIGHT, *own, spent)
        .where(episode.c.parent_episode_id.is_not(None), episode.c.fork_turn.is_not(None), *where)
        .order_by(episode.c.id)
    )
    with reading(store.engine) as connection:
        return [
            Child(
                to_summary(row),
                row["parent_episode_id"],
                row["fork_turn"],
                row["seed"],
                row["turn_budget"],
                row["argmax"],
                json.loads(row["meta"]),
                row["spent_usd"],
            )
            for row in connection.execute(query).mappings()
        ]


def digests(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """SHA-256 over every row of an episode, its turns, texts and hidden states, by id; unknown ids are left out."""
    hashes = {one: hashlib.sha256() for one in ids}
    seen: set[str] = set()
    with reading(store.engine) as connection:
        for chunk in chunks(ids):
            for table, own, order in (
                (episode, episode.c.id, []),
                (turn, turn.c.episode_id, [turn.c.idx]),
                (text, text.c.episode_id, [text.c.idx, text.c.kind]),
                (state, state.c.episode_id, [state.c.idx]),
            ):
                for row in connection.execute(select(own, table).where(own.in_(chunk)).order_by(own, *order)):
                    hashes[row[0]].update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
                    seen.add(row[0])
    return {one: hashes[one].hexdigest() for one in ids if one in seen}
