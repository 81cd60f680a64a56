"""A live run's plan: one task under one policy, kept with the run for the worker that plays or resumes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.episode import Task
from core.errors import StoreError
from core.ids import episode_id
from storage.runs import STALLED_AFTER_S
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import wiring
from ui.lease import is_dead
from ui.tickets import Ticket, enqueue
from ui.workers import alive


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is played live: the task `repeats` times, with seeds from `seed` on. `left_out` are models masked before the
    softmax; `temperature` is at which the models are asked (None: as their pool says); `pace_s` is how long a
    decision is shown before the model is asked; `pool` is "pocket" or a pool.toml's path."""

    task: Task
    policy: str
    models: tuple[str, ...]
    pool: str = "pocket"
    encoder: str | None = None
    left_out: tuple[str, ...] = ()
    turns: int = 5
    seed: int = 0
    argmax: bool = False
    step: bool = False
    pace_s: float = 0.0
    max_cost_usd: float | None = None
    repeats: int = 1
    temperature: float | None = None

    def to_config(self) -> dict[str, Any]:
        """The plan as a run's config."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LivePlan:
        """Inverse of `to_config`; StoreError when the run was recorded by something else."""
        try:
            values = dict(config)
            values["task"] = Task(**values["task"])
            for name in ("models", "left_out"):
                values[name] = tuple(values[name])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise StoreError(
                "This run was not started on the Live page: resume it with 'trinity run --resume'."
            ) from error


def queue(store: Store, plan: LivePlan, ticket: Ticket) -> tuple[str, bool]:
    """Write the run down as queued; its id, and whether this call did it. In step mode it waits before the first
    decision."""
    run, fresh = enqueue(store, "live", plan.to_config(), ticket)
    if fresh and plan.step:
        store.runs.pause(run)
    return run, fresh


def start_worker(store: Store, run: str) -> int | None:
    """See to it that a worker takes what waits: start one that outlives this process, unless there are as many as there
    may be. Its process id; None when those that live will do. What it says goes to the log of `run`."""
    if len(alive()) >= wiring.settings().workers:
        return None  # one that is about to leave looks once more at what waits
    # By the environment: a command line, and with it a database's password, is seen by everybody here.
    environment = os.environ | {"TRINITY_STORE": store.address}
    log = log_file(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "ui.worker"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    # Waited for, so that a dead worker is gone for good and seen to be gone.
    threading.Thread(target=process.wait, name=f"worker {process.pid}", daemon=True).start()
    return process.pid


def log_file(run: str) -> Path:
    """Where the worker that plays a run writes what went wrong."""
    return wiring.data_folder() / "workers" / f"{Path(run).name}.log"


def resume(store: Store, run: str) -> None:
    """Let a run that stands still wait for a worker again, and see to it that there is one. StoreError when it is
    being played, or over."""
    store.runs.mark_interrupted()
    holder = store.runs.get(run).owner
    store.runs.requeue(run, dead=holder if is_dead(holder) else None)
    start_worker(store, run)


def episode_of(run: str, index: int = 0) -> str:
    """The id of a live run's episode number `index`."""
    return episode_id(run, index)


def is_stalled(run: RunSummary, now: float) -> bool:
    """Whether the process that plays a run is gone or silent, or none has come to take it though none is busy."""
    if run.status is RunStatus.QUEUED:
        return now - (run.heartbeat or run.created) > STALLED_AFTER_S and not alive()
    if run.status is RunStatus.RUNNING:
        return is_dead(run.owner) or now - (run.heartbeat or run.created) > STALLED_AFTER_S
    return False


def has_died(run: RunSummary, now: float) -> bool:
    """Whether the process that played a run went silent without a word, however long ago."""
    return is_stalled(run, now) or (run.status is RunStatus.INTERRUPTED and run.finished is None)


def starts_workers() -> bool:
    """Whether the app starts workers itself; else somebody has to run `trinity worker`."""
    return wiring.settings().workers > 0


def workers_words(waiting: int) -> str:
    """How many workers there are, and what to do when there is none and some runs wait."""
    most, live_ones = wiring.settings().workers, len(alive())
    if not most and not live_ones and waiting:
        return "No worker is there, and the app starts none: start one with `trinity worker`."
    if not live_ones:
        return (
            f"No worker is busy. Up to {most} runs are played at a time." if most else "No worker is there."
        )
    return f"{live_ones} worker{'s' if live_ones > 1 else ''} at work; the app starts up to {most}."


def waiting_words(store: Store, run: RunSummary) -> str:
    """What a run that is queued waits for."""
    line = [one.id for one in store.runs.waiting()]
    before = line.index(run.id) if run.id in line else 0
    workers = alive()
    if not workers:
        starts = "a worker is being started" if starts_workers() else "start one with `trinity worker`"
        return f"Waiting for a worker: {starts} …"
    ahead = f"{before} run{'s' if before > 1 else ''} before it" if before else "it is the next"
    busy = f"{len(workers)} worker{' is' if len(workers) == 1 else 's are'} at work"
    return f"Waiting for a worker: {busy}, {ahead} …"
