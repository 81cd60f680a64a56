"""The one loop that learns: a learner proposes candidates, their episodes are played, and it is told how they ended.

    for event in learn(learner, pool=pool, grade=grade):
        if not isinstance(event, Playing): keep(event)

A generation of an evolution and an iteration of a planner's training are both an update. Stopping is closing the
generator; after an update that was yielded with its state it goes on to the same end, bit for bit. What an update came
to is kept as JSON: dataclasses of numbers, shares and counts, without what is not known.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from pydantic import TypeAdapter

from core.draws import derive_seed
from core.episode import Episode, EpisodeFinished, Protocol, Status, Task, Turn
from core.errors import PoolError
from core.play.drive import GradeMany, drive_many
from core.play.policies import Policy
from core.pool.cache import CachedPool
from core.pool.pool import Pool

#: The share of an update's episodes that may be missing before they are played once more.
MISSING_AT_MOST = 0.02


@dataclass(frozen=True, slots=True)
class Candidates:
    """Unplayed episodes, and the policy that plays them."""

    episodes: Sequence[Episode]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Played:
    """How the candidates' episodes ended, in their order; `calls` were made to the pool for them, and `calls_saved`
    shared with an equal one."""

    episodes: list[Episode]
    calls: int
    calls_saved: int


@dataclass(frozen=True, slots=True)
class Playing:
    """How far the episodes of something are, such as "generation 3": `done` of `of` are over, and of all of them so
    many `turns`."""

    what: str
    done: int
    of: int
    turns: int = 0


class Update(typing.Protocol):
    """What a learner has come to: its `index` is how often it was told something, 0 at the start."""

    @property
    def index(self) -> int: ...


U = TypeVar("U", bound=Update)
C = TypeVar("C", bound=Candidates)
T = TypeVar("T")


class Learner(typing.Protocol[C, U]):
    """Learns from episodes. What it is told and answers is all in its updates, so that it goes on after any of them."""

    #: What it calls an update.
    noun: ClassVar[str]

    def begin(self) -> U:
        """The start, number 0."""

    def ask(self, after: U) -> C:
        """What it wants to try next."""

    def tell(self, after: U, candidates: C, played: Played) -> U:
        """The update that follows from how its candidates did."""

    def exam(self, update: U) -> Candidates:
        """What it has learned so far, on held-apart tasks; no episodes: there are none."""

    def tell_exam(self, update: U, played: list[Episode]) -> U:
        """The update with how that went."""


def learn(
    learner: Learner[C, U],
    *,
    updates: int,
    validate_every: int,
    pool: CachedPool,
    grade: GradeMany,
    after: U | None = None,
) -> Iterator[U | Playing]:
    """Yield the start, and then each update as it is finished, up to number `updates`; with `after`, an earlier one,
    only those that follow it; before each, how far its episodes are. It is validated every so many updates, after the
    last and at the start.

    PoolError when no model could be asked for a whole update or its validation."""

    def validated(update: U) -> Generator[Playing, None, U]:
        if not is_due(update.index, validate_every, updates) or not (exam := learner.exam(update)).episodes:
            return update
        what = f"the validation of {learner.noun} {update.index}"
        played = yield from playing(exam.episodes, exam.policy, pool, grade, what)
        check_answered(played, f"to validate {learner.noun} {update.index}")
        return learner.tell_exam(update, played)

    if after is None:
        after = learner.begin()
        yield (yield from validated(after))
    while after.index < updates:
        calls, hits = pool.misses, pool.hits
        candidates, what = learner.ask(after), f"{learner.noun} {after.index + 1}"
        played = yield from playing(candidates.episodes, candidates.policy, pool, grade, what)
        played = _with_missing_again(candidates, played, pool, grade)
        check_answered(played, f"in {what}")
        made = Played(played, pool.misses - calls, pool.hits - hits)
        after = learner.tell(after, candidates, made)
        yield (yield from validated(after))


def is_due(index: int, every: int, last: int) -> bool:
    """Whether something that comes `every` so many updates comes after this one."""
    return index % every == 0 or index == last


def episodes_of(
    tasks: Sequence[Task],
    models: Sequence[str],
    *,
    seed: int,
    turn_budget: int,
    prefix: str,
    policy: str = "",
    protocol: Protocol = Protocol.PAPER,
) -> list[Episode]:
    """One unplayed episode per task, for measuring and not for keeping; `seed` decides all that is random. `policy` is
    who plays (left out: the `prefix` of their ids).

    A task that comes again is played with other chances."""
    seen: Counter[str] = Counter()
    episodes = []
    for index, task in enumerate(tasks):
        again = seen[task.id]
        seen[task.id] += 1
        episodes.append(
            Episode(
                id=f"{prefix}-{index}",
                run_id="",
                task=task,
                policy=policy or prefix,
                models=tuple(models),
                protocol=protocol,
                turn_budget=turn_budget,
                seed=derive_seed((seed, "again", again)) if again else seed,
            )
        )
    return episodes


def play_all(episodes: Iterable[Episode], policy: Policy, pool: Pool, grade: GradeMany) -> list[Episode]:
    """Play episodes to their ends, in their order, keeping nothing on the way."""
    return outcome(playing(episodes, policy, pool, grade, ""))


def playing(
    episodes: Iterable[Episode], policy: Policy, pool: Pool, grade: GradeMany, what: str
) -> Generator[Playing, None, list[Episode]]:
    """`play_all`, which yields after each turn and episode how far it is with `what`."""
    episodes, turns = list(episodes), 0
    ended: dict[str, Episode] = {}
    for event in drive_many(episodes, policy, pool, grade):
        if isinstance(event, EpisodeFinished):
            ended[event.episode.id] = event.episode
        elif isinstance(event, Turn):
            turns += 1
        else:
            continue
        yield Playing(what, len(ended), len(episodes), turns)
    return [ended[episode.id] for episode in episodes]


def outcome(steps: Generator[Any, None, T]) -> T:
    """What a generator returns, without what it tells on the way."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def _with_missing_again(
    candidates: Candidates, played: list[Episode], pool: CachedPool, grade: GradeMany
) -> list[Episode]:
    """The played episodes; where more than a few are missing, those are played once more, as far as their replies are
    not remembered."""
    missing = [place for place, one in enumerate(played) if one.status is Status.MISSING]
    if len(missing) <= MISSING_AT_MOST * len(played) or len(missing) == len(played):
        return played
    again = play_all([candidates.episodes[place] for place in missing], candidates.policy, pool, grade)
    other = dict(zip(missing, again, strict=True))
    return [other.get(place, one) for place, one in enumerate(played)]


def check_answered(played: Sequence[Episode], when: str) -> None:
    """PoolError where calls were lost and none came through; what is left was played without asking anybody."""
    lost = [one for one in played if one.status is Status.MISSING]
    asked = any(turn.messages for one in played if one.status is Status.FINISHED for turn in one.turns)
    if lost and not asked:
        raise PoolError(
            f"No model could be asked {when} ({lost[0].error or 'no reason given'}): see that they answer, then resume."
        )


def share_calls(pool: Pool) -> CachedPool:
    """The pool with equal calls shared; one that does so by itself stays as it is."""
    return pool if isinstance(pool, CachedPool) else CachedPool(pool)


_adapter = cache(TypeAdapter[Any])


def statistics_json(kind: type[T], value: T) -> dict[str, Any]:
    """The fields that `kind` has of a value, ready for JSON; NaN, None and what is empty are left out."""
    adapter = _adapter(cast(Any, kind))
    found: dict[str, Any] = _known(adapter.dump_python(value, mode="json"))
    return found


def statistics_of_json(kind: type[T], stored: Mapping[str, Any]) -> T:
    """Inverse of `statistics_json`."""
    return cast(T, _adapter(cast(Any, kind)).validate_python(stored))


def _known(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known = ((name, _known(one)) for name, one in value.items())
    return {name: one for name, one in known if one == one and one not in (None, "", [], {})}


def joined(shares: Mapping[tuple[Any, Any], float]) -> dict[str, float]:
    """Shares of pairs by one text each: `MODEL ROLE`."""
    return {f"{first} {second}": share for (first, second), share in shares.items()}
