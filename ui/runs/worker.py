"""A worker process: takes the runs that pages have queued, whatever their kind, and sees them through one by one.

    TRINITY_STORE=URL python -m ui.runs.worker

The page never plays anything itself, so no click and no closed browser can end a run. A run is claimed in the store
before it is played, so that no two workers play the same.

With `--stand-by` it is the one that an app keeps ready (`StandBy`).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from core.errors import TrinityError
from core.processes import doomed
from core.settings import POCKET_POOL, Settings
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from ui.program import interruptible
from ui.runs import play as playing
from ui.runs import wiring
from ui.runs.lease import claim, slot
from ui.runs.plans import AWAITED
from ui.runs.play import play
from ui.runs.queue import OPTION, log_file, start_worker

log = logging.getLogger(__name__)

#: How often a worker that stays looks whether a run waits, in seconds.
LOOK_S = 0.5
#: The exit code of a process that was stopped by Ctrl-C or SIGTERM.
INTERRUPTED = 130


def play_claimed(store: Store, run: str) -> int:
    """Claim the run and see it through; the exit code. A failure is told in the run, in one sentence."""
    if not claim(store, run):
        return 0  # another worker has it, or it is over
    try:
        for _ in play(store, run):
            pass
    except TrinityError:  # not even the run could be told: another process has it, or it is gone
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        log.exception("The worker of run %s broke", run)
        return 1
    finally:
        wiring.leave_cluster()
    return int(store.runs.get(run).status is RunStatus.FAILED)


def serve(store: Store, most: int, announce: Callable[[str], object], *, stay: bool = False) -> int:
    """Hold a slot below `most` and play what waits, the oldest first, one after another; the exit code. Leaves when
    nothing waits, or at once when all slots are taken, unless it is to `stay`. `announce` is given each run's id before
    it is played."""
    while True:
        with slot(most) as number:
            if number is None or (code := _play_all(store, announce, stay)):
                return 0 if number is None else code
        if store.runs.next_waiting() is None:  # after the slot is free: who queues now starts another
            return 0


def _play_all(store: Store, announce: Callable[[str], object], stay: bool) -> int:
    """Play until nothing waits, or for ever; not 0 when it was interrupted."""
    while True:
        run = store.runs.next_waiting()
        if run is None and not stay:
            return 0
        if run is None:
            time.sleep(LOOK_S)
            continue
        announce(run)
        if play_claimed(store, run) == INTERRUPTED:
            return INTERRUPTED
        if doomed.is_set():  # Ray would end it in the middle of the next run
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class App:
    """The worker's view of the app that keeps it: whether it is still there, and whether it has said that a run
    waits."""

    def __init__(self) -> None:
        self._said = threading.Event()
        self.gone = threading.Event()
        held = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what this process starts, such as a grader, must not read what is said to it
        os.close(nothing)
        threading.Thread(target=self._listen, args=[held], name="app", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Until the app says something, it is gone, or the time is over."""
        self._said.wait(seconds)
        self._said.clear()

    def _listen(self, said: int) -> None:
        while os.read(said, 4096):
            self._said.set()
        self.gone.set()
        self._said.set()


def stand_by(store: Store, settings: Settings, app: App) -> int:
    """Play the runs that a person waits for, as soon as they are queued, until the app is gone; get ready meanwhile.
    What is being played when the app goes is played to its end, unless it waits for a person. The exit code."""
    playing.leaving = app.gone
    getting_ready = _get_ready(settings)
    while not app.gone.is_set():
        run = store.runs.next_waiting(AWAITED)
        if run is None:
            if next(getting_ready, None) is None:
                app.wait(LOOK_S)
            continue
        with slot(settings.workers) as number:
            if number is not None:
                _log_into(run)
                if play_claimed(store, run) == INTERRUPTED:
                    return INTERRUPTED
        if number is None:
            app.wait(LOOK_S)  # as many are at work as may be
        elif (other := store.runs.next_waiting()) is not None:  # it may have waited for this slot
            start_worker(store, other)
    return 0


def _get_ready(settings: Settings) -> Iterator[str]:
    """Load, step by step, what a first decision needs. Nothing of a store or of a pool.toml, and no model is asked."""
    for module in ("ui.runs.live", "core.pool_file", "core.coordinator.coordinator", "ui.runs.reading"):
        importlib.import_module(module)
        yield module
    encoder = settings.encoder or (POCKET_POOL if settings.pool == POCKET_POOL else "")
    if encoder == POCKET_POOL or os.path.isdir(
        wiring.encoder_source(encoder)
    ):  # a hub id is not fetched before it is needed
        with contextlib.suppress(TrinityError):  # the run that needs it will say so
            wiring.loaded_encoder(encoder)
            yield encoder
    if settings.pool == POCKET_POOL:
        with contextlib.suppress(TrinityError):
            yield from wiring.pocket_pool().load()


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's door."""
    parser = argparse.ArgumentParser(prog="python -m ui.runs.worker", description="Play the runs that wait.")
    parser.add_argument("--run", help="play only this one, whatever waits")
    parser.add_argument(OPTION, action="store_true", help="be the worker that the app keeps ready")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("stamina").addFilter(say_why)
    settings = wiring.settings()
    store = open_store(settings.store)
    try:
        with interruptible():
            if chosen.run:
                return play_claimed(store, chosen.run)
            if chosen.stand_by:
                return stand_by(store, settings, App())
            return serve(store, settings.workers, _log_into)
    except KeyboardInterrupt:
        return INTERRUPTED
    except TrinityError as error:
        log.error("%s", error)
        return 1
    finally:
        store.close()


def say_why(record: logging.LogRecord) -> bool:
    """What the record of a retry only carries beside its words: why a model is asked again."""
    if cause := record.__dict__.get("stamina.caused_by"):
        record.msg = f"{record.msg}: {cause}"
    return True


def _log_into(run: str) -> None:
    """From here on, all that this process and its libraries say goes to the run's log."""
    path = log_file(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)


if __name__ == "__main__":
    sys.exit(main())
