"""Policies: whatever chooses a model and a role for the next turn, from an evolved coordinator to a fixed cycle, and
which of them decides which turn where a person chose another one for the turns that follow."""

from __future__ import annotations

import typing
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from core.checkpoint import Checkpoint
from core.episode import Decide, Decision, Episode, Protocol, Reply, Task, WritePlan
from core.ids import episode_id
from core.pool.spec import ModelSpec


@typing.runtime_checkable
class Policy(typing.Protocol):
    """Chooses the next (model, role). Batched: one call may decide for thousands of episodes at once."""

    @property
    def id(self) -> str:
        """A checkpoint's id, or a name such as "random" or "single:NAME"."""

    @property
    def models(self) -> tuple[str, ...]:
        """The pool slots it chooses between, in head order."""

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, in order. Pure: the same requests give the same decisions."""


class Masks(typing.TypedDict, total=False):
    """Which slots of `Episode.models` and of ROLE_ORDER may be chosen (True); empty allows all."""

    model_mask: Sequence[bool]
    role_mask: Sequence[bool]


@typing.runtime_checkable
class ConductingPolicy(Policy, typing.Protocol):
    """A policy that decides no single turns of an episode as it stands, but says how the whole is played: by workflows,
    or as several episodes of which one is made."""

    def begin(self, episode: Episode) -> Episode:
        """The unplayed episode as this policy plays it. Its turn budget is that of one of its parts until then."""

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: typing.Unpack[Masks]
    ) -> Generator[typing.Any, typing.Any, Episode]:
        """The episode as a generator that asks a driver (`core.play.session`, `core.conduct.session`)."""


@typing.runtime_checkable
class WorkflowPolicy(ConductingPolicy, typing.Protocol):
    """A policy that writes whole workflows."""

    @property
    def rounds(self) -> int:
        """The most rounds of plan and workflow."""

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """One planner's reply per request, in order. Pure: the same requests give the same replies."""


@typing.runtime_checkable
class DispatchingPolicy(Policy, typing.Protocol):
    """A policy that leaves each episode to one of several."""

    def policy_for(self, episode: Episode) -> Policy:
        """Whoever plays this episode."""


def conducting_policy(policy: Policy, episode: Episode) -> ConductingPolicy | None:
    """The policy that says how this whole episode is played; None where turns are decided one by one."""
    own = policy.policy_for(episode) if isinstance(policy, DispatchingPolicy) else policy
    return own if isinstance(own, ConductingPolicy) else None


@dataclass(frozen=True)
class WrappedPolicy:
    """Base of a policy that changes decisions of another one, `inner`, and keeps its id and slots."""

    inner: Policy

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def models(self) -> tuple[str, ...]:
        return self.inner.models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return self.inner.decide(requests)


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
    return policy.begin(episode) if isinstance(policy, ConductingPolicy) else episode


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
