"""Checks of answers against schemas, each within a time limit, in processes of their own.

A check holds its process for as long as it takes, and an unlucky pattern or schema may take long: hence another
process does it, which is ended when its time is up."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any

#: How long a check may take, and the start of a process before its first one, in seconds.
CHECK_S, START_S = 2.0, 20.0
#: How many processes may check at a time.
MOST_PROCESSES = 2
#: How often a pattern with look-arounds may try again; others run in linear time.
_BACKTRACKS = 100_000
#: How large a pattern may become, in bytes.
_PATTERN_BYTES = 2**20
#: A folder that is called as one of ours where the user happens to stand must not be taken for it.
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from ui.endpoint.schema_checks import answer_checks; answer_checks()"
)


class Undecided(Exception):
    """A check that could not be finished; `str(error)` completes the sentence "the check ..."."""


class NoSchema(Exception):
    """What is no schema; `str(error)` says where and why."""


@dataclass
class Checks:
    """Checks for all who ask, from any thread; processes are started when they are needed and end with this one."""

    _idle: list[_Process] = field(default_factory=list)
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_PROCESSES))

    def compile(self, schema: str) -> None:
        """NoSchema for what is none, Undecided where that takes too long."""
        self.fault(schema, None)

    def fault(self, schema: str, value: str | None) -> str | None:
        """Why a JSON value does not fit a schema; None where it does. Undecided where that takes too long. Without a
        value the schema alone is looked at."""
        if not self._room.acquire(timeout=START_S):
            raise Undecided("had to wait too long for others")
        try:
            process = self._taken()
            try:
                kind, words = process.answer([schema, value])
            except Undecided:
                process.end()
                raise
            self._idle.append(process)
        finally:
            self._room.release()
        if kind == "undecided":
            raise Undecided(words)
        if kind == "no schema":
            raise NoSchema(words)
        return words if kind == "fault" else None

    def close(self) -> None:
        """End the processes."""
        with suppress(IndexError):
            while True:
                self._idle.pop().end()

    def _taken(self) -> _Process:
        """One that lives, from among the idle ones or new."""
        with suppress(IndexError):  # a list's pop is one step for all threads
            while (process := self._idle.pop()).dead:
                process.end()
            return process
        return _Process()


class _Process:
    """One process that checks."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._listening = threading.Thread(target=self._listen, name="schema checks", daemon=True)
        self._listening.start()
        try:
            self._within(START_S)  # it says when it is ready
        except Undecided:
            self.end()
            raise

    @property
    def dead(self) -> bool:
        """Whether it ended by itself."""
        return self._child.poll() is not None

    def answer(self, request: list[str | None]) -> tuple[str, str]:
        """What it says to a request. Undecided when it says nothing in time, or died."""
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        kind, words = json.loads(self._within(CHECK_S))
        return str(kind), str(words)

    def end(self) -> None:
        """End it at once."""
        self._child.kill()
        self._child.wait()
        self._listening.join()
        assert self._child.stdin is not None
        with suppress(OSError):  # what was still to be written
            self._child.stdin.close()

    def _within(self, seconds: float) -> str:
        try:
            line = self._answers.get(timeout=seconds)
        except Empty:
            raise Undecided(f"took longer than {seconds:g} s") from None
        if not line:
            raise Undecided("ended its process")
        return line

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")


#: The checks of this process.
CHECKS = Checks()
atexit.register(CHECKS.close)


def answer_checks() -> None:
    """Answer requests of standard input until it ends: a schema and a value as JSON texts, the value None where only
    the schema is to be compiled."""
    print(json.dumps(["ready", ""]), flush=True)
    for line in sys.stdin:
        schema, value = json.loads(line)
        try:
            answer = _checked(schema, value)
        except ValueError as error:  # a schema that is none; NaN and the like never come here
            answer = "no schema", str(error)
        except Exception as error:
            answer = "undecided", f"failed ({type(error).__name__})"
        print(json.dumps(answer), flush=True)


def _checked(schema: str, value: str | None) -> tuple[str, str]:
    validator = _validator(schema)
    error = None if value is None else next(validator.iter_errors(json.loads(value)), None)
    if error is None:
        return "fits", ""
    if "backtracking" in error.message:
        return "undecided", "would have to try a pattern too often"
    place = "/".join(map(str, error.instance_path))
    return "fault", f"{place}: {error.message}" if place else error.message


@lru_cache(maxsize=32)
def _validator(schema: str) -> Any:
    import jsonschema_rs

    read = json.loads(schema)
    try:
        return jsonschema_rs.validator_cls_for(read)(
            read,
            pattern_options=jsonschema_rs.FancyRegexOptions(_BACKTRACKS, _PATTERN_BYTES, _PATTERN_BYTES),
            validate_formats=True,
            ignore_unknown_formats=True,
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        place = "/".join(map(str, error.instance_path))
        raise ValueError(f"at #/{place}, {error.message.splitlines()[0][:200]}") from None
