"""Who was called in which role, in which order: paths of episodes grouped in SQL, and what they add up to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select

from core.episode import Role, Status
from storage.engine import reading
from storage.filters import EpisodeFilter, conditions
from storage.mapping import strip_moves
from storage.schema import episode, turn
from storage.store import Store

#: Paths are split by one of these, or not at all.
Group = Literal["family", "policy"]


class Move(NamedTuple):
    """One model called in one role."""

    model: str
    role: Role


@dataclass(frozen=True, slots=True)
class Path:
    """`n` finished episodes, `right` of them right, that made the same moves in the same order."""

    moves: tuple[Move, ...]
    n: int
    right: int
    group: str = ""


@dataclass(slots=True)
class Traffic:
    """What paths add up to. A link's None is the beginning, or the end, of an episode; `at` is the 0-based turn
    that a link leads to."""

    episodes: int = 0
    right: int = 0
    turns: Counter[Move] = field(default_factory=Counter)
    seen: Counter[Move] = field(default_factory=Counter)  # episodes with such a turn
    solved: Counter[Move] = field(default_factory=Counter)  # and those of them that ended right
    links: Counter[tuple[int, Move | None, Move | None]] = field(default_factory=Counter)  # (at, from, to)
    opened_right: Counter[Move] = field(default_factory=Counter)  # right episodes by their first move

    @classmethod
    def over(cls, paths: Iterable[Path]) -> Traffic:
        """The traffic of these paths."""
        found = cls()
        for path in paths:
            found._add(path)
        return found

    def _add(self, path: Path) -> None:
        self.episodes += path.n
        self.right += path.right
        for move in path.moves:
            self.turns[move] += path.n
        for move in set(path.moves):
            self.seen[move] += path.n
            self.solved[move] += path.right
        for at, (here, there) in enumerate(zip((None, *path.moves), (*path.moves, None), strict=True)):
            self.links[at, here, there] += path.n
        if path.moves:
            self.opened_right[path.moves[0]] += path.right

    @property
    def total(self) -> int:
        """All turns."""
        return sum(self.turns.values())

    def share(self, move: Move) -> float:
        """Share of all turns, in 0 to 1."""
        return self.turns[move] / self.total if self.turns else 0.0

    def steps(self) -> Counter[tuple[Move | None, Move | None]]:
        """How often each move followed each, at whatever turn."""
        found: Counter[tuple[Move | None, Move | None]] = Counter()
        for (_, here, there), n in self.links.items():
            found[here, there] += n
        return found

    def first(self) -> Counter[Move]:
        """Episodes by their first move."""
        return Counter({to: n for (at, _, to), n in self.links.items() if at == 0 and to is not None})


def finished(store: Store, where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """The conditions under which an episode counts: of the filter, and finished."""
    return [*conditions(where, store.engine.dialect.name), episode.c.status == Status.FINISHED]


def turns_of(store: Store, where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """The conditions under which a turn counts: over, and of an episode that counts."""
    counted = select(episode.c.id).where(*finished(store, where))
    return [turn.c.stage == "finished", turn.c.episode_id.in_(counted)]


def paths(store: Store, where: EpisodeFilter, by: Group | None = None) -> list[Path]:
    """The paths of the episodes that count, apart for every value of `by`; most travelled first. One query, which
    reads the strips of episodes and no turn."""
    keys: list[ColumnElement[Any]] = [episode.c.models, episode.c.strip]
    if by is not None:
        keys.append(episode.c[by])
    right = func.sum(case((episode.c.correct.is_(True), 1), else_=0))
    query = select(*keys, func.count(), right).where(*finished(store, where)).group_by(*keys)
    found: dict[tuple[str, tuple[Move, ...]], tuple[int, int]] = {}
    pools: dict[str, list[str]] = {}
    with reading(store.engine) as connection:
        for models, strip, *group, n, solved in connection.execute(query):
            pool = pools[models] if models in pools else pools.setdefault(models, json.loads(models))
            key = (group[0] if group else "", _moves(pool, strip))
            before = found.get(key, (0, 0))
            found[key] = (before[0] + n, before[1] + solved)
    told = [Path(moves, n, right, group) for (group, moves), (n, right) in found.items()]
    return sorted(told, key=lambda path: (-path.n, path.moves))


def _moves(pool: Sequence[str], strip: str) -> tuple[Move, ...]:
    return tuple(Move(model, role) for model, role in strip_moves(pool, strip))


def by_group(found: Iterable[Path]) -> dict[str, Traffic]:
    """Group -> its traffic, the group with most episodes first."""
    groups: dict[str, list[Path]] = {}
    for path in found:
        groups.setdefault(path.group, []).append(path)
    told = {group: Traffic.over(of) for group, of in groups.items()}
    return dict(sorted(told.items(), key=lambda one: (-one[1].episodes, one[0])))


def pool_order(store: Store, where: EpisodeFilter, limit: int = 50) -> list[str]:
    """Models in head order, pool after pool, most used pool first."""
    query = (
        select(episode.c.models)
        .where(*finished(store, where))
        .group_by(episode.c.models)
        .order_by(func.count().desc())
        .limit(limit)
    )
    with reading(store.engine) as connection:
        pools = connection.execute(query).scalars().all()
    return list(dict.fromkeys(model for pool in pools for model in json.loads(pool)))


# The turns behind a number


@dataclass(frozen=True, slots=True)
class Behind:
    """One turn behind a number, with what a reader needs to choose it."""

    episode_id: str
    index: int
    question: str
    policy: str
    strip: str
    correct: bool | None


def behind_move(
    store: Store,
    where: EpisodeFilter,
    move: Move | None,
    then: Move | None = None,
    *,
    ends: bool = False,
    at: int | None = None,
    limit: int = 50,
) -> list[Behind]:
    """Newest turns that were `move` (None: any), that were followed by `then` or, with `ends`, by nothing. `at` is
    the 0-based turn that `then` would be, or that `move` is where nothing is asked of what follows."""
    query = newest_turns(store, where, limit)
    if move is not None:
        query = query.where(turn.c.model == move.model, turn.c.role == move.role)
    if ends:
        query = query.where(turn.c.idx == episode.c.turns - 1)
    if then is not None:
        follow = turn.alias("follow")
        query = query.join(
            follow, (follow.c.episode_id == turn.c.episode_id) & (follow.c.idx == turn.c.idx + 1)
        )
        query = query.where(follow.c.model == then.model, follow.c.role == then.role)
    if at is not None:
        query = query.where(turn.c.idx == (at - 1 if then is not None or ends else at))
    return list(read_behind(store, query))


def newest_turns(store: Store, where: EpisodeFilter, limit: int) -> Select[Any]:
    """Turns of the episodes that count, newest episodes first."""
    return (
        select(
            turn.c.episode_id,
            turn.c.idx,
            episode.c.question,
            episode.c.policy,
            episode.c.strip,
            episode.c.correct,
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*finished(store, where), turn.c.stage == "finished")
        .order_by(episode.c.started.desc(), turn.c.episode_id, turn.c.idx)
        .limit(limit)
    )


def read_behind(store: Store, query: Select[Any]) -> Iterator[Behind]:
    """The rows of a query of `newest_turns`."""
    with reading(store.engine) as connection:
        for row in connection.execute(query):
            yield Behind(*row)


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
    with reading(store.engine) as connection:
        return [(family, model, n) for family, model, n in connection.execute(query)]
