"""What a run plays, kept with it so that its id is enough to play, show or resume it: one typed plan per kind; and what
each kind is called, who plays it, and the page that shows it.

A plan is stored as its run's config, without its `kind` and `name`: those are columns of the run. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar, overload

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from core.changes import Change
from core.episode import Protocol, Role, Task
from core.errors import StoreError, TrinityError
from core.fields import MOST_SEED, RULES, Setting, Turns
from core.processes import EngineState
from core.settings import LOCAL_ENGINE, POCKET_POOL, Computing, Engine
from storage.analysis.second_opinions import EpisodeScope
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunKind, RunStatus, RunSummary
from storage.store import Store
from ui.presentation.words import left_words
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is played live: the task `repeats` times. `left_out` are models masked before the softmax; `pace_s` is how
    long a decision is shown before the model is asked; `tasks` is the file that the task comes from, empty for another
    one."""

    task: Task
    policy: str
    models: tuple[str, ...]
    pool: str = POCKET_POOL
    encoder: str | None = None
    left_out: tuple[str, ...] = ()
    turns: Turns = 5
    seed: Annotated[int, Setting(ge=0, le=MOST_SEED)] = 0
    """The same seed draws the same choices again. Repeats count on from it."""
    argmax: Annotated[bool, Setting(term="Argmax and sampling")] = False
    """Coordinators take their best choice, not a draw."""
    step: bool = False
    pace_s: float = 0.0
    max_cost_usd: float | None = None
    repeats: Annotated[int, Setting(ge=1, le=32)] = 1
    """How often the problem is played, one episode after another: it shows what is luck."""
    temperature: Annotated[float | None, Setting(ge=0, le=2, open=True)] = None
    """At which the models write: 0 is the likeliest word each time, higher is more varied. Left out: as the pool
    says."""
    protocol: Annotated[Protocol | None, RULES] = None
    tasks: str = ""
    computing: Computing = Computing()
    kind: Literal["live"] = "live"


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
    computing: Computing = Computing()
    engine: Engine = LOCAL_ENGINE
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
    computing: Computing = Computing()
    kind: Literal["serve"] = "serve"


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a run does before it goes on, as people wait for it: `done` of so many of `what`, the `share` of the work
    that this is, and about how many seconds the rest takes, None where that is unknown."""

    what: str
    done: int
    of: int
    share: float
    left_s: float | None = None

    @property
    def words(self) -> str:
        """Such as: 40 of 70 sketched transcripts read, about 12 s left."""
        return f"{self.done:,} of {self.of:,} {self.what}{left_words(self.left_s)}"


RunPlan = (
    BatchPlan | LivePlan | EvolutionPlan | TrainingPlan | ForkPlan | RereadPlan | AttributionPlan | ServePlan
)
#: Plans whose models may cost money.
PooledPlan = BatchPlan | LivePlan | EvolutionPlan | TrainingPlan | ForkPlan
P = TypeVar("P", bound=RunPlan)

#: Reads and writes every plan, by its `kind`.
RUN_PLAN: TypeAdapter[RunPlan] = TypeAdapter(
    Annotated[RunPlan, Field(discriminator="kind")], config=ConfigDict(extra="forbid")
)


#: Where a run's config keeps its preparation, and what its engine is doing, as long as that goes on; they are no part
#: of the plan.
PREPARATION, ENGINE_STATE = "preparation", "engine_state"
_PREPARATION, _ENGINE_STATE = TypeAdapter(Preparation), TypeAdapter(EngineState)


def preparation_of(run: RunSummary) -> Preparation | None:
    """What a run does before it goes on; None where it goes on already."""
    try:
        return _PREPARATION.validate_python(run.config[PREPARATION])
    except (KeyError, ValidationError):
        return None


def engine_state_of(run: RunSummary) -> EngineState | None:
    """What the engine of a run is doing, told a few seconds ago; None where it has no helpers, or nothing is told."""
    try:
        return _ENGINE_STATE.validate_python(run.config[ENGINE_STATE])
    except (KeyError, ValidationError):
        return None


def engine_of(plan: object) -> str:
    """The engine of a plan; local for kinds that have no other."""
    return str(getattr(plan, "engine", LOCAL_ENGINE))


def to_config(plan: RunPlan) -> dict[str, Any]:
    """A plan as its run's config, ready for JSON."""
    config: dict[str, Any] = RUN_PLAN.dump_python(plan, mode="json", exclude={"kind", "name"})
    if config.get("engine") == LOCAL_ENGINE:  # a run comes to the same by any
        del config["engine"]
    if plan.kind == "evolve" and not config["evolution"]["teacher"]:  # as before there were any
        del config["evolution"]["teacher"]
    return config


@overload
def plan_of(run: RunSummary) -> RunPlan: ...
@overload
def plan_of(run: RunSummary, kind: type[P]) -> P: ...
def plan_of(run: RunSummary, kind: type[Any] | None = None) -> Any:
    """What a run plays; StoreError when it does not say so, or when that is not of this kind."""
    columns = {"kind": run.kind, **({"name": run.name} if run.name else {})}
    config = {key: value for key, value in run.config.items() if key not in (PREPARATION, ENGINE_STATE)}
    try:
        plan = RUN_PLAN.validate_python({**config, **columns})
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


def runs_of(
    store: Store, kind: RunKind, plans: type[P], *, status: RunStatus | None = None, limit: int = 100
) -> Iterator[tuple[RunSummary, P]]:
    """The newest runs of a kind whose plans are understood, with these."""
    for run in store.runs.list(kind=kind, status=status, limit=limit):
        plan = known_plan(run)
        if isinstance(plan, plans):
            yield run, plan


@dataclass(frozen=True, slots=True)
class KindOfRun:
    """A kind of run as a reader knows it: `words` name it, `doing` says what it does while it runs, `page` shows it,
    with `icon` beside links to it. `player` is the module whose `prepare` makes such a plan ready; empty for what is
    never queued. `command` is what to type to go on with one, with the run's id after it, empty where nothing can be
    typed; `resumes`: that page has a button for it. `awaited`: a person looks on until its first result is there, so
    the worker that the app keeps ready takes it."""

    words: str
    doing: str
    page: str
    icon: str
    player: str = ""
    command: str = ""
    resumes: bool = False
    awaited: bool = False

    def resume_command(self, run_id: str) -> str:
        """What to type to go on with a run; empty when there is nothing to type."""
        return f"{self.command} {run_id}" if self.command else ""


#: By the kind that the store keeps.
RUN_KINDS: dict[str, KindOfRun] = {
    "run": KindOfRun(
        "batch run", "playing", "episodes", ":material/table_rows:", "ui.runs.batch", "trinity run --resume"
    ),
    "live": KindOfRun(
        "live play", "playing", "live", ":material/play_circle:", "ui.runs.live", resumes=True, awaited=True
    ),
    "evolve": KindOfRun(
        "evolution",
        "evolving",
        "evolution",
        ":material/trending_up:",
        "ui.runs.evolution",
        "trinity evolve --resume --name",
        True,
    ),
    "train": KindOfRun(
        "training",
        "learning",
        "evolution",
        ":material/school:",
        "ui.runs.training",
        "trinity train --resume --name",
        True,
    ),
    "fork": KindOfRun(
        "run of forks",
        "playing",
        "forks",
        ":material/call_split:",
        "ui.runs.forks.play",
        "trinity fork --resume",
        True,
    ),
    "reencode": KindOfRun(
        "reading again", "reading", "policy", ":material/menu_book:", "ui.runs.reading", resumes=True
    ),
    "attribute": KindOfRun(
        "attribution",
        "reading",
        "replay",
        ":material/manage_search:",
        "ui.runs.reading",
        resumes=True,
        awaited=True,
    ),
    # Played by the endpoint itself: nothing of it can be resumed, as nobody waits for the answers any more.
    "serve": KindOfRun("endpoint", "serving", "episodes", ":material/api:"),
    # A batch run that is a row of the paper's tables.
    "reproduction": KindOfRun(
        "row of a table",
        "playing",
        "episodes",
        ":material/table_rows:",
        "ui.runs.batch",
        "trinity run --resume",
    ),
}

#: The kinds that a person waits for.
AWAITED: tuple[str, ...] = tuple(kind for kind, one in RUN_KINDS.items() if one.awaited)


def kind_of(run: RunSummary) -> KindOfRun:
    """The kind of a run. One of several policies leads to their comparison, where it can go on, too."""
    kind = RUN_KINDS[run.kind]
    compares = run.kind == "run" and len(run.config.get("policies") or ()) > 1
    return replace(kind, page="checkpoints", resumes=True) if compares else kind


def address_of(run: RunSummary) -> dict[str, str]:
    """The query with which the page of its kind shows a run."""
    if run.kind in ("reencode", "attribute"):
        plan = known_plan(run)
        return plan.address() if isinstance(plan, RereadPlan | AttributionPlan) else {}
    return {"run": run.id}
