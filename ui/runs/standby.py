"""The worker that the app keeps ready: a process that has loaded everything, so that what a person waits for begins at
once. It belongs to one app and one store, plays only runs that are `awaited`, and leaves with the app.

The app holds one end of its standard input. A line says that a run waits; the end of the input, that the app is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from storage.store import Store
from ui.runs import slots, wiring
from ui.runs.lease import process_name

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
            if self._owner in slots.alive():
                return None
            try:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            except OSError:  # it is just dying
                return None
            return process.pid

    def close(self) -> None:
        """Let the worker go: at once, or when what it plays is over."""
        with self._lock:
            self._allowed = False
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def _start(self) -> None:
        output = slots.folder() / "stand-by.log"
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ui.runs.worker", OPTION],
                # By the environment: a command line, and with it a database's password, is seen by everybody here.
                env=os.environ | {"TRINITY_STORE": self._address},
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,  # Ctrl-C is for the app
            )
        self._owner = process_name(self._process.pid)
        threading.Thread(
            target=self._attend, args=[self._process], name=f"worker {self._process.pid}", daemon=True
        ).start()

    def _attend(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the worker's death, and replace it while the app is open."""
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
