"""The sandbox in which a model's programs run: bubblewrap's namespaces, a filter of system calls, resource limits and a
clock; never without.

Inside there are the interpreter with its standard library, read-only, an empty folder in memory, and nothing else: no
home, no network, no other process, no environment, no privileges, none of the right outputs, and of the kernel what
Python needs. Where such a sandbox cannot be made, nothing is run.

The filter, `system_calls.bpf`, allows what Python needs and tells all else as not there (ENOSYS), for which C libraries
have another way. It is a program of the kernel's packet filter, the same for x86_64 and aarch64; programs for other
processors, and the 32 bit calls of these, end the process. It is made by libseccomp, after a change here:
`pip install pyseccomp && python -m core.tasks.bubblewrap`."""

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
import sysconfig
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core.errors import TaskError
from core.tasks.background import is_readable, start_child

FILTER = Path(__file__).with_name("system_calls.bpf")
MACHINES = ("x86_64", "aarch64")

#: By what they are for. Some are on one of the two machines alone.
_ALLOWED = {
    "open files": """
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
        fcntl flock fsync fdatasync ftruncate fallocate fadvise64 sync_file_range sendfile copy_file_range pipe pipe2
        fstat fstatfs fchmod fchown fchdir getdents getdents64""",
    "files by their names": """
        open openat creat access faccessat faccessat2 stat lstat newfstatat statx statfs readlink readlinkat truncate
        mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat chmod fchmodat
        fchmodat2 chown lchown fchownat utime utimes futimesat utimensat umask getcwd chdir
        getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr
        lremovexattr fremovexattr""",
    "memory": "brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock membarrier",
    "processes and threads": """
        fork vfork execve exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid getpgrp setpgid
        getsid setsid set_tid_address set_robust_list get_robust_list rseq futex restart_syscall
        sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_get_priority_max
        sched_get_priority_min getpriority setpriority getrlimit setrlimit prlimit64 getrusage times getcpu""",
    "signals": """
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend rt_sigqueueinfo
        rt_tgsigqueueinfo sigaltstack pause alarm getitimer setitimer""",
    "time": "time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep",
    "waiting": """
        poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd
        eventfd2""",
    "sockets, of those that can be made": """
        connect bind listen accept accept4 getsockname getpeername getsockopt setsockopt sendto recvfrom sendmsg recvmsg
        sendmmsg recvmmsg shutdown""",
    "who and where": """
        getuid geteuid getgid getegid getresuid getresgid getgroups capget uname sysinfo getrandom""",
}
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of clone(2).
_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_KIND_OF_FILE, _FIFO = 0o170000, 0o010000
_LOW = 0xFFFFFFFF  # what the kernel looks at, of an argument that is an int
#: TCGETS and TCGETS2 (is it a terminal?), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX and FIOCLEX; and FICLONE, for which
#: copying has another way where a file system has it not.
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_FICLONE = 0x40049409
#: Of prctl(2): PDEATHSIG, GET_ and SET_DUMPABLE, SET_ and GET_NAME, SET_VMA (names of memory).
_PRCTLS = (1, 3, 4, 15, 16, 0x53564D41)
#: ARCH_SET_FS and ARCH_GET_FS of arch_prctl(2), which is how x86_64 has memory of each thread.
_ARCH_PRCTLS = (0x1002, 0x1003)


class Rule(NamedTuple):
    """A system call that is allowed, or refused with an error number, where the argument at this place (from 0), after
    the mask (None: all 64 bits), is this value, or is not."""

    call: str
    place: int
    test: Literal["is", "is not"]
    value: int
    mask: int | None = _LOW
    refused: int = 0


RULES = (
    Rule("clone", 0, "is", 0, mask=_NAMESPACES),
    *(Rule(name, 0, "is", _AF_UNIX, mask=None) for name in ("socket", "socketpair")),
    *(
        Rule(name, 0, "is not", _AF_UNIX, mask=None, refused=errno.EAFNOSUPPORT)
        for name in ("socket", "socketpair")
    ),
    Rule("mknod", 1, "is", _FIFO, mask=_KIND_OF_FILE),
    Rule("mknodat", 2, "is", _FIFO, mask=_KIND_OF_FILE),
    *(Rule("ioctl", 1, "is", request) for request in _IOCTLS),
    Rule("ioctl", 1, "is", _FICLONE, refused=errno.EOPNOTSUPP),
    *(Rule("prctl", 0, "is", option) for option in _PRCTLS),
    *(Rule("arch_prctl", 0, "is", option) for option in _ARCH_PRCTLS),
)


def allowed() -> tuple[str, ...]:
    """The system calls that are allowed whatever their arguments are."""
    return tuple(name for names in _ALLOWED.values() for name in names.split())


def make_filter(path: Path) -> None:
    """Write the filter's program. ImportError without pyseccomp, RuntimeError without libseccomp 2.5."""
    import pyseccomp as seccomp

    made = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    made.remove_arch(seccomp.system_arch())
    for machine in (seccomp.Arch.X86_64, seccomp.Arch.AARCH64):
        made.add_arch(machine)
    made.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    made.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)  # found in a tree and not one after the other
    for name in allowed():
        made.add_rule(seccomp.ALLOW, name)
    for rule in RULES:
        action = seccomp.ERRNO(rule.refused) if rule.refused else seccomp.ALLOW
        made.add_rule(action, rule.call, _argument(seccomp, rule))
    with path.open("wb") as file:
        made.export_bpf(file)


def _argument(seccomp: Any, rule: Rule) -> Any:
    if rule.mask is None:
        return seccomp.Arg(rule.place, seccomp.EQ if rule.test == "is" else seccomp.NE, rule.value)
    return seccomp.Arg(rule.place, seccomp.MASKED_EQ, rule.mask, rule.value)


if __name__ == "__main__":
    make_filter(FILTER)


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
    program: str,
    tests: Sequence[Mapping[str, str]],
    limits: Limits = USUAL,
    *,
    before: str = "",
    libraries: bool = False,
) -> Generator[str | None]:
    """Run a program on tests, {"input": text}, {"call": expression} or {"unittest": code}, and yield what it printed,
    the call's value as JSON (`program_runner.encoded`), or the numbers of tests that were run and that failed, for one
    after the other; None where it failed. There are fewer when it took too long or broke the sandbox. `before`: code
    that is run first, in the same module. `libraries`: what is installed beside this program can be imported. Closing
    the iterator ends it. NoSandbox where none can be made."""
    yield from _outputs(_interpreter(), program, tests, limits, before, libraries)


#: Where the libraries are that this interpreter imports.
_LIBRARIES = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
#: More than a program alone may use: NumPy with pandas take a second of CPU and half a GB of addresses to import.
WITH_LIBRARIES = Limits(CPU=20, wall_s=40.0, total_s=120.0, AS=4 << 30, NPROC=24, NOFILE=256)


def check_libraries(names: Sequence[str]) -> None:
    """NoSandbox, with one sentence, where one of these libraries cannot be imported in the sandbox."""
    if missing := missing_libraries(tuple(sorted(names))):
        raise NoSandbox(
            f"This program's tests import {', '.join(missing)}, which the sandbox cannot: install it beside Trinity "
            "Inspector, in an environment that every user of this machine may read."
        )


@lru_cache(maxsize=512)
def missing_libraries(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the libraries that cannot be imported in the sandbox: each is tried. NoSandbox where there is none."""
    return tuple(name for name in names if name not in sys.stdlib_module_names and not _can_import(name))


@lru_cache(maxsize=512)
def _can_import(name: str) -> bool:
    python = _interpreter()
    try:
        said = [*_outputs(python, f"import {name}", [{"input": ""}], WITH_LIBRARIES, "", True)]
    except NoSandbox:  # without libraries there is one: the user that programs run as may not read these
        return False
    return said[:1] not in ([], [None])


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
    if platform.machine() not in MACHINES:
        raise NoSandbox(
            "Programs are graded only in a sandbox, whose filter of system calls is made for "
            f"{' and '.join(MACHINES)}, and this machine is {platform.machine()}: grade on another machine."
        )
    problem = ""
    for python in dict.fromkeys(Path(one).resolve() for one in (sys.executable, "/usr/bin/python3")):
        try:
            found = [*_outputs(python, _PROBE, [{"input": "7"}], USUAL, "", False)]
            if found == [_PROBED]:
                return python
            if found and str(found[0]).endswith("\n42\n"):
                problem = _UNFILTERED
        except NoSandbox as error:
            problem = problem or str(error)
    raise NoSandbox(problem or "Programs cannot be graded: the sandbox does not run Python here.")


def _outputs(
    python: Path,
    program: str,
    tests: Sequence[Mapping[str, str]],
    limits: Limits,
    before: str,
    libraries: bool,
) -> Iterator[str | None]:
    nonce, folders = secrets.token_hex(16), _LIBRARIES if libraries else ()
    job = {
        "nonce": nonce,
        "before": before,
        "program": program,
        "tests": [*tests],
        "folders": folders,
        "limits": asdict(limits),
    }
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as results, FILTER.open("rb", buffering=0) as calls:
        try:
            sandbox = start_child(
                [*_command(python, limits, calls.fileno(), folders), "-c", _RUNNER, str(writing)],
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


def _command(python: Path, limits: Limits, calls: int, folders: Sequence[str]) -> list[str]:
    """bubblewrap's command line up to the interpreter's own options. `calls` is the descriptor of the opened filter;
    `folders` can be read too."""
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
    seen = (*system, python.parents[1] / "lib", python.parents[1] / "lib64", python, *folders)
    # Each thread of these libraries counts as a process, and they look for a home to write to.
    words = ("OPENBLAS_NUM_THREADS", "1", "OMP_NUM_THREADS", "1", "HOME", "/tmp", "MPLCONFIGDIR", "/tmp")
    named = [("--setenv", *words[at : at + 2]) for at in range(0, len(words), 2)] if folders else []
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
        *("--uid", str(_NOBODY), "--gid", str(_NOBODY), "--cap-drop", "ALL", "--clearenv"),
        *("--seccomp", str(calls), "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.folder), "--tmpfs", "/tmp"),  # before what may lie below it
        *(word for path in seen for word in ("--ro-bind-try", str(path), str(path))),
        *(word for one in named for word in one),
        *("--chdir", "/tmp"),
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
    ready = is_readable(sandbox.stderr, _GRACE_S)
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
