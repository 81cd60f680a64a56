"""What readers of outcomes give, whatever kind of file they read, and a first look at a file.

A reader gives `Answered`, one for each task, model and sample, as the file has it: nothing is graded here. What a file
leaves out is None, and nothing is made up for it.
"""

from __future__ import annotations

import ast
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.errors import ConfigError, TaskError
from core.tasks.sources import Source, csv_rows, json_items, json_lines, json_object
from core.texts import check_encoding

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Asked:
    """A task as a file has it: `name` is its id there, `question` its text with its options, "" where the file has
    none; `answer` the key, None where nobody knows it; `grader` "" where the keys of the whole table decide."""

    name: str
    question: str = ""
    answer: str | None = None
    grader: str = ""
    family: str = ""
    options: int = 0  # 0: not told


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model answered, as a file has it. `answer` was read from the reply by whoever made the file; `marked` and
    `score` (0 to 1) are their grade; `cost` is in USD."""

    task: Asked
    model: str
    sample: int = 0
    reply: str = ""
    answer: str | None = None
    marked: bool | None = None
    score: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    cost: float | None = None
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, ACCEPT or REVISE, that a model gave on an answer."""

    task: Asked
    model: str
    judged: str
    verdict: str
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that a model wrote."""

    task: Asked
    model: str
    plan: str


Item = Answered | Judged | Planned


def columns_named(given: str) -> dict[str, str]:
    """Which column of a CSV is what, from OURS=THEIRS,...; ConfigError for what is no pair."""
    found = {}
    for one in filter(str.strip, given.split(",")):
        ours, equals, theirs = one.partition("=")
        if not equals or not theirs.strip():
            raise ConfigError(
                f"--columns '{one.strip()}' lacks a column: write OURS=THEIRS, as in task=ID,model=LLM."
            )
        found[ours.strip()] = theirs.strip()
    return found


@dataclass(frozen=True)
class Wishes:
    """What the user says of the files: `columns` of a CSV by our names for them, the `model` of a file that names none,
    the `grader` of all tasks."""

    columns: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    grader: str = ""


@dataclass
class Report:
    """What is stated when a table is added: how often something was left out or not known, by the words for it."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, words: str, n: int = 1) -> None:
        self.counts[words] += n


@dataclass(frozen=True)
class Looked:
    """A source with how it is written, and the fields of its first entry (of a CSV, its header)."""

    source: Source
    form: str  # list, lines, object, csv, parquet, eval or ""
    first: Mapping[str, Any]


Reader = Callable[[Sequence[Looked], Wishes, Report], Iterator[Item]]


@dataclass(frozen=True)
class Kind:
    """A kind of files: `fits` says by a first look whether a source is one, `beside` whether it belongs to one."""

    name: str
    title: str
    fits: Callable[[Looked], bool]
    read: Reader
    beside: Callable[[Looked], bool] = lambda _: False


def look_at(source: Source) -> Looked:
    """How a source is written, by its first bytes and its first entry; no form for what is none of them."""
    with source.bytes() as file:
        start = file.read(4096)
    if start.startswith(b"PK"):
        return Looked(source, "eval", {}) if _is_log(source) else Looked(source, "", {})
    if start.startswith(b"PAR1"):
        return Looked(source, "parquet", _columns(source))
    try:
        check_encoding(start[:4])
    except UnicodeError as error:
        source.refuse(f"cannot be read: {error}.")
    text = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("["):
        objects = (one for _, one in json_items(source) if isinstance(one, dict))
        try:
            return Looked(source, "list", next(objects, {}))
        except TaskError:
            if ".json" in source.name:
                raise
            return Looked(source, "", {})
    if text.startswith("{"):
        with suppress(TaskError):
            return Looked(source, "lines", next((one for _, one in json_lines(source)), {}))
        found = json_object(source)
        return Looked(
            source, "object" if isinstance(found, dict) else "", found if isinstance(found, dict) else {}
        )
    first = text.split("\n")[0]
    if b"\0" in start or not any(sign in first for sign in ",;\t"):
        return Looked(source, "", {})
    header = next((cells for _, cells in csv_rows(source)), [])
    return Looked(source, "csv", {cell.strip(): place for place, cell in enumerate(header)})


def _columns(source: Source) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return dict.fromkeys(pq.read_schema(source.path).names)
    except (OSError, pa.ArrowException):
        source.refuse("cannot be read as Parquet: fetch it again.")


def _is_log(source: Source) -> bool:
    try:
        with zipfile.ZipFile(source.path) as archive:
            return any(name.startswith("samples/") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        source.refuse("cannot be read: fetch it again.")


def has(looked: Looked, *names: str) -> bool:
    """Whether its first entry has all of these fields."""
    return all(name in looked.first for name in names)


def dict_of(value: Any) -> Mapping[str, Any]:
    """An object of JSON; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """A value of JSON as a text; "" for nothing."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def number_of(value: Any) -> float | None:
    """A number, also one that is written as a text; None for nothing and for what is none."""
    if isinstance(value, bool) or value is None:
        return None if value is None else float(value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def with_options(question: str, options: Sequence[str]) -> str:
    """A question with its options below it, a letter before each."""
    lines = [f"{letter}) {' '.join(one.split())}" for letter, one in zip(LETTERS, options, strict=False)]
    return "\n".join((question.strip(), *lines))


def listed(value: Any) -> list[str]:
    """A list of texts, also one that is written as Python writes it; nothing for what is none."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
    return [text_of(one) for one in value] if isinstance(value, list | tuple) else []
