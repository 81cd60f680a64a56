"""A control: a table whose replies are right or wrong by chance, as often as before. Whoever still gains on it has
learned nothing from questions or replies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.draws import derive_seed
from core.outcomes.table import ROWS, ROWS_FILE, TASKS_FILE, OutcomeTable, put_table
from core.pocket.tasks import split_of

#: No split of any fold begins or ends within so many hundredths of the question space.
_CELL = 5
#: What a permuted mark brings with it.
_MARKS = ("right", "score", "marked")


def permute_table(table: OutcomeTable, name: str, seed: int, folder: Path | None = None) -> OutcomeTable:
    """Put a table of this name on the shelf (below `folder`, the data folder) in which, among each model's replies to
    tasks of the same split, whether they are right was permuted.

    Questions, replies and costs stay where they are, and so does every model's accuracy in every split of every fold.
    Its grader is `recorded`: no answers can be compared, as which are the same would tell what is right. TaskError for
    a name that is taken."""
    cells = {str(at): range(at, at + _CELL) for at in range(0, 100, _CELL)}
    cell = np.array([int(split_of(task.question, cells)) for task in table.tasks])
    numbers, models = table.numbers, table.card.models
    order = _within(cell[numbers["task"]] * len(models) + numbers["model"], numbers["right"] >= 0, seed)
    rows = pq.read_table(table.folder / ROWS_FILE)
    marks = {column: rows[column].take(pa.array(order)) for column in _MARKS}
    names = [
        f"{models[slot]}#{sample}" for slot, sample in zip(numbers["model"], numbers["sample"], strict=True)
    ]
    begins = np.searchsorted(numbers["task"], np.arange(table.card.tasks))
    group = np.arange(len(order)) - begins[numbers["task"]]
    given = {"answer": pa.array(names), "group": pa.array(group, pa.int16()), **marks}
    columns = [given[one.name] if one.name in given else rows[one.name] for one in ROWS]
    right: list[list[str]] = [[] for _ in range(table.card.tasks)]
    for place, is_right in enumerate(marks["right"].to_pylist()):
        if is_right:
            right[numbers["task"][place]].append(names[place])

    def fill(draft: Path) -> None:
        pq.write_table(pa.Table.from_arrays(columns, schema=ROWS), draft / ROWS_FILE)
        lines = (
            {
                "question": task.question,
                "answer": json.dumps(own),
                "grader": "recorded",
                "family": task.family,
            }
            for task, own in zip(table.tasks, right, strict=True)
        )
        text = "".join(json.dumps({**line, "id": name}, ensure_ascii=False) + "\n" for line in lines)
        (draft / TASKS_FILE).write_text(text, "utf-8")

    note = (
        f"A control: among each model's replies of {table.card.known_as} to tasks of the same split, whether they are "
        f"right was permuted (seed {seed}). Nothing that can be read tells who is right."
    )
    card = replace(
        table.card, name=name, kind="permuted", digest="", answers=False, judges=False, plans=False, grading={},
        notes=(note, *table.card.notes),
    )  # fmt: skip
    return put_table(card, fill, folder)


def _within(cells: NDArray[np.int64], known: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
    """The row whose mark each row gets: another one of its cell, among those that are known."""
    order = np.arange(len(cells))
    draws = np.random.default_rng(derive_seed(("permuted outcomes", seed)))
    for cell in np.unique(cells):
        own = np.flatnonzero((cells == cell) & known)
        order[own] = draws.permutation(own)
    return order
