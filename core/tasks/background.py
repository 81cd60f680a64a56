"""Gradings that take long, worked on in threads while the caller goes on: as many at once as there are cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from queue import SimpleQueue

from core.episode import Failure
from core.play.drive import PendingVerdict
from core.processes import cores

#: So many verdicts are remembered.
_REMEMBERED = 50_000

Judge = Callable[[], bool | Failure]


@dataclass
class Background:
    """Verdicts under way and those that came, each by what was graded: the same is worked out once. Its threads end
    with this process, whatever they are at."""

    _known: dict[Hashable, bool] = field(default_factory=dict)
    _under_way: dict[Hashable, PendingVerdict] = field(default_factory=dict)
    _waiting: SimpleQueue[tuple[Hashable, Judge]] = field(default_factory=SimpleQueue)
    _threads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verdict(self, key: Hashable, judge: Judge) -> bool | PendingVerdict:
        """What `judge` says, or will have said. A failure is not remembered."""
        with self._lock:
            if key in self._known:
                return self._known[key]
            if key not in self._under_way:
                self._under_way[key] = PendingVerdict()
                self._waiting.put((key, judge))
                if self._threads < cores():
                    self._threads += 1
                    threading.Thread(target=self._work, daemon=True).start()
            return self._under_way[key]

    def _work(self) -> None:
        while True:
            key, judge = self._waiting.get()
            try:
                found = judge()
            except Exception as error:  # whoever waits for the verdict meets it
                self._over(key).set_exception(error)
            else:
                self._over(key, found).set_result(found)

    def _over(self, key: Hashable, found: bool | Failure | None = None) -> PendingVerdict:
        with self._lock:
            if isinstance(found, bool):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[key] = found
            return self._under_way.pop(key)


BACKGROUND = Background()
