"""Recorded turns that the heads of an evolution can read again: each with its stored state, its task, what there was to
judge before it, and which model answers its family best."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select

from core.analysis.head_lens import read_half
from core.analysis.learning import AnswerState, answer_states
from core.analysis.metrics import ClusteredShare
from core.draws import uniform
from core.episode import Flag, Protocol, Role, Status
from core.heads import Array
from storage.filters.clusters import read_shares
from storage.filters.vocabulary import IS_MEASURED
from storage.rows.engine import fetch_rows, reading
from storage.rows.mapping import to_flags
from storage.rows.schema import episode, same_turn, state, turn
from storage.store import Store

#: At most so many turns are read, of episodes drawn by a fixed seed.
MOST_TURNS = 2_000
#: A model with fewer first answers in a family is not compared with others; and one with fewer right ones is not
#: called the best of them.
FEWEST_ANSWERS, FEWEST_RIGHT = 10, 5


@dataclass(frozen=True, eq=False)
class TurnStates:
    """Turns of finished episodes that count, row by row: states float64 [n, d], turn numbers from 0, keys of tasks,
    families and what there was to judge, each [n]. `of` many such turns were there to draw from."""

    episodes: tuple[str, ...]
    policies: tuple[str, ...]  # whose episodes they are, most turns first
    states: Array
    turns: NDArray[np.int64]
    tasks: NDArray[np.int64]
    families: NDArray[np.str_]
    answers: tuple[AnswerState, ...]
    of: int

    def __len__(self) -> int:
        return len(self.turns)


def read_turn_states(store: Store, policies: Sequence[str], width: int) -> TurnStates:
    """The turns with a finite state of `width` numbers in the episodes of these policies that totals count; at most
    MOST_TURNS, those of one episode together. Two queries."""
    played = (
        select(episode.c.id, episode.c.policy, episode.c.task_key, episode.c.family, episode.c.protocol)
        .add_columns(episode.c.turns)
        .where(episode.c.policy.in_(policies), episode.c.status == Status.FINISHED, IS_MEASURED)
        .order_by(episode.c.id)
    )
    found = fetch_rows(store.engine, played)
    drawn: dict[str, tuple[str, int, str, str]] = {}
    n, total = 0, sum(row[-1] for row in found)
    for at in np.argsort(uniform("turn states", len(found)), kind="stable").tolist():
        one, policy, task, family, protocol, turns = found[at]
        if n + turns <= MOST_TURNS:
            drawn[one], n = (policy, task, family, protocol), n + turns
    query = (
        select(turn.c.episode_id, turn.c.idx, turn.c.role, turn.c.answer_after, turn.c.flags, state.c.hidden)
        .outerjoin(state, same_turn(state))
        .where(turn.c.episode_id.in_(list(drawn)), turn.c.stage == "finished")
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    by_episode: dict[str, list[tuple[int, Role, bool, bytes]]] = defaultdict(list)
    for one, idx, role, answer, flags, hidden in fetch_rows(store.engine, query):
        # In the released protocol every reply of a Worker is taken for an answer.
        given = answer is not None and Flag.NO_ANSWER not in to_flags(flags)
        answered = given or drawn[one][-1] == Protocol.RELEASED
        by_episode[one].append((idx, Role(role), answered, hidden or b""))
    return _together(drawn, by_episode, width, total)


def _together(
    drawn: dict[str, tuple[str, int, str, str]],
    by_episode: dict[str, list[tuple[int, Role, bool, bytes]]],
    width: int,
    total: int,
) -> TurnStates:
    rows: list[tuple[str, NDArray[np.float64], int, int, str, AnswerState]] = []
    whose: dict[str, int] = defaultdict(int)
    for one, turns in by_episode.items():
        policy, task, family, _ = drawn[one]
        before = answer_states((role, answered) for _, role, answered, _ in turns)
        for (idx, _, _, hidden), answer in zip(turns, before, strict=True):
            if (vector := read_half(hidden, width)) is not None:
                rows.append((one, vector, idx, task, family, answer))
                whose[policy] += 1
    return TurnStates(
        episodes=tuple(dict.fromkeys(row[0] for row in rows)),
        policies=tuple(sorted(whose, key=lambda name: (-whose[name], name))),
        states=np.array([row[1] for row in rows]).reshape(len(rows), width),
        turns=np.array([row[2] for row in rows], np.int64),
        tasks=np.array([row[3] for row in rows], np.int64),
        families=np.array([row[4] for row in rows], np.str_),
        answers=tuple(row[5] for row in rows),
        of=total,
    )


@dataclass(frozen=True, slots=True)
class BestModel:
    """The model whose first answers in a family were right most often, and that share; `rivals` cannot be told from it:
    their intervals reach above the lower end of its own."""

    model: str
    right: ClusteredShare
    rivals: tuple[str, ...]


def best_models(store: Store, models: Sequence[str]) -> dict[str, BestModel]:
    """Family -> its best model, over the episodes that totals count in which the policy could choose among just these
    `models`. An episode's first answer is its first Worker's that gave one. Left out is a family in which fewer than
    two models gave FEWEST_ANSWERS of them, or the best has fewer than FEWEST_RIGHT right. One query."""
    counted = (
        episode.c.models == json.dumps(list(models)),
        episode.c.status == Status.FINISHED,
        episode.c.correct.is_not(None),
        IS_MEASURED,
    )
    first = (
        select(turn.c.episode_id, func.min(turn.c.idx).label("idx"))
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted, turn.c.role == Role.WORKER, turn.c.answer_after.is_not(None))
        .group_by(turn.c.episode_id)
        .subquery()
    )
    answers = (
        select(turn.c.idx)
        .select_from(first)
        .join(turn, same_turn(first))
        .join(episode, episode.c.id == turn.c.episode_id)
    )
    right = (turn.c.correct_after.is_(True), None)
    with reading(store.engine) as connection:
        found = read_shares(connection, answers, (episode.c.family, turn.c.model), right)
    shares: dict[str, dict[str, ClusteredShare]] = defaultdict(dict)
    for (family, model), [share] in found.items():
        if share.n >= FEWEST_ANSWERS and model in models:
            shares[family][model] = share
    best = {family: _best(of, models) for family, of in sorted(shares.items()) if len(of) > 1}
    return {family: one for family, one in best.items() if one.right.k >= FEWEST_RIGHT}


def _best(of: dict[str, ClusteredShare], models: Sequence[str]) -> BestModel:
    """Of equals the one that comes first in the pool."""
    model = min(of, key=lambda name: (-(of[name].value or 0.0), models.index(name)))
    low, _ = of[model].ci95
    rivals = [name for name in models if name in of and name != model and of[name].ci95[1] > low]
    return BestModel(model, of[model], tuple(rivals))
