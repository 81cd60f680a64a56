"""Whether two mathematical answers are the same: text made uniform here, expressions compared by math-verify in a
process of its own."""

from __future__ import annotations

import atexit
import json
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import TaskError
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
    """The process, begun when it is first needed and again after one that had to be ended."""

    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def compare(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the expressions of each pair are the same; False for what took too long."""
        with self._lock:
            return [self._one(pair) for pair in pairs]

    def _one(self, pair: tuple[str, str]) -> bool:
        if pair not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[pair] = self._asked(pair)
        return self._known[pair]

    def _asked(self, pair: tuple[str, str]) -> bool:
        process = self._begun()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(pair).encode() + b"\n")
            process.stdin.flush()
            return self._line(process, LIMIT_S) == b"true"
        except OSError:  # it ended itself, by the limit on its memory
            self.end()
            return False

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("math_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
            if self._line(self._process, START_S) != b"ready":
                raise TaskError(
                    "Mathematical answers cannot be graded: math-verify did not start. Install the program anew."
                )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """The next line, or nothing from a process that is then ended."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline().strip() if ready else b""
        if not line:
            self.end()
        return line

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # its pipes are closed, and it is waited for
                pass


_COMPARER = _Comparer()
atexit.register(_COMPARER.end)
