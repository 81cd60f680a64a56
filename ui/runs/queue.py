"""Runs that wait for a worker: writing a plan down as one, starting workers, telling which runs stand still; and the
worker that the app keeps ready.

That one has loaded everything, so that what a person waits for begins at once. It belongs to one app and one store,
plays only runs that are `awaited`, and leaves with the app. The app holds one end of its standard input: a line says
that a run waits, the end of the input that the app is gone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from core.errors import ConfigError, StoreError
from core.ids import run_id
from storage.rows.summaries import RunKind, RunStatus, RunSummary
from storage.shelves.lease import STALLED_AFTER_S
from storage.store import Store
from ui.runs import lease, wiring
from ui.runs.lease import alive, is_dead, mark_dead, process_name
from ui.runs.plans import AWAITED, AttributionPlan, LivePlan, RereadPlan, RunPlan, known_plan, to_config
from ui.runs.settings.learning import LearningPlan

#: Kinds of runs that learn.
LEARNING: tuple[RunKind, ...] = ("evolve", "train")
#: The interpreter that workers run in.
PYTHON = sys.executable


def start_worker(store: Store, run: str) -> int | None:
    """See to it that a worker takes what waits: the one that the app keeps ready where a person waits for it, else one
    that is started and outlives this process, unless there are as many as there may be. Its process id; None when those
    that live will do. What it says goes to the log of `run`."""
    # Read before it is seen who is at work.
    awaited = [one.id for one in store.runs.waiting() if one.kind in AWAITED]
    if run in awaited:
        stand_by.keep(store)
    if len(alive()) >= wiring.settings().workers:
        return None  # one that is about to leave looks once more at what waits
    if awaited == [run] and (ready := stand_by.takes(store)) is not None:
        return ready
    process = _process(store.address, log_file(run), "ab", subprocess.DEVNULL)
    # Waited for, so that a dead worker is gone for good and seen to be gone.
    threading.Thread(target=process.wait, name=f"worker {process.pid}", daemon=True).start()
    return process.pid


def _process(address: str, log: Path, mode: str, stdin: int, *options: str) -> subprocess.Popen[bytes]:
    """A worker's process for the store at this address, which says what it has to say to a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open(mode) as said:
        return subprocess.Popen(
            [PYTHON, "-m", "ui.runs.worker", *options],
            # By the environment: a command line, and with it a database's password, is seen by everybody here.
            env=os.environ | {"TRINITY_STORE": address},
            stdin=stdin,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the app
        )


def log_file(run: str) -> Path:
    """Where the worker that plays a run writes what went wrong."""
    return wiring.data_folder() / "workers" / f"{Path(run).name}.log"


def resume(store: Store, run: str) -> None:
    """Let a run that stands still wait for a worker, and see to it that there is one. StoreError when it does not."""
    mark_dead(store)
    holder = store.runs.get(run).owner
    store.runs.requeue(run, dead=holder if is_dead(holder) else None)
    start_worker(store, run)


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


@dataclass(frozen=True, slots=True)
class Ticket:
    """Given out with each form: the same options from the same form are the same run."""

    at: int = field(default_factory=lambda: int(time.time()))
    nonce: str = field(default_factory=lambda: os.urandom(16).hex())

    def run(self, config: Mapping[str, Any]) -> str:
        """The id of the run that these options begin."""
        options = json.dumps([self.nonce, dict(config)], sort_keys=True)
        return run_id(self.at, hashlib.sha256(options.encode()).digest()[:16])


def begin(store: Store, plan: RunPlan, ticket: Ticket) -> str:
    """`enqueue` a plan, and see to it that a worker takes it; the run's id."""
    run, fresh = enqueue(store, plan, ticket)
    if fresh:
        start_worker(store, run)
    return run


def enqueue(store: Store, plan: RunPlan, ticket: Ticket, *, owner: str | None = None) -> tuple[str, bool]:
    """Write a plan down as a run that waits, or that its `owner` plays at once; its id, and whether this call did it
    and not one with the same ticket, or for the same transcripts, before. A live run in step mode waits before its
    first decision. ConfigError when the name of what learns is taken."""
    kind = plan.kind
    config, name = to_config(plan), plan.name if isinstance(plan, LearningPlan) else ""
    run = ticket.run({**config, "name": name})
    if isinstance(plan, RereadPlan | AttributionPlan) and (other := _reading(store, plan)):
        return other, False
    if name and store.runs.find(name, *LEARNING) not in (None, run):
        raise ConfigError(
            f"There is an evolution or a training named '{name}': choose another name, or go on with that one."
        )
    try:
        status = RunStatus.RUNNING if owner else RunStatus.QUEUED
        store.runs.create(run, kind, config, name=name, status=status, owner=owner)
    except StoreError:
        if store.runs.find(run, kind) is None:
            raise
        return run, False
    if isinstance(plan, LivePlan) and plan.step:
        store.runs.pause(run)
    return run, True


def _reading(store: Store, plan: RereadPlan | AttributionPlan) -> str | None:
    """The run that reads these transcripts already, waiting or under way."""
    for run in store.runs.list(kind=cast(RunKind, plan.kind), limit=20):
        other = known_plan(run) if run.status in (RunStatus.QUEUED, RunStatus.RUNNING) else None
        if other == plan or (
            isinstance(plan, RereadPlan)
            and isinstance(other, RereadPlan)
            and other.asks_for(plan.checkpoints, plan.scope)
        ):
            return run.id
    return None


log = logging.getLogger(__name__)

#: A worker that dies is replaced; one that lived for less than SHORT_S only after PAUSE_S, and not more than MOST_SHORT
#: in a row.
SHORT_S, PAUSE_S, MOST_SHORT = 30.0, 10.0, 3
#: The option with which the worker's process is started.
OPTION = "--stand-by"


@dataclass
class StandBy:
    """The app's hold on the worker that it keeps ready. Nothing is started before the app `allow`s it, and none where
    the settings let the app start no workers."""

    _allowed: bool = False
    _address: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _owner: str = ""
    _short_lives: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allow(self) -> None:
        """From here on this process is an app, which may keep a worker ready."""
        self._allowed = True

    def keep(self, store: Store) -> None:
        """See to it that a worker is ready for this store from here on, or is getting ready."""
        with self._lock:
            if not self._allowed or self._process or store.read_only or not wiring.settings().workers:
                return
            if self._short_lives < MOST_SHORT:
                self._address = store.address
                self._start()

    def takes(self, store: Store) -> int | None:
        """Tell the worker that a run of this store waits. Its process id; None when there is none, or it is busy."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None or self._address != store.address:
                return None
            if self._owner in lease.alive():
                return None
            try:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            except (OSError, ValueError):  # it is just dying, or its pipe was closed with the app
                return None
            return process.pid

    def close(self) -> None:
        """Let the worker go: at once, or when what it plays is over."""
        with self._lock:
            self._allowed = False
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def _start(self) -> None:
        log = lease.folder() / "stand-by.log"
        self._process = _process(self._address, log, "wb", subprocess.PIPE, OPTION)
        self._owner = process_name(self._process.pid)
        threading.Thread(
            target=self._attend, args=[self._process], name=f"worker {self._process.pid}", daemon=True
        ).start()

    def _attend(self, process: subprocess.Popen[bytes]) -> None:
        began = time.monotonic()
        process.wait()
        short = time.monotonic() - began < SHORT_S
        with self._lock:
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # what was said last is heard by nobody
                process.stdin.close()
            self._process = None
            self._short_lives = self._short_lives + 1 if short else 0
            again = self._allowed and self._short_lives < MOST_SHORT
        if not again:
            return
        log.warning("The worker that was kept ready ended (%s); another is started.", process.returncode)
        if short:
            time.sleep(PAUSE_S)
        with self._lock:
            if self._allowed and self._process is None:
                self._start()


#: The one of this process.
stand_by = StandBy()
