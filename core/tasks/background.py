"""Gradings that take long, worked on in threads while the caller goes on: as many at once as there are cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue

from core.episode import Failure
from core.processes import cores

#: So many verdicts are remembered.
_REMEMBERED = 50_000

Verdict = Future[bool | Failure]


@dataclass
class Background:
    """Verdicts under way and those that came, each by what was graded: the same is worked out once. Its threads end
    with this process, whatever they are at."""

    _known: dict[Hashable, Verdict] = field(default_factory=dict)
    _waiting: SimpleQueue[tuple[Verdict, Callable[[], bool | Failure]]] = field(default_factory=SimpleQueue)
    _threads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verdict(self, key: Hashable, grade: Callable[[], bool | Failure]) -> Verdict:
        """What `grade` says, once it has said it. A failure is not remembered."""
        with self._lock:
            found = self._known.get(key)
            if found is None or (found.done() and not _is_verdict(found)):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                found = self._known[key] = Future()
                self._waiting.put((found, grade))
                self._start()
        return found

    def _start(self) -> None:
        if self._threads < cores():
            self._threads += 1
            threading.Thread(target=self._work, name=f"grading {self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            verdict, grade = self._waiting.get()
            try:
                verdict.set_result(grade())
            except Exception as error:  # whoever waits for the verdict meets it
                verdict.set_exception(error)


def _is_verdict(found: Verdict) -> bool:
    return found.exception() is None and isinstance(found.result(), bool)


BACKGROUND = Background()
