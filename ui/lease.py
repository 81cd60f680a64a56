"""Who works on a run: this process's name in the store, and taking over a run whose process died."""

from __future__ import annotations

import os
import socket

from core.errors import StoreError
from storage.store import Store
from storage.summaries import RunStatus


def owner() -> str:
    """This process: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(name: str | None) -> bool:
    """Whether the named process surely is gone. False for another host's: its heartbeat has to tell."""
    host, _, pid = (name or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def take_over(store: Store, run_id: str, kind: str) -> None:
    """Claim a run of this kind to go on with it. StoreError when it is over or another process has it."""
    run = store.runs.get(run_id)
    if run.kind != kind:
        raise StoreError(
            f"Run {run_id} was recorded by 'trinity {run.kind}': it cannot be resumed by 'trinity {kind}'."
        )
    free = store.runs.claim(run_id, owner(), 0.0) if is_dead(run.owner) else store.runs.claim(run_id, owner())
    if free:
        return
    if run.status is RunStatus.RUNNING:
        raise StoreError(
            f"Run {run_id} is being played by process {run.owner}: wait for it, or stop it first."
        )
    raise StoreError(f"Run {run_id} is {run.status}: there is nothing to resume.")
