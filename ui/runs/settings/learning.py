"""What an evolution and a training are: plans whose settings a person chooses, and how a plan, of a batch too, follows
from what was chosen by options, a file or a form. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from core.episode import Protocol, Task
from core.errors import ConfigError, TaskError
from core.evolution.config import (
    DEFAULT_BUDGET,
    PAPER_SETTING,
    SEARCHES,
    SKETCHES,
    SVF_CANDIDATES,
    SVF_SKETCHES,
    EvolveConfig,
    RecordName,
    shape_of,
)
from core.fields import MOST_TASKS, RULES, Setting, build_settings, validate_settings, values_of
from core.heads import HeadKind
from core.planner.config import PUBLISHED, LearnConfig
from core.settings import ENCODER, LOCAL_ENGINE, POCKET_POOL, Computing, Engine, MaxCost, Pool, Settings
from core.tasks.sets import POCKET_SETS, load_tasks
from core.workflow import AccessMode
from ui.runs.settings import absolute_encoder, absolute_pool, absolute_tasks, usual_tasks
from ui.runs.settings.batch import BatchPlan, Reuse, check_same_tasks

#: The singular values that the authors' release evolves: of the second-to-last layer, and outside the layers.
RELEASED_SVF = "released"
#: Those of the last layer without its keys and values: only the token that is read is computed for each candidate.
QUICK_SVF = "quick"

LearnedTasks = Annotated[
    str,
    Setting(
        group="tasks",
        option="--tasks",
        help="pocket, pocket/FAMILY, a set of trinity tasks, outcomes:NAME (of its five folds @0 to @4 one) or a "
        "FILE.jsonl of your own. Left out: pocket, or those of the outcome table that --pool names.",
    ),
]
RunName = Annotated[
    str,
    Setting(
        "Name",
        group="models",
        option="--name",
        free=True,
        help="Its name; with --resume, which run to resume (by name or id).",
    ),
]


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """An evolution as its run keeps it: enough to resume it. `barred`, `token_position` and `protocol` as in a
    checkpoint; `digest` tells when a task file changed; `sketches` are those that its encoder is surveyed on (None: not
    chosen yet)."""

    tasks: LearnedTasks = "pocket"
    n: Annotated[
        int | None, Setting("How many of them", group="tasks", ge=1, le=MOST_TASKS, option="--n", open=True)
    ] = None
    """Tasks to draw from; all there are, if fewer. Left out: 1000, or all of a file's."""
    validation: Annotated[
        int, Setting("Validation tasks", group="tasks", ge=0, le=MOST_TASKS, option="--validation")
    ] = 200
    """Held-out tasks on which the mean is measured."""
    pool: Pool = POCKET_POOL
    encoder: Annotated[str, ENCODER] = POCKET_POOL
    max_cost_usd: MaxCost = None
    evolution: EvolveConfig = EvolveConfig()
    name: RunName = ""
    head: Annotated[HeadKind, Setting(group="search", option="--head", term="Head", learners=SEARCHES)] = (
        "linear"
    )
    """Form of the head, which chooses models and roles."""
    svf: Annotated[
        str,
        Setting(
            "Singular values", group="search", option="--svf", metavar="LAYERS", term="SVF", learners=SEARCHES
        ),
    ] = ""
    """Evolve singular values too: of the encoder's layers (1 or 26,27), 'released', or 'quick': the last layer's,
    without keys and values."""
    barred: Annotated[tuple[str, ...], Setting("Left out", group="search")] = ()
    """Roles and models that are never chosen, as in an ablation."""
    token_position: Annotated[int, Setting("Token whose state is read", group="search", le=-1)] = -2
    """Token whose hidden state is read: -2 the last but one, as in the paper."""
    neutral_start: Annotated[bool, Setting("Begin with equal choices", group="search")] = False
    """Begin where every choice is equally likely, also with the low-rank head, which else does not."""
    controls: Annotated[
        bool, Setting("Play the controls at the end", group="tasks", option="--controls", term="Control")
    ] = True
    """At the end, play what learned nothing: the same random walk, the best single model."""
    models: tuple[str, ...] = ()
    digest: str = ""
    protocol: Annotated[Protocol, RULES] = Protocol.PAPER
    reuse: Reuse = False
    record: Annotated[RecordName, Setting("Episodes to keep", group="models", option="--record")] = "none"
    """Store episodes to replay: share, of each validation and of 4 candidates in each generation; all, of every
    candidate too. An episode takes about 7 kB with the pocket models, more where replies are long."""
    computing: Computing = Computing()
    engine: Engine = LOCAL_ENGINE
    sketches: int | None = None
    kind: Literal["evolve"] = "evolve"

    @property
    def survey_words(self) -> str:
        """What is done before generation 0, for people who wait; once, as its result is kept with it."""
        read = (self.sketches or SKETCHES) + (SVF_CANDIDATES * SVF_SKETCHES if self.svf else 0)
        return f"The encoder reads {read} sketched transcripts once, to set the first step size"


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The training of a planner as its run keeps it: enough to resume it. `digest` tells when a task file changed."""

    tasks: LearnedTasks = "pocket"
    n: Annotated[
        int | None, Setting("How many of them", group="tasks", ge=1, le=MOST_TASKS, option="--n", open=True)
    ] = None
    """Tasks that questions are chosen from. Left out: 3000, or all of a file's."""
    validation: Annotated[
        int, Setting("Validation tasks", group="tasks", ge=0, le=MOST_TASKS, option="--validation")
    ] = 200
    """Held-out tasks on which the planner is measured."""
    pool: Pool = POCKET_POOL
    learning: LearnConfig = LearnConfig()
    planner: Annotated[
        str, Setting("What learns", option="--planner", metavar="pocket|ID|FOLDER", term="Conductor")
    ] = POCKET_POOL
    """What learns: a new pocket planner, a stored planner, or a causal language model in a folder."""
    warm_up_steps: Annotated[int, Setting("Steps of the warm-up", ge=1)] = 500
    """Supervised steps that teach a new pocket planner the form of workflows, and nothing about which are good."""
    mode: Annotated[AccessMode, Setting("Access lists", group="search")] = AccessMode.CHOOSE_POSITION
    """Form of the access lists that a folder's model writes."""
    most_tokens: Annotated[int, Setting("Longest reply", group="search", ge=1)] = 1_024
    """The most tokens of a reply that a folder's model writes."""
    show_names: Annotated[bool, Setting(group="search")] = False
    """A folder's model is told the names of the pool's models, and not their numbers alone."""
    max_cost_usd: MaxCost = None
    name: RunName = ""
    models: tuple[str, ...] = ()
    digest: str = ""
    reuse: Reuse = False
    engine: Engine = LOCAL_ENGINE
    kind: Literal["train"] = "train"


#: Plans that learn, and have a name of their own to be resumed by.
LearningPlan = EvolutionPlan | TrainingPlan


def learning_sets(plan: LearningPlan) -> tuple[list[Task], list[Task], list[str]]:
    """The tasks that a plan learns on, those to validate with, and what is worth telling about them."""
    tasks = check_same_tasks(load_tasks(plan.tasks, "evolve", plan.n, 0, at_most=True), plan)
    try:
        if plan.validation:
            return tasks, load_tasks(plan.tasks, "validation", plan.validation, 0, at_most=True), []
    except TaskError as error:
        return tasks, [], [f"Nothing is validated: {error}"]
    return tasks, [], []


P = TypeVar("P", BatchPlan, EvolutionPlan, TrainingPlan)

#: Pocket tasks that a run draws, where it is not told how many.
POCKET_TASKS = {BatchPlan: 100, EvolutionPlan: 1_000, TrainingPlan: 3_000}
#: What `--preset NAME` means: settings before those of a file and of options.
PRESETS: Mapping[type[LearningPlan], Mapping[str, Mapping[str, Any]]] = {
    EvolutionPlan: {"default": {}, "paper": {**PAPER_SETTING, "generations": 60, "constant_spread": "plain"}},
    TrainingPlan: {"default": {}, "published": asdict(PUBLISHED)},
}


def preset_values(kind: type[LearningPlan], name: str) -> dict[str, Any]:
    """The settings of a preset, by key; ConfigError for one that there is not."""
    if name not in PRESETS[kind]:
        raise ConfigError(f"There is no preset '{name}': choose {' or '.join(PRESETS[kind])}.")
    return dict(PRESETS[kind][name])


def usual_settings(
    learner: str, pool: str, logit_spread: float = EvolveConfig().logit_spread, budget: int = DEFAULT_BUDGET
) -> dict[str, int | float]:
    """The settings of an evolution that follow from others where they are left out, by key: how its learner spreads
    `budget` episodes, and how far preferences spread that no transcript changes.

    No pocket model is best at every kind of task, so such preferences mislead there. Of other models one often is: on
    eight models' answers to MMLU-Pro (five folds, one turn) coordinators evolved without such preferences solved 64.4 %
    of test tasks, those evolved with a spread of 6 solved 72.0 %, as the best model alone does."""
    return {**shape_of(learner, budget), "constant_spread": 0.0 if pool == POCKET_POOL else logit_spread}


def plan_from(kind: type[P], values: Mapping[str, Any], settings: Settings) -> P:
    """What these settings describe; those left out are the usual ones, or follow from others. ConfigError, one
    sentence, when nothing could come of it."""
    chosen = validate_settings(kind, values)
    named = chosen["tasks"] if values.get("tasks") else usual_tasks(settings.pool)
    tasks = absolute_tasks(named)
    chosen |= {
        "tasks": tasks,
        "n": POCKET_TASKS[kind] if chosen["n"] is None and tasks in POCKET_SETS else chosen["n"],
        "pool": absolute_pool(settings.pool),
        "max_cost_usd": settings.max_cost_usd,
        "engine": settings.engine,
    }
    if kind is not TrainingPlan:
        chosen |= values_of(settings.computing)
    if kind is EvolutionPlan:
        usual = usual_settings(chosen["learner"], settings.pool, chosen["logit_spread"])
        chosen |= {key: value for key, value in usual.items() if chosen[key] in (None, "auto")}
        chosen["encoder"] = absolute_encoder(settings.encoder or POCKET_POOL)
        if chosen["teacher"] and Path(chosen["teacher"]).is_dir():
            chosen["teacher"] = str(Path(chosen["teacher"]).resolve())
    elif kind is TrainingPlan:
        of_a_folder = Path(chosen["planner"]).is_dir()
        chosen["planner"] = str(Path(chosen["planner"]).resolve()) if of_a_folder else chosen["planner"]
    else:
        chosen["encoder"] = settings.encoder and absolute_encoder(settings.encoder)
    return build_settings(kind, chosen)
