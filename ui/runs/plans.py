"""What a run plays, kept with it so that its id is enough to play, show or resume it: one typed plan per kind.

A plan is stored as its run's config, without its `kind` and `name`: those are columns of the run. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, overload

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from core.episode import Change, Protocol, Role, Task
from core.errors import ConfigError, StoreError, TaskError, TrinityError
from core.evolution.config import EvolveConfig, transcripts_surveyed
from core.evolution.recording import RecordName
from core.planner.config import LearnConfig
from core.settings import POCKET_POOL
from core.tasks.sets import digest_of_tasks, load_tasks
from core.workflow import AccessMode
from storage.analysis.second_opinions import EpisodeScope
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunSummary
from ui.runs.policies import LearnsFrom, cycles_of, learns_from

#: The singular values that the authors' release evolves: of the second-to-last layer, and outside the layers.
RELEASED_SVF = "released"
#: Supervised steps that a new pocket planner is begun with, and pocket tasks that its questions are chosen from.
WARM_UP_STEPS, POCKET_QUESTIONS = 500, 3_000
#: Questions that a policy which is taught before it plays learns from, where nothing else is said.
LESSON_QUESTIONS = 200
#: Ten generations of the smallest population that sep-CMA-ES can have, eight tasks each.
LEAST_BUDGET = 160


@dataclass(frozen=True, slots=True)
class Suite:
    """What all rows have in common, so that they can be compared. `budget`: episodes that each learner may play;
    `protocol`: of every row that does not name its own."""

    budget: int = 30_720
    n: int = 1000
    task_seed: int = 1
    turns: int = 5
    validation: int = 200
    pool: str = POCKET_POOL
    encoder: str = POCKET_POOL
    tasks: str = "pocket"
    held_out: str = "pocket/held-out"
    protocol: Protocol = Protocol.PAPER

    def __post_init__(self) -> None:
        if self.budget < LEAST_BUDGET:
            raise ConfigError(
                f"From a budget of {self.budget} episodes nothing can be learned: give at least {LEAST_BUDGET}."
            )
        for name in ("n", "turns", "validation"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"A reproduction with a {name} of {getattr(self, name)} measures nothing: give at least 1."
                )

    @property
    def fields(self) -> dict[str, Any]:
        """What a digest is over. The paper's protocol is left out, as suites had no other before."""
        own = asdict(self)
        return (
            own if self.protocol is not Protocol.PAPER else {k: v for k, v in own.items() if k != "protocol"}
        )

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


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The same tasks under each policy. Paths are absolute; `pool` is "pocket" or a pool.toml's path,
    `models` its slots; `cycles` the chosen roles of those that follow a cycle, `choosing` the number of validation
    tasks on which those are chosen that have none (0: they plan, work and check), `questions` the number of tasks of
    the evolve split that policies are taught with, `choice_usd` what all that cost; `digest` is of the tasks, which
    `task_seed` draws (None: `seed`); `protocol` as in `new_episode`; `reuse`: whether replies that other runs have got
    are used; `reproduction`: the row of the paper's tables that it is, if it is one."""

    policies: tuple[str, ...]
    tasks: str
    split: str
    n: int | None
    seed: int
    turns: int
    argmax: bool
    pool: str
    models: tuple[str, ...] = ()
    encoder: str | None = None
    max_cost_usd: float | None = None
    cycles: Mapping[str, tuple[Role, ...]] = field(default_factory=dict)
    choosing: int = 0
    choice_usd: float = 0.0
    digest: str = ""
    protocol: Protocol | None = None
    reuse: bool = False
    task_seed: int | None = None
    questions: int = LESSON_QUESTIONS
    reproduction: ReproducedRow | None = None
    kind: Literal["run", "reproduction"] = "run"

    @property
    def undecided(self) -> tuple[str, ...]:
        """The policies whose cycle of roles is still to be chosen: of those that play, and that others learn from."""
        follow = (one for name in self.policies for one in cycles_of(name, self.models))
        return tuple(dict.fromkeys(one for one in follow if one not in self.cycles)) if self.choosing else ()

    def learns_from(self, what: LearnsFrom) -> bool:
        """Whether a policy is chosen, or taught, by such tasks before it plays."""
        return any(learns_from(name, self.models) == what for name in self.policies)

    def choosing_tasks(self) -> list[Task]:
        """The validation tasks that something is still to be chosen on. TaskError when there are too few."""
        chosen = self.undecided or self.learns_from("validation")
        return load_tasks(self.tasks, "validation", self.choosing, 0) if self.choosing and chosen else []

    def lesson_tasks(self) -> list[Task]:
        """The tasks of the evolve split that policies are still to be taught by."""
        taught = self.learns_from("questions")
        return load_tasks(self.tasks, "evolve", self.questions, 0, at_most=True) if taught else []

    def load_tasks(self) -> list[Task]:
        """The tasks, the same at every call; TaskError when their file changed since the run began."""
        seed = self.seed if self.task_seed is None else self.task_seed
        return unchanged(load_tasks(self.tasks, self.split, self.n, seed), self)


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is played live: the task `repeats` times, with seeds from `seed` on. `left_out` are models masked before the
    softmax; `temperature` is at which the models are asked (None: as their pool says); `pace_s` is how long a
    decision is shown before the model is asked; `pool` is "pocket" or a pool.toml's path; `protocol` as in
    `new_episode`; `tasks` is the file that the task comes from, empty for another one."""

    task: Task
    policy: str
    models: tuple[str, ...]
    pool: str = POCKET_POOL
    encoder: str | None = None
    left_out: tuple[str, ...] = ()
    turns: int = 5
    seed: int = 0
    argmax: bool = False
    step: bool = False
    pace_s: float = 0.0
    max_cost_usd: float | None = None
    repeats: int = 1
    temperature: float | None = None
    protocol: Protocol | None = None
    tasks: str = ""
    kind: Literal["live"] = "live"


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """An evolution as its run keeps it: enough to resume it. `svf` is a list of layers ("1,2"), "released" or
    empty; `barred`, `token_position` and `protocol` as in a checkpoint; `neutral_start`: whether a head begins where
    every choice is equally likely, also the low-rank one; `controls`: whether they are played at the end; `digest`
    tells when a task file changed; `reuse`: whether replies that other runs have got are used, and its own kept for
    others; `record`: whose episodes are stored."""

    tasks: str
    n: int | None
    validation: int
    pool: str
    encoder: str
    max_cost_usd: float | None
    evolution: EvolveConfig
    name: str = ""
    head: str = "linear"
    svf: str = ""
    barred: tuple[str, ...] = ()
    token_position: int = -2
    neutral_start: bool = False
    controls: bool = True
    models: tuple[str, ...] = ()
    digest: str = ""
    protocol: Protocol = Protocol.PAPER
    reuse: bool = False
    record: RecordName = "none"
    kind: Literal["evolve"] = "evolve"

    @property
    def survey_words(self) -> str:
        """What is done before generation 0, for people who wait; once, as its result is kept with it."""
        read = transcripts_surveyed(bool(self.svf))
        return f"The encoder reads {read} sketched transcripts once, to set the first step size"

    def task_sets(self) -> tuple[list[Task], list[Task], list[str]]:
        """The tasks to evolve on, those to validate with, and what is worth telling about them."""
        return learning_sets(self)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The training of a planner as its run keeps it: enough to resume it. `planner` is what learns: "pocket" for a new
    small one after `warm_up_steps` of supervised training, the id of a stored one, or the folder of a language model
    that has learned nothing yet; `mode`, `most_tokens` and `show_names` are of such a one. `digest` tells when a task
    file changed; `reuse` as in an evolution."""

    tasks: str
    n: int | None
    validation: int
    pool: str
    learning: LearnConfig = LearnConfig()
    planner: str = POCKET_POOL
    warm_up_steps: int = WARM_UP_STEPS
    mode: AccessMode = AccessMode.CHOOSE_POSITION
    most_tokens: int = 1_024
    show_names: bool = False
    max_cost_usd: float | None = None
    name: str = ""
    models: tuple[str, ...] = ()
    digest: str = ""
    reuse: bool = False
    kind: Literal["train"] = "train"

    def task_sets(self) -> tuple[list[Task], list[Task], list[str]]:
        """The tasks to learn on, those to validate with, and what is worth telling about them."""
        return learning_sets(self)


@dataclass(frozen=True, slots=True)
class Branch:
    """One forked turn. `n` forks and `baseline` unchanged children, of which the store already holds `reused`
    ("fork/3" -> episode); `certain`: the change leaves nothing to play; `anew`: the turns (0-based) of a workflow's
    steps that are played anew, for a coordinator's episode empty; `digest` is of the parent's rows, `cycles` the roles
    of policies that follow a cycle."""

    parent: str
    turn: int  # 0-based
    prefix: str
    digest: str
    n: int
    baseline: int
    certain: bool = False
    anew: tuple[int, ...] = ()
    reused: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cycles: Mapping[str, tuple[Role, ...]] = field(default_factory=dict)
    change: Change | None = None  # where it is not the plan's


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """One change at one turn of each of these episodes. `batch` is the query they were found by, `question` the
    first one's, for lists; `skipped` counts episodes where the change made no sense. `every_turn` is the episode of
    which every turn is forked, each with a change of its own, the runner-up of its decision or, `right_replies`, a
    right reply; empty for others. Without a change one episode is only played again, from its first turn, until it can
    be told whether its ending was luck."""

    change: Change | None
    branches: tuple[Branch, ...]
    pool: str
    pool_digest: str
    models: tuple[str, ...]
    encoder: str | None = None
    max_cost_usd: float | None = None
    batch: str = ""
    question: str = ""
    skipped: int = 0
    every_turn: str = ""
    right_replies: bool = False
    kind: Literal["fork"] = "fork"

    @property
    def asks_luck(self) -> bool:
        """Whether nothing is changed, and one episode is played again to tell whether its ending was luck."""
        return self.change is None

    def change_at(self, branch: Branch) -> Change | None:
        """What is changed at a branch; None where nothing is."""
        return branch.change or self.change

    @property
    def other_words(self) -> str:
        """What every turn is changed to where every turn is forked."""
        return "right reply" if self.right_replies else "runner-up"

    @property
    def to_play(self) -> int:
        """How many children are not there yet."""
        return sum(one.n + one.baseline - len(one.reused) for one in self.branches)


@dataclass(frozen=True, slots=True)
class RereadPlan:
    """Which checkpoints read which turns again; `turns` is how many readings that is in all, `compared` are all that
    are put side by side, the baseline first, `encoder` as in settings; `where`, `episode` and `before` are the scope's,
    the first as an address's query."""

    checkpoints: tuple[str, ...]
    where: Mapping[str, str]
    episode: str | None
    before: float | None
    turns: int
    compared: tuple[str, ...] = ()
    encoder: str | None = None
    kind: Literal["reencode"] = "reencode"

    @property
    def scope(self) -> EpisodeScope:
        """The episodes that are read."""
        return EpisodeScope(EpisodeFilter.from_query(self.where), self.episode, self.before)

    def address(self) -> dict[str, str]:
        """The query of the Policy diff page that it was begun on."""
        return {"c": ",".join(self.compared), **self.where, **({"ep": self.episode} if self.episode else {})}

    def asks_for(self, checkpoints: Sequence[str], scope: EpisodeScope) -> bool:
        """Whether it is about some of these checkpoints and the same episodes, whenever it began."""
        same = replace(self.scope, before=None) == replace(scope, before=None)
        return same and set(self.checkpoints) <= set(checkpoints)


@dataclass(frozen=True, slots=True)
class AttributionPlan:
    """What in the transcript made the choice at a turn (`index`, from 0) of an episode, for each of these checkpoints;
    `question` is what the episode was asked, for lists, `encoder` as in settings."""

    episode: str
    index: int
    checkpoints: tuple[str, ...]
    question: str = ""
    encoder: str | None = None
    kind: Literal["attribute"] = "attribute"

    def address(self) -> dict[str, str]:
        """The query of the Replay page that it was begun on."""
        return {"ep": self.episode, "t": str(self.index + 1), "panel": "why"}


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Requests to the endpoint, from its start to its end. `tiers` are the models that it offers, by name: the policy
    and the turn budget of each."""

    pool: str
    models: tuple[str, ...]
    tiers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    encoder: str | None = None
    kind: Literal["serve"] = "serve"


RunPlan = (
    BatchPlan | LivePlan | EvolutionPlan | TrainingPlan | ForkPlan | RereadPlan | AttributionPlan | ServePlan
)
#: Plans whose models may cost money.
PooledPlan = BatchPlan | LivePlan | EvolutionPlan | TrainingPlan | ForkPlan
#: Plans that learn, and have a name of their own to be resumed by.
LearningPlan = EvolutionPlan | TrainingPlan
P = TypeVar("P", bound=RunPlan)

#: Reads and writes every plan, by its `kind`.
RUN_PLAN: TypeAdapter[RunPlan] = TypeAdapter(
    Annotated[RunPlan, Field(discriminator="kind")], config=ConfigDict(extra="forbid")
)


def to_config(plan: RunPlan) -> dict[str, Any]:
    """A plan as its run's config, ready for JSON."""
    config: dict[str, Any] = RUN_PLAN.dump_python(plan, mode="json", exclude={"kind", "name"})
    return config


@overload
def plan_of(run: RunSummary) -> RunPlan: ...
@overload
def plan_of(run: RunSummary, kind: type[P]) -> P: ...
def plan_of(run: RunSummary, kind: type[Any] | None = None) -> Any:
    """What a run plays; StoreError when it does not say so, or when that is not of this kind."""
    columns = {"kind": run.kind, **({"name": run.name} if run.name else {})}
    try:
        plan = RUN_PLAN.validate_python({**run.config, **columns})
    except (ValidationError, TypeError) as error:
        raise StoreError(
            f"What run {run.id} plays is not understood: it was recorded by another program."
        ) from error
    if kind is not None and not isinstance(plan, kind):
        raise StoreError(
            f"Run {run.id} is of another kind ('{plan.kind}'): it cannot be shown or resumed so."
        )
    return plan


def known_plan(run: RunSummary) -> RunPlan | None:
    """What a run plays; None when it does not say so, as a run of another program."""
    try:
        return plan_of(run)
    except TrinityError:
        return None


def absolute_pool(pool: str) -> str:
    """A pool.toml by its whole path, by which it is found from any folder; the embedded pool as it is."""
    return pool if pool == POCKET_POOL else str(Path(pool).resolve())


def absolute_tasks(tasks: str) -> str:
    """A task file by its whole path, by which it is found from any folder; the program's own sets as they are."""
    return str(Path(tasks).resolve()) if tasks.endswith(".jsonl") else tasks


def absolute_encoder(encoder: str) -> str:
    """An encoder's folder by its whole path, by which it is found from any folder; other names as they are."""
    own = encoder != POCKET_POOL and os.path.isdir(encoder)
    return str(Path(encoder).resolve()) if own else encoder


def learning_sets(plan: LearningPlan) -> tuple[list[Task], list[Task], list[str]]:
    """The tasks that a plan learns on, those to validate with, and what is worth telling about them."""
    tasks = unchanged(load_tasks(plan.tasks, "evolve", plan.n, 0, at_most=True), plan)
    try:
        if plan.validation:
            return tasks, load_tasks(plan.tasks, "validation", plan.validation, 0, at_most=True), []
    except TaskError as error:
        return tasks, [], [f"Nothing is validated: {error}"]
    return tasks, [], []


def unchanged(tasks: list[Task], plan: BatchPlan | LearningPlan) -> list[Task]:
    """The tasks; TaskError when they are not those that the run began with."""
    if plan.digest and digest_of_tasks(tasks) != plan.digest:
        raise TaskError(
            f"The tasks in {plan.tasks} have changed since this run began, so it cannot be resumed."
        )
    return tasks


def same_models(plan: BatchPlan | LearningPlan, models: tuple[str, ...]) -> None:
    """ConfigError when the plan's pool has other models than when its run began."""
    if plan.models and models != plan.models:
        raise ConfigError(
            f"The models in {plan.pool} have changed since this run began, so it cannot be resumed."
        )
