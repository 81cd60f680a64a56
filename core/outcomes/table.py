"""An outcome table: for a set of tasks and named models what each model answered, whether it is right, and its cost.

A table lies in a folder of its own below `outcomes` in the data folder: `card.json`, what is known of it;
`tasks.jsonl`, its tasks as `core.tasks.sets` reads them; `rows.parquet`, one row for each task, model and sample,
ordered by task, then model, then sample; and, where it has any, `judges.parquet` and `plans.parquet`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.checkpoint import write_folder
from core.episode import Task
from core.errors import TaskError
from core.settings import data_folder
from core.tasks.sets import OUTCOMES, TABLE_GRADERS, outcome_folder, read_task_file

CARD_FILE, TASKS_FILE, ROWS_FILE = "card.json", "tasks.jsonl", "rows.parquet"
JUDGES_FILE, PLANS_FILE = "judges.parquet", "plans.parquet"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")

#: The columns of `rows.parquet`. `task` and `model` are indexes into the tasks and the card's models; answers of a task
#: that its grader calls the same share a `group`, which is -1 where there is no answer; `right` is our grade, else the
#: table's own; `score` is 0 to 1, `marked` what the table itself says of it.
ROWS = pa.schema(
    [
        pa.field("task", pa.int32(), nullable=False),
        pa.field("model", pa.int16(), nullable=False),
        pa.field("sample", pa.int16(), nullable=False),
        pa.field("reply", pa.string(), nullable=False),
        pa.field("answer", pa.string()),
        pa.field("group", pa.int16(), nullable=False),
        pa.field("right", pa.bool_()),
        pa.field("score", pa.float32()),
        pa.field("marked", pa.bool_()),
        pa.field("tokens_in", pa.int32()),
        pa.field("tokens_out", pa.int32()),
        pa.field("cost", pa.float64()),
        pa.field("seconds", pa.float32()),
        pa.field("error", pa.string(), nullable=False),
    ]
)
#: Verdicts that models really gave: of `model` on an answer (`judged`) to a task.
JUDGES = pa.schema(
    [
        pa.field("task", pa.int32(), nullable=False),
        pa.field("model", pa.int16(), nullable=False),
        pa.field("judged", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("reply", pa.string(), nullable=False),
    ]
)
#: Plans that models really wrote.
PLANS = pa.schema(
    [
        pa.field("task", pa.int32(), nullable=False),
        pa.field("model", pa.int16(), nullable=False),
        pa.field("plan", pa.string(), nullable=False),
    ]
)
#: The columns that are read at once; the others, the texts, when they are asked for.
_NUMBERS = ("task", "model", "sample", "group", "right", "score", "marked")
_TOLL = ("tokens_in", "tokens_out", "cost", "seconds")


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of a table. `models` in slot order; `digest` is the SHA-256 (hex) over its files; `texts`: whether
    its tasks have a question to read; `answers`: whether its rows have answers that can be compared; `samples`: the
    most that a model has of a task; `notes`: what was stated when it was added, a sentence each; `grading`: by model
    how many of our grades the table's own marks agree with, and of how many."""

    name: str
    kind: str
    models: tuple[str, ...]
    tasks: int
    rows: int
    digest: str = ""
    source: str = ""
    licence: str = ""
    texts: bool = True
    answers: bool = True
    samples: int = 1
    judges: bool = False
    plans: bool = False
    prices: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # USD per million tokens, in and out
    notes: tuple[str, ...] = ()
    grading: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def known_as(self) -> str:
        """Its name, and which edition of it."""
        return f"{self.name}@{self.digest[:8]}"


@dataclass(frozen=True)
class OutcomeTable:
    """A table as it lies in its folder."""

    card: Card
    folder: Path

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Its tasks in order; splits are those of any task file: `load_outcome_tasks` has those by fold."""
        return tuple(read_task_file(self.folder / TASKS_FILE, TABLE_GRADERS))

    @cached_property
    def task_index(self) -> dict[str, int]:
        """The place of each task, by its id."""
        return {task.id: place for place, task in enumerate(self.tasks)}

    @cached_property
    def numbers(self) -> dict[str, NDArray[Any]]:
        """The columns task, model, sample, group, right, score and marked [rows]; right and marked are 1, 0 or -1 for
        unknown, an unknown score is NaN."""
        read = pq.read_table(self.folder / ROWS_FILE, columns=[*_NUMBERS])
        found = {name: read[name].to_numpy() for name in ("task", "model", "sample", "group")}
        for name in ("right", "marked"):
            found[name] = read[name].cast(pa.int8()).fill_null(-1).to_numpy()
        found["score"] = read["score"].fill_null(np.nan).to_numpy()
        return found

    @cached_property
    def toll(self) -> dict[str, NDArray[np.float64]]:
        """The columns tokens_in, tokens_out, cost (USD) and seconds [rows]; NaN for what is unknown."""
        read = pq.read_table(self.folder / ROWS_FILE, columns=[*_TOLL])
        return {name: read[name].cast(pa.float64()).fill_null(np.nan).to_numpy() for name in _TOLL}

    @cached_property
    def texts(self) -> pa.Table:
        """The columns reply, answer and error [rows]."""
        return pq.read_table(self.folder / ROWS_FILE, columns=["reply", "answer", "error"])

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Whether an error stands in the place of a reply [rows]."""
        read = pq.read_table(self.folder / ROWS_FILE, columns=["error"])
        found: NDArray[np.bool_] = pc.not_equal(read["error"], "").to_numpy()
        return found

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """The first row of each task and model [tasks, models]; -1 without one."""
        found = np.full((self.card.tasks, len(self.card.models)), -1, np.int64)
        task, model = self.numbers["task"], self.numbers["model"]
        begins = np.ones(len(task), bool)  # rows are ordered by task and model: where another one begins
        begins[1:] = (task[1:] != task[:-1]) | (model[1:] != model[:-1])
        found[task[begins], model[begins]] = np.flatnonzero(begins)
        return found

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """How many samples each model has of each task [tasks, models]; they follow `first`."""
        found = np.zeros((self.card.tasks, len(self.card.models)), np.int64)
        np.add.at(found, (self.numbers["task"], self.numbers["model"]), 1)
        return found

    @property
    def has_prices(self) -> bool:
        """Whether something is known of what each model's replies cost, in money or at least in tokens."""
        tokens = self.over_samples("tokens_in") + self.over_samples("tokens_out")
        return any(np.isfinite(paid).any(axis=0).all() for paid in (self.over_samples("cost"), tokens))

    def over_samples(self, column: str) -> NDArray[np.float64]:
        """The mean of a column over samples [tasks, models], NaN where it is unknown: of `right`, `score` or one of
        `toll`."""
        known = self.toll[column] if column in _TOLL else self.numbers[column].astype(np.float64)
        known = np.where(known < 0, np.nan, known) if column in ("right", "marked") else known
        total, n = (np.zeros(self.first.shape) for _ in range(2))
        where = np.isfinite(known)
        at = self.numbers["task"][where], self.numbers["model"][where]
        np.add.at(total, at, known[where])
        np.add.at(n, at, 1.0)
        mean: NDArray[np.float64] = np.where(n > 0, total / np.maximum(n, 1), np.nan)
        return mean

    def of_first(self, column: str) -> NDArray[Any]:
        """A column of `numbers` at sample 0 of each task and model [tasks, models]; -1 without a row."""
        return self.of_sample(column, 0)

    def of_sample(self, column: str, sample: int) -> NDArray[Any]:
        """The same at another sample; a model that has fewer of a task begins with its own again."""
        rows = np.maximum(self.first, 0) + sample % np.maximum(self.count, 1)
        return np.where(self.first >= 0, self.numbers[column][rows], -1)

    def each_sample(self, column: str) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Of each sample by itself `right` or `score` (NaN where it is unknown) and `group` [tasks, models]; none of a
        table that has one sample alone."""
        numbers = range(self.card.samples if self.card.samples > 1 else 0)
        values = (self.of_sample(column, sample).astype(np.float64) for sample in numbers)
        return [
            (np.where(value < 0, np.nan, value), self.of_sample("group", sample).astype(np.int64))
            for sample, value in zip(numbers, values, strict=True)
        ]


def load_table(name: str, folder: Path | None = None) -> OutcomeTable:
    """The table of a name, or `outcomes:NAME` with or without a fold, of this user. TaskError for one that is not
    there or is damaged."""
    return _loaded(outcome_folder(name, folder or data_folder()))


def tables(folder: Path | None = None) -> list[OutcomeTable]:
    """Every table of this user, by name; damaged ones are left out."""
    found = []
    for card in sorted(((folder or data_folder()) / OUTCOMES).glob(f"[!.]*/{CARD_FILE}")):
        with suppress(TaskError):
            found.append(_loaded(card.parent))
    return found


def remove_table(name: str, folder: Path | None = None) -> None:
    """Remove a table with its files. TaskError for one that is not there."""
    shutil.rmtree(outcome_folder(name, folder or data_folder()))


def check_free(name: str, folder: Path | None = None) -> None:
    """TaskError for a name that no table can be given: malformed or taken."""
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"'{name}' cannot name an outcome table: give up to 60 of a-z 0-9 . _ - and begin with a letter or digit."
        )
    if ((folder or data_folder()) / OUTCOMES / name).exists():
        raise TaskError(
            f"There is an outcome table '{name}' already: give another name, or remove it by trinity outcomes remove "
            f"{name}."
        )


def put_table(card: Card, fill: Callable[[Path], None], folder: Path | None = None) -> OutcomeTable:
    """Put a table on the shelf: `fill` writes tasks.jsonl, rows.parquet and what else it has into the folder that it
    is given; the card, with the digest over these, is written last. Nothing stays where that fails. TaskError for a
    name that is taken."""
    check_free(card.name, folder)
    place = (folder or data_folder()) / OUTCOMES / card.name

    def write(draft: Path) -> None:
        fill(draft)
        complete = replace(card, digest=digest_of_files(draft))
        text = json.dumps(asdict(complete), indent=1, ensure_ascii=False)
        (draft / CARD_FILE).write_text(text, "utf-8")

    write_folder(place, "outcome table", write, lambda: False)
    return _loaded(place)


def digest_of_files(folder: Path) -> str:
    """SHA-256 (hex) over the names and contents of a folder's files, the card's apart."""
    import hashlib

    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != CARD_FILE:
            with path.open("rb") as file:
                whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _loaded(folder: Path) -> OutcomeTable:
    try:
        return _remembered(folder, (folder / CARD_FILE).stat().st_mtime_ns)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TaskError(
            f"The outcome table {folder.name} is damaged ({type(error).__name__}): remove it by trinity outcomes "
            f"remove {folder.name}, and add it again."
        ) from error


@lru_cache(maxsize=8)
def _remembered(folder: Path, _: int) -> OutcomeTable:
    stored = json.loads((folder / CARD_FILE).read_text("utf-8"))
    pairs = {name: {k: tuple(v) for k, v in stored[name].items()} for name in ("prices", "grading")}
    lists = {name: tuple(stored[name]) for name in ("models", "notes")}
    return OutcomeTable(Card(**{**stored, **lists, **pairs}), folder)


def judges_of(table: OutcomeTable) -> Mapping[tuple[int, int, str], tuple[str, str]]:
    """(verdict, reply) by task, model and judged answer; empty where the table has no verdicts."""
    return _judges(table.folder, table.card.digest) if table.card.judges else {}


@lru_cache(maxsize=4)
def _judges(folder: Path, _: str) -> dict[tuple[int, int, str], tuple[str, str]]:
    read = pq.read_table(folder / JUDGES_FILE).to_pylist()
    return {(one["task"], one["model"], one["judged"]): (one["verdict"], one["reply"]) for one in read}


def plans_of(table: OutcomeTable) -> Mapping[tuple[int, int], str]:
    """The plan by task and model; empty where the table has none."""
    return _plans(table.folder, table.card.digest) if table.card.plans else {}


@lru_cache(maxsize=4)
def _plans(folder: Path, _: str) -> dict[tuple[int, int], str]:
    read = pq.read_table(folder / PLANS_FILE).to_pylist()
    return {(one["task"], one["model"]): one["plan"] for one in read}


def as_batches(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = ROWS) -> Iterator[pa.RecordBatch]:
    """Rows as they are written to Parquet, in batches."""
    for start in range(0, len(rows), 10_000):
        yield pa.RecordBatch.from_pylist([dict(one) for one in rows[start : start + 10_000]], schema=schema)
