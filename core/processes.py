"""Helper processes: the machine's other cores compute lists of jobs, with the same answers in any process.

A job and its answer are JSON. The function that answers is named as "module:function" to the helpers; the asking
process gives its own. The asking process takes jobs from the front and helpers take them from the back, so that none
waits while there is work, and answers come in the order of the jobs. A helper that fails, dies or is silent for too
long loses its job to the asking process: a failure can slow a run down and not change it."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

#: Seconds of work that could have been shared before helpers are started: about what their start costs.
WORTH_S = 3.0
#: After so many seconds without an answer a helper is given up. A job takes a second or two.
PATIENCE_S = 120.0
#: So many helpers may die before no more are started.
MOST_DEATHS = 3


#: Set where helpers elsewhere are gone, and this process with them: it can do no more than write down how that ended.
doomed = threading.Event()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_aside() -> None:
    """What is loaded stays: the garbage collector looks through it no more. All that this process does, and every call
    that it waits for, would be held up by 0.1 s each time."""
    gc.collect()
    gc.freeze()


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """The same for a while, unless it has been done for good."""
    if gc.get_freeze_count():
        yield
        return
    set_aside()
    try:
        yield
    finally:
        gc.unfreeze()


# A folder called `core` where the user happens to stand must not be taken for ours: -P, and this process's own path.
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from core.processes import serve_jobs; serve_jobs()"


def start_helper(preload: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A process that says by a line when it has imported these modules, and then answers jobs line by line, as
    `serve_jobs` does. OSError where none can be started."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _START, json.dumps(sys.path), *preload],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="ascii",
        start_new_session=True,  # Ctrl-C is for this process; a helper ends when its input does
    )


@dataclass(slots=True, eq=False)
class _JobList:
    """One list of jobs: which are still free, how many helpers have one, and their answers (None: it failed)."""

    function: str
    jobs: Sequence[Any]
    free: deque[int]
    under_way: int = 0
    answers: dict[int, Any] = field(default_factory=dict)


#: Where this program lies: other machines have it elsewhere.
_HOME = Path(__file__).resolve().parents[1]


def portable(folder: Path) -> str:
    """A folder by a name that helpers find it by: one of this program's own is found wherever that lies."""
    own = folder.resolve()
    return f"./{own.relative_to(_HOME).as_posix()}" if own.is_relative_to(_HOME) else str(folder)


def folder_of(name: str) -> Path:
    """Inverse of `portable`, in a helper."""
    return _HOME / name if name.startswith("./") else Path(name)


@dataclass(frozen=True, slots=True)
class EngineState:
    """What an engine with helpers elsewhere is doing: how many `helpers` it has on how many `machines`, how many calls
    of models are under way there, how many helpers were `lost` and started again, and where its own dashboard is, empty
    where it has none."""

    helpers: int
    machines: int
    under_way: int = 0
    lost: int = 0
    dashboard: str = ""


class Helper(Protocol):
    """One who answers jobs elsewhere."""

    @property
    def pid(self) -> int:
        """Its process, on whatever machine."""

    def ready(self) -> bool:
        """Whether it takes jobs, once it has got ready; False when it never will."""

    def answer(self, function: str, job: Any) -> dict[str, Any] | None:
        """{"answer": ...}, None in it where it failed at the job; None when it is gone."""

    def end(self) -> None:
        """End it and wait until it is gone."""

    def tidy(self) -> None:
        """Close what nobody reads or writes any more, once it has ended."""


class Graders(Protocol):
    """Grade answers on other machines, many side by side."""

    def check_sandbox(self) -> None:
        """TaskError, with one sentence, where programs cannot be run in a sandbox there."""

    def begin(self, function: str, *texts: str, file: Path | None = None) -> Future[Any]:
        """What a function, named "module:function", will have said there of texts, and of the `content` of a file of
        this machine. A Failure where it said nothing."""


class _Process:
    """A helper process of this machine."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._process = start_helper(preload)
        self.pid = self._process.pid
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def ready(self) -> bool:
        return bool(self._from.readline())  # after its imports

    def answer(self, function: str, job: Any) -> dict[str, Any] | None:
        try:
            self._to.write(json.dumps([function, job]) + "\n")
            self._to.flush()
            found: dict[str, Any] = json.loads(self._from.readline())
        except (OSError, ValueError):
            return None
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def tidy(self) -> None:
        with suppress(OSError):  # of a request that it did not live to read
            self._to.close()
        self._from.close()


class Processes:
    """This process and its helpers, `most` together. Safe to share between threads: jobs of a thread that comes while
    another's are under way are worked out in this process.

    Helpers are started when they are worth their start, while this process works on, and end with it, also when it is
    killed. `preload` names modules that they import before they take their first job."""

    def __init__(self, most: int, *, preload: Sequence[str] = (), worth_s: float | None = None) -> None:
        self.most = most
        self._preload = preload
        self._worth_s = WORTH_S if worth_s is None else worth_s
        self._alone_s = 0.0
        self._deaths = 0
        self._helpers: set[Helper] = set()
        self._work: _JobList | None = None
        self._turn = threading.Lock()  # whose jobs are shared
        self._changed = threading.Condition()  # guards all of the above

    @property
    def helpers(self) -> tuple[int, ...]:
        """Process ids of the helpers that live."""
        with self._changed:
            return tuple(helper.pid for helper in self._helpers)

    def state(self) -> EngineState | None:
        """What helpers on other machines are doing; None where all are this machine's."""
        return None

    def graders(self) -> Graders | None:
        """Who grades on other machines; None where this one does."""
        return None

    def check(self) -> None:
        """PoolError where helpers are on other machines, and these are gone for good."""

    def answers(self, function: str, jobs: Sequence[Any], here: Callable[[Any], Any]) -> Iterator[Any]:
        """Yield what `here` answers to each job, in order; `function` answers the same in a helper. When the iterator
        is closed early, helpers that work for it are ended."""
        if self.most < 2 or len(jobs) < 2 or not self._turn.acquire(blocking=False):
            yield from map(here, jobs)
            return
        try:
            yield from self._shared(_JobList(function, jobs, deque(range(len(jobs)))), here)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the helpers and wait until they are gone; new ones are started when there is work for them."""
        with self._changed:
            gone = [*self._helpers]
            self._helpers.clear()
            self._changed.notify_all()
        for helper in gone:
            helper.end()

    def _shared(self, work: _JobList, here: Callable[[Any], Any]) -> Iterator[Any]:
        if self._alone_s >= self._worth_s:
            self.start()
        with self._changed:
            self._work = work
            self._changed.notify_all()
        try:
            for index, job in enumerate(work.jobs):
                answer = self._helped(work, index)
                if answer is None:
                    began = time.perf_counter()
                    answer = here(job)
                    self._alone_s += time.perf_counter() - began
                yield answer
        finally:
            with self._changed:
                self._work = None
                work.free.clear()
            if work.under_way:
                self.close()

    def _helped(self, work: _JobList, index: int) -> Any:
        """A helper's answer, waited for if need be; None when the job is for this process."""
        self.check()
        with self._changed:
            if work.free and work.free[0] == index:
                work.free.popleft()
                return None
            if self._changed.wait_for(lambda: index in work.answers, PATIENCE_S):
                return work.answers.pop(index)
        log.warning(
            "A helper process was silent for %.0f s: what it worked on is worked out here.", PATIENCE_S
        )
        self.close()
        return None

    def start(self) -> None:
        """Start the helpers that are missing, as `answers` does once they are worth it; they take jobs when they are
        ready."""
        with self._changed:
            if not self._helpers:
                atexit.unregister(self.close)
                atexit.register(self.close)
            while len(self._helpers) < self.most - 1 and self._deaths < MOST_DEATHS:
                try:
                    helper = self.new_helper()
                except OSError as error:
                    log.warning("No helper process can be started (%s): this process works alone.", error)
                    self._deaths = MOST_DEATHS
                    return
                self._helpers.add(helper)
                threading.Thread(target=self._attend, args=[helper], daemon=True).start()

    def new_helper(self) -> Helper:
        """One more helper, which is getting ready. OSError where none can be started."""
        return _Process(self._preload)

    def _attend(self, helper: Helper) -> None:
        """Hand jobs to one helper for as long as it lives."""
        ready = helper.ready()
        while ready:
            with self._changed:
                self._changed.wait_for(
                    lambda: helper not in self._helpers or (self._work and self._work.free)
                )
                if helper not in self._helpers:
                    break
                work = self._work
                assert work
                index = work.free.pop()
                work.under_way += 1
            answer = helper.answer(work.function, work.jobs[index])
            with self._changed:
                work.under_way -= 1
                work.answers[index] = answer and answer["answer"]
                self._changed.notify_all()
            if not answer:
                break
        with self._changed:
            if helper in self._helpers:
                self._helpers.remove(helper)
                self._deaths += 1
                log.warning("A helper process ended: what it worked on is worked out here.")
        helper.end()
        helper.tidy()


def serve_jobs() -> None:
    """The main loop of a helper: answer one job after the other until the asking process is gone."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no answer
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[requests], daemon=True).start()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    set_aside()
    print(json.dumps("ready"), file=answers, flush=True)
    while True:
        function, job = json.loads(requests.get())
        module, _, name = function.partition(":")
        try:
            answer = getattr(importlib.import_module(module), name)(job)
        except Exception:  # the asking process meets it too, and tells it to whoever is concerned
            answer = None
        print(json.dumps({"answer": answer}), file=answers, flush=True)


def _listen(requests: queue.SimpleQueue[str]) -> None:
    """Pass requests on, and end at once when the asking process is gone, even in the middle of a job."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)
