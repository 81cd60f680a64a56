"""Policies side by side, aggregated in SQL: which have episodes, how each did, how its episodes went, and two of them
on the tasks they share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Select, Subquery, case, func, literal, not_, or_, select, union_all

from core.analysis.comparison import MatchedTasks, is_solved
from core.episode import Flag, Protocol, Role, Status
from core.errors import StoreError
from core.finish import EDITED
from storage.filters.episode_filter import EpisodeFilter, has_own
from storage.filters.expression import Compare, Every, Name, join_nodes, write_expression
from storage.filters.listing import FIGURES, FIRST_NOT_RIGHT, FIRST_RIGHT, RIGHT, total_if_all_known
from storage.filters.vocabulary import IS_MEASURED, IS_MIXED, IS_SAMPLE
from storage.rows.engine import fetch_rows, reading
from storage.rows.schema import episode, judgement, run, task, turn
from storage.rows.summaries import QUESTION_CUT, PolicySummary
from storage.store import Store

#: Width of a bar of the entropy histogram, in nats; bar i is centred on i times this.
ENTROPY_BIN = 0.25

_FINISHED = episode.c.status == Status.FINISHED


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Under what a policy was played: what differs in it is never averaged. `pool` is the digest of the models that
    answered and of their temperatures."""

    turn_budget: int
    argmax: bool
    protocol: Protocol
    pool: str

    @property
    def suffix(self) -> str:
        """How a token names it behind a policy, as in `@5`, `@1-argmax` or `@5-released-3fa9c2`."""
        released = self.protocol is Protocol.RELEASED
        parts = [str(self.turn_budget), "argmax" if self.argmax else "", "released" if released else ""]
        return f"@{'-'.join(part for part in (*parts, self.pool[:6]) if part)}"

    @property
    def expression(self) -> str:
        asked: dict[str, int | bool | str] = {
            "budget": self.turn_budget, "argmax": self.argmax, "protocol": self.protocol.value, "pool": self.pool
        }  # fmt: skip
        return write_expression(
            join_nodes(Every, [Compare(Name(name), "==", value) for name, value in asked.items()])
        )


#: The columns of a setting, of episodes joined with their runs.
SETTING = (episode.c.turn_budget, episode.c.argmax, episode.c.protocol, run.c.pool)


@dataclass(frozen=True, slots=True)
class PolicySide:
    """A policy's finished episodes: of one run, or all that totals count (`run` None), samples only where it has no
    others. `setting` is given where the policy was played under several."""

    policy: str
    run: str | None = None
    setting: Setting | None = None

    @property
    def token(self) -> str:
        """How addresses and the command line name it: POLICY or RUN/POLICY, with @SETTING where it has one."""
        name = self.policy if self.run is None else f"{self.run}/{self.policy}"
        return name if self.setting is None else f"{name}{self.setting.suffix}"


@dataclass(frozen=True, slots=True)
class PolicyInRun:
    """A policy has `n` finished episodes in a run under one setting; `sample`: the run came with the program."""

    run: str
    policy: str
    setting: Setting
    n: int
    sample: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """How a side did. `by_task` counts (episodes, right ones, tasks), so that repeats of a task are known."""

    side: PolicySide
    summary: PolicySummary
    by_task: tuple[tuple[int, int, int], ...]
    seeds: int

    @property
    def tasks(self) -> int:
        return sum(tasks for _, _, tasks in self.by_task)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that a side's finished episodes made, a reply that was used again not counted, and their tokens."""

    episodes: int
    calls: int
    tokens: int

    @property
    def calls_each(self) -> float | None:
        """Calls per question; None where nothing is finished."""
        return self.calls / self.episodes if self.episodes else None

    @property
    def tokens_each(self) -> float | None:
        """Tokens per question, sent and written; None where nobody counted them."""
        counted = self.tokens or not self.calls
        return self.tokens / self.episodes if self.episodes and counted else None


@dataclass(frozen=True, slots=True)
class TaskSet:
    """`n` different tasks of a family, from one split of it."""

    split: str
    family: str
    n: int


@dataclass(frozen=True, slots=True)
class Course:
    """How a side's episodes went: counts by number of turns, turns by model and role, and by entropy bar."""

    turns: Counter[int] = field(default_factory=Counter)
    routed: Counter[tuple[str, Role]] = field(default_factory=Counter)
    entropy: Counter[int] = field(default_factory=Counter)


def policies_with_episodes(store: Store) -> list[PolicyInRun]:
    """The policies with finished episodes of their own (no forks, no live plays), runs newest first, then by policy."""
    query = (
        select(episode.c.run_id, episode.c.policy, run.c.purpose, *SETTING, func.count())
        .join(run, run.c.id == episode.c.run_id)
        .where(_FINISHED, IS_MEASURED)
        .group_by(episode.c.run_id, episode.c.policy, run.c.purpose, *SETTING)
        .order_by(episode.c.run_id.desc(), episode.c.policy, *SETTING)
    )
    return [
        PolicyInRun(run_id, policy, Setting(*setting), n, purpose == "sample")
        for run_id, policy, purpose, *setting, n in fetch_rows(store.engine, query)
    ]


def count_shared_tasks(store: Store, policy: str, others: Sequence[str]) -> dict[str, int]:
    """How many of the tasks that a policy finished each of the others finished too; those with none are left out."""
    its = select(episode.c.task_key).where(*finished_conditions(PolicySide(policy)))
    query = (
        select(episode.c.policy, func.count(episode.c.task_key.distinct()))
        .where(episode.c.policy.in_(others), _FINISHED, IS_MEASURED, episode.c.task_key.in_(its))
        .group_by(episode.c.policy)
    )
    return dict(fetch_rows(store.engine, query))


def runs_played(candidates: Sequence[PolicyInRun], policy: str, run: str | None) -> list[PolicyInRun]:
    """Where a policy played, in one run or in all; samples only where it played nowhere else."""
    found = [one for one in candidates if one.policy == policy and run in (None, one.run)]
    return [one for one in found if not one.sample] or found


def sides_of(candidates: Sequence[PolicyInRun], policy: str, run: str | None = None) -> list[PolicySide]:
    """The sides of a policy, in one run or in all: one, or one for each setting that it was played under, the one with
    most episodes first."""
    counted: Counter[Setting] = Counter()
    for one in runs_played(candidates, policy, run):
        counted[one.setting] += one.n
    if len(counted) < 2:
        return [PolicySide(policy, run)] if counted else []
    return [PolicySide(policy, run, setting) for setting, _ in counted.most_common()]


def setting_under(candidates: Sequence[PolicyInRun], side: PolicySide) -> Setting:
    """The setting that a side was played under: its own, else the only one that its policy has. KeyError for none."""
    own = {one.setting for one in runs_played(candidates, side.policy, side.run)}
    if side.setting is None and len(own) != 1:
        raise KeyError(side.token)
    return side.setting or own.pop()


def find_side(candidates: Sequence[PolicyInRun], token: str, within: str | None = None) -> list[PolicySide]:
    """The sides that POLICY, RUN/POLICY, or RUN where one policy played, names, each with @SETTING or without: several
    where the policy was played under several settings and the token says none. `within` is the run meant when the
    token names none. StoreError with one sentence when nothing of that name has played."""
    runs = {one.run for one in candidates}
    if token in runs:
        inside = list(dict.fromkeys(one.policy for one in candidates if one.run == token))
        if len(inside) != 1:
            raise StoreError(
                f"Run {token} has {len(inside)} policies ({', '.join(inside)}): name one as {token}/POLICY."
            )
        return sides_of(candidates, inside[0], token)
    head, slash, rest = token.partition("/")
    place, name = (head, rest) if slash and head in runs else (within, token)
    policies = sorted({one.policy for one in candidates if place in (None, one.run)})
    if name in policies:
        return sides_of(candidates, name, place)
    for policy in policies:  # a policy's own name may hold an @
        if name.startswith(f"{policy}@"):
            found = sides_of(candidates, policy, place)
            if chosen := [
                one for one in found if f"{policy}{one.setting.suffix if one.setting else ''}" == name
            ]:
                return chosen
            listed = ", ".join(one.token for one in found)
            raise StoreError(
                f"'{policy}' was not played with the setting '{name}': its settings are {listed}."
            )
    where = f"Run {place}" if place else "The store"
    listed = ", ".join(policies) or "nothing yet"
    raise StoreError(f"{where} has no run or policy '{name}'; it has episodes of: {listed}.")


def side_conditions(side: PolicySide) -> list[ColumnElement[bool]]:
    """The conditions under which an episode, finished or not, is the side's."""
    found = [episode.c.policy == side.policy]
    if side.run is None:
        own = has_own(EpisodeFilter(policy=side.policy, forks="without"))
        found += [IS_MEASURED, or_(not_(IS_SAMPLE), not_(own))]
    else:
        found += [episode.c.run_id == side.run, not_(IS_MIXED)]
    if side.setting is not None:
        found += setting_conditions(side.setting)
    return found


def setting_conditions(setting: Setting) -> list[ColumnElement[bool]]:
    """The conditions under which an episode was played under a setting."""
    return [
        episode.c.turn_budget == setting.turn_budget,
        episode.c.argmax.is_(setting.argmax),
        episode.c.protocol == setting.protocol,
        episode.c.run_id.in_(select(run.c.id).where(run.c.pool == setting.pool)),
    ]


def finished_conditions(side: PolicySide) -> list[ColumnElement[bool]]:
    return [*side_conditions(side), _FINISHED]


def by_task(side: PolicySide, *only: ColumnElement[bool]) -> Subquery:
    """One row per task that the side finished: episodes `n`, `right` ones, and the episode that shows which of the
    two is the rule (`core.analysis.comparison.is_solved`), the earliest of its kind. An episode without a judgement is
    wrong."""
    return (
        select(
            episode.c.task_key,
            func.max(episode.c.family).label("family"),
            func.count().label("n"),
            RIGHT.label("right"),
            case((func.count() < 2 * RIGHT, FIRST_RIGHT), else_=FIRST_NOT_RIGHT).label("episode"),
        )
        .where(*finished_conditions(side), *only)
        .group_by(episode.c.task_key)
        .subquery()
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """How often the judge was asked about the answers of a policy, the mean of its ratings of final answers, and what
    its calls cost; None where nothing is known."""

    calls: int
    rating: float | None
    cost_usd: float | None


def figures(store: Store, sides: Sequence[PolicySide]) -> list[Figures]:
    """How each side did, in order. Two queries, however many there are."""
    if not sides:
        return []
    seeds = func.count(episode.c.seed.distinct())
    played = [
        select(literal(i), seeds, *FIGURES).where(*side_conditions(side)) for i, side in enumerate(sides)
    ]
    tasks = [
        select(literal(i), rows.c.n, rows.c.right, func.count()).group_by(rows.c.n, rows.c.right)
        for i, rows in enumerate(map(by_task, sides))
    ]
    names = [column.name for column in FIGURES]
    counted: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    with reading(store.engine) as connection:
        found = {i: numbers for i, *numbers in connection.execute(union_all(*played))}
        for i, n, right, count in connection.execute(union_all(*tasks)):
            counted[i].append((n, right, count))
    result = []
    for i, side in enumerate(sides):
        n_seeds, *numbers = found[i]
        summary = PolicySummary(run_id=side.run, policy=side.policy, **dict(zip(names, numbers, strict=True)))
        result.append(Figures(side, summary, tuple(sorted(counted[i])), n_seeds))
    return result


def calls(store: Store, sides: Sequence[PolicySide]) -> list[Calls]:
    """What each side asked for, in order; models of the pool that planned are not among it. Two queries."""
    asked = (
        turn.c.stage == "finished",
        func.coalesce(turn.c.finish_reason, "").not_in(("not_asked", EDITED)),
        turn.c.flags.not_like(f"%{Flag.REUSED}%"),
    )
    tokens = func.coalesce(func.sum(turn.c.tokens_in), 0) + func.coalesce(func.sum(turn.c.tokens_out), 0)
    made = [
        select(literal(i), func.count(), tokens)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*finished_conditions(side), *asked)
        for i, side in enumerate(sides)
    ]
    over = [
        select(literal(i), func.count()).where(*finished_conditions(side)) for i, side in enumerate(sides)
    ]
    if not sides:
        return []
    with reading(store.engine) as connection:
        episodes = {row[0]: row[1] for row in connection.execute(union_all(*over))}
        return [
            Calls(episodes[i], n, total)
            for i, n, total in sorted(tuple(row) for row in connection.execute(union_all(*made)))
        ]


def judged(store: Store, run_id: str) -> dict[str, Judged]:
    """What the judge said of each policy's answers in a run; empty where no model judges. One query."""
    final = case((judgement.c.answer == episode.c.answer, judgement.c.rating))
    query = (
        select(episode.c.policy, func.count(), func.avg(final), total_if_all_known(judgement.c.cost_usd))
        .join(episode, episode.c.id == judgement.c.episode_id)
        .where(episode.c.run_id == run_id)
        .group_by(episode.c.policy)
    )
    with reading(store.engine) as connection:
        return {policy: Judged(*found) for policy, *found in connection.execute(query)}


def task_sets(store: Store, sides: Sequence[PolicySide]) -> list[TaskSet]:
    """Which tasks the sides have finished, by split and family. One query."""
    theirs = [select(episode.c.task_key).where(*finished_conditions(side)) for side in sides]
    query = (
        select(task.c.split, task.c.family, func.count())
        .where(task.c.key.in_(union_all(*theirs)))
        .group_by(task.c.split, task.c.family)
        .order_by(task.c.split, task.c.family)
    )
    return [TaskSet(*row) for row in fetch_rows(store.engine, query)]


def courses(store: Store, sides: Sequence[PolicySide]) -> list[Course]:
    """How each side's finished episodes went, in order. Two queries, however many there are."""
    lengths = [
        select(literal(i), episode.c.turns, func.count())
        .where(*finished_conditions(side))
        .group_by(episode.c.turns)
        for i, side in enumerate(sides)
    ]
    bar = func.round(turn.c.entropy / ENTROPY_BIN)
    choices = [
        select(literal(i), turn.c.model, turn.c.role, bar, func.count())
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*finished_conditions(side), turn.c.stage == "finished")
        .group_by(turn.c.model, turn.c.role, bar)
        for i, side in enumerate(sides)
    ]
    result = [Course() for _ in sides]
    with reading(store.engine) as connection:
        for i, turns, n in connection.execute(union_all(*lengths)):
            result[i].turns[turns] += n
        for i, model, role, at, n in connection.execute(union_all(*choices)):
            result[i].routed[model, role] += n
            if at is not None:
                result[i].entropy[int(at)] += n
    return result


#: A cell of the 2x2 table: who solved a task, by most of its episodes.
Cell = Literal["only_b", "only_a", "both_wrong", "both_right"]
#: The cells in the order in which a list of tasks shows them: flips first.
CELLS: tuple[Cell, ...] = get_args(Cell)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of one task under one side: `right` of its `n` episodes, and one that ended as most did."""

    episode: str
    n: int
    right: int

    @property
    def solved(self) -> bool:
        return is_solved(self.right, self.n)


@dataclass(frozen=True, slots=True)
class SharedTask:
    """One task with its outcome under every side, in their order; None where a side has not played it."""

    task_id: str
    family: str
    question: str  # cut to QUESTION_CUT characters
    outcomes: tuple[TaskOutcome | None, ...]


def matched_tasks(
    store: Store, a: PolicySide, others: Sequence[PolicySide]
) -> list[dict[str, list[MatchedTasks]]]:
    """For each of the others: how often it and `a` got their shared tasks right, by task family. One query."""
    if not others:
        return []
    queries = []
    for i, b in enumerate(others):
        one, other = by_task(a), by_task(b)
        columns = (one.c.family, one.c.n, one.c.right, other.c.n, other.c.right)
        queries.append(
            select(literal(i), *columns, func.count())
            .select_from(one)
            .join(other, one.c.task_key == other.c.task_key)
            .group_by(*columns)
        )
    found: list[dict[str, list[MatchedTasks]]] = [defaultdict(list) for _ in others]
    with reading(store.engine) as connection:
        for i, family, *counts in connection.execute(union_all(*queries)):
            found[i][family].append(MatchedTasks(*counts))
    return [dict(sorted(families.items())) for families in found]


def read_shared_tasks(
    store: Store,
    a: PolicySide,
    b: PolicySide,
    sides: Sequence[PolicySide],
    *,
    cell: str | None = None,
    family: str | None = None,
    offset: int = 0,
    limit: int = 50,
) -> list[SharedTask]:
    """Tasks that `a` and `b` both finished, those that B won and those that it lost first, with what became of them
    under each of `sides`. Three queries. StoreError for a cell that is none."""
    if cell is not None and cell not in CELLS:
        raise StoreError(f"There is no kind of flip called {cell!r}: choose one of {', '.join(CELLS)}.")
    one, other = by_task(a), by_task(b)
    rank = _rank(one, other)
    shared: Select[Any] = (
        select(one.c.task_key).select_from(one).join(other, one.c.task_key == other.c.task_key)
    )
    if cell is not None:
        shared = shared.where(rank == CELLS.index(cell))
    if family is not None:
        shared = shared.where(one.c.family == family)
    with reading(store.engine) as connection:
        page = shared.order_by(rank, one.c.task_key).offset(offset).limit(limit)
        keys = list(connection.execute(page).scalars())
        outcomes: dict[int, dict[int, TaskOutcome]] = defaultdict(dict)
        for i, key, shown, n, right in connection.execute(_of_tasks(sides, keys)) if keys and sides else ():
            outcomes[key][i] = TaskOutcome(shown, n, right)
        cut = func.substr(task.c.question, 1, QUESTION_CUT).label("question")
        query = select(task.c.key, task.c.id, task.c.family, cut).where(task.c.key.in_(keys))
        tasks = {row.key: row for row in connection.execute(query)}
    found = []
    for task_row in (tasks[key] for key in keys):
        by_side = tuple(outcomes[task_row.key].get(i) for i in range(len(sides)))
        found.append(SharedTask(task_row.id, task_row.family, task_row.question, by_side))
    return found


def _of_tasks(sides: Sequence[PolicySide], keys: Sequence[int]) -> Any:
    queries = []
    for i, side in enumerate(sides):
        rows = by_task(side, episode.c.task_key.in_(keys))
        queries.append(select(literal(i), rows.c.task_key, rows.c.episode, rows.c.n, rows.c.right))
    return union_all(*queries)


def _rank(a: Subquery, b: Subquery) -> ColumnElement[int]:
    a_right, b_right = 2 * a.c.right > a.c.n, 2 * b.c.right > b.c.n
    return case(
        (b_right & ~a_right, CELLS.index("only_b")),
        (a_right & ~b_right, CELLS.index("only_a")),
        (a_right & b_right, CELLS.index("both_right")),
        else_=CELLS.index("both_wrong"),
    )
