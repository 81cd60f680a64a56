"""Who works: this process's name in the store, taking over a run whose process died, and the slots of this machine's
workers.

A worker holds a numbered slot for as long as it lives, a locked file that the system frees when its process dies, and
writes its name beside it: not into it, because Windows lets nobody read a locked file. Workers that pages start take
the slots below the settings' `workers` and leave when nothing waits; those a person starts with `trinity worker` take
any slot and stay."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from core.errors import ConfigError, StoreError
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.runs import wiring

#: host:pid@start; the start is wanting where it is not known.
_NAME = re.compile(r"(?P<host>.*):(?P<pid>[0-9]{1,10})(?:@(?P<start>[0-9]{1,18}))?")
#: How far two readings of one process's start may lie apart, in hundredths of a second.
_SLACK = 100


@cache
def owner() -> str:
    """This process: host, process id, and when it began, which tells it from a later process with the same id."""
    return process_name(os.getpid())


def process_words(name: str | None) -> str:
    """A process in words: by its number alone when it is one of this machine."""
    found = _NAME.fullmatch(name or "")
    if found and found["host"] == socket.gethostname():
        return f"process {found['pid']}"
    return f"process {found['host']}:{found['pid']}" if found else f"process {name or 'unknown'}"


def is_dead(name: str | None) -> bool:
    """Whether the named process surely is gone. False for another host's: its heartbeat has to tell."""
    found = _NAME.fullmatch(name or "")
    if found is None or found["host"] != socket.gethostname():
        return False
    try:
        process = psutil.Process(int(found["pid"]))
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return found["start"] is not None and abs(_start(process) - int(found["start"])) > _SLACK
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def process_name(pid: int) -> str:
    """The process of this machine with this id, as it names itself by `owner`; empty when it is gone."""
    try:
        return f"{socket.gethostname()}:{pid}@{_start(psutil.Process(pid))}"
    except psutil.NoSuchProcess:
        return ""


def _start(process: psutil.Process) -> int:
    """When a process began, in hundredths of a second: on Linux since the machine's start, because there the time of
    day at which it began moves whenever the clock is set."""
    since = psutil.boot_time() if psutil.LINUX else 0.0
    began: float = process.create_time() - since
    return round(100 * began)


def mark_dead(store: Store) -> None:
    """Runs whose process is gone, or has given no sign of life for long, become interrupted with their episodes."""
    store.runs.mark_interrupted(is_dead=is_dead)


def claim(store: Store, run_id: str) -> bool:
    """Take a run for this process, at once when the process that has it is gone; False when it is not free."""
    holder = store.runs.get(run_id).owner
    return store.runs.claim(run_id, owner(), dead=holder if is_dead(holder) else None)


def finish(
    store: Store, run_id: str, status: RunStatus = RunStatus.FINISHED, error: str | None = None
) -> None:
    """This process is done with the run. StoreError when another has taken it over."""
    store.runs.finish(run_id, status, error, owner=owner())


def take_over(store: Store, run_id: str) -> None:
    """See to it that this process has the run. StoreError when it is over or another process has it."""
    run = store.runs.get(run_id)
    if (run.status is RunStatus.RUNNING and run.owner == owner()) or claim(store, run_id):
        return
    run = store.runs.get(run_id)
    if run.status is RunStatus.RUNNING:
        raise StoreError(
            f"Run {run_id} is being played by {process_words(run.owner)}: wait for it, or stop it first."
        )
    raise StoreError(f"Run {run_id} is {run.status}: there is nothing to resume.")


def folder() -> Path:
    """Where the slots of the store in use are; workers of another store have others."""
    return wiring.data_folder() / "workers" / wiring.store_digest(wiring.settings())


@contextmanager
def slot(most: int) -> Iterator[int | None]:
    """The number of a free slot below `most`, held while the block runs; None when all are taken."""
    for number in range(most):
        lock, name = FileLock(folder() / f"{number}.lock", mode=0o600), _name(number)
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            held = lock.acquire(blocking=False)
        except Timeout:
            continue
        except OSError as error:
            raise ConfigError(
                f"No worker can be started: {lock.lock_file} cannot be written ({error.strerror})."
            ) from error
        with held:
            name.write_text(owner(), "utf-8")
            try:
                yield number
            finally:
                name.unlink(missing_ok=True)
        return
    yield None


def _name(number: int) -> Path:
    return folder() / f"{number}.worker"


def alive() -> list[str]:
    """The workers of this machine and store, each as the owner it is of the run it plays."""
    found = []
    for file in sorted(folder().glob("*.worker")):
        try:
            name = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if name and not is_dead(name):
            found.append(name)
    return found
