"""Whether two mathematical answers are the same: text made uniform here, expressions compared by math-verify in
processes of their own."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from core.errors import TaskError
from core.play.drive import PendingVerdict, settled
from core.processes import cores
from core.tasks.background import BACKGROUND
from core.tasks.children import LineChild
from core.tasks.math_text import math_answer
from core.tasks.numbers import read_key, read_number

#: Seconds that a comparison may take before its process is ended, and that the process may take to begin.
LIMIT_S, START_S = 6.0, 120.0
#: A further process is started once answers have waited for so many seconds in all: about what its start costs.
WORTH_S = 2.0

#: A letter that is part of no command: of a number alone, a word or a sign of scale.
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("math_worker.py")))


def same_mathematics(pairs: Sequence[tuple[str, str]], most: int | None = None) -> list[bool]:
    """Of each pair (given, right), whether a careful reader would take them for the same answer, `most` of them
    compared at a time (None: as many as there are cores).

    Units count where both have one. TaskError when math-verify cannot be started."""
    return settled([mathematics_verdict(given, right, most) for given, right in pairs])


def mathematics_verdict(given: str, right: str, most: int | None = None) -> bool | PendingVerdict:
    """The verdict of `same_mathematics` on one pair; pending where expressions have to be compared."""
    one, other = math_answer(given), math_answer(right)
    if one is None or other is None:
        return False
    if one.words and one.words == other.words:
        return True
    if one.unit and other.unit and one.unit != other.unit:
        return False
    key = None if "=" in right or _LETTER.search(other.latex) else read_key(right)
    if one.unit == "%" and not other.unit and key is not None and abs(key.value) <= 1:
        one = replace(one, latex=rf"\frac{{{one.latex}}}{{100}}")
    elif key is not None and (not one.latex or _LETTER.search(one.latex)) and read_number(given) == key.value:
        return True
    if not (one.latex and other.latex):
        return False
    pair = (one.latex, other.latex)
    return BACKGROUND.verdict(("math", *pair), partial(COMPARERS.same, pair, most))


@dataclass
class Comparers:
    """The processes that compare: one is started for the first pair, others only when many pairs wait."""

    children: list[LineChild] = field(default_factory=list)
    _idle: list[LineChild] = field(default_factory=list)
    _waited_s: float = 0.0  # by all pairs together, since a process was last started
    _returned: threading.Condition = field(default_factory=threading.Condition)

    def same(self, pair: tuple[str, str], most: int | None = None) -> bool:
        """Whether two expressions are the same; False for what took too long. Safe to share between threads."""
        child = self._take(min(most or cores(), cores()))
        try:
            if child.begin() != b"ready":
                raise TaskError(
                    "Mathematical answers cannot be graded: math-verify did not start. Install the program again."
                )
            return child.ask(json.dumps(pair).encode(), LIMIT_S) == b"true"
        finally:
            with self._returned:
                self._idle.append(child)
                self._returned.notify()

    def _take(self, most: int) -> LineChild:
        """A process that nobody else has, once there is one."""
        with self._returned:
            while not self._idle:
                may_grow = len(self.children) < most
                if not self.children or (may_grow and self._waited_s >= WORTH_S):
                    self._waited_s = 0.0
                    self.children.append(LineChild(_COMMAND, START_S))
                    return self.children[-1]
                since = time.monotonic()
                self._returned.wait(WORTH_S - self._waited_s if may_grow else None)
                self._waited_s += time.monotonic() - since
            return self._idle.pop()


COMPARERS = Comparers()
