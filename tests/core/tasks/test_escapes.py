"""Programs that try to leave their sandbox, to harm the machine or to cheat: none gets through, none stays too long."""

from __future__ import annotations

import json
import os
import socket
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace

import psutil
import pytest

from core.tasks.bubblewrap import Limits, outputs
from core.tasks.programs import passes

pytestmark = pytest.mark.process

LIMITS = Limits(CPU=1, wall_s=3.0, total_s=10.0)
#: Seconds that starting and ending a sandbox may take on a busy machine.
SLACK_S = 12.0
SECRET = "canary-3f9a1c77"

#: Says what it could do that it must not; what is refused raises.
PREFACE = f"""
import ctypes, glob, os, resource, signal, socket, subprocess, sys, threading, time
SECRET = {SECRET!r}
libc = ctypes.CDLL(None, use_errno=True)
def must(done):
    if done == -1: raise OSError(ctypes.get_errno(), "refused")
def look(path):
    with open(path, "rb") as file: return file.read()
"""

#: Name -> what is tried; whatever comes after it without an exception is an escape.
REFUSED = {
    "read passwd": "look('/etc/passwd')",
    "read shadow": "look('/etc/shadow')",
    "list root's home": "os.listdir('/root')",
    "list homes": "os.listdir('/home')",
    "list /var": "os.listdir('/var')",
    "read a file of the host": "look(HOST + '/secret.txt')",
    "read this project": f"look({__file__!r})",
    "read through init's root": "look('/proc/1/root/etc/passwd')",
    "read through init's folder": "look('/proc/1/cwd/root/.bashrc')",
    "read through a symbolic link": "os.symlink('/etc/passwd', 'link'); look('link')",
    "read through ..": "look('/tmp/../../../../etc/passwd')",
    "hard link out": "os.link('/etc/ld.so.cache', 'mine')",
    "write to the root": "open('/x', 'w')",
    "write to the libraries": "open('/usr/lib/x', 'w')",
    "write to what was installed": f"open({sysconfig.get_path('purelib')!r} + '/x', 'w')",
    "change the interpreter": "open(sys.executable, 'r+b')",
    "write to shared memory": "open('/dev/shm/x', 'w')",
    "write to a device folder": "open('/dev/x', 'w')",
    "write to a file of the host": "open(HOST + '/secret.txt', 'w')",
    "write a kernel setting": "open('/proc/sys/kernel/core_pattern', 'w')",
    "trigger the kernel": "open('/proc/sysrq-trigger', 'w').write('c')",
    "read memory of the machine": "look('/dev/mem')",
    "read memory of the kernel": "look('/proc/kcore')",
    "make a device": "os.mknod('disk', 0o060600, os.makedev(8, 0)); look('disk')",
    "fill the disk": (
        "try: [open(f'f{n}', 'wb').write(bytes(4 << 20)) for n in range(40)]\n"
        "finally: [os.unlink(one) for one in glob.glob('f*')]"
    ),
    "a huge file": "open('f', 'wb').write(bytes(64 << 20))",
    "too many open files": "files = [open('/dev/null') for _ in range(200)]",
    "connect to a server of the host": "socket.create_connection(('127.0.0.1', PORT), 1)",
    "connect elsewhere": "socket.create_connection(('192.0.2.1', 80), 1)",
    "send without connecting": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "an abstract socket of the host": "socket.socket(socket.AF_UNIX).connect('\\0' + SECRET)",
    "a socket file of the host": "socket.socket(socket.AF_UNIX).connect(HOST + '/door')",
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "kill the process of the host": "os.kill(HOST_PID, signal.SIGKILL)",
    "read the runner's memory": "look('/proc/2/mem')",
    "read the runner's environment": "look('/proc/2/environ')",
    "take the runner's descriptors": "os.listdir('/proc/2/fd')",
    "trace the runner": "must(libc.ptrace(16, 2, 0, 0))",
    "a new user namespace": "must(libc.unshare(0x10000000))",
    "a new mount namespace": "must(libc.unshare(0x00020000))",
    "join init's namespaces": "must(libc.setns(os.open('/proc/1/ns/mnt', 0), 0))",
    "mount": "must(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None))",
    "change the root": "os.chroot('/')",
    "become root": "os.setuid(0)",
    "raise a limit": "resource.setrlimit(resource.RLIMIT_NPROC, (999, 999))",
    "raise the limit of CPU": "resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    "rename the machine": "socket.sethostname('x')",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "a shell": "subprocess.run(['/bin/sh', '-c', 'true'], check=True)",
    "a terminal": "open('/dev/tty')",
    "a secret of the environment": "os.environ[SECRET]",
    "the program's own modules": "import core",
    "what was installed": "import numpy",
    "too much memory": "bytearray(4 << 30)",
    "memory without end": "held = [bytes(1 << 26) for _ in range(99)]",
    "processes without end": "for _ in range(99):\n    os.fork() or (time.sleep(9), os._exit(0))",
    "threads without end": "for _ in range(99): threading.Thread(target=time.sleep, args=[9], daemon=True).start()",
}
#: What is ended, and counts as failed.
ENDED = {
    "an endless loop": "while True: pass",
    "a long sleep": "time.sleep(99)",
    "a loop that ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (2, 15, 24)]\nwhile True: pass",
    "a fork bomb": "while True:\n    try: os.fork()\n    except OSError: pass",
    "killing everybody": "os.kill(-1, signal.SIGKILL)",
    "killing the runner": "os.kill(2, signal.SIGKILL)",
    "stopping the runner": "os.kill(2, signal.SIGSTOP)",
    "output without end": "while True: os.write(1, bytes(1 << 20))",
    "a crash": "ctypes.string_at(0)",
    "a wrong end": "print('done'); sys.exit(3)",
}


@pytest.fixture(scope="module")
def preface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What an attack knows of the host: a folder with a file and a socket, a port that listens, this process."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.txt").chmod(0o666)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as door,
    ):
        abstract.bind(f"\0{SECRET}")
        door.bind(str(folder / "door"))
        abstract.listen()
        door.listen()
        yield f"{PREFACE}\nHOST, PORT, HOST_PID = {str(folder)!r}, {server.getsockname()[1]}, {os.getpid()}\n"
    assert (folder / "secret.txt").read_text() == SECRET


def run(program: str, limits: Limits = LIMITS, *, libraries: bool = False) -> str | None:
    """What a program printed; None where it failed. It is over in time."""
    began = time.monotonic()
    with closing(outputs(program, [{"input": ""}], limits, libraries=libraries)) as found:
        printed = next(found, None)
    assert time.monotonic() - began < limits.total_s + SLACK_S
    return printed


def check_nothing_is_left() -> None:
    """Of no sandbox that was begun here a process lives."""
    deadline = time.monotonic() + SLACK_S
    while (left := _of_sandboxes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _of_sandboxes() -> list[psutil.Process]:
    """Processes below this one."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE and "bwrap" in " ".join(one.cmdline()):
                found.append(one)
    return found


#: What would take from others what they try, so that each is tried in a sandbox of its own.
GREEDY = ("fill the disk", "too many open files", "raise the limit of CPU", "too much memory", "memory without end",
          "processes without end", "threads without end")  # fmt: skip


#: What a program may do whose tests import libraries.
WITH_LIBRARIES = ("what was installed", "the program's own modules")


@pytest.mark.parametrize(
    ("names", "libraries"),
    [
        ([*REFUSED.keys() - {*GREEDY}], False),
        *(([name], False) for name in GREEDY),
        ([*REFUSED.keys() - {*GREEDY, *WITH_LIBRARIES}], True),
    ],
)
def test_what_is_refused(names: list[str], libraries: bool, preface: str) -> None:
    refused = "(OSError, MemoryError, RuntimeError, KeyError, ImportError, ValueError)"
    program = f"""
{preface}
for name, tried in { ({name: REFUSED[name] for name in names})!r}.items():
    try:
        exec(tried, globals())
        print(name, "ESCAPED")
    except {refused}:
        print(name, "refused")
"""
    printed = run(program, libraries=libraries)
    check_nothing_is_left()
    assert sorted((printed or "").splitlines()) == sorted(f"{name} refused" for name in names)


def test_what_is_ended(preface: str) -> None:
    limits = replace(LIMITS, wall_s=1.5)
    with ThreadPoolExecutor(5) as threads:
        printed = threads.map(lambda tried: run(f"{preface}\n{tried}\n", limits), ENDED.values())
    assert dict(zip(ENDED, printed, strict=True)) == dict.fromkeys(ENDED)
    check_nothing_is_left()


def test_what_is_seen_of_the_host_is_nothing() -> None:
    program = """
        import os, socket
        seen = {one for one in os.listdir("/proc") if one.isdigit()}
        print(sorted(seen, key=int), sorted(os.listdir("/")), os.listdir("."), socket.gethostname(), os.getuid())
        status = open("/proc/self/status").read()
        print([line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapBnd", "NoNewPrivs"))])
        print(sorted(name for name in os.environ if name not in ("PWD", "LC_CTYPE")))
    """
    seen, privileges, environment = (run(textwrap.dedent(program)) or "").splitlines()
    assert seen.startswith("['1', '2', '3'] ['dev', 'etc', 'lib', ")
    assert seen.endswith("'proc', 'tmp', 'usr'] [] sandbox 65534")
    assert privileges == "['0000000000000000', '0000000000000000', '1']"
    assert environment == "[]"


#: Programs that want to be taken for right without knowing what is right.
CHEATS = {
    "looking for the right output everywhere": """
        import gc, glob, os, re
        kinds = ("/proc/*/cmdline", "/proc/*/environ", "/proc/*/fd/*", "/tmp/*")
        places = [place for kind in kinds for place in glob.glob(kind)]
        texts = [repr(gc.get_objects())]
        for place in places:
            try:
                descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
                texts.append(os.read(descriptor, 1 << 20).decode(errors="replace"))
            except OSError:
                pass
        for line in open("/proc/self/maps"):
            try:
                start, end = (int(one, 16) for one in line.split()[0].split("-"))
                with open("/proc/self/mem", "rb") as memory:
                    memory.seek(start)
                    texts.append(memory.read(min(end - start, 1 << 24)).decode(errors="replace"))
            except (OSError, ValueError, OverflowError):
                pass
        print(next(iter(re.findall("right-[0-9]{12}", "".join(texts))), "none"))
        def f(): return next(iter(re.findall("right-[0-9]{12}", "".join(texts))), "none")
    """,
    "writing verdicts to every descriptor": """
        import json, os
        for descriptor in range(64):
            for said in (True, "true", [None, True], {"right": True}, ["0" * 32, "ready"], ["0" * 32, True]):
                try:
                    os.write(descriptor, json.dumps(said).encode() + b"\\n")
                except OSError:
                    pass
    """,
    "writing to the descriptors of others": """
        import glob, os
        for place in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                os.write(os.open(place, os.O_WRONLY | os.O_NONBLOCK), b'["", "true"]\\n')
            except OSError:
                pass
    """,
    "looking for the nonce in the caller": """
        import os, re, sys
        frame, found = sys._getframe(), []
        while frame:
            found += re.findall("[0-9a-f]{32}", repr(frame.f_locals) + repr(frame.f_globals))
            frame = frame.f_back
        for nonce in found:
            for descriptor in range(64):
                try:
                    os.write(descriptor, f'["{nonce}", "true"]\\n'.encode())
                except OSError:
                    pass
    """,
    "a value that equals everything": """
        class Any(str):
            def __eq__(self, other): return True
            __hash__ = str.__hash__
        def f(): return Any("wrong")
    """,
    "a type that equals everything": """
        class Any:
            def __eq__(self, other): return True
            def __repr__(self): return "'right'"
        def f(): return Any()
    """,
    "other functions for json": """
        import json
        json.dumps = lambda *more, **options: "true"
        def f(): return 1
    """,
    "ending well before the call": """
        import os
        os.write(1, b"right")
        os._exit(0)
    """,
    "deep values": """
        def f():
            deep = []
            for _ in range(100_000): deep = [deep]
            return deep
    """,
    "doing nothing": "pass",
}


def test_nothing_counts_as_right_that_is_not() -> None:
    right = "right-" + "271828182845"

    def accepted(program: str) -> list[object]:
        tests = ({"input": "", "output": right}, f"assert f() == {right!r}")
        return [test for test in tests if passes(textwrap.dedent(program), json.dumps([test]), LIMITS)]

    with ThreadPoolExecutor(4) as threads:
        found = threads.map(accepted, CHEATS.values())
    assert dict(zip(CHEATS, found, strict=True)) == {name: [] for name in CHEATS}


def test_one_test_cannot_harm_the_next() -> None:
    program = """
        import os, sys
        n = int(input())
        if n == 0:
            if os.fork() == 0:
                os.setsid()
                while True: pass
            open("left", "w").write("x")
        if n == 1: os.write(1, bytes(8 << 20))
        print(n, len([one for one in os.listdir("/proc") if one.isdigit()]))
    """
    with closing(outputs(textwrap.dedent(program), [{"input": str(n)} for n in range(4)], LIMITS)) as found:
        assert [*found] == ["0 4\n", None, "2 3\n", "3 3\n"]
