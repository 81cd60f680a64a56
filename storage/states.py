"""Hidden states and logits in bulk: who has any in which run, and a seeded sample of them. Never a turn's text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import RowMapping, Select, exists, func, select, tuple_

from core.draws import uniform
from core.episode import Role, Status
from core.errors import StoreError
from core.separability import MOST_POINTS, Points
from storage.engine import reading
from storage.mapping import flag_bits
from storage.schema import episode, state, turn
from storage.store import Store

#: Episodes whose states are all of their own policy's reading: nobody put another in its place.
_ONE_DECIDER = episode.c.flags.op("&")(flag_bits(["swapped"])) == 0


@dataclass(frozen=True, slots=True)
class Stated:
    """A policy that left hidden states in a run, over its finished episodes; `newest` is when the last ended."""

    run_id: str
    policy: str
    generation: int | None
    episodes: int
    turns: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class StatedTurn:
    """One turn behind a point."""

    episode_id: str
    index: int
    family: str
    question: str  # cut to QUESTION_CUT characters
    model: str
    role: Role
    argmax_model: str


@dataclass(frozen=True)
class States:
    """A policy's turns with their points, row by row. `total` is how many there are in the store, `unusable` how
    many of the drawn ones hold a number that is none; `slots` are the pool's models in head order."""

    turns: tuple[StatedTurn, ...]
    points: Points
    slots: tuple[str, ...]
    total: int
    unusable: int


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A decision of some finished episode: what was chosen, and whether the episode ended right."""

    episode_id: str
    index: int
    family: str
    question: str  # cut to QUESTION_CUT characters
    model: str
    role: Role
    correct: bool | None
    prompt_digest: str


@dataclass(frozen=True, eq=False)
class Past:
    """Decisions with the states they were read from, float32 [n, hidden size]. `total` is how many there were to draw
    from, at most MOST_KEYS."""

    turns: tuple[PastTurn, ...]
    hidden: np.ndarray[Any, np.dtype[np.float32]]
    total: int


#: Decisions to draw a past from: the newest so many.
MOST_KEYS = 50_000


def read_past(store: Store, policies: Sequence[str], most: int) -> Past:
    """A seeded sample of at most `most` decisions of these policies' finished episodes; those taken by hand are left
    out. Two queries. StoreError when their states are of different sizes."""
    has_state = (state.c.episode_id == turn.c.episode_id) & (state.c.idx == turn.c.idx)
    keys = (
        select(turn.c.episode_id, turn.c.idx)
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, has_state)
        .where(
            episode.c.policy.in_(policies),
            episode.c.status == Status.FINISHED,
            turn.c.stage == "finished",
            turn.c.origin == "policy",
            _ONE_DECIDER,
        )
        .order_by(turn.c.episode_id.desc(), turn.c.idx)
        .limit(MOST_KEYS)
    )
    with reading(store.engine) as connection:
        found = [(row.episode_id, row.idx) for row in connection.execute(keys)]
        drawn = [found[i] for i in _drawn(f"past/{'/'.join(policies)}", len(found), most)]
        columns = (
            select(
                *(turn.c[name] for name in ("episode_id", "idx", "model", "role", "prompt_digest")),
                *(episode.c[name] for name in ("family", "question", "correct")),
                state.c.hidden,
            )
            .join(episode, episode.c.id == turn.c.episode_id)
            .join(state, has_state)
            .where(tuple_(turn.c.episode_id, turn.c.idx).in_(drawn))
        )
        rows = connection.execute(columns).mappings().all() if drawn else []
    hidden = _matrix([bytes(row["hidden"]) for row in rows], "<f2", "these checkpoints")
    finite = np.isfinite(hidden).all(axis=1)
    return Past(
        tuple(_past_turn(row) for row, usable in zip(rows, finite, strict=True) if usable),
        hidden[finite],
        len(found),
    )


def _past_turn(row: RowMapping) -> PastTurn:
    return PastTurn(
        row["episode_id"],
        row["idx"],
        row["family"],
        row["question"],
        row["model"],
        Role(row["role"]),
        row["correct"],
        row["prompt_digest"],
    )


def stated(store: Store) -> list[Stated]:
    """All policies with hidden states, newest run first, in it the last generation first. Forks share their
    parents' states and are left out. One query."""
    query = (
        select(
            episode.c.run_id,
            episode.c.policy,
            func.max(episode.c.generation).label("generation"),
            func.count().label("episodes"),
            func.sum(episode.c.turns).label("turns"),
            func.max(episode.c.finished).label("newest"),
        )
        .where(
            episode.c.status == Status.FINISHED,
            episode.c.parent_episode_id.is_(None),
            exists(select(state.c.idx).where(state.c.episode_id == episode.c.id)),
        )
        .group_by(episode.c.run_id, episode.c.policy)
    )
    with reading(store.engine) as connection:
        found = [Stated(**row) for row in connection.execute(query).mappings()]
    # Ids of runs sort by time.
    found.sort(key=lambda one: (-1 if one.generation is None else one.generation, one.policy), reverse=True)
    return sorted(found, key=lambda one: one.run_id, reverse=True)


def read_states(
    store: Store, run_id: str, policy: str, *, first_only: bool = False, most: int = MOST_POINTS
) -> States:
    """The states of a policy's finished episodes in a run, at most `most` of them drawn by a fixed seed.

    Choices made by hand are left out. Two queries: which turns there are, and the drawn ones. StoreError when
    the run holds states of different sizes for the policy, as of two encoders."""
    with reading(store.engine) as connection:
        keys = [(row.episode_id, row.idx) for row in connection.execute(_turns(run_id, policy, first_only))]
        drawn = [keys[i] for i in _drawn(f"separability/{run_id}/{policy}/{first_only}", len(keys), most)]
        rows = connection.execute(_columns(drawn)).mappings().all() if drawn else []
    return _to_states(rows, len(keys), f"{policy} in run {run_id}")


def _turns(run_id: str, policy: str, first_only: bool) -> Select[Any]:
    query = (
        select(turn.c.episode_id, turn.c.idx)
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, (state.c.episode_id == turn.c.episode_id) & (state.c.idx == turn.c.idx))
        .where(
            episode.c.run_id == run_id,
            episode.c.policy == policy,
            episode.c.status == Status.FINISHED,
            turn.c.stage == "finished",
            turn.c.origin != "override",
            _ONE_DECIDER,
            func.length(turn.c.model_logits) > 0,
        )
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    return query.where(turn.c.idx == 0) if first_only else query


def _drawn(key: str, n: int, most: int) -> list[int]:
    """At most `most` of `n` positions, in order; the same for the same key."""
    if n <= most:
        return list(range(n))
    return sorted(np.argsort(uniform(key, n), kind="stable")[:most].tolist())


def _columns(drawn: Sequence[tuple[str, int]]) -> Select[Any]:
    return (
        select(
            turn.c.episode_id,
            turn.c.idx,
            turn.c.model,
            turn.c.role,
            turn.c.argmax_model,
            turn.c.model_logits,
            turn.c.role_logits,
            state.c.hidden,
            episode.c.task_key,
            episode.c.family,
            episode.c.question,
            episode.c.models,
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, (state.c.episode_id == turn.c.episode_id) & (state.c.idx == turn.c.idx))
        .where(tuple_(turn.c.episode_id, turn.c.idx).in_(drawn))
        .order_by(turn.c.episode_id, turn.c.idx)
    )


def _to_states(rows: Sequence[RowMapping], total: int, whose: str) -> States:
    hidden = _matrix([bytes(row["hidden"]) for row in rows], "<f2", whose)
    logits = _matrix([bytes(row["model_logits"]) + bytes(row["role_logits"]) for row in rows], "<f8", whose)
    # float16 ends at 65,504: an encoder with larger activations leaves infinities behind.
    finite = np.isfinite(hidden).all(axis=1) & np.isfinite(logits).all(axis=1)
    used = [row for row, usable in zip(rows, finite, strict=True) if usable]
    return States(
        turns=tuple(
            StatedTurn(
                row["episode_id"],
                row["idx"],
                row["family"],
                row["question"],
                row["model"],
                Role(row["role"]),
                row["argmax_model"],
            )
            for row in used
        ),
        points=Points(
            hidden=hidden[finite],
            logits=logits[finite],
            families=tuple(row["family"] for row in used),
            models=tuple(row["model"] for row in used),
            tasks=tuple(row["task_key"] for row in used),
        ),
        slots=tuple(json.loads(used[0]["models"])) if used else (),
        total=total,
        unusable=len(rows) - len(used),
    )


def _matrix(packed: Sequence[bytes], dtype: str, whose: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """One row of numbers per text of bytes, (n, d)."""
    sizes = {len(one) for one in packed}
    if len(sizes) > 1 or any(size % np.dtype(dtype).itemsize for size in sizes):
        raise StoreError(f"The hidden states of {whose} are of different sizes, so they cannot be compared.")
    flat = np.frombuffer(b"".join(packed), dtype)
    return np.asarray(flat.reshape(len(packed), -1) if packed else flat.reshape(0, 0), dtype=np.float32)
