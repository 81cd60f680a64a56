"""Plays a live run: its task as often as asked, under the policy of the plan or whoever a person puts in its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from core.episode import Decide, Decision, EndReason, Episode, EpisodeFinished, Event, Status, TurnStarted
from core.errors import ConfigError
from core.ids import episode_id
from core.play.drive import GradeMany, drive
from core.play.policies import overridden
from core.play.policy import Policy, WrappedPolicy, new_episode
from core.pool.pool import Pool
from storage.recorder import record
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import LiveControl
from ui.runs.grading import grading
from ui.runs.lease import owner
from ui.runs.plans import LivePlan
from ui.runs.play import Ending
from ui.runs.spending import MeteredPool


@dataclass(frozen=True)
class Steered(WrappedPolicy):
    """The policy of the plan, or the one that a person put in its place from some turn on; except at turns that a
    person took over while the run was waiting."""

    store: Store
    resolve: Callable[[str], Policy]

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Decisions with what was chosen by hand put in."""
        return [self._one(request) for request in requests]

    def _one(self, request: Decide) -> Decision:
        name = self.store.runs.decider(request.episode_id, request.index)
        policy = self.inner if name == self.inner.id else self.resolve(name)
        choice = self.store.runs.override(request.episode_id, request.index)
        [decision] = policy.decide([request])
        return overridden(decision, choice, policy.models) if choice else decision


@dataclass(frozen=True, slots=True)
class LiveParts:
    """All that a live run needs besides the store."""

    plan: LivePlan
    pool: Pool
    policy: Steered
    grade: GradeMany

    def play(self, store: Store, run: str) -> Generator[Event, None, Ending]:
        """Play the plan's episodes one after another, until one does not end by itself."""
        for index in range(self.plan.repeats):
            ending = live_ending((yield from self.play_episode(store, run, index)))
            if ending[0] is not RunStatus.FINISHED:
                return ending
        return RunStatus.FINISHED, None

    def play_episode(self, store: Store, run: str, index: int) -> Generator[Event, None, Episode]:
        """Play one of the run's episodes to its end, or go on after its last stored turn; the episode as it ended."""
        plan, policy, name = self.plan, self.policy, episode_id(run, index)
        if any(one.id == name and one.status is Status.FINISHED for one in store.episodes.of_run(run)):
            return store.episodes.get(name)  # played before, by the worker that died or made way
        begun = {one.id: one for one in store.episodes.unfinished(run)}
        new = new_episode(
            run,
            index,
            plan.task,
            policy.inner,
            turns=plan.turns,
            seed=plan.seed + index,
            argmax=plan.argmax,
            protocol=plan.protocol,
        )
        episode = begun.get(name) or replace(new, left_out=plan.left_out)
        mask = tuple(model not in plan.left_out for model in policy.models)
        temperatures = {}
        if plan.temperature is not None:
            temperatures = {(name, turn): plan.temperature for turn in range(plan.turns)}
        events = drive(
            episode,
            policy,
            MeteredPool(self.pool, plan.max_cost_usd, store.runs.spent_usd(run)),
            self.grade,
            model_mask=() if all(mask) else mask,
            stop=LiveControl(store, run).stop,
            stored_replies=store.episodes.stored_replies(run),
            temperatures=temperatures,
            stream=True,
        )
        for event in record(store, events, owner=owner()):
            yield event
            if isinstance(event, TurnStarted) and plan.pace_s:
                # The decision stands on the page before the model is asked.
                time.sleep(min(plan.pace_s, 10.0))
            if isinstance(event, EpisodeFinished):
                episode = event.episode
        return episode


def prepare(store: Store, plan: LivePlan) -> LiveParts:
    """The parts of a plan; everything that can be wrong is found here, before anything is played."""
    pool = wiring.resolve_pool(plan.pool)
    models = tuple(spec.name for spec in pool.specs)
    policies = wiring.Policies(store, models, argmax=plan.argmax, encoder=plan.encoder)
    policy = Steered(policies.resolve(plan.policy), store, cache(policies.resolve))
    if not set(policy.models) - set(plan.left_out):
        raise ConfigError("Every model is left out: leave at least one in.")
    return LiveParts(plan, pool, policy, grading(store, [plan.task], plan.tasks))


def live_ending(ended: Episode) -> Ending:
    """How a run is over whose episode ended so, and why when that is a failure of the infrastructure."""
    if ended.end_reason is EndReason.CANCELLED:
        return RunStatus.CANCELLED, None
    if ended.status is Status.FINISHED:
        return RunStatus.FINISHED, None
    if ended.end_reason is EndReason.COST_CEILING:
        return RunStatus.INTERRUPTED, "The next call could exceed the cost ceiling: raise it to go on."
    return RunStatus.INTERRUPTED, ended.error
