"""Runs a program on its tests inside the sandbox of `core.tasks.bubblewrap`, which starts this file's text; standard
library only.

One JSON object comes in on standard input: nonce, the code before the program, program, tests, folders of libraries and
limits. A test is {"input": text}, {"call": expression}, perhaps with "arguments", a list as JSON, with which the
expression's value is called, or {"unittest": code}. One line goes out for each test on the descriptor named as the
first argument: [nonce, what was printed, or the value of the call as `encoded` has it, or how many unit tests were run
and how many of them failed]; null where the program failed. What the right outputs are is not known here, except by the
code of unit tests: whatever a program does to this process, it can say nothing else that it could not have printed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any

_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE of prctl(2)
_FIRST = 2  # the process id of whoever a sandbox is made for; 1 is the sandbox's own


def encoded(value: Any) -> Any:
    """A value of Python as one that JSON can hold, in which types stay apart. TypeError for types without a literal."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encoded(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(encoded, value), key=json.dumps)}
    if isinstance(value, dict):
        return {"dict": sorted(([encoded(k), encoded(v)] for k, v in value.items()), key=json.dumps)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise TypeError(f"{type(value).__name__} has no literal")


def main() -> None:
    """Run every test, each in a process of its own, which returns from here as well, to end as any program does."""
    if os.getpid() != _FIRST:
        sys.exit("not in a process namespace of its own")
    job = json.loads(sys.stdin.buffer.read())
    channel, limits = int(sys.argv[1]), job["limits"]
    ctypes.CDLL(None).prctl(_NOT_DUMPABLE, 0, 0, 0, 0)  # no other process may look into this one
    for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CORE"):
        _limit(name, limits[name])
    _tell(channel, job["nonce"], "ready")
    for test in job["tests"]:
        with TemporaryFile() as given, TemporaryFile() as said:
            given.write(test.get("input", "").encode())
            given.seek(0)
            child = os.fork()
            if not child:
                os.close(channel)
                _become_program(given, said, limits["CPU"], prints="input" in test)
                parts = [one for one in (job["before"], job["program"]) if one]
                sys.path += job["folders"]
                job.clear()
                _run(parts, test, said)
                return
            done = _ended_well(child, limits["wall_s"])
            said.seek(0)
            text = said.read(limits["FSIZE"] + 1) if done else b""
        _tell(channel, job["nonce"], text.decode(errors="replace") if done else None)


def _tell(channel: int, nonce: str, what: str | None) -> None:
    left = json.dumps([nonce, what]).encode() + b"\n"
    while left:
        left = left[os.write(channel, left) :]


def _limit(name: str, most: int) -> None:
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def _ended_well(child: int, seconds: float) -> bool:
    """Whether the program ends by itself, in time and without an error; nothing of it is left."""
    deadline, pause = time.monotonic() + seconds, 0.001
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    with suppress(OSError):
        os.kill(-1, signal.SIGKILL)  # everybody in the sandbox but this process and its first one
    if not ended:
        os.waitpid(child, 0)
    return bool(ended) and status == 0


def _become_program(given: IO[bytes], said: IO[bytes], cpu_s: int, *, prints: bool) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, place in ((given.fileno(), 0), (said.fileno() if prints else nothing, 1), (nothing, 2)):
        os.dup2(descriptor, place)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["program.py"]
    _limit("CPU", cpu_s)


def _run(parts: list[str], test: dict[str, str], said: IO[bytes]) -> None:
    """The parts of a program as its file would be run; for a call or unit tests, as it would be imported, and what
    comes of these is said."""
    name = "__main__" if "input" in test else "program"
    module = ModuleType(name)
    module.__dict__.update(exit=sys.exit, quit=sys.exit)
    sys.modules[name] = module
    for code in parts:
        exec(compile(code, "program.py", "exec"), module.__dict__)
    if "call" in test:
        value = eval(compile(test["call"], "call", "eval"), module.__dict__)
        if "arguments" in test:
            value = value(*json.loads(test["arguments"]))
        value = encoded(value)
    elif "unittest" in test:
        value = _unit_tests(module, test["unittest"])
    else:
        return
    said.write(json.dumps(value).encode())
    said.flush()


def _unit_tests(module: ModuleType, code: str) -> list[int]:
    """How many tests are run of the classes that the code defines beside the program, and how many of them fail."""
    import unittest

    exec(compile(code, "tests.py", "exec"), module.__dict__)
    own = [
        one
        for one in module.__dict__.values()
        if isinstance(one, type) and issubclass(one, unittest.TestCase) and one.__module__ == module.__name__
    ]
    result = unittest.TestResult()
    for one in own:
        unittest.defaultTestLoader.loadTestsFromTestCase(one).run(result)
    return [result.testsRun, len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)]


if __name__ == "__main__":
    main()
