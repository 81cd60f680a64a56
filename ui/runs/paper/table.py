"""What a table and a row of one are, before anything is played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.analysis.published import PublishedTable

#: How many times the paper's budget `trinity evolve` has by default.
DEFAULT_BUDGETS = 3

#: The tasks of a row: a split of the suite's tasks, or its held-out families. "unseen" has the templates that nothing
#: was trained or evolved on; settings are chosen on "validation".
Where = Literal["test", "held-out", "unseen", "validation"]

#: How a policy is played: as it is; with the likeliest choice each time; five episodes side by side, of which the most
#: frequent answer counts; with a role masked; or without models that are drawn for each task.
Way = Literal[
    "", "argmax", "voted", "without thinker", "without verifier", "without 1 model", "without 2 models"
]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A policy that is measured: `how` names the recipe, `on` the tasks, `turns` and `played` the way it is played.

    Recipes: "evolved:NAME" (one of EVOLVED), "only:RANK" (evolved with the single model of this rank alone),
    "single:RANK" (the single model of this rank at its best cycle), "random", "router", "labels" (a router of labels),
    "cloned" (the coordinator's head taught by labels), these three also with a setting, such as "router:0.1",
    "cascade", "majority" and "majority:RANK" (of the single model of this rank, else the best), "mixture", "walk" (the
    coordinator's random walk), "start" (its generation 0), "random-model" (random models at their best cycle of roles)
    and "hand-made" (teams of pocket models).

    Of the Conductor: "trained:NAME" (a planner, one of TRAINED), "warm-up:NAME" (the same before it is trained),
    "same-model:NAME" (its workflows with the best model for all steps), "workflow:NAME" (a frozen workflow with its
    best team) and "random-workflow"."""

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


#: Measures without intervals: shares of models by family, questions that each model is best at, numbers to learn.
COUNTED = ("selection", "labels", "parameters")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper: its rows here, and what it published. `measure`: "accuracy", "tokens" (mean output tokens
    per question), or one of COUNTED, whose cells `ui.runs.paper.counted` counts. `curves`: whether learners are shown
    as they learn."""

    id: str
    name: str
    title: str
    rows: tuple[TableRow, ...]
    published: PublishedTable
    measure: str = "accuracy"
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
