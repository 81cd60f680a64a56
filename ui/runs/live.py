"""Plays a live run: its task as often as asked, under the policy of the plan or whoever a person puts in its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from core.episode import (
    Decide,
    Decision,
    EndReason,
    Episode,
    EpisodeFinished,
    Event,
    Judgement,
    Plan,
    Replied,
    Status,
    TurnStarted,
)
from core.errors import ConfigError, TrinityError
from core.ids import episode_id
from core.play.drive import GradeMany, drive
from core.play.judging import check_judge
from core.play.policies import Policy, WrappedPolicy, new_episode, override_decision
from core.play.session import propose
from core.pool.pool import Pool
from core.pool.spec import slots_of
from storage.recorder import record
from storage.rows.summaries import Proposal, RunStatus
from storage.store import Store
from ui.runs import wiring
from ui.runs.grading import grading
from ui.runs.learning import tasks_seen
from ui.runs.lease import owner
from ui.runs.plans import LivePlan, Preparation
from ui.runs.play import Ending, LiveControl, decompositions, metered, prepare_run
from ui.runs.policies import Policies


@dataclass(eq=False)
class Steered(WrappedPolicy):
    """The policy of the plan, or the one that a person put in its place from some turn on; except at turns that a
    person took over while the run was waiting."""

    store: Store
    resolve: Callable[[str], Policy]
    run: str = field(default="", init=False)  # as soon as it is played
    _decided: dict[tuple[str, Decide], Decision] = field(default_factory=dict)  # the last one

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Decisions with what was chosen by hand put in."""
        return [self._one(request) for request in requests]

    def policy_for(self, episode: Episode) -> Policy:
        """Whoever plays an episode: a planner writes its workflows unsteered, because no turns are decided in them."""
        return self if self.inner.decides_turns else self.inner

    def _one(self, request: Decide) -> Decision:
        decision = self.unsteered(request)
        choice = self.store.runs.override(request.episode_id, request.index)
        return override_decision(decision, choice, self.models) if choice else decision

    def unsteered(self, request: Decide) -> Decision:
        """What whoever is in charge decides. What was proposed is not worked out once more when it is played."""
        decided = self.in_charge(request.episode_id, request.index), request
        if decided not in self._decided:
            [decision] = self._policy(decided[0]).decide([request])
            self._decided.clear()
            self._decided[decided] = decision
        return self._decided[decided]

    def in_charge(self, episode: str, index: int) -> str:
        """The policy that decides a turn unless a person does."""
        return self.store.runs.decider(episode, index)

    def _policy(self, name: str) -> Policy:
        """The policy of a name; where its checkpoint was deleted, a ConfigError that says what can still be done."""
        if name == self.inner.id:
            return self.inner
        try:
            policy = self.resolve(name)
            for _ in prepare_run(self.store, self.run, decompositions([policy])):
                pass  # the page reads it
            return policy
        except TrinityError as error:
            raise ConfigError(
                f"A person switched this play to '{name}', which cannot decide: {error} Resume it paused and "
                "choose another coordinator, or play the problem again: the turns that were played are kept."
            ) from error


@dataclass
class _Proposals:
    """Shows what would be decided for a turn, as long as it waits for a person. `model_mask` as in `play`."""

    policy: Steered
    model_mask: Sequence[bool]
    _shown: tuple[str, int, str] | None = None

    def show(self, episode: Episode) -> None:
        """Of the turn that the episode waits before, anew when another is to decide it; nothing of a workflow, which is
        planned as a whole."""
        if not self.policy.inner.decides_turns:
            return
        index, runs = len(episode.turns), self.policy.store.runs
        name = self.policy.in_charge(episode.id, index)
        if self._shown != (episode.id, index, name):
            try:
                decision = propose(episode, self.policy.unsteered, model_mask=self.model_mask)
            except ConfigError as error:  # the run waits on: a person can still choose another
                runs.propose(episode.id, index, Proposal(name, None, str(error.__cause__ or error)))
            else:
                if decision is not None:
                    runs.propose(episode.id, index, Proposal(name, decision))
            self._shown = episode.id, index, name

    def clear(self) -> None:
        """It waits no longer."""
        if self._shown is not None:
            self.policy.store.runs.drop_proposal(self._shown[0])
            self._shown = None


@dataclass(frozen=True, slots=True)
class LiveParts:
    """All that a live run needs besides the store."""

    plan: LivePlan
    pool: Pool
    policy: Steered
    grade: GradeMany
    policies: Policies

    def play(self, store: Store, run: str) -> Generator[Event | Preparation, None, Ending]:
        """Play the plan's episodes one after another, until one does not end by itself; first its encoder is made
        ready."""
        self.policies.play_in(run)
        self.policy.run = run
        self.policies.play_in(run)
        yield from prepare_run(store, run, decompositions([self.policy]))
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
        open_mask = () if all(mask) else mask
        workflows = bool(policy.inner.rounds)
        temperature = plan.temperature
        proposals = _Proposals(policy, open_mask)
        with metered(store, run, self.pool, plan.max_cost_usd) as paid:
            events = drive(
                episode,
                policy,
                paid,
                self.grade,
                model_mask=open_mask,
                stop=LiveControl(store, run, waits=proposals.show).stop,
                stored_replies=store.episodes.stored_replies(run),
                terms=None if temperature is None else lambda _, ask: replace(ask, temperature=temperature),
                stream=not workflows,  # their steps are asked side by side
            )
            try:
                for event in record(store, events, owner=owner()):
                    if isinstance(event, TurnStarted):
                        proposals.clear()
                    if isinstance(event, Replied | Plan | Judgement):
                        paid.note()  # a person may have the next turn wait for long
                    yield event
                    if plan.pace_s and isinstance(event, Plan if workflows else TurnStarted):
                        # The decision, or the workflow, stands on the page before models are asked.
                        time.sleep(min(plan.pace_s, 10.0))
                    if isinstance(event, EpisodeFinished):
                        episode = event.episode
            finally:
                proposals.clear()
        return episode


def prepare(store: Store, plan: LivePlan) -> LiveParts:
    """The parts of a plan; everything that can be wrong is found here, before anything is played."""
    pool = wiring.resolve_pool(plan.pool)
    models = tuple(spec.name for spec in slots_of(pool.specs))
    policies = Policies(store, models, argmax=plan.argmax, encoder=plan.encoder, computing=plan.computing)
    policy = Steered(policies.resolve(plan.policy), store, cache(policies.resolve))
    wiring.check_recorded(pool, [plan.task], [policy])
    check_judge(pool.specs, [plan.task])
    if not set(policy.models) - set(plan.left_out):
        raise ConfigError("Every model is left out: leave at least one in.")
    policies.told += tasks_seen(store, [plan.policy], models, [plan.task], plan.tasks)
    return LiveParts(plan, pool, policy, grading(store, [plan.task], plan.tasks), policies)


def live_ending(ended: Episode) -> Ending:
    """How a run is over whose episode ended so, and why when that is a failure of the infrastructure."""
    if ended.end_reason is EndReason.CANCELLED:
        return RunStatus.CANCELLED, None
    if ended.status is Status.FINISHED:
        return RunStatus.FINISHED, None
    if ended.end_reason is EndReason.COST_CEILING:
        return RunStatus.INTERRUPTED, "The next call could exceed the cost ceiling: raise it to go on."
    return RunStatus.INTERRUPTED, ended.error
