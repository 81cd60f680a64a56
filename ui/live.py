"""A live run's plan: one task under one policy, kept with the run for the worker that plays or resumes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
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


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is played live. `left_out` are models masked before the softmax; `pace_s` is how long a decision
    is shown before the model is asked; `pool` is "pocket" or a pool.toml's path."""

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


def start_worker(store: Store, run: str) -> int:
    """Start the process that plays a queued or interrupted run and outlives this one; its process id."""
    # By the environment: a command line, and with it a database's password, is seen by everybody here.
    environment = os.environ | {"TRINITY_STORE": store.address}
    log = log_file(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "ui.worker", "--run", run],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    # Waited for, so that a dead worker is gone for good and seen to be gone.
    threading.Thread(target=process.wait, name=f"worker {run}", daemon=True).start()
    return process.pid


def resume(store: Store, run: str) -> None:
    """Start a worker on a run that stands still, and wait until one has claimed it: before that, pages would
    still say that it stands still."""
    store.runs.mark_interrupted()
    before = store.runs.get(run).heartbeat
    start_worker(store, run)
    deadline = time.monotonic() + 8.0
    while time.monotonic() < deadline and store.runs.get(run).heartbeat == before:
        time.sleep(0.2)


def log_file(run: str) -> Path:
    """Where a run's worker writes what went wrong."""
    return wiring.data_folder() / "workers" / f"{Path(run).name}.log"


def episode_of(run: str) -> str:
    """The id of a live run's one episode."""
    return episode_id(run, 0)


def is_stalled(run: RunSummary, now: float) -> bool:
    """Whether the process that plays a run, or should have claimed it by now, is gone or silent."""
    if run.status not in (RunStatus.QUEUED, RunStatus.RUNNING):
        return False
    return is_dead(run.owner) or now - (run.heartbeat or run.created) > STALLED_AFTER_S
