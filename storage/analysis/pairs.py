"""Two policies on the tasks they share: counts by outcome and family, and the tasks themselves, paged in SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Select, Subquery, case, func, literal, select, union_all

from core.analysis.comparison import MatchedTasks, is_solved
from core.errors import StoreError
from storage.analysis.standings import PolicySide, by_task
from storage.rows.engine import reading
from storage.rows.schema import episode, task
from storage.rows.summaries import QUESTION_CUT
from storage.store import Store

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
        """Did most of its episodes end right?"""
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
    """Which of CELLS a task is in, as its position there."""
    a_right, b_right = 2 * a.c.right > a.c.n, 2 * b.c.right > b.c.n
    return case(
        (b_right & ~a_right, CELLS.index("only_b")),
        (a_right & ~b_right, CELLS.index("only_a")),
        (a_right & b_right, CELLS.index("both_right")),
        else_=CELLS.index("both_wrong"),
    )
