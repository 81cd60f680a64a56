"""Checks of answers against schemas, each within a time limit, in processes of their own.

A check holds its process for as long as it takes, and an unlucky pattern or schema may take long: hence another
process does it (`core.processes`), which is ended when its time is up."""

from __future__ import annotations

import atexit
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from core.processes import start_helper

#: How long a check may take, and the start of a process before its first one, in seconds.
CHECK_S, START_S = 2.0, 20.0
#: How many processes may check at a time.
MOST_PROCESSES = 2
#: How often a pattern with look-arounds may try again; others run in linear time.
_BACKTRACKS = 100_000
#: How large a pattern may become, in bytes.
_PATTERN_BYTES = 2**20


class Undecided(Exception):
    """A check that could not be finished; `str(error)` completes the sentence "the check ..."."""


class NoSchema(Exception):
    """What is no schema; `str(error)` says where and why."""


#: Checks have threads of their own: what waits for a slow one must not hold up others.
CHECKING = ThreadPoolExecutor(4 * MOST_PROCESSES, "schema checks")


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
                kind, words = process.answer(schema, value)
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
    """One helper process that checks."""

    def __init__(self) -> None:
        self._child = start_helper((__name__, "jsonschema_rs"))
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._requests, self._answers = self._child.stdin, self._child.stdout
        try:
            self._line_within(START_S)  # it says when it is ready
        except Undecided:
            self.end()
            raise

    @property
    def dead(self) -> bool:
        """Whether it ended by itself."""
        return self._child.poll() is not None

    def answer(self, *job: str | None) -> tuple[str, str]:
        """What `check` says of a schema and a value. Undecided when nothing comes in time, or the process died."""
        with suppress(OSError):
            self._requests.write(json.dumps([f"{__name__}:check", job]) + "\n")
            self._requests.flush()
        answer = json.loads(self._line_within(CHECK_S))["answer"]
        kind, words = answer or ("undecided", "failed")
        return kind, words

    def end(self) -> None:
        """End it at once."""
        self._child.kill()
        self._child.wait()
        with suppress(OSError):  # what was still to be written
            self._requests.close()
        self._answers.close()

    def _line_within(self, seconds: float) -> str:
        with DefaultSelector() as waiting:
            waiting.register(self._answers, EVENT_READ)
            if not waiting.select(seconds):
                raise Undecided(f"took longer than {seconds:g} s")
        line = self._answers.readline()
        if not line:
            raise Undecided("ended its process")
        return line


#: The checks of this process.
CHECKS = Checks()
atexit.register(CHECKS.close)


def check(job: tuple[str, str | None]) -> tuple[str, str]:
    """What a helper says of a schema and a value, both JSON texts, the value None where only the schema is to be
    compiled: whether it fits, and why not."""
    schema, value = job
    try:
        validator = _validator(schema)
    except ValueError as error:
        return "no schema", str(error)
    fault = None if value is None else next(validator.iter_errors(json.loads(value)), None)
    if fault is None:
        return "fits", ""
    if "backtracking" in fault.message:
        return "undecided", "would have to try a pattern too often"
    place = "/".join(map(str, fault.instance_path))
    return "fault", f"{place}: {fault.message}" if place else fault.message


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
