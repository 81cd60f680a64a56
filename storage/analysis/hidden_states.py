"""Hidden states and logits in bulk, no texts: which policies left any in which run, seeded samples, and recorded turns
that the heads of an evolution can read again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, RowMapping, Select, exists, func, select, tuple_

from core.analysis.curvature import Choices
from core.analysis.head_lens import read_half
from core.analysis.learning import AnswerState, answer_states
from core.analysis.metrics import ClusteredShare
from core.analysis.separability import MOST_POINTS, Points
from core.draws import uniform
from core.episode import ROLE_ORDER, Flag, Protocol, Role, Status
from core.errors import StoreError
from core.heads import Array
from storage.filters.listing import read_shares
from storage.filters.vocabulary import IS_MEASURED
from storage.rows.engine import fetch_mappings, fetch_rows, reading
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode, same_turn, state, turn
from storage.store import Store

#: Episodes that one policy decided throughout, so that it read every state of them.
_ONE_DECIDER = episode.c.flags.op("&")(flag_bits(["swapped"])) == 0


#: Episodes whose choices are read at most, the newest.
MOST_EPISODES = 4_000

#: Decisions to draw from in `read_past_decisions`: the newest so many.
MOST_KEYS = 50_000

_HAS_STATE = same_turn(state)
_TURN = ("episode_id", "idx", "model", "role", "argmax_model", "model_logits", "role_logits", "prompt_digest")
_EPISODE = ("task_key", "family", "question", "models", "correct")


@dataclass(frozen=True, slots=True)
class PolicyWithStates:
    """A policy that left hidden states in a run, over its finished episodes; `newest` is when the last ended."""

    run_id: str
    policy: str
    generation: int | None
    episodes: int
    turns: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class StateTurn:
    """The turn that a state was read before: what was chosen, and whether the episode ended right."""

    episode_id: str
    index: int
    family: str
    question: str  # cut to QUESTION_CUT characters
    model: str
    role: Role
    correct: bool | None = None
    prompt_digest: str = ""
    argmax_model: str = ""


@dataclass(frozen=True)
class HiddenStates:
    """A policy's turns with their points, row by row. `total` is how many there are in the store, `unusable` how
    many of the sampled ones hold a number that is not finite; `slots` are the pool's models in head order.

    Or questions that an encoder reads before any play: `texts` are they, whole, and `label` what tells them apart; a
    turn of theirs has no episode, and a point no logits."""

    turns: tuple[StateTurn, ...]
    points: Points
    slots: tuple[str, ...]
    total: int
    unusable: int
    texts: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, eq=False)
class PastDecisions:
    """Decisions with the states they were read from, float32 [n, hidden size]. `total` is how many there were to draw
    from, at most MOST_KEYS."""

    turns: tuple[StateTurn, ...]
    hidden: np.ndarray[Any, np.dtype[np.float32]]
    total: int


def policies_with_states(store: Store) -> list[PolicyWithStates]:
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
            _ONE_DECIDER,
            exists(select(state.c.idx).where(state.c.episode_id == episode.c.id)),
        )
        .group_by(episode.c.run_id, episode.c.policy)
    )
    found = [PolicyWithStates(**row) for row in fetch_mappings(store.engine, query)]
    # Ids of runs sort by time.
    found.sort(key=lambda one: (-1 if one.generation is None else one.generation, one.policy), reverse=True)
    return sorted(found, key=lambda one: one.run_id, reverse=True)


def read_states(store: Store, run_id: str, policy: str, *, first_only: bool = False) -> HiddenStates:
    """The states of a policy's finished episodes in a run, at most MOST_POINTS of them drawn by a fixed seed.

    Choices made by hand are left out. Two queries: which turns there are, and the sampled ones. StoreError when
    the run holds states of different sizes for the policy, as of two encoders."""
    keys = (
        _keys(episode.c.run_id == run_id, episode.c.policy == policy)
        .where(turn.c.origin != "override", func.length(turn.c.model_logits) > 0)
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    if first_only:
        keys = keys.where(turn.c.idx == 0)
    rows, total = _read_sample(store, keys, f"separability/{run_id}/{policy}/{first_only}", MOST_POINTS)
    whose = f"{policy} in run {run_id}"
    hidden = _matrix([row["hidden"] for row in rows], "<f2", whose)
    logits = _matrix([row["model_logits"] + row["role_logits"] for row in rows], "<f8", whose)
    # float16 ends at 65,504: an encoder with larger activations leaves infinities behind.
    finite = np.isfinite(hidden).all(axis=1) & np.isfinite(logits).all(axis=1)
    used = [row for row, usable in zip(rows, finite, strict=True) if usable]
    turns = tuple(_state_turn(row) for row in used)
    return HiddenStates(
        turns=turns,
        points=Points(
            hidden=hidden[finite],
            logits=logits[finite],
            families=tuple(one.family for one in turns),
            models=tuple(one.model for one in turns),
            tasks=tuple(row["task_key"] for row in used),
        ),
        slots=used[0]["models"] if used else (),
        total=total,
        unusable=len(rows) - len(used),
    )


def read_past_decisions(store: Store, policies: Sequence[str], most: int) -> PastDecisions:
    """A seeded sample of at most `most` decisions of these policies' finished episodes; those taken by hand are left
    out. Two queries. StoreError when their states are of different sizes."""
    keys = (
        _keys(episode.c.policy.in_(policies))
        .where(turn.c.origin == "policy")
        .order_by(turn.c.episode_id.desc(), turn.c.idx)
        .limit(MOST_KEYS)
    )
    rows, total = _read_sample(store, keys, f"past/{'/'.join(policies)}", most)
    hidden = _matrix([row["hidden"] for row in rows], "<f2", "these checkpoints")
    finite = np.isfinite(hidden).all(axis=1)
    turns = tuple(_state_turn(row) for row, usable in zip(rows, finite, strict=True) if usable)
    return PastDecisions(turns, hidden[finite], total)


def read_choices(store: Store, run_id: str, policy: str) -> Choices | None:
    """All choices of a policy's finished episodes in a run, at most MOST_EPISODES of them, of which every one was drawn
    by the policy and left a finite state. None when there are none. One query.

    StoreError when the run holds states of different sizes for the policy."""
    whole = (
        select(turn.c.episode_id)
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, _HAS_STATE)
        .where(
            episode.c.run_id == run_id,
            episode.c.policy == policy,
            episode.c.status == Status.FINISHED,
            episode.c.correct.is_not(None),
            turn.c.stage == "finished",
            turn.c.origin == "policy",
            turn.c.sampled,
            func.length(turn.c.model_probs) > 0,
            _ONE_DECIDER,
        )
        .group_by(turn.c.episode_id, episode.c.turns)
        .having(func.count() == episode.c.turns)
        .order_by(turn.c.episode_id.desc())
        .limit(MOST_EPISODES)
    )
    names = ("episode_id", "model", "role", "model_probs", "role_probs")
    query = (
        select(*(turn.c[name] for name in names), episode.c.models, episode.c.correct, state.c.hidden)
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, _HAS_STATE)
        .where(turn.c.episode_id.in_(whole))
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    found, whose = fetch_mappings(store.engine, query), f"{policy} in run {run_id}"
    finite = np.isfinite(_matrix([row["hidden"] for row in found], "<f2", whose)).all(axis=1)
    broken = {row["episode_id"] for row, usable in zip(found, finite, strict=True) if not usable}
    rows = [row for row in found if row["episode_id"] not in broken]
    if not rows:
        return None
    slots = rows[0]["models"]
    rewards = {row["episode_id"]: float(row["correct"]) for row in rows}
    places = {one: place for place, one in enumerate(rewards)}
    return Choices(
        states=_matrix([row["hidden"] for row in rows], "<f2", whose),
        model_probs=_matrix([row["model_probs"] for row in rows], "<f8", whose).astype(float),
        role_probs=_matrix([row["role_probs"] for row in rows], "<f8", whose).astype(float),
        models=np.array([slots.index(row["model"]) for row in rows]),
        roles=np.array([ROLE_ORDER.index(row["role"]) for row in rows]),
        episodes=np.array([places[row["episode_id"]] for row in rows]),
        rewards=np.array(list(rewards.values())),
    )


def _keys(*where: ColumnElement[bool]) -> Select[Any]:
    """(episode id, index) of the turns with a state, of finished episodes that meet `where`."""
    return (
        select(turn.c.episode_id, turn.c.idx)
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(state, _HAS_STATE)
        .where(*where, episode.c.status == Status.FINISHED, turn.c.stage == "finished", _ONE_DECIDER)
    )


def _read_sample(
    store: Store, keys: Select[Any], draw_key: str, most: int
) -> tuple[Sequence[RowMapping], int]:
    """At most `most` of the turns with these keys, ordered by episode and index, and how many keys there are. The
    same `draw_key` draws the same turns."""
    with reading(store.engine) as connection:
        found = connection.execute(keys).all()
        if not found:
            return [], 0
        sample = found
        if len(found) > most:
            drawn = np.argsort(uniform(draw_key, len(found)), kind="stable")[:most]
            sample = [found[i] for i in drawn.tolist()]
        query = (
            select(*(turn.c[name] for name in _TURN), *(episode.c[name] for name in _EPISODE), state.c.hidden)
            .join(episode, episode.c.id == turn.c.episode_id)
            .join(state, _HAS_STATE)
            .where(tuple_(turn.c.episode_id, turn.c.idx).in_([tuple(key) for key in sample]))
            .order_by(turn.c.episode_id, turn.c.idx)
        )
        return connection.execute(query).mappings().all(), len(found)


def _state_turn(row: RowMapping) -> StateTurn:
    names = ("episode_id", "family", "question", "model", "correct", "prompt_digest", "argmax_model")
    return StateTurn(index=row["idx"], role=row["role"], **{name: row[name] for name in names})


def _matrix(packed: Sequence[bytes], dtype: str, whose: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """One row of numbers per text of bytes, (n, d)."""
    sizes = {len(one) for one in packed}
    if len(sizes) > 1 or any(size % np.dtype(dtype).itemsize for size in sizes):
        raise StoreError(f"The hidden states of {whose} are of different sizes, so they cannot be compared.")
    flat = np.frombuffer(b"".join(packed), dtype)
    return np.asarray(flat.reshape(len(packed), -1) if packed else flat.reshape(0, 0), dtype=np.float32)


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
    drawn: dict[str, Any] = {}
    n, total = 0, sum(row.turns for row in found)
    for at in np.argsort(uniform("turn states", len(found)), kind="stable").tolist():
        if n + found[at].turns <= MOST_TURNS:
            drawn[found[at].id], n = found[at], n + found[at].turns
    query = (
        select(turn.c.episode_id, turn.c.idx, turn.c.role, turn.c.answer_after, turn.c.flags, state.c.hidden)
        .outerjoin(state, same_turn(state))
        .where(turn.c.episode_id.in_(list(drawn)), turn.c.stage == "finished")
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    kept: list[tuple[Any, int, NDArray[np.float64], AnswerState]] = []
    for one, rows in groupby(fetch_rows(store.engine, query), key=lambda row: row.episode_id):
        turns = list(rows)
        # In the released protocol every reply of a Worker is taken for an answer.
        released = drawn[one].protocol is Protocol.RELEASED
        gave = [row.answer_after is not None and Flag.NO_ANSWER not in row.flags for row in turns]
        before = answer_states((row.role, given or released) for row, given in zip(turns, gave, strict=True))
        for row, answer in zip(turns, before, strict=True):
            if (vector := read_half(row.hidden or b"", width)) is not None:
                kept.append((drawn[one], row.idx, vector, answer))
    whose = Counter(of.policy for of, *_ in kept)
    return TurnStates(
        episodes=tuple(dict.fromkeys(of.id for of, *_ in kept)),
        policies=tuple(sorted(whose, key=lambda name: (-whose[name], name))),
        states=np.array([vector for _, _, vector, _ in kept]).reshape(len(kept), width),
        turns=np.array([idx for _, idx, _, _ in kept], np.int64),
        tasks=np.array([of.task_key for of, *_ in kept], np.int64),
        families=np.array([of.family for of, *_ in kept], np.str_),
        answers=tuple(answer for *_, answer in kept),
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
        episode.c.models == list(models),
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
