"""Which models were called in which role and order: paths of episodes grouped in SQL, and what they add up to."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, and_, func, not_, or_, select

from core.episode import Flag, Role, Status
from core.finish import EDITED
from storage.filters.episode_filter import EpisodeFilter, conditions, for_totals
from storage.filters.listing import DECIDER, RIGHT
from storage.filters.vocabulary import IS_MIXED
from storage.rows.engine import fetch_rows, reading
from storage.rows.progress import strip_moves
from storage.rows.schema import episode, turn
from storage.store import Store

#: Paths are split by one of these, or not at all.
TrafficSplit = Literal["family", "policy"]
Ints = NDArray[np.int64]

#: What totals count when nothing narrows them.
ALL_EPISODES = for_totals(EpisodeFilter())
#: How many of the turns behind a number are listed.
NEWEST = 50
MOST_POOLS = 50


class ModelInRole(NamedTuple):
    model: str
    role: Role


#: The 0-based turn that a link leads to, the move before it and that turn's; None: the episode's beginning, or end.
Link = tuple[int, ModelInRole | None, ModelInRole | None]


@dataclass(slots=True)
class Traffic:
    """What finished episodes add up to."""

    episodes: int = 0
    right: int = 0
    turns: Counter[ModelInRole] = field(default_factory=Counter)
    seen: Counter[ModelInRole] = field(default_factory=Counter)  # episodes with such a turn
    solved: Counter[ModelInRole] = field(default_factory=Counter)  # and those of them that ended right
    links: Counter[Link] = field(default_factory=Counter)
    opened_right: Counter[ModelInRole] = field(default_factory=Counter)  # right episodes by their first move

    @classmethod
    def over(cls, parts: Iterable[Traffic]) -> Traffic:
        found = cls()
        for part in parts:
            found.episodes += part.episodes
            found.right += part.right
            for name in ("turns", "seen", "solved", "links", "opened_right"):
                getattr(found, name).update(getattr(part, name))
        return found

    @property
    def total(self) -> int:
        return sum(self.turns.values())

    def share(self, move: ModelInRole) -> float:
        return self.turns[move] / self.total if self.turns else 0.0

    def steps(self) -> Counter[tuple[ModelInRole | None, ModelInRole | None]]:
        """How often each move followed each, at whatever turn."""
        found: Counter[tuple[ModelInRole | None, ModelInRole | None]] = Counter()
        for (_, here, there), n in self.links.items():
            found[here, there] += n
        return found

    def first(self) -> Counter[ModelInRole]:
        return Counter({to: n for (at, _, to), n in self.links.items() if at == 0 and to is not None})


def counted_episodes(store: Store, where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """The conditions under which an episode counts in totals: of the filter, measured, and finished."""
    return [*conditions(for_totals(where), store.engine.dialect.name), episode.c.status == Status.FINISHED]


def count_episodes(store: Store, where: EpisodeFilter) -> int:
    query = select(func.count()).select_from(episode).where(*counted_episodes(store, where))
    return int(fetch_rows(store.engine, query)[0][0])


def counted_turns(store: Store, where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """The conditions under which a turn counts: over, of an episode that counts, and played by it."""
    over, counted = turn.c.stage == "finished", and_(*counted_episodes(store, where))
    if for_totals(where) == ALL_EPISODES:  # nearly every episode counts: the few others are sooner looked up
        return [over, turn.c.episode_id.not_in(select(episode.c.id).where(not_(counted)))]
    return [over, turn.c.episode_id.in_(select(episode.c.id).where(counted)), *own_turns(where)]


def own_turns(where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """The condition that a turn was played by its own episode: a fork carries turns of its parent, which counts them,
    and the one that was written by hand no model played. Empty where forks do not count."""
    if for_totals(where).forks == "without":
        return []
    fork = episode.alias("fork")
    forks = select(fork.c.id).where(fork.c.fork_turn.is_not(None))
    first = select(fork.c.fork_turn).where(fork.c.id == turn.c.episode_id).scalar_subquery()
    carried = or_(
        turn.c.idx < first,
        turn.c.flags.contains(Flag.REUSED.value),
        func.coalesce(turn.c.finish_reason, "") == EDITED,
    )
    return [not_(and_(turn.c.episode_id.in_(forks), carried))]


def traffic_of(store: Store, where: EpisodeFilter, by: TrafficSplit | None = None) -> dict[str, Traffic]:
    """The traffic of the episodes that count, apart for every value of `by` ("" for all; by policy, for those that two
    decided), the value with most episodes first; empty without episodes. One query, which reads the strips of episodes
    and no turn."""
    keys: list[ColumnElement[Any]] = [episode.c.models, episode.c.strip]
    if by is not None:
        keys.append(DECIDER if by == "policy" else episode.c[by])
    query = select(*keys, func.count(), RIGHT).where(*counted_episodes(store, where)).group_by(*keys)
    known = _Moves()
    groups: dict[str, list[_Path]] = {}
    with reading(store.engine) as connection:
        for models, strip, *group, n, solved in connection.execute(query):
            path = _Path(known.of(models, strip), n, solved)
            groups.setdefault(group[0] if group else "", []).append(path)
    by_group = {group: _counted(paths, [*known.numbers]) for group, paths in groups.items()}
    return dict(sorted(by_group.items(), key=lambda one: (-one[1].episodes, one[0])))


class _Path(NamedTuple):
    moves: list[int]
    n: int
    right: int


class _Moves:
    """Moves as small numbers, in the order in which they are met: counting them is arithmetic then."""

    def __init__(self) -> None:
        self.numbers: dict[ModelInRole, int] = {}
        self._cells: dict[
            tuple[str, ...], dict[str, int]
        ] = {}  # by pool: what a cell of a strip has been found to say

    def of(self, models: tuple[str, ...], strip: str) -> list[int]:
        """The numbers of a strip's moves; `models` are in head order."""
        cells, cells_of_strip = self._cells.setdefault(models, {}), strip.split(" ")
        try:
            return [cells[cell] for cell in cells_of_strip]
        except KeyError:
            moves = [ModelInRole(*move) for move in strip_moves(models, strip)]
            found = [self.numbers.setdefault(move, len(self.numbers)) for move in moves]
        if len(found) == len(cells_of_strip):  # no name holds a space
            cells.update(zip(cells_of_strip, found, strict=True))
        return found


def _counted(paths: Sequence[_Path], moves: Sequence[ModelInRole]) -> Traffic:
    n, right = np.array([path.n for path in paths]), np.array([path.right for path in paths])
    lengths = np.array([len(path.moves) for path in paths])
    played = np.fromiter(itertools.chain.from_iterable(path.moves for path in paths), np.int64, lengths.sum())
    of, first = np.repeat(np.arange(len(paths)), lengths), np.cumsum(lengths) - lengths
    met = np.zeros((len(paths), len(moves)))
    met[of, played] = 1
    opening = lengths > 0

    def named(counts: NDArray[Any]) -> Counter[ModelInRole]:
        return Counter({move: int(count) for move, count in zip(moves, counts, strict=True) if count})

    def turns(played: Ints, weights: Ints) -> Counter[ModelInRole]:
        return named(np.bincount(played, weights, len(moves)))

    return Traffic(
        episodes=int(n.sum()),
        right=int(right.sum()),
        turns=turns(played, n[of]),
        seen=named(n @ met),
        solved=named(right @ met),
        links=_links(played, first, lengths, n, moves),
        opened_right=turns(played[first[opening]], right[opening]),
    )


def _links(played: Ints, first: Ints, lengths: Ints, n: Ints, moves: Sequence[ModelInRole]) -> Counter[Link]:
    """The links turn by turn: paths that are `lengths` long begin at `first` in `played`."""
    names, none = [*moves, None], len(moves)
    found: Counter[Link] = Counter()
    here = np.full(len(lengths), none)
    for at in range(int(lengths.max()) + 1):
        there = np.full(len(lengths), none)
        there[lengths > at] = played[first[lengths > at] + at]
        counts = np.bincount(here * len(names) + there, n, len(names) ** 2)
        for key in np.flatnonzero(counts).tolist():
            found[at, names[key // len(names)], names[key % len(names)]] = int(counts[key])
        on = lengths > at
        here, first, lengths, n = there[on], first[on], lengths[on], n[on]
    return found


def pool_order(store: Store, where: EpisodeFilter) -> list[str]:
    """Models in head order, pool after pool, most used pool first."""
    query = (
        select(episode.c.models)
        .where(*counted_episodes(store, where))
        .group_by(episode.c.models)
        .order_by(func.count().desc())
        .limit(MOST_POOLS)
    )
    pools = fetch_rows(store.engine, query)
    return list(dict.fromkeys(model for (pool,) in pools for model in pool))


# The turns behind a number


@dataclass(frozen=True, slots=True)
class TurnReference:
    """One turn behind a number, with what a reader needs to choose it."""

    episode_id: str
    index: int
    question: str
    policy: str
    strip: str
    correct: bool | None
    mixed: bool  # not decided by its policy alone


def turns_with_move(
    store: Store,
    where: EpisodeFilter,
    move: ModelInRole | None,
    then: ModelInRole | None = None,
    *,
    ends: bool = False,
    at: int | None = None,
) -> list[TurnReference]:
    """Newest turns that were `move` (None: any), that were followed by `then` or, with `ends`, by nothing. `at` is
    the 0-based turn that `then` would be, or that `move` is where nothing is asked of what follows."""
    query = newest_turns(store, where)
    if move is not None:
        query = query.where(turn.c.model == move.model, turn.c.role == move.role)
    if ends:
        query = query.where(turn.c.idx == episode.c.turns - 1)
    if then is not None:
        follow = turn.alias("follow")
        next_turn = (follow.c.episode_id == turn.c.episode_id) & (follow.c.idx == turn.c.idx + 1)
        query = query.join(follow, next_turn)
        query = query.where(follow.c.model == then.model, follow.c.role == then.role)
    if at is not None:
        query = query.where(turn.c.idx == (at - 1 if then is not None or ends else at))
    return read_turn_references(store, query)


def newest_turns(store: Store, where: EpisodeFilter) -> Select[Any]:
    """The NEWEST turns of the episodes that count, newest episodes first."""
    of_episode = (episode.c.question, episode.c.policy, episode.c.strip, episode.c.correct, IS_MIXED)
    return (
        select(turn.c.episode_id, turn.c.idx, *of_episode)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted_episodes(store, where), turn.c.stage == "finished")
        .order_by(episode.c.started.desc(), turn.c.episode_id, turn.c.idx)
        .limit(NEWEST)
    )


def read_turn_references(store: Store, query: Select[Any]) -> list[TurnReference]:
    return [TurnReference(*row) for row in fetch_rows(store.engine, query)]


# One run, or one task


def chosen_by_family(store: Store, run_id: str) -> list[tuple[str, str, int]]:
    """(family, model, turns) over a run's finished episodes."""
    query = (
        select(episode.c.family, turn.c.model, func.count())
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(episode.c.run_id == run_id, episode.c.status == Status.FINISHED, turn.c.stage == "finished")
        .group_by(episode.c.family, turn.c.model)
        .order_by(episode.c.family, turn.c.model)
    )
    return [tuple(row) for row in fetch_rows(store.engine, query)]
