"""Plays a live run: its task as often as asked, under the policy of the plan or whoever a person puts in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.drive import drive
from core.episode import Decide, Decision, EndReason, Episode, EpisodeFinished, Status, TurnStarted
from core.errors import ConfigError
from core.policies import OverridePolicy
from core.policy import Around, Policy
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from storage.recorder import record
from storage.store import Store
from storage.summaries import RunStatus
from ui import wiring
from ui.halting import Stopped
from ui.lease import owner
from ui.live import LivePlan, episode_of
from ui.plan import birth
from ui.spending import MeteredPool, check_ceiling

#: How often a waiting worker looks whether it may go on, in seconds.
LOOK_S = 0.15
#: So long a paused run keeps a worker that another run waits for, in seconds.
PATIENCE_S = 120.0


@dataclass
class Reins:
    """What a person asks of the run, asked of the store: cancel, wait between turns, take over a decision."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _passed: tuple[str, int] = field(default=("", -1), init=False)  # the last turn that was let through

    def stop(self, episode: Episode) -> EndReason | None:
        """CANCELLED when asked to; before a new decision, wait here while the run is paused. Stopped when a paused run
        makes way for one that waits for its worker."""
        turn = episode.id, len(episode.turns)
        since = self.clock()
        while True:
            control = self.store.runs.control(self.run)
            if control.cancel:
                return EndReason.CANCELLED
            if turn == self._passed:
                return None
            if not control.paused or self.store.runs.take_step(self.run):
                self._passed = turn
                return None
            if self.clock() - since > PATIENCE_S and self.store.runs.next_waiting():
                raise Stopped("It waited for you, and made way for a run that waited for its worker.")
            self.sleep(LOOK_S)


@dataclass(frozen=True)
class Steered(Around):
    """The policy of the plan, or the one that a person put in its place from some turn on; except at turns that a
    person took over while the run was waiting."""

    store: Store
    resolve: Callable[[str], Policy]
    _known: dict[str, Policy] = field(default_factory=dict, init=False)

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Decisions with what was chosen by hand put in."""
        return [self._one(request) for request in requests]

    def _one(self, request: Decide) -> Decision:
        policy = self._policy(self.store.runs.decider(request.episode_id, request.index))
        choice = self.store.runs.override(request.episode_id, request.index)
        return OverridePolicy(policy, {request.index: choice} if choice else {}).decide([request])[0]

    def _policy(self, name: str) -> Policy:
        """The policy of a name, made ready at its first turn."""
        if name == self.inner.id:
            return self.inner
        if name not in self._known:
            self._known[name] = self.resolve(name)
        return self._known[name]


def play_live(store: Store, run: str) -> tuple[RunStatus, str | None]:
    """Play a claimed run from wherever it stands; how it is over, and why when that was not its end."""
    plan = LivePlan.from_config(store.runs.get(run).config)
    pool = wiring.resolve_pool(plan.pool, os.environ)
    models = tuple(spec.name for spec in pool.specs)
    policies = wiring.Policies(store, models, argmax=plan.argmax, encoder=plan.encoder)
    steered = Steered(policies.resolve(plan.policy), store, policies.resolve)
    try:
        for index in range(plan.repeats):
            status, why = outcome(play(store, run, plan, steered, pool, index))
            if status is not RunStatus.FINISHED:
                return status, why
    except Stopped as stopped:
        return RunStatus.INTERRUPTED, str(stopped)
    return RunStatus.FINISHED, None


def play(store: Store, run: str, plan: LivePlan, policy: Steered, pool: Pool, index: int = 0) -> Episode:
    """Play one of the run's episodes to its end, or go on after its last stored turn; the episode as it ended."""
    mask = tuple(model not in plan.left_out for model in policy.models)
    if not any(mask):
        raise ConfigError("Every model is left out: leave at least one in.")
    check_ceiling(pool.specs, plan.max_cost_usd)
    name = episode_of(run, index)
    if any(one.id == name and one.status is Status.FINISHED for one in store.episodes.of_run(run)):
        return store.episodes.get(name)  # played before, by the worker that died or made way
    begun = {one.id: one for one in store.episodes.unfinished(run)}
    episode = begun.get(name) or birth(
        run, index, plan.task, policy.inner, turns=plan.turns, seed=plan.seed + index, argmax=plan.argmax
    )
    events = drive(
        episode,
        policy,
        MeteredPool(pool, plan.max_cost_usd, store.runs.spent_usd(run)),
        grade_many,
        model_mask=() if all(mask) else mask,
        stop=Reins(store, run).stop,
        kept=store.episodes.kept(run),
        temperatures={(name, turn): plan.temperature for turn in range(plan.turns)}
        if plan.temperature is not None
        else None,
        stream=True,
    )
    for event in record(store, events, owner=owner()):
        if isinstance(event, TurnStarted) and plan.pace_s:
            time.sleep(min(plan.pace_s, 10.0))  # the decision stands on the page before the model is asked
        if isinstance(event, EpisodeFinished):
            episode = event.episode
    return episode


def outcome(ended: Episode) -> tuple[RunStatus, str | None]:
    """How a run is over whose episode ended so, and why when that is a failure of the infrastructure."""
    if ended.end_reason is EndReason.CANCELLED:
        return RunStatus.CANCELLED, None
    if ended.status is Status.FINISHED:
        return RunStatus.FINISHED, None
    if ended.end_reason is EndReason.COST_CEILING:
        return RunStatus.INTERRUPTED, "The next call could exceed the cost ceiling: raise it to go on."
    return RunStatus.INTERRUPTED, ended.meta.get("error")
