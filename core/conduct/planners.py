"""Planners that need no training: frozen workflows, random ones, a model of the pool, the control of one model, and
recorded workflows, which are run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Unpack

from core.conduct.prompts import subtask_word
from core.conduct.reading import read_workflow, write_workflow
from core.conduct.session import Planner, conduct
from core.draws import uniform
from core.episode import Episode, Reply, Turn, Usage, WritePlan
from core.errors import ConfigError, NothingAllowed
from core.play.policies import Policy, StepMasks
from core.pool.spec import ModelSpec
from core.workflow import MOST_STEPS, AccessMode, Workflow

#: How the name of every policy that writes workflows begins.
CONDUCTOR = "conductor:"
#: The frozen workflow of a pair: one model plans, one solves.
PAIR = "plan-and-solve"

PLAN = "Plan how to solve the problem, step by step, without solving it."
SOLVE = "Solve the problem, by the plan where you see one."
CHECK = "Check the answer that you see, step by step, and give the right final answer."
MERGE = "Merge the answers that you see: decide which is right, and give it as the final answer."
#: What random workflows are made of.
_SUBTASKS = PLAN, SOLVE, CHECK, MERGE
CRITICISE = "Criticise the plan that you see: say what is wrong or missing in it."
RECONSIDER = "Solve the problem again: say where the answers that you see go wrong, and give yours."

#: Frozen workflows: what each step is asked, and which steps it reads.
FIXED: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    "single": ((SOLVE, ()),),
    PAIR: ((PLAN, ()), (SOLVE, (0,))),
    "chain": ((PLAN, ()), (SOLVE, (0,)), (CHECK, (0, 1))),
    "solvers": ((SOLVE, ()), (SOLVE, ()), (SOLVE, ()), (MERGE, (0, 1, 2))),
    "debate": ((SOLVE, ()), (SOLVE, ()), (RECONSIDER, (0, 1)), (RECONSIDER, (0, 1)), (MERGE, (2, 3))),
    "automix": ((SOLVE, ()), (CHECK, (0,)), (MERGE, (0, 1))),
    "critic": ((PLAN, ()), (CRITICISE, (0,)), (PLAN, (0, 1)), (SOLVE, (2,))),
}

#: How many answers a step has to read at least, by the first word of what it is asked.
_ANSWERS_READ = {"check": 1, "merge": 2}

_FREE = Usage(0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class FixedPlanner(Planner):
    """The same workflow for every problem."""

    id: str
    models: tuple[str, ...]
    workflow: Workflow
    heeds_masks = False

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        return [Reply(write_workflow(self.workflow), usage=_FREE)] * len(requests)

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[StepMasks]
    ) -> Generator[Any, Any, Episode]:
        """As any planner's; NothingAllowed where a step's model cannot be asked about the task."""
        steps = {self.models[slot] for slot in self.workflow.models} & specs.keys()
        if absent := [name for name in sorted(steps) if not specs[name].can_answer(episode.task.id)]:
            raise NothingAllowed(
                f"The workflow of '{self.id}' needs {absent[0]}, which cannot be asked here."
            )
        return Planner.conduct(self, episode, specs, **masks)


def fixed_planner(name: str, models: tuple[str, ...], team: Sequence[str] = ()) -> FixedPlanner:
    """The frozen workflow NAME with a model of the `team` for each of its steps; a shorter team is gone through again,
    and without one the pool's models are taken in order. ConfigError for unknown names."""
    if name not in FIXED:
        raise ConfigError(f"There is no frozen workflow '{name}': choose {', '.join(FIXED)}.")
    unknown = [model for model in team if model not in models]
    if unknown:
        raise ConfigError(f"There is no model '{unknown[0]}' in the pool: choose one of {', '.join(models)}.")
    steps, who = FIXED[name], team or models
    slots = tuple(models.index(who[place % len(who)]) for place in range(len(steps)))
    workflow = Workflow(slots, tuple(text for text, _ in steps), tuple(reads for _, reads in steps))
    own = f":{'+'.join(team)}" if team else ""
    return FixedPlanner(f"{CONDUCTOR}fixed:{name}{own}", models, workflow)


@dataclass(frozen=True, slots=True)
class RandomPlanner(Planner):
    """A random workflow that makes sense for every problem: what a planner has to be better than."""

    models: tuple[str, ...]
    id: str = f"{CONDUCTOR}random"

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """The lists of one random workflow per request, drawn by its key, of the words that it allows."""
        drawn = [
            random_workflow(
                one.key,
                one.allowed,
                [text for text in _SUBTASKS if not one.words or subtask_word(text) in one.words],
            )
            for one in requests
        ]
        return [Reply(write_workflow(one), usage=_FREE) for one in drawn]


def random_workflow(
    key: str,
    allowed: Sequence[int],
    subtasks: Sequence[str] = _SUBTASKS,
    most_steps: int = MOST_STEPS,
) -> Workflow:
    """A workflow of 1 to `most_steps` steps that makes sense, drawn by `key`: each number of steps is equally likely,
    a plan as likely as none where there are two steps or more and a subtask plans, and models, other subtasks and
    access too, but that what makes no sense is drawn again."""
    length, planned = _length(key, most_steps), float(uniform(f"{key}/planned")[0]) < 0.5
    planned &= any(subtask_word(one) == "plan" for one in subtasks)
    drawn = (legal_workflow(f"{key}/{attempt}", allowed, subtasks, length) for attempt in count())
    return next(one for one in drawn if makes_sense(one) and (length == 1 or planned is has_plan(one)))


def legal_workflow(
    key: str,
    allowed: Sequence[int],
    subtasks: Sequence[str] = _SUBTASKS,
    length: int = 0,
) -> Workflow:
    """Any workflow without dead steps, sensible or not, drawn by `key`: a step that no later one reads is given a
    reader. Of 1 to MOST_STEPS steps where no `length` is given."""
    length = length or _length(key, MOST_STEPS)
    u = iter(uniform(key, 3 * length + length**2).tolist())
    models = tuple(allowed[int(next(u) * len(allowed))] for _ in range(length))
    texts = tuple(subtasks[int(next(u) * len(subtasks))] for _ in range(length))
    reads = [{earlier for earlier in range(step) if next(u) < 0.5} for step in range(length)]
    for step in range(length - 1):
        if not any(step in seen for seen in reads):
            reads[step + 1 + int(next(u) * (length - 1 - step))].add(step)
    return Workflow(models, texts, tuple(tuple(sorted(seen)) for seen in reads))


def _length(key: str, most: int) -> int:
    return 1 + int(float(uniform(f"{key}/length")[0]) * most)


def has_plan(workflow: Workflow) -> bool:
    """Whether a step of it is asked for a plan."""
    return any(subtask_word(subtask) == "plan" for subtask in workflow.subtasks)


def makes_sense(workflow: Workflow) -> bool:
    """Whether each step has what it is asked to work on: the last gives an answer, a plan is read by a step that
    solves, who checks reads an answer, and who merges two."""
    kinds = [subtask_word(subtask) for subtask in workflow.subtasks]
    solving = [seen for kind, seen in zip(kinds, workflow.reads, strict=True) if kind == "solve"]
    return kinds[-1] != "plan" and all(
        any(step in read for read in solving)
        if kind == "plan"
        else sum(kinds[earlier] != "plan" for earlier in seen) >= _ANSWERS_READ.get(kind, 0)
        for step, (kind, seen) in enumerate(zip(kinds, workflow.reads, strict=True))
    )


@dataclass(frozen=True, slots=True)
class PromptedPlanner(Planner):
    """A model of the pool that is asked for a workflow; nothing is trained."""

    models: tuple[str, ...]
    asked_model: str
    mode: AccessMode = AccessMode.AUTO
    rounds: int = 1
    show_names: bool = True
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{CONDUCTOR}prompted:{self.asked_model}")


class WrappedPlanner(Planner):
    """Base of a planner that changes what another one, `inner`, writes."""

    def __init__(self, inner: Planner) -> None:
        self.inner, self.id, self.models = inner, inner.id, inner.models
        self.mode, self.rounds, self.show_names = inner.mode, inner.rounds, inner.show_names
        self.iteration = inner.iteration


def frozen_workflow(policy: Policy) -> Workflow | None:
    """The workflow that a policy runs for every problem; None where it has not one."""
    while isinstance(policy, WrappedPlanner):
        policy = policy.inner
    return policy.workflow if isinstance(policy, FixedPlanner) else None


def reads_others(workflow: Workflow) -> bool:
    """Whether a step of it is handed what others wrote, and neither carries out a plan nor compares answers: it
    criticises, or solves the problem again."""
    kinds = [subtask_word(subtask) for subtask in workflow.subtasks]
    return any(
        kind not in ("solve", "check", "merge")
        and bool(seen)
        or kind == "solve"
        and any(kinds[step] != "plan" for step in seen)
        for kind, seen in zip(kinds, workflow.reads, strict=True)
    )


class SameModelPlanner(WrappedPlanner):
    """Another planner's workflows with every step given to one model: as many calls, no team."""

    heeds_masks = False

    def __init__(self, inner: Planner, model: str) -> None:
        super().__init__(inner)
        self.model, self.iteration = model, None
        self.id = f"{CONDUCTOR}same-model:{model}:{inner.id.removeprefix(CONDUCTOR)}"

    def choices(self) -> Collection[str]:
        return (self.model,)

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """The other planner's lists with one model everywhere; what cannot be read stays as it is."""
        slot = self.models.index(self.model)
        changed = []
        for reply in self.inner.write(requests):
            read = read_workflow(reply.text, allowed=range(len(self.models)), mode=self.mode)
            if isinstance(read, Workflow):
                lists = write_workflow(replace(read, models=(slot,) * len(read)))
                reply = replace(reply, text=lists)
            changed.append(reply)
        return changed


def planner_policy(
    name: str, models: tuple[str, ...], trained: Callable[[str], Planner] | None = None
) -> Planner:
    """The policy of a name that begins with CONDUCTOR. `trained` gives the planner of a checkpoint's id. ConfigError
    for one that is not understood, or names a model that the pool does not have."""
    kind, _, rest = name.removeprefix(CONDUCTOR).partition(":")
    match kind:
        case "random" if not rest:
            return RandomPlanner(models)
        case "fixed":
            which, _, team = rest.partition(":")
            return fixed_planner(which, models, team.split("+") if team else ())
        case "prompted" if rest:
            return PromptedPlanner(models, _known(rest, models))
        case "same-model" if rest:
            model, _, inner = rest.partition(":")
            planner = planner_policy(CONDUCTOR + (inner or "random"), models, trained)
            if planner.asked_model:
                raise ConfigError(
                    "same-model needs the planner of a checkpoint, a fixed or a random one: a prompted planner "
                    "would write other workflows."
                )
            return SameModelPlanner(planner, _known(model, models))
        case _ if kind and not rest and trained is not None:
            return trained(kind)
    raise ConfigError(
        f"Policy '{name}' is not understood: give conductor:fixed:NAME ({', '.join(FIXED)}), conductor:random, "
        "conductor:CHECKPOINT, conductor:prompted:MODEL or conductor:same-model:MODEL:PLANNER."
    )


def _known(model: str, models: tuple[str, ...]) -> str:
    if model not in models:
        raise ConfigError(f"There is no model '{model}' in the pool: choose one of {', '.join(models)}.")
    return model


@dataclass(frozen=True, slots=True)
class RecordedWorkflows(Planner):
    """Runs the plans that its episodes hold, as many rounds as each has, under the name of whoever wrote them; it
    writes none. `carried` are the turns that are taken over, by episode and number (see `conduct`)."""

    id: str
    models: tuple[str, ...]
    carried: Mapping[tuple[str, int], Turn] = field(default_factory=dict)
    mode: AccessMode = AccessMode.AUTO
    rounds: int = 1

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[StepMasks]
    ) -> Generator[Any, Any, Episode]:
        carried = {index: turn for (name, index), turn in self.carried.items() if name == episode.id}
        own = replace(self, rounds=len({plan.round for plan in episode.plans}))
        return conduct(episode, specs, own, model_mask=masks.get("model_mask", ()), carried=carried)
