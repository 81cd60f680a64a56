"""The paper's tables as they are played on a pool of one's own: `tables.toml`, read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from core.evolution.config import DEPARTURES, PAPER_SETTING

#: The tasks of a row: a split of the suite's tasks, or its held-out families. "unseen" has the templates that nothing
#: was trained or evolved on; settings are chosen on "validation".
Where = Literal["test", "held-out", "unseen", "validation"]

#: How a policy is played: as it is; with the likeliest choice each time; five episodes side by side, of which the most
#: frequent answer counts; with a role masked; or without models that are drawn for each task.
Way = Literal[
    "", "argmax", "voted", "without thinker", "without verifier", "without 1 model", "without 2 models"
]

#: What is measured: the share of tasks solved, mean output tokens per question; or, without intervals, shares of models
#: by family, questions that each model is best at, numbers to learn.
Measure = Literal["accuracy", "tokens", "selection", "labels", "parameters"]
COUNTED: tuple[Measure, ...] = ("selection", "labels", "parameters")


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the paper: one number per column and row."""

    name: str = "nothing like it"
    columns: tuple[str, ...] = ()
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A policy that is measured: `how` names it, `on` the tasks, `turns` and `played` the way it is played.

    Any name that `trinity run --policy` takes; or, of what is learned or chosen in the suite: "evolved:NAME" (a
    coordinator, one of EVOLVED), "only:RANK" (one evolved with the single model of this rank alone), "single:RANK" (the
    single model of this rank at its best cycle), "majority:RANK", "walk" (the coordinator's random walk), "start" (its
    generation 0), "union" (solved by any single model); "trained:NAME" (a planner, one of TRAINED), "warm-up:NAME" (the
    same before it is trained), "same-model:NAME" (its workflows with the best model for all steps), "workflow:NAME" (a
    frozen workflow with its best team) and "random-workflow"."""

    how: str
    label: str
    published: str = ""
    on: Where = "test"
    turns: int | None = None  # None: the suite's
    played: Way = ""

    @property
    def is_coordinator(self) -> bool:
        """Whether it is the coordinator as it is, at the suite's turn budget."""
        return self.how in ("evolved:trinity", "evolved:default") and self.turns is None and not self.played

    @property
    def is_conductor(self) -> bool:
        """Whether it is the trained planner as it is."""
        return self.how == "trained:default" and self.on == "test" and not self.played

    @property
    def key(self) -> str:
        """Tells rows apart."""
        parts = [self.how, "" if self.on == "test" else self.on, self.played]
        parts.append("" if self.turns is None else f"{self.turns} turns")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper: its rows here, and what it published. `question`: what it answers, in a few words;
    `curves`: whether learners are shown as they learn."""

    id: str
    name: str
    question: str
    title: str
    rows: tuple[TableRow, ...]
    published: PublishedTable = PublishedTable()
    measure: Measure = "accuracy"
    note: str = ""
    curves: bool = False

    @property
    def reference(self) -> TableRow | None:
        """The row that the others are put against: the coordinator, or the trained planner, that comes first."""
        return next((row for row in self.rows if row.is_coordinator or row.is_conductor), None)

    @property
    def compared(self) -> str:
        """What a column of differences to its reference is called."""
        trained = self.reference is not None and self.reference.is_conductor
        return f"minus {'trained planner' if trained else 'coordinator'}, same seeds"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))


def _tables() -> dict[str, Table]:
    known = {name: {"id": name, **fields} for name, fields in _data()["tables"].items()}
    known["4"]["note"] = known["4"]["note"].replace("{departures}", " ".join(DEPARTURES))
    return TypeAdapter(dict[str, Table]).validate_python(known)


def _evolved(fields: Mapping[str, Any]) -> dict[str, Any]:
    own = fields.get("evolution", {})
    own = PAPER_SETTING if own == "paper" else own
    return {**fields, "evolution": {name: None if value == "none" else value for name, value in own.items()}}


TABLES: Mapping[str, Table] = _tables()
#: The tables' ids by subject, as a reader looks for them.
SUBJECTS: Mapping[str, Sequence[str]] = _data()["subjects"]
#: What makes an evolved row differ from plain sep-CMA-ES over a linear head (see the file).
EVOLVED: Mapping[str, Mapping[str, Any]] = {
    name: _evolved(fields) for name, fields in _data()["evolved"].items()
}
#: What makes a training differ from that of `trinity train` by default: fields of its LearnConfig.
TRAINED: Mapping[str, Mapping[str, Any]] = _data()["trained"]
#: How many times the paper's budget `trinity evolve` has by default.
DEFAULT_BUDGETS: int = EVOLVED["default"]["budgets"]


def needed(tables: Sequence[Table]) -> list[TableRow]:
    """The rows that have to be played for these tables, each once; the union comes from the single models."""
    rows = {row.key: row for table in tables for row in table.rows if row.how != "union"}
    return list(rows.values())
