"""What files hold, gathered before anything is graded: each question and each answer once, rows on the disk."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from core.episode import Task
from core.errors import TaskError
from core.grader import is_grader
from core.outcomes.grading import grader_of
from core.outcomes.kinds import LETTERS, Asked, Item, Judged, Planned, Report, Wishes
from core.pocket.tasks import normalise_question
from core.tasks.choices import read_choice
from core.tasks.mathematics import math_answer
from core.tasks.numbers import read_number
from core.tasks.sets import TABLE_GRADERS
from core.texts import well_formed

#: The most that a table may hold.
MOST_ROWS, MOST_TASKS, MOST_MODELS = 2_000_000, 200_000, 1_000

_TABLES = """
create table row (task integer, model integer, sample integer, reply text, given text, marked integer, score real,
    tokens_in integer, tokens_out integer, cost real, seconds real, error text);
create unique index place on row (task, model, sample);
create table judge (task integer, model integer, judged text, verdict text, reply text);
create table plan (task integer, model integer, plan text);
begin;
"""


@dataclass
class Gathered:
    """What files hold, each question and each answer once: tasks in memory, rows in a file of SQLite."""

    spool: sqlite3.Connection
    wishes: Wishes
    report: Report
    asked: list[Asked] = field(default_factory=list)
    models: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    _published: dict[str, str] = field(default_factory=dict)  # a model's name here, by its own
    _place: dict[str, int] = field(default_factory=dict)  # of a task, by its question
    _named: dict[str, int] = field(default_factory=dict)  # of the first task of a name
    _again: set[tuple[int, str]] = field(default_factory=set)
    _two_keys: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.spool.executescript(f"pragma journal_mode = off; pragma synchronous = off; {_TABLES}")

    def take(self, item: Item) -> None:
        """Keep what a reader gave. TaskError where it is more than a table may hold."""
        task, model = self._task(item.task), self._model(item.model)
        if isinstance(item, Judged):
            texts = (well_formed(item.judged), item.verdict, well_formed(item.reply))
            self.spool.execute("insert into judge values (?, ?, ?, ?, ?)", (task, model, *texts))
            return
        if isinstance(item, Planned):
            self.spool.execute("insert into plan values (?, ?, ?)", (task, model, well_formed(item.plan)))
            return
        if not 0 <= item.sample < 2**15:
            raise TaskError(f"A sample has the number {item.sample}: number them from 0 to {2**15 - 1:,}.")
        given = None if item.answer is None else well_formed(item.answer)
        values = (task, model, item.sample, well_formed(item.reply), given, item.marked, item.score)
        tolls = (
            self._known(item.tokens_in, "tokens", 2**31 - 1, whole=True),
            self._known(item.tokens_out, "tokens", 2**31 - 1, whole=True),
            self._known(item.cost, "costs", 1e9),
            self._known(item.seconds, "times", 1e9),
        )
        marks = ", ".join("?" * 12)
        found = self.spool.execute(
            f"insert or ignore into row values ({marks})",  # noqa: S608 (nothing but question marks)
            (*values, *tolls, well_formed(item.error)),
        )
        if not found.rowcount:
            self.report.add("answers are a model's second one to the same question: the first one is kept")
            return
        self.rows += 1
        if self.rows > MOST_ROWS:
            raise TaskError(
                f"These files hold more than {MOST_ROWS:,} answers, the most of a table: add a part of them."
            )

    def _known(
        self, value: float | None, what: str, most: float, *, whole: bool = False
    ) -> float | int | None:
        if value is None:
            return None
        if not (math.isfinite(value) and 0 <= value <= most):
            self.report.add(f"{what} are no numbers that can be, such as NaN, and count as unknown")
            return None
        return round(value) if whole else value

    def _task(self, one: Asked) -> int:
        question = normalise_question(one.question)
        place = self._place.get(question) if question else self._named.get(one.name)
        if place is None and not (self._named.get(one.name) is None or self._text(one.name)):
            place = self._named[one.name]  # an earlier row had no text for it
            self.asked[place] = replace(self.asked[place], question=one.question)
        if place is None:
            place = len(self.asked)
            if place >= MOST_TASKS:
                raise TaskError(
                    f"These files hold more than {MOST_TASKS:,} tasks, the most of a table: add a part of them."
                )
            self.asked.append(one)
            self._named.setdefault(one.name, place)
        if question:
            self._place[question] = place
        known = self.asked[place]
        if one.name != known.name:
            self._again.add((place, one.name))
        if one.answer is not None and known.answer is None:
            self.asked[place] = replace(known, answer=one.answer)
        elif one.answer is not None and one.answer.strip() != (known.answer or "").strip():
            self._two_keys.add(place)
        return place

    def _text(self, name: str) -> str:
        return self.asked[self._named[name]].question

    def _model(self, name: str) -> int:
        if name not in self._published:
            if not name.strip():
                raise TaskError("A row names no model: fill its column.")
            if len(self.models) >= MOST_MODELS:
                raise TaskError(
                    f"These files name more than {MOST_MODELS:,} models, the most of a table: add a part of them."
                )
            self._published[name] = _slot_name(name, self.models)
            self.models[self._published[name]] = len(self.models)
        return self.models[self._published[name]]

    def named(self, model: str) -> str:
        """What a model is called here."""
        return self._published.get(model, model)

    @property
    def changed_names(self) -> list[str]:
        return [f"{own} for {name}" for name, own in self._published.items() if own != name]

    def settle(self) -> dict[int, Task]:
        """The tasks that the table will have, by their place in `asked`; what leaves out others is reported."""
        if not self.rows:
            raise TaskError("These files hold no answer of a model: there is nothing to make a table of.")
        if self._again:
            self.report.add(
                "questions are asked again under another name and are counted once", len(self._again)
            )
        self.report.add("tasks have two keys and are left out", len(self._two_keys))
        inferred = grader_of(one.answer for one in self.asked if not one.grader and one.answer is not None)
        read = {
            task
            for (task,) in self.spool.execute(
                "select distinct task from row where reply != '' or given is not null"
            )
        }
        right: dict[int, list[str]] = defaultdict(list)
        names = list(self.models)
        for task, model, sample in self.spool.execute(
            "select task, model, sample from row where marked = 1 order by task, model, sample"
        ):
            right[task].append(f"{names[model]}#{sample}")
        found = {}
        for place, one in enumerate(self.asked):
            grader = self.wishes.grader or one.grader or inferred
            if one.answer is None or place not in read:
                grader = "recorded"
            key = json.dumps(right[place]) if grader == "recorded" else one.answer or ""
            question = well_formed((one.question or one.name).replace("\r\n", "\n").strip())
            if place in self._two_keys:
                continue
            why = _fault(grader, key, question, one)
            if why or not is_grader(grader):
                self.report.add(f"tasks {why} and are left out")
                continue
            name = well_formed(one.name)
            found[place] = Task(
                name, question, well_formed(key.strip()), grader, well_formed(one.family.strip()) or "user"
            )
        if not found:
            raise TaskError(
                "No task of these files can be graded: each lacks a key that can be read, or has two."
            )
        return found


def _fault(grader: str, key: str, question: str, one: Asked) -> str:
    """Why a task cannot be played; "" where it can."""
    if grader not in TABLE_GRADERS:
        return f"have a grader that a table cannot keep ({grader[:40]})"
    if not question:
        return "have neither a question nor a name"
    readers: dict[str, Callable[[str], object]] = {
        "choice": read_choice,
        "number": read_number,
        "math": math_answer,
    }
    read = readers.get(grader)
    if read is not None and read(key) is None:
        return "have a key that their grader cannot read"
    if grader == "choice" and one.options and LETTERS.find(str(read_choice(key))) >= one.options:
        return "have a key that is none of their options"
    return ""


def _slot_name(name: str, taken: Mapping[str, int]) -> str:
    """A model's name as a pool can have it: of its path the last part, other signs as dashes."""
    bare = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", name.strip().rpartition("/")[2] or name).strip("-._")[:64] or "model"
    )
    number, own = 1, bare
    while own in taken:
        number += 1
        own = f"{bare[:60]}-{number}"
    return own
