"""What a batch is: the same tasks under each of its policies. Imports nothing heavy, for its command's help."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from core.episode import Protocol, Role, Task
from core.errors import ConfigError, TaskError
from core.fields import MOST_SEED, MOST_TASKS, RULES, Setting, Turns
from core.settings import ENCODER, LOCAL_ENGINE, POCKET_POOL, Computing, Engine, MaxCost, Pool
from core.tasks.sets import digest_of_tasks, load_tasks
from ui.runs.policies import cycles_of, pupil_of
from ui.runs.settings import is_recorded

if TYPE_CHECKING:
    from core.play.policies import LearnsFrom, Pupil
    from ui.runs.settings.learning import LearningPlan

#: Questions that a policy which is taught before it plays learns from, where nothing else is said.
LESSON_QUESTIONS = 200
#: Ten generations of the smallest population that sep-CMA-ES can have, eight tasks each.
LEAST_BUDGET = 160

Reuse = Annotated[
    bool,
    Setting(
        "Reuse replies",
        group="models",
        option="--reuse",
        help="Reuse the replies that earlier runs of this store got to the very same calls: they cost nothing. Runs "
        "that share replies share their luck.",
    ),
]


@dataclass(frozen=True, slots=True)
class Suite:
    """What all rows have in common, so that they can be compared. `budget`: episodes that each learner may play;
    `protocol`: of every row that does not name its own."""

    budget: Annotated[int, Setting(option="--budget")] = 30_720
    """Episodes that every learner may play; the paper's budget is 30720."""
    n: Annotated[int, Setting(ge=1, le=MOST_TASKS, option="--n")] = 1000
    """Test tasks per row and seed."""
    task_seed: Annotated[int, Setting(ge=0, option="--task-seed")] = 1
    """Draws the test tasks."""
    turns: Annotated[int, Setting(ge=1, le=100, option="--turns")] = 5
    """Turn budget."""
    validation: int = 200
    pool: Pool = POCKET_POOL
    encoder: Annotated[str, ENCODER] = POCKET_POOL
    tasks: Annotated[str, Setting(option="--tasks")] = "pocket"
    """pocket, a set of trinity tasks or a FILE.jsonl: evolved, validated and tested on."""
    held_out: Annotated[str, Setting(option="--held-out")] = "pocket/held-out"
    """Task set of table 1, which nothing is evolved on."""
    protocol: Annotated[Protocol, RULES] = Protocol.PAPER
    computing: Computing = Computing()

    def __post_init__(self) -> None:
        if self.budget < LEAST_BUDGET:
            raise ConfigError(
                f"From a budget of {self.budget} episodes nothing can be learned: give at least {LEAST_BUDGET}."
            )

    @property
    def fields(self) -> dict[str, Any]:
        """What a digest is over. The paper's protocol is left out, as suites had no other before, and so is the device:
        only numbers that were asked for count."""
        fields = asdict(self)
        if (dtype := fields.pop("computing")["dtype"]) is not None:
            fields["dtype"] = dtype
        if self.protocol is Protocol.PAPER:
            del fields["protocol"]
        return fields

    @property
    def digest(self) -> str:
        """Tells suites apart."""
        return hashlib.sha256(json.dumps(self.fields, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ReproducedRow:
    """A row of the paper's tables, played under one seed: its key and label, in which suite, with which learning behind
    it (a run's id, empty where none). `ranking`: the accuracy on validation tasks of every policy that has a cycle of
    roles, by its name. `curve`: what a policy that is taught came to on validation tasks after so many episodes."""

    row: str
    label: str
    suite: Suite
    learning: str = ""
    ranking: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()


#: Models in the order in which a rule asks them, each with how strong it is reckoned, the chance that it is right.
Order = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The same tasks under each policy. Paths are absolute; `models` are the pool's slots; `cycles` the chosen roles of
    those that follow a cycle, `choosing` the number of validation tasks on which those are chosen that have none (0:
    they plan, work and check), `questions` the number of tasks of the evolve split that policies are taught with,
    `choice_usd` what all that cost; `orders` in which order each rule asks models for tasks of a family (empty: of
    any), and how strong each is reckoned, where that hangs on nothing else; `digest` is of the tasks; `reproduction`:
    the row of the paper's tables that it is, if it is one."""

    policies: Annotated[tuple[str, ...], Setting(group="tasks", option="--policy")]
    """A checkpoint's id or folder, or a name from the list above. Repeat it to play the same tasks under several."""
    tasks: Annotated[str, Setting(group="tasks", option="--tasks")] = "pocket"
    """pocket, pocket/FAMILY, pocket/held-out, pocket/all, a set of trinity tasks, outcomes:NAME (of its five folds
    @0 to @4 one) or a FILE.jsonl of your own. Left out: pocket, or those of the outcome table that --pool names."""
    split: Annotated[str, Setting(group="tasks", option="--split")] = "test"
    """evolve, validation or test; of pocket tasks also unseen: templates that nothing was trained on."""
    n: Annotated[int | None, Setting(group="tasks", ge=1, le=MOST_TASKS, option="--n", open=True)] = None
    """How many tasks. Left out: 100, or all of a file's."""
    seed: Annotated[int, Setting(ge=0, le=MOST_SEED, option="--seed")] = 0
    """Chooses tasks and draws; the same seed plays the same again."""
    turns: Turns = 5
    argmax: Annotated[bool, Setting(option="--argmax", term="Argmax and sampling")] = False
    """Coordinators take their best choice, not a draw."""
    pool: Pool = POCKET_POOL
    models: tuple[str, ...] = ()
    encoder: Annotated[str | None, Setting(group="models", option="--encoder", open=True)] = None
    """Encoder folder or hub id of the checkpoints. Else the one they name."""
    max_cost_usd: MaxCost = None
    cycles: Mapping[str, tuple[Role, ...]] = field(default_factory=dict)
    choosing: int = 0
    choice_usd: float = 0.0
    orders: Mapping[str, Mapping[str, Order]] = field(default_factory=dict)
    digest: str = ""
    protocol: Annotated[Protocol | None, Setting(option="--protocol", term="Protocol")] = None
    """Rules of the episodes: the paper's, or the authors' released code's. A checkpoint plays by those that it was
    evolved under."""
    reuse: Reuse = False
    task_seed: Annotated[int | None, Setting(ge=0, le=MOST_SEED, option="--task-seed")] = None
    """Chooses the tasks instead of --seed: the same ones again, with other draws."""
    questions: int = LESSON_QUESTIONS
    reproduction: ReproducedRow | None = None
    computing: Computing = Computing()
    engine: Engine = LOCAL_ENGINE
    kind: Literal["run", "reproduction"] = "run"

    @property
    def undecided(self) -> tuple[str, ...]:
        """The policies whose cycle of roles is still to be chosen: of those that play, and that others learn from."""
        follow = (one for name in self.policies for one in cycles_of(name, self.models))
        return tuple(dict.fromkeys(one for one in follow if one not in self.cycles)) if self.choosing else ()

    @property
    def pupils(self) -> list[Pupil]:
        """Its policies that are chosen or taught before they play."""
        return [one for name in self.policies if (one := pupil_of(name, self.models)) is not None]

    def order_of(self, policy: str, family: str) -> Order:
        """In which order a rule asks models for a task of a family; empty where that is not kept."""
        known = self.orders.get(policy, {})
        return known.get(family, known.get("", ()))

    def learns_from(self, what: LearnsFrom) -> bool:
        """Whether a policy is chosen, or taught, by such tasks before it plays."""
        return any(what in one.learns_from for one in self.pupils)

    def choosing_tasks(self) -> list[Task]:
        """The validation tasks that something is still to be chosen on: `choosing` of them, the first of which choose
        cycles; all for policies of a recorded pool, where they cost nothing. TaskError when there are too few."""
        learns = self.learns_from("validation")
        if learns and is_recorded(self.pool):
            return load_tasks(self.tasks, "validation", None, 0)
        chosen = self.choosing and (learns or self.undecided)
        return load_tasks(self.tasks, "validation", self.choosing, 0) if chosen else []

    def lesson_tasks(self) -> list[Task]:
        """The tasks of the evolve split that policies are still to be taught by; of a recorded pool all, also for those
        that learn from validation tasks elsewhere, as they cost nothing."""
        recorded = is_recorded(self.pool)
        taught = self.learns_from("questions") or (recorded and self.learns_from("validation"))
        n = None if recorded else self.questions
        return load_tasks(self.tasks, "evolve", n, 0, at_most=True) if taught else []

    def load_tasks(self) -> list[Task]:
        """The tasks, the same at every call; TaskError when their file changed since the run began."""
        seed = self.seed if self.task_seed is None else self.task_seed
        return check_same_tasks(load_tasks(self.tasks, self.split, self.n, seed), self)


def check_same_tasks(tasks: list[Task], plan: BatchPlan | LearningPlan) -> list[Task]:
    """The tasks; TaskError when they are not those that the run began with."""
    if plan.digest and digest_of_tasks(tasks) != plan.digest:
        raise TaskError(
            f"The tasks in {plan.tasks} have changed since this run began, so it cannot be resumed."
        )
    return tasks
