"""Whether two mathematical answers are the same: text made uniform here, expressions compared by math-verify in a
process of its own."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import TaskError
from core.tasks.children import LineChild
from core.tasks.math_text import math_answer

#: Seconds that a comparison may take before its process is ended, and that the process may take to begin.
LIMIT_S, START_S = 6.0, 120.0
_REMEMBERED = 20_000


def same_mathematics(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Of each pair (given, right), whether a careful reader would take them for the same answer.

    Units count where both have one. TaskError when math-verify cannot be started."""
    found: list[bool | None] = []
    asked: list[tuple[str, str]] = []
    for given, right in pairs:
        one, other = math_answer(given), math_answer(right)
        if one is None or other is None:
            found.append(False)
        elif one.words and one.words == other.words:
            found.append(True)
        elif (one.unit and other.unit and one.unit != other.unit) or not (one.latex and other.latex):
            found.append(False)
        else:
            found.append(None)
            asked.append((one.latex, other.latex))
    answers = iter(_COMPARER.compare(asked))
    return [next(answers) if one is None else one for one in found]


@dataclass
class _Comparer:
    """The process that compares, and what it said."""

    child: LineChild
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def compare(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the expressions of each pair are the same; False for what took too long."""
        if not pairs:  # nobody waits for those of others
            return []
        with self._lock:
            return [self._one(pair) for pair in pairs]

    def _one(self, pair: tuple[str, str]) -> bool:
        if pair not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if self.child.begin() != b"ready":
                raise TaskError(
                    "Mathematical answers cannot be graded: math-verify did not start. Install the program anew."
                )
            self._known[pair] = self.child.ask(json.dumps(pair).encode(), LIMIT_S) == b"true"
        return self._known[pair]


_COMPARER = _Comparer(
    LineChild([sys.executable, "-I", str(Path(__file__).with_name("math_worker.py"))], START_S)
)
