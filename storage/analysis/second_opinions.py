"""Recorded turns in bulk for other checkpoints to judge, and the second opinions of those that read them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, func, insert, select

from core.episode import Protocol, Role
from core.play.policies import decider_at
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.rows.engine import fetch_rows, reading, writing
from storage.rows.schema import episode, same_turn, second_opinion, state, turn
from storage.shelves.lease import check_owner
from storage.store import Store

#: At most so many turns are judged at once, those of the newest episodes.
MOST_JUDGED_TURNS = 20_000


@dataclass(frozen=True, slots=True)
class EpisodeScope:
    """Which episodes are judged: those of a filter, or one alone, begun no later than `before` (Unix seconds)."""

    where: EpisodeFilter = EpisodeFilter()
    episode: str | None = None
    before: float | None = None

    def conditions(self, dialect: str) -> list[ColumnElement[bool]]:
        if self.episode is not None:
            return [episode.c.id == self.episode]
        found = conditions(self.where, dialect)
        return found if self.before is None else [*found, episode.c.started <= self.before]


class JudgedEpisode(NamedTuple):
    id: str
    policy: str
    family: str
    question: str  # cut to QUESTION_CUT characters
    task_key: int
    task_id: str
    seed: int
    protocol: Protocol
    models: tuple[str, ...]
    argmax: bool
    deciders: dict[int, str]  # turn -> the policy that decides from it on


class JudgedTurn(NamedTuple):
    """One finished turn without its texts. Of masks an empty one allows everything; numbers are
    little-endian: float64 logits and probabilities, a float16 state; empty where there is none."""

    episode_id: str
    idx: int
    model: str
    role: Role
    sampled: bool
    origin: str
    prompt_digest: str
    model_mask: tuple[bool, ...]
    role_mask: tuple[bool, ...]
    model_logits: bytes
    role_logits: bytes
    model_probs: bytes
    role_probs: bytes
    hidden: bytes
    policy: str  # that decided it


class Opinion(NamedTuple):
    """What a checkpoint made of a turn when it read the transcript again: little-endian float64 logits of models and
    roles, the digest of what it read, and the device it was computed on."""

    checkpoint_id: str
    episode_id: str
    idx: int
    model_logits: bytes
    role_logits: bytes
    prompt_digest: str
    device: str


@dataclass(frozen=True, eq=False)
class JudgedTurns:
    """The turns of a scope, those of an episode together and in order. `matching` episodes were asked for; those
    beyond the newest with MOST_TURNS turns are left out."""

    episodes: dict[str, JudgedEpisode]
    turns: tuple[JudgedTurn, ...]
    matching: int


_PLAYED = [episode.c[name] for name in JudgedEpisode._fields]
_TURN = [turn.c[name] for name in JudgedTurn._fields if name not in ("hidden", "policy")]


def read_judged(store: Store, scope: EpisodeScope) -> JudgedTurns:
    """The finished turns of a scope, at most MOST_JUDGED_TURNS. Three queries, no texts."""
    with reading(store.engine) as connection:
        matching = scope.conditions(store.engine.dialect.name)
        total = connection.execute(select(func.count()).select_from(episode).where(*matching)).scalar_one()
        played = (
            select(*_PLAYED, episode.c.turns)
            .where(episode.c.id.in_(_newest(scope, store, MOST_JUDGED_TURNS)))
            .order_by(episode.c.id.desc())
        )
        episodes: dict[str, JudgedEpisode] = {}
        turns = 0
        for *columns, length in connection.execute(played):
            turns += length
            if episodes and turns > MOST_JUDGED_TURNS:
                break
            one = JudgedEpisode(*columns)
            episodes[one.id] = one._replace(deciders=one.deciders or {})
        newest = _newest(scope, store, len(episodes))
        query = (
            select(*_TURN, state.c.hidden)
            .outerjoin(state, same_turn(state))
            .where(turn.c.episode_id.in_(newest), turn.c.stage == "finished")
            .order_by(turn.c.episode_id.desc(), turn.c.idx)
        )
        judged = tuple(
            JudgedTurn._make((*row[:-1], row[-1] or b"", decider_at(of.policy, of.deciders, row[1])))
            for row in connection.execute(query).all()
            if (of := episodes.get(row[0]))
        )
    return JudgedTurns(episodes, judged, total)


def _newest(scope: EpisodeScope, store: Store, most: int) -> Select[tuple[str]]:
    """The ids of the newest episodes, no more than could be needed; ids sort by time."""
    matching = scope.conditions(store.engine.dialect.name)
    chosen = select(episode.c.id).where(*matching, episode.c.turns > 0).order_by(episode.c.id.desc())
    return select(chosen.limit(most).subquery().c.id)


def read_opinions(
    store: Store, scope: EpisodeScope, checkpoints: Sequence[str] | None, most: int = MOST_JUDGED_TURNS
) -> list[Opinion]:
    """What these checkpoints (None: any) made of a scope's turns when they read them again. One query."""
    query = (
        select(*(second_opinion.c[name] for name in Opinion._fields))
        .where(second_opinion.c.episode_id.in_(_newest(scope, store, most)))
        .order_by(second_opinion.c.episode_id, second_opinion.c.idx, second_opinion.c.checkpoint_id)
    )
    if checkpoints is not None:
        query = query.where(second_opinion.c.checkpoint_id.in_(checkpoints))
    with reading(store.engine) as connection:
        return [Opinion(*row) for row in connection.execute(query)]


def add_opinions(store: Store, run_id: str, opinions: Sequence[Opinion], owner: str | None = None) -> None:
    """Keep a batch of opinions of one checkpoint, all or none; those that are there stay as they are. StoreError when
    the run is not this owner's any more."""
    episodes = {one.episode_id for one in opinions}
    stored = select(second_opinion.c.episode_id, second_opinion.c.idx).where(
        second_opinion.c.checkpoint_id.in_({one.checkpoint_id for one in opinions}),
        second_opinion.c.episode_id.in_(episodes),
    )
    with writing(store.engine) as connection:
        check_owner(connection, run_id, owner)
        known = {tuple(row) for row in connection.execute(stored)}
        there = set(connection.execute(select(episode.c.id).where(episode.c.id.in_(episodes))).scalars())
        rows = [
            {**one._asdict(), "run_id": run_id}
            for one in opinions
            if (one.episode_id, one.idx) not in known and one.episode_id in there
        ]
        if rows:
            connection.execute(insert(second_opinion), rows)


@dataclass(frozen=True, slots=True)
class RereadingProgress:
    """How many opinions a run has left so far, and on which devices they were computed."""

    done: int
    devices: tuple[str, ...]


def rereading_progress(store: Store, run_id: str) -> RereadingProgress:
    """How far a run that reads transcripts again has come. One query."""
    query = (
        select(second_opinion.c.device, func.count())
        .where(second_opinion.c.run_id == run_id)
        .group_by(second_opinion.c.device)
    )
    found = dict(fetch_rows(store.engine, query))
    return RereadingProgress(sum(found.values()), tuple(sorted(found)))
