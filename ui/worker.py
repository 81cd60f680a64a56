"""The worker process of a run that a page has queued, whatever its kind: claims it, plays it, records everything,
and obeys what the page asks.

    TRINITY_STORE=URL python -m ui.worker --run RUN

The page never plays anything itself, so no click and no closed browser can end a run.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from core.drive import drive
from core.episode import (
    Decide,
    Decision,
    EndReason,
    Episode,
    EpisodeFinished,
    Status,
    TurnStarted,
)
from core.errors import ConfigError, TrinityError
from core.policies import OverridePolicy
from core.policy import Policy
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from storage.recorder import beating, record
from storage.store import Store, open_store
from storage.summaries import RunStatus
from ui import evolving, forking, reencoding, wiring
from ui.lease import claim, finish, owner
from ui.live import LivePlan, episode_of
from ui.plan import birth
from ui.spending import MeteredPool, check_ceiling

log = logging.getLogger(__name__)

#: How often a waiting worker looks whether it may go on, in seconds.
LOOK_S = 0.15


@dataclass
class Reins:
    """What a person asks of the run, asked of the store: cancel, wait between turns, take over a decision."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    _passed: int = field(default=-1, init=False)  # the last turn that was let through

    def stop(self, episode: Episode) -> EndReason | None:
        """CANCELLED when asked to; before a new decision, wait here while the run is paused."""
        turn = len(episode.turns)
        while True:
            control = self.store.runs.control(self.run)
            if control.cancel:
                return EndReason.CANCELLED
            if turn == self._passed:
                return None
            if not control.paused or self.store.runs.take_step(self.run):
                self._passed = turn
                return None
            self.sleep(LOOK_S)


@dataclass(frozen=True)
class Steered:
    """The policy of the plan, except at turns that a person took over while the run was waiting."""

    inner: Policy
    store: Store

    @property
    def id(self) -> str:
        """The inner policy's id."""
        return self.inner.id

    @property
    def models(self) -> tuple[str, ...]:
        """The inner policy's slots."""
        return self.inner.models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Decisions with what was chosen by hand put in."""
        return [self._one(request) for request in requests]

    def _one(self, request: Decide) -> Decision:
        choice = self.store.runs.override(request.episode_id, request.index)
        return OverridePolicy(self.inner, {request.index: choice} if choice else {}).decide([request])[0]


def play(store: Store, run: str, plan: LivePlan, policy: Policy, pool: Pool) -> Episode:
    """Play the run's episode to its end, or go on after its last stored turn; the episode as it ended."""
    mask = tuple(model not in plan.left_out for model in policy.models)
    if not any(mask):
        raise ConfigError("Every model is left out: leave at least one in.")
    check_ceiling(pool.specs, plan.max_cost_usd)
    if any(one.status is Status.FINISHED for one in store.episodes.of_run(run)):
        return store.episodes.get(episode_of(run))  # the worker before died before it could say so
    reins = Reins(store, run)
    begun = {one.id: one for one in store.episodes.unfinished(run)}
    episode = begun.get(episode_of(run)) or birth(
        run, 0, plan.task, policy, turns=plan.turns, seed=plan.seed, argmax=plan.argmax
    )
    events = drive(
        episode,
        Steered(policy, store),
        MeteredPool(pool, plan.max_cost_usd, store.runs.spent_usd(run)),
        grade_many,
        model_mask=() if all(mask) else mask,
        stop=reins.stop,
        kept=store.episodes.kept(run),
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
    return RunStatus.INTERRUPTED, ended.meta.get("error")


def work(store: Store, run: str) -> int:
    """Claim the run and see it through; the exit code. A failure is told in the run, in one sentence."""
    if not claim(store, run):
        return 0  # another worker has it, or it is over
    kind = store.runs.get(run).kind
    try:
        with beating(store, run, owner()):
            ended = _PLAYERS.get(kind, _play_live)(store, run)
        finish(store, run, *ended)
        return int(ended[0] is RunStatus.FAILED)
    except TrinityError as error:
        finish(store, run, RunStatus.FAILED, str(error))
        return 1
    except KeyboardInterrupt:
        finish(store, run, RunStatus.INTERRUPTED, "The worker was stopped; it can be resumed.")
        return 130
    except Exception as error:
        log.exception("The worker of run %s broke", run)
        broke = f"The worker broke: {type(error).__name__}. "
        if kind in _PLAYERS:  # all that was played is kept
            finish(store, run, RunStatus.INTERRUPTED, broke + "It can be resumed.")
        else:
            finish(store, run, RunStatus.FAILED, broke + "Start the run again.")
        return 1


def _play_live(store: Store, run: str) -> tuple[RunStatus, str | None]:
    plan = LivePlan.from_config(store.runs.get(run).config)
    pool = wiring.resolve_pool(plan.pool, os.environ)
    models = tuple(spec.name for spec in pool.specs)
    policy = wiring.Policies(store, models, argmax=plan.argmax, encoder=plan.encoder).resolve(plan.policy)
    return outcome(play(store, run, plan, policy, pool))


#: Who plays a run of a kind that is not "live": how it is over, and why when that was not its end.
_PLAYERS: dict[str, Callable[[Store, str], tuple[RunStatus, str | None]]] = {
    "evolve": evolving.play,
    "fork": forking.play,
    "reencode": reencoding.play,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's door."""
    parser = argparse.ArgumentParser(prog="python -m ui.worker", description="Play one queued run.")
    parser.add_argument("--run", required=True, help="the run's id")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, _interrupt)
    store = open_store(wiring.settings().store)
    try:
        return work(store, asked.run)
    except TrinityError as error:  # not even the run could be told: another process has it, or it is gone
        log.error("%s", error)
        return 1
    finally:
        store.close()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
