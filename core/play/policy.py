"""Policies: whatever chooses a model and a role for the next turn, from an evolved coordinator to a fixed cycle, and
which of them decides which turn where a person chose another one for the turns that follow."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.checkpoint import Checkpoint
from core.episode import Decide, Decision, Episode, Protocol, Reply, Task, WritePlan
from core.ids import episode_id
from core.play.session import play
from core.pool.spec import ModelSpec


class Masks(typing.TypedDict, total=False):
    """Which slots of `Episode.models` and of ROLE_ORDER may be chosen (True); empty allows all."""

    model_mask: Sequence[bool]
    role_mask: Sequence[bool]


class Policy(ABC):
    """Base of whatever chooses the next (model, role). Batched: one call may decide for thousands of episodes at once.

    `id`: a checkpoint's id, or a name such as "random" or "single:NAME". `models`: the pool slots that it chooses
    between, in head order. `decides_turns`: whether it decides the turns of an episode one by one; else it says how the
    whole is played, by workflows, or as several episodes of which one is made. `rounds`: the most rounds of plan and
    workflow, 0 where it writes none."""

    id: str
    models: tuple[str, ...]
    decides_turns: typing.ClassVar[bool] = True
    rounds: int = 0

    @abstractmethod
    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, in order. Pure: the same requests give the same decisions."""

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """One planner's reply per request, in order. Pure as `decide`; asked only of a policy that writes workflows."""
        raise NotImplementedError

    def policy_for(self, episode: Episode) -> Policy:
        """Whoever plays this episode: this policy, or one of several that it leaves episodes to."""
        return self

    def begin(self, episode: Episode) -> Episode:
        """The unplayed episode as this policy plays it. Its turn budget is that of one of its parts until then."""
        return episode

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: typing.Unpack[Masks]
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
