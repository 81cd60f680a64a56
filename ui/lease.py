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


def place_of(name: str | None) -> str:
    """A process in words: by its number alone when it is one of this machine."""
    host, _, pid = (name or "").rpartition(":")
    return f"process {pid}" if host == socket.gethostname() else f"process {name or 'unknown'}"


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


def claim(store: Store, run_id: str) -> bool:
    """Take a run for this process, at once when the process that has it is gone; False when it is not free."""
    holder = store.runs.get(run_id).owner
    return store.runs.claim(run_id, owner(), dead=holder if is_dead(holder) else None)


def finish(
    store: Store, run_id: str, status: RunStatus = RunStatus.FINISHED, error: str | None = None
) -> None:
    """This process is done with the run. StoreError when another has taken it over."""
    store.runs.finish(run_id, status, error, owner=owner())


def take_over(store: Store, run_id: str, kind: str) -> None:
    """Claim a run of this kind to go on with it. StoreError when it is over or another process has it."""
    run = store.runs.get(run_id)
    if run.kind != kind:
        raise StoreError(
            f"Run {run_id} was recorded by 'trinity {run.kind}': it cannot be resumed by 'trinity {kind}'."
        )
    if claim(store, run_id):
        return
    run = store.runs.get(run_id)
    if run.status is RunStatus.RUNNING:
        raise StoreError(
            f"Run {run_id} is being played by process {run.owner}: wait for it, or stop it first."
        )
    raise StoreError(f"Run {run_id} is {run.status}: there is nothing to resume.")
