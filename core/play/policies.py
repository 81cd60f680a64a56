"""Policies: whatever chooses a model and a role for the next turn. The base of all; those that need no coordinator; one
that has still to be taught; and which of them decides which turn where a person chose another for those that follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

from core.checkpoint import Checkpoint
from core.draws import draw_index, uniform
from core.episode import ROLE_ORDER, Decide, Decision, Episode, Protocol, Reply, Role, Task, WritePlan
from core.errors import ConfigError, NothingAllowed
from core.ids import episode_id
from core.play.session import play
from core.pool.spec import ModelSpec

T = TypeVar("T")
Cycle = tuple[Role, ...]

#: How the name of a single model's policy begins.
SINGLE = "single:"
#: How the name of a cascade begins, before its models in order and its judge: "cascade:jack+sage+themis".
CASCADE = "cascade:"
#: How the name of an evolution's candidate begins, before its run, generation and number: "candidate:r1/12/5".
CANDIDATE = "candidate:"

#: A cycle of roles that suits most tasks: plan, work, check, and again.
PLAN_WORK_CHECK: Cycle = (Role.THINKER, Role.WORKER, Role.VERIFIER)


class Masks(TypedDict, total=False):
    """Which slots of `Episode.models` and of ROLE_ORDER may be chosen (True); empty allows all. `served`: somebody
    waits for the answer, see `core.play.session.play`."""

    model_mask: Sequence[bool]
    role_mask: Sequence[bool]
    served: bool


class StepMasks(Masks, total=False):
    """`Masks` of workflows. `resting`: whether a model is better left alone now, where another one can do a step."""

    resting: Callable[[str], bool]


class Policy(ABC):
    """Base of whatever chooses the next (model, role). Batched: one call may decide for thousands of episodes at once.

    `id`: a checkpoint's id, or a name such as "random" or "single:NAME". `models`: the pool slots that it chooses
    between, in head order. `decides_turns`: whether it decides the turns of an episode one by one; else it says how the
    whole is played, by workflows, or as several episodes of which one is made. `rounds`: the most rounds of plan and
    workflow, 0 where it writes none."""

    id: str
    models: tuple[str, ...]
    decides_turns: ClassVar[bool] = True
    rounds: int = 0

    @abstractmethod
    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, in order. Pure: the same requests give the same decisions."""

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """One planner's reply per request, in order. Pure as `decide`; asked only of a policy that writes workflows."""
        raise TypeError(f"The policy {self.id} writes no workflows.")

    def policy_for(self, episode: Episode) -> Policy:
        """Whoever plays this episode: this policy, or one of several that it leaves episodes to."""
        return self

    def choices(self) -> Collection[str]:
        """The models that it may choose: an episode without all of them cannot be played."""
        return self.models

    def begin(self, episode: Episode) -> Episode:
        """The unplayed episode as this policy plays it. Its turn budget is that of one of its parts until then."""
        return episode

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]
    ) -> Generator[Any, Any, Episode]:
        """The episode as a generator that asks a driver (`core.play.session`, `core.conduct.session`)."""
        return play(episode, specs, **masks)


@dataclass(eq=False)
class WrappedPolicy(Policy):
    """Base of a policy that changes decisions of another one, `inner`, and keeps its id and slots."""

    inner: Policy

    def __post_init__(self) -> None:
        self.id, self.models = self.inner.id, self.inner.models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return self.inner.decide(requests)

    def choices(self) -> Collection[str]:
        return self.inner.choices()


def innermost(policy: Policy) -> Policy:
    """The policy whose decisions this one changes; itself where it changes none."""
    while isinstance(policy, WrappedPolicy):
        policy = policy.inner
    return policy


def new_episode(
    run_id: str,
    index: int,
    task: Task,
    policy: Policy,
    *,
    turns: int,
    seed: int,
    argmax: bool,
    protocol: Protocol | None = None,
) -> Episode:
    """The unplayed episode `index` (from 0) of a run. A checkpoint plays by the rules that it was evolved under, any
    other policy by `protocol` (None: the paper's)."""
    own = innermost(policy)
    checkpoint: Checkpoint | None = getattr(own, "checkpoint", None)
    episode = Episode(
        id=episode_id(run_id, index),
        run_id=run_id,
        task=task,
        policy=policy.id,
        models=policy.models,
        protocol=checkpoint.protocol if checkpoint else protocol or Protocol.PAPER,
        turn_budget=turns,
        seed=seed,
        argmax=argmax,
        generation=checkpoint.generation if checkpoint else getattr(own, "iteration", None),
    )
    return policy.begin(episode)


# In what follows `deciders` is `Episode.deciders`: turn (0-based) -> the policy that decides from it on, in order.


def decider_at(policy: str, deciders: Mapping[int, str], index: int) -> str:
    """The policy that decides turn `index` of an episode with this policy."""
    last = [name for turn, name in deciders.items() if turn <= index]
    return last[-1] if last else policy


def deciders_of_fork(policy: str, deciders: Mapping[int, str], index: int, to: str) -> dict[int, str]:
    """The deciders of an episode that is decided by `to` and took over the turns before `index` from one with this
    policy and these deciders: empty when `to` decided them all."""
    before = {0: policy} | {turn: name for turn, name in deciders.items() if turn < index}
    if index == 0 or set(before.values()) == {to}:
        return {}
    return before if [*before.values()][-1] == to else {**before, index: to}


def deciders_with(policy: str, deciders: Mapping[int, str], index: int, to: str) -> dict[int, str]:
    """The deciders when `to` decides from turn `index` on, whatever was planned for later turns."""
    before = {turn: name for turn, name in deciders.items() if turn < index}
    in_charge = [policy, *before.values()][-1]
    return before if to == in_charge else {**before, index: to}


@dataclass(frozen=True, slots=True)
class RandomPolicy(Policy):
    """Uniform over all allowed models, and over all allowed roles unless these follow a `cycle`."""

    models: tuple[str, ...]
    cycle: Cycle = ()
    id: str = "random"

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return [self._decide(request) for request in requests]

    def _decide(self, request: Decide) -> Decision:
        model_probs = _even(len(self.models), request.model_mask)
        role_probs = () if self.cycle else _even(len(ROLE_ORDER), request.role_mask)
        u = uniform(request.key, 2)
        if self.cycle:
            role = _step(self.cycle, ROLE_ORDER, request.role_mask, request.index, self.id)
        else:
            role = ROLE_ORDER[draw_index(role_probs, u[1])]
        return Decision(
            model=self.models[draw_index(model_probs, u[0])],
            role=role,
            model_probs=model_probs,
            role_probs=role_probs,
            model_mask=request.model_mask,
            role_mask=request.role_mask,
        )


@dataclass(frozen=True, slots=True)
class CyclePolicy(Policy):
    """Fixed: turn t goes to `steps[t]` modulo its length among `models`, in role `cycle[t]` likewise.

    One step is a single model at the full turn budget; all models in order is round robin."""

    models: tuple[str, ...]
    steps: tuple[str, ...]
    cycle: Cycle = PLAN_WORK_CHECK
    id: str = "cycle"

    def __post_init__(self) -> None:
        unknown = [name for name in self.steps if name not in self.models]
        if unknown or not self.steps or not self.cycle:
            raise ConfigError(
                f"There is no model '{unknown[0]}' in the pool: choose one of {', '.join(self.models)}."
                if unknown
                else "A cycle policy needs at least one model and one role."
            )

    def choices(self) -> Collection[str]:
        return self.steps

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """The step and role of each request's turn; masked ones are left out of the cycles."""
        return [
            Decision(
                model=_step(self.steps, self.models, request.model_mask, request.index, self.id),
                role=_step(self.cycle, ROLE_ORDER, request.role_mask, request.index, self.id),
                sampled=False,
                model_mask=request.model_mask,
                role_mask=request.role_mask,
            )
            for request in requests
        ]


def decide_each(requests: Sequence[Decide], policies: Sequence[Policy]) -> list[Decision]:
    """The decision of each request by the policy in its place; those of one policy are made in one batch."""
    places: dict[int, list[int]] = {}
    for place, policy in enumerate(policies):
        places.setdefault(id(policy), []).append(place)
    decided: dict[int, Decision] = {}
    for own in places.values():
        made = policies[own[0]].decide([requests[place] for place in own])
        decided |= dict(zip(own, made, strict=True))
    return [decided[place] for place in range(len(requests))]


@dataclass(frozen=True, slots=True)
class PolicyPerRequest(Policy):
    """Lets every request be decided by the policy that `policy_of` has for it, as for its question."""

    id: str
    models: tuple[str, ...]
    policy_of: Callable[[Decide], Policy]

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return decide_each(requests, [self.policy_of(request) for request in requests])


@dataclass(frozen=True, slots=True)
class PolicyPerEpisode(Policy):
    """Lets every episode be played by the policy that `policies` has for its id."""

    id: str
    models: tuple[str, ...]
    policies: Mapping[str, Policy]

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return decide_each(requests, [self.policies[request.episode_id] for request in requests])

    def policy_for(self, episode: Episode) -> Policy:
        return self.policies[episode.id].policy_for(episode)


#: What a policy learns from before it plays: validation tasks that it is chosen on, questions that it is taught by.
LearnsFrom = Literal["validation", "questions"]


#: What an outcome table may lack: questions' texts, answers that can be compared, several replies of a model to a task,
#: what one costs, plans.
Need = Literal["texts", "answers", "samples", "prices", "plans"]


@dataclass(frozen=True, slots=True)
class Pupil(Policy):
    """A policy that has still to be chosen or taught; its id is the name that it was asked for by, and that of the
    policy which `teach` gives then stands for it in the run. `episodes`: how many it plays for that, with so many
    models, tasks to learn from, and turns; `cycles`: the policies whose cycles of roles it learns by; `reads`: whether
    an encoder reads the tasks for it; `looks_up`: whether nobody is asked for that where a table has the outcomes;
    `needs`: what recorded models must have for it."""

    id: str
    models: tuple[str, ...]
    teach: Callable[[Any], Policy]
    learns_from: tuple[LearnsFrom, ...] = ()
    episodes: Callable[[int, int, int], int] = lambda models, tasks, turns: 0
    cycles: tuple[str, ...] = ()
    reads: bool = False
    looks_up: bool = False
    needs: tuple[Need, ...] = ()

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """ConfigError: it has learned nothing yet."""
        raise ConfigError(
            f"Policy '{self.id}' learns from other tasks before it plays, which only trinity run does: choose another "
            "policy here."
        )


def single_policy(model: str, models: tuple[str, ...], cycle: Cycle = PLAN_WORK_CHECK) -> CyclePolicy:
    """`single:MODEL`: one model plays every turn under a cycle of roles."""
    return CyclePolicy(models, (model,), cycle, f"{SINGLE}{model}")


def follows_cycle(name: str) -> bool:
    """Whether a policy of this name plays roles in a fixed order."""
    return name.startswith(SINGLE) or name in ("random-model", "round-robin")


#: The rules that ask models for answers of their own and compare these, by the words that their names begin with. The
#: last ones count every answer that was given.
RULES = ("agree", "sure", "probe", "frugal", "bayes", "vote", "weighted-vote", "majority")
VOTES = RULES[-4:]
#: Those of which the first model asked may be sure enough to ask nobody else.
UNLESS_SURE = ("sure", "probe")


def rule_of(name: str) -> str:
    """Which of the RULES a policy of this name plays by; empty for any other policy."""
    if name.startswith("without:"):
        name = name.split(":", 2)[-1]
    word = name.partition(":")[0]
    return word if word in RULES else ""


def needs_no_checkpoint(name: str, models: Sequence[str]) -> bool:
    """Whether a policy of this name decides turns of these models without a checkpoint."""
    if name.startswith((SINGLE, CASCADE)):
        return set(name.partition(":")[2].split("+")) <= {*models}
    return name == "random" or follows_cycle(name)


def cycle_policy(name: str, models: tuple[str, ...], cycle: Cycle) -> CyclePolicy | RandomPolicy:
    """The policy of a name that follows a cycle. ConfigError for a model that the pool does not have."""
    if name == "random-model":
        return RandomPolicy(models, cycle, name)
    steps = (name.removeprefix(SINGLE),) if name.startswith(SINGLE) else models
    return CyclePolicy(models, steps, cycle, name)


def cascade_policy(team: Sequence[str], models: tuple[str, ...]) -> CyclePolicy:
    """`cascade:TEAM`, a cascade as in FrugalGPT (Chen et al. 2023): a model of the team answers, its last one judges,
    and where it does not accept the next model answers. ConfigError for a model that the pool does not have."""
    *answering, judge = team
    if not answering:
        raise ConfigError("A cascade needs a model that answers and one that judges: cascade:MODEL+JUDGE.")
    steps = tuple(step for model in answering for step in (model, judge))
    return CyclePolicy(models, steps, (Role.WORKER, Role.VERIFIER), f"{CASCADE}{'+'.join(team)}")


def override_decision(decision: Decision, choice: tuple[str, Role], models: Sequence[str]) -> Decision:
    """A policy's decision, its logits with it, with a person's choice of model and role. ConfigError for a model that
    the pool does not have."""
    model, role = choice
    if model not in models:
        raise ConfigError(f"There is no model '{model}' in the pool: choose one of {', '.join(models)}.")
    return replace(decision, model=model, role=role, origin="override")


def _even(size: int, mask: Sequence[bool]) -> tuple[float, ...]:
    """Equal probabilities over the allowed entries."""
    allowed = mask or (True,) * size
    return tuple(1.0 / sum(allowed) if entry else 0.0 for entry in allowed)


def _step(cycle: Sequence[T], order: Sequence[T], mask: Sequence[bool], index: int, policy: str) -> T:
    """The entry of a turn in a cycle; masked ones are left out."""
    allowed = [entry for entry in cycle if mask[order.index(entry)]] if mask else cycle
    if not allowed:
        raise NothingAllowed(f"The mask leaves nothing that policy '{policy}' could choose: allow more.")
    return allowed[index % len(allowed)]
