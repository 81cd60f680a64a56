"""The sandbox in which a model's programs run: bubblewrap's namespaces, a filter of system calls, resource limits and a
clock; never without.

Inside there are the interpreter with its standard library, read-only, an empty folder in memory, and nothing else: no
home, no network, no other process, no environment, no privileges, none of the right outputs, and of the kernel what
Python needs (`core.tasks.system_calls`). Where such a sandbox cannot be made, nothing is run.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.errors import TaskError
from core.tasks.children import start_child
from core.tasks.system_calls import FILTER, MACHINES, fits_here

_RUNNER = Path(__file__).with_name("program_runner.py").read_text(encoding="utf-8")
#: Seconds that its start may take, and that its runner may be silent beyond the time of a test.
_START_S, _GRACE_S = 20.0, 2.0
_NOBODY = 65534
#: Root is bound by no limit on processes, and could be the owner of what it sees.
_NOT_ROOT: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use. For one test: seconds of CPU, and seconds by the clock. For all tests of a program:
    seconds by the clock. Bytes of memory for each of its processes, processes and threads, bytes of each file and of
    what it prints, open files, bytes in its folder."""

    CPU: int = 6
    wall_s: float = 15.0
    total_s: float = 90.0
    AS: int = 1 << 30
    NPROC: int = 12  # the sandbox's own three among them
    FSIZE: int = 4 << 20
    NOFILE: int = 64
    CORE: int = 0
    folder: int = 64 << 20


USUAL = Limits()


#: What a program in the sandbox finds of system calls that are always there without its filter: each is told as not
#: there, and a socket of the network's kind as not known. 0 of unshare(2) asks for nothing, and needs no privilege.
_PROBE = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
print([libc.unshare(0), ctypes.get_errno(), libc.setns(-1, 0), ctypes.get_errno()])
try:
    socket.socket(socket.AF_INET)
except OSError as error:
    print(error.errno)
print(6 * int(input()))
"""
_PROBED = f"[-1, {errno.ENOSYS}, -1, {errno.ENOSYS}]\n{errno.EAFNOSUPPORT}\n42\n"


class NoSandbox(TaskError):
    """No sandbox can be made here."""


def check_sandbox() -> None:
    """Try the sandbox out. NoSandbox with one sentence that says what to do where it does not work."""
    _interpreter()


def outputs(
    program: str, tests: Sequence[Mapping[str, str]], limits: Limits = USUAL
) -> Generator[str | None]:
    """Run a program on tests, {"input": text} or {"call": expression}, and yield what it printed, or the call's value
    as JSON (`program_runner.encoded`), for one after the other; None where it failed. There are fewer when it took too
    long or broke the sandbox. Closing the iterator ends it. NoSandbox where none can be made."""
    yield from _outputs(_interpreter(), program, tests, limits)


@lru_cache(maxsize=1)
def _interpreter() -> Path:
    """The first interpreter that can be run in a sandbox: this one, or the system's. Not every one can be read by
    the user that programs run as."""
    if sys.platform != "linux":
        raise NoSandbox("Programs can be graded on Linux only: their sandbox is made of its namespaces.")
    if not shutil.which("bwrap"):
        raise NoSandbox(
            "Programs are graded only in a sandbox, and bubblewrap, which makes it, is not installed: install it "
            "(apt install bubblewrap, or dnf install bubblewrap)."
        )
    if not fits_here():
        raise NoSandbox(
            "Programs are graded only in a sandbox, whose filter of system calls is made for "
            f"{' and '.join(MACHINES)}, and this machine is {platform.machine()}: grade on another machine."
        )
    problem = ""
    for python in dict.fromkeys(Path(one).resolve() for one in (sys.executable, "/usr/bin/python3")):
        try:
            found = [*_outputs(python, _PROBE, [{"input": "7"}], USUAL)]
            if found == [_PROBED]:
                return python
            if found and str(found[0]).endswith("\n42\n"):
                problem = _UNFILTERED
        except NoSandbox as error:
            problem = problem or str(error)
    raise NoSandbox(problem or "Programs cannot be graded: the sandbox does not run Python here.")


def _outputs(
    python: Path, program: str, tests: Sequence[Mapping[str, str]], limits: Limits
) -> Iterator[str | None]:
    nonce = secrets.token_hex(16)
    job = {"nonce": nonce, "program": program, "tests": [*tests], "limits": asdict(limits)}
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as results, FILTER.open("rb", buffering=0) as calls:
        try:
            sandbox = start_child(
                [*_command(python, limits, calls.fileno()), "-c", _RUNNER, str(writing)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(writing, calls.fileno()),
                **_NOT_ROOT if os.geteuid() == 0 else {},
            )
        except OSError as error:
            raise NoSandbox(_why_not(str(error.strerror))) from None
        finally:
            os.close(writing)
        with sandbox:
            writer = threading.Thread(target=_hand_over, args=[sandbox, job], daemon=True)
            writer.start()
            try:
                said = _said(results.fileno(), nonce, limits)
                if next(said, None) != "ready":
                    sandbox.kill()
                    raise NoSandbox(_why_not(_complaint(sandbox)))
                yield from said
            finally:
                sandbox.kill()  # and with it everybody inside
                writer.join()


def _command(python: Path, limits: Limits, calls: int) -> list[str]:
    """bubblewrap's command line up to the interpreter's own options. `calls` is the descriptor of the opened filter."""
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
    seen = (*system, python.parents[1] / "lib", python.parents[1] / "lib64", python)
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
        *("--uid", str(_NOBODY), "--gid", str(_NOBODY), "--cap-drop", "ALL", "--clearenv"),
        *("--seccomp", str(calls), "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"),
        *(word for path in seen for word in ("--ro-bind-try", str(path), str(path))),
        *("--size", str(limits.folder), "--tmpfs", "/tmp", "--chdir", "/tmp"),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--", str(python), "-I", "-S", "-X", "utf8"),
    ]


def _hand_over(sandbox: subprocess.Popen[bytes], job: Mapping[str, Any]) -> None:
    assert sandbox.stdin is not None
    with suppress(OSError), sandbox.stdin as pipe:  # it may have ended
        pipe.write(json.dumps(job).encode())


def _said(results: int, nonce: str, limits: Limits) -> Iterator[str | None]:
    """What the runner says, until it ends, is silent for too long, or says what it never would."""
    held, now = bytearray(), time.monotonic()
    silent, over = now + _START_S, now + _START_S + limits.total_s
    while (line := _line(results, held, min(silent, over), 8 * limits.FSIZE)) is not None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(told, list) or len(told) != 2 or told[0] != nonce:
            return
        yield told[1] if isinstance(told[1], str) else None
        now = time.monotonic()
        silent, over = now + limits.wall_s + _GRACE_S, min(over, now + limits.total_s)


def _line(descriptor: int, held: bytearray, deadline: float, longest: int) -> bytes | None:
    """The next line, of which `held` has come already; None when there is none in time."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while b"\n" not in held[-(1 << 20) :]:
        left = deadline - time.monotonic()
        if left <= 0 or len(held) > longest or not waiting.poll(1000 * left):
            return None
        if not (piece := os.read(descriptor, 1 << 20)):
            return None
        held += piece
    line, _, rest = bytes(held).partition(b"\n")
    held[:] = rest
    return line


def _complaint(sandbox: subprocess.Popen[bytes]) -> str:
    """The first line that bubblewrap complains with."""
    assert sandbox.stderr is not None
    ready, _, _ = select.select([sandbox.stderr], [], [], _GRACE_S)
    words = os.read(sandbox.stderr.fileno(), 400).decode(errors="replace").strip() if ready else ""
    return words.split("\n")[0] or "it says nothing"


_UNFILTERED = (
    "Programs are graded only in a sandbox whose system calls are filtered, and here the filter does not hold: use a "
    "kernel with seccomp filters and bubblewrap 0.8 or newer, or grade on another machine."
)


def _why_not(words: str) -> str:
    return (
        f"Programs are graded only in a sandbox, and bubblewrap cannot make one here ({words}): install bubblewrap 0.8 "
        "or newer and allow user namespaces (in a container, by its security options; on Ubuntu 24.04 and newer, by an "
        "AppArmor profile for bwrap), or grade on another machine."
    )
