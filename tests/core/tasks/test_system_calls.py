"""The filter of system calls: what is refused inside, that ordinary programs miss nothing, no sandbox without."""

from __future__ import annotations

import errno
import json
import platform
import shutil
import struct
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from core.tasks import bubblewrap
from core.tasks.bubblewrap import FILTER, Limits, NoSandbox, check_sandbox, make_filter, outputs

#: Numbers of what must not be made, on x86_64 and aarch64; None where a machine has it not.
FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone3": (435, 435),
    "create_module": (174, None), "delete_module": (176, 106), "execveat": (322, 281),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_setup": (206, 0),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "landlock_create_ruleset": (444, 444), "mbind": (237, 235),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "request_key": (249, 218), "seccomp": (317, 277), "semget": (64, 190), "sethostname": (170, 161),
    "setns": (308, 268), "setuid": (105, 146), "shmget": (29, 194), "swapon": (167, 224), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
    "a call of the future": (999, 999),
}  # fmt: skip
#: Some of what Python needs.
NEEDED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "openat": (257, 56), "mmap": (9, 222),
    "execve": (59, 221), "exit_group": (231, 94), "futex": (202, 98), "wait4": (61, 260),
    "getrandom": (318, 278), "epoll_pwait": (281, 22), "clock_nanosleep": (230, 115), "sendmsg": (46, 211),
    "rt_sigreturn": (15, 139), "fchmodat2": (452, 452), "rseq": (334, 293),
}  # fmt: skip
X86_64, AARCH64, I386, X32 = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000000
ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCHES = {"x86_64": X86_64, "aarch64": AARCH64}


def refused(error: int) -> int:
    """What a filter returns for a call that fails with this error number."""
    return 0x00050000 | error


def verdict(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel does with a call: the filter's instructions (linux/filter.h) run on a seccomp_data."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    at = held = 0
    while True:
        code, yes, no, k = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:  # load a word
                (held,) = struct.unpack_from("<I", data, k)
            case 0x54:  # and
                held &= k
            case 0x05:  # jump
                at += k
            case 0x15 | 0x25 | 0x35:  # jump where equal, greater, at least
                at += yes if (held == k, held > k, held >= k)[(0x15, 0x25, 0x35).index(code)] else no
            case 0x06:  # return
                return int(k)
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.fixture(scope="module")
def program() -> bytes:
    return FILTER.read_bytes()


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_forbidden_is_not_there_and_what_is_needed_is(program: bytes, place: int) -> None:
    arch = (X86_64, AARCH64)[place]
    for name, numbers in FORBIDDEN.items():
        if (number := numbers[place]) is not None:
            assert verdict(program, arch, number, 1, 2, 3) == refused(errno.ENOSYS), name
    for name, numbers in NEEDED.items():
        if (number := numbers[place]) is not None:
            assert verdict(program, arch, number, 1, 2, 3) == ALLOW, name


@pytest.mark.parametrize(
    ("arch", "numbers"),
    [
        (X86_64, {"clone": 56, "socket": 41, "pair": 53, "ioctl": 16, "prctl": 157, "mknodat": 259}),
        (AARCH64, {"clone": 220, "socket": 198, "pair": 199, "ioctl": 29, "prctl": 167, "mknodat": 33}),
    ],
)
def test_some_calls_depend_on_what_they_ask_for(program: bytes, arch: int, numbers: dict[str, int]) -> None:
    def asked(name: str, *arguments: int) -> int:
        return verdict(program, arch, numbers[name], *arguments)

    threads, fork = 0x3D0F00, 17
    assert asked("clone", threads) == asked("clone", fork) == ALLOW
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert asked("clone", fork | namespace) == refused(errno.ENOSYS)
        assert asked("clone", 1 << 32 | fork | namespace) == refused(errno.ENOSYS)
    for name in ("socket", "pair"):
        assert asked(name, 1, 1) == ALLOW
        for family in (0, 2, 10, 16, 17, 31, 38, 40, 44):
            assert asked(name, family, 1) == refused(errno.EAFNOSUPPORT)
        assert asked(name, 1 << 32 | 1, 1) == refused(errno.EAFNOSUPPORT)  # whatever the kernel makes of it
    assert asked("ioctl", 0, 0x5401) == asked("ioctl", 0, 7 << 32 | 0x5401) == ALLOW
    assert (
        asked("ioctl", 0, 0x5412) == asked("ioctl", 0, 0x541C) == refused(errno.ENOSYS)
    )  # TIOCSTI, TIOCLINUX
    assert asked("ioctl", 0, 0x40049409) == refused(errno.EOPNOTSUPP)
    assert asked("prctl", 4) == ALLOW
    assert asked("prctl", 22) == asked("prctl", 38) == refused(errno.ENOSYS)
    assert asked("mknodat", 0, 0, 0o010644) == ALLOW
    assert asked("mknodat", 0, 0, 0o060600) == refused(errno.ENOSYS)


def test_calls_of_another_machine_end_the_process(program: bytes) -> None:
    assert verdict(program, I386, 20) == verdict(program, 0xC00000F3, 63) == KILL
    assert verdict(program, X86_64, X32 | 39) == KILL


@pytest.mark.process
def test_the_filter_is_what_the_script_makes(program: bytes, tmp_path: Path) -> None:
    try:
        make_filter(tmp_path / "again.bpf")
    except (ImportError, RuntimeError):  # without pyseccomp, and without its library
        pytest.skip("only who changes the filter needs pyseccomp and libseccomp")
    again = (tmp_path / "again.bpf").read_bytes()
    for arch in ARCHES.values():
        for number in range(480):
            for arguments in ((), (1, 1), (2, 2), (17, 0x5401), (4, 0o010644, 0o010644)):
                assert verdict(again, arch, number, *arguments) == verdict(program, arch, number, *arguments)


LIMITS = Limits(CPU=4, wall_s=20.0, total_s=40.0)


def said(program: str, limits: Limits = LIMITS) -> str | None:
    """What a program printed inside; None where it failed."""
    with closing(outputs(textwrap.dedent(program), [{"input": ""}], limits)) as found:
        return next(found, None)


#: What is tried inside besides, by an argument that a call must not have; it is refused with this error.
TRIED = {
    "a socket to the host of this machine": ("socket.socket(40, socket.SOCK_STREAM)", "EAFNOSUPPORT"),
    "a socket to the kernel": ("socket.socket(16, socket.SOCK_RAW)", "EAFNOSUPPORT"),
    "a socket to its ciphers": ("socket.socket(38, socket.SOCK_SEQPACKET)", "EAFNOSUPPORT"),
    "a socket to the network": ("socket.socket(socket.AF_INET)", "EAFNOSUPPORT"),
    "raw packets": ("socket.socket(17, socket.SOCK_RAW)", "EAFNOSUPPORT"),
    "a pair of another kind": ("socket.socketpair(16)", "EAFNOSUPPORT"),
    "a process in a new user namespace": ("must(libc.syscall(CLONE, 0x10000011, 0, 0, 0, 0))", "ENOSYS"),
    "a process in a new mount namespace": ("must(libc.syscall(CLONE, 0x00020011, 0, 0, 0, 0))", "ENOSYS"),
    "a key for the terminal": ("fcntl.ioctl(0, 0x5412, b'x')", "ENOSYS"),
    "a device": ("os.mknod('disk', 0o060600, 7)", "ENOSYS"),
    "a filter of its own": ("must(libc.prctl(22, 1, 0, 0, 0))", "ENOSYS"),
}


@pytest.mark.process
def test_inside_what_is_forbidden_is_not_there_and_no_call_can_be_asked_for_more_than_python_needs() -> None:
    place = bubblewrap.MACHINES.index(platform.machine())
    numbers = {name: pair[place] for name, pair in FORBIDDEN.items() if pair[place] is not None}
    tried = {name: f"must(libc.syscall({number}, 0, 0, 0, 0, 0, 0))" for name, number in numbers.items()}
    tried |= {name: program for name, (program, _) in TRIED.items()}
    found = json.loads(
        said(f"""
            import ctypes, errno, fcntl, json, os, socket
            libc, found, CLONE = ctypes.CDLL(None, use_errno=True), {{}}, {(56, 220)[place]}
            def must(done):
                if done == 0: os._exit(0)
                if done == -1: raise OSError(ctypes.get_errno(), "refused")
            for name, tried in {tried!r}.items():
                try:
                    exec(tried)
                    found[name] = "ESCAPED"
                except OSError as error:
                    found[name] = errno.errorcode[error.errno]
            print(json.dumps(found))
        """)
        or "{}"
    )
    assert found == dict.fromkeys(numbers, "ENOSYS") | {name: error for name, (_, error) in TRIED.items()}


@pytest.mark.process
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other calls of an x86_64 processor")
def test_inside_the_other_calls_of_the_processor_end_the_program() -> None:
    preface = (
        "import ctypes, mmap\nlibc = ctypes.CDLL(None)\n"
        "code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
    )
    assert said(f"{preface}print('before', flush=True)") == "before\n"
    # x32; and getpid by the door of 32 bits: mov eax, 20; int 0x80; ret
    for tried in (
        "libc.syscall(0x40000000 | 39)",
        "code.write(bytes.fromhex('b814000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()",
    ):
        assert said(f"{preface}{tried}\nprint('ESCAPED', flush=True)") is None


#: What programs do every day, each of which prints its name.
ORDINARY = {
    "threads": "pool = concurrent.futures.ThreadPoolExecutor(4); assert sum(pool.map(abs, range(9))) == 36",
    "a process": "subprocess.run([sys.executable, '-I', '-S', '-c', 'pass'], check=True)",
    "a pipe from a process": (
        "assert subprocess.check_output([sys.executable, '-ISc', 'print(1)'], text=True) == '1\\n'"
    ),
    "fork": "child = os.fork() or os._exit(0); assert os.waitpid(child, 0)[1] == 0",
    "asyncio": "asyncio.run(asyncio.wait_for(asyncio.sleep(0.01), 5))",
    "asyncio in threads": "assert asyncio.run(asyncio.to_thread(len, 'ab')) == 2",
    "a pair of sockets": "a, b = socket.socketpair(); a.settimeout(5); b.send(b'x'); assert a.recv(1) == b'x'",
    "a server in the folder": (
        "s = socket.socket(socket.AF_UNIX); s.bind('door'); s.listen()\n"
        "c = socket.socket(socket.AF_UNIX); c.connect('door'); s.accept()[0].send(b'x'); assert c.recv(1) == b'x'"
    ),
    "selectors": "selectors.DefaultSelector().select(0); select.select([], [], [], 0)",
    "temporary files": "f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.seek(0); assert f.read() == b'x'",
    "copies": (
        "open('a', 'w').write('x'); shutil.copy2('a', 'b'); os.makedirs('d/e'); shutil.copytree('d', 'g')\n"
        "shutil.move('b', 'd/b'); os.replace('d/b', 'c'); os.utime('c'); os.chmod('c', 0o600); shutil.rmtree('d')"
    ),
    "a named pipe": "os.mkfifo('fifo')",
    "sparse files": "f = open('big', 'wb'); f.truncate(1 << 20); f.close(); assert os.stat('big').st_size == 1 << 20",
    "maps": "m = mmap.mmap(-1, 1 << 16); m.write(b'x' * 99); m.resize(1 << 17); m.close()",
    "a callback from C": (
        "less = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)(lambda a, b: a[0] - b[0])\n"
        "n = (ctypes.c_int * 3)(3, 1, 2); ctypes.CDLL(None).qsort(n, 3, 4, less); assert [*n] == [1, 2, 3]"
    ),
    "deep recursion": (
        "sys.setrecursionlimit(60_000); threading.stack_size(64 << 20)\n"
        "def deep(n): return n and 1 + deep(n - 1)\n"
        "got = []; t = threading.Thread(target=lambda: got.append(deep(20_000))); t.start(); t.join()\n"
        "assert got == [20_000]; threading.stack_size(0)"
    ),
    "time": "time.sleep(0.001); time.time(); time.perf_counter(); time.process_time(); datetime.datetime.now()",
    "alarms": (
        "rang = []; signal.signal(signal.SIGALRM, lambda *_: rang.append(1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.2); assert rang"
    ),
    "chance": "random.seed(1); random.random(); secrets.token_hex(); uuid.uuid4(); os.urandom(8)",
    "numbers": "assert decimal.Decimal(1) / 3 + fractions.Fraction(1, 3).numerator and math.comb(60, 30) and math.pi",
    "locks": "l = threading.Lock(); e = threading.Event(); l.acquire(timeout=0.01); assert not e.wait(0.01)",
    "queues": "q = queue.Queue(); threading.Thread(target=q.put, args=[1]).start(); assert q.get(timeout=5) == 1",
    "what machine it is": "platform.system(); os.cpu_count(); len(os.sched_getaffinity(0)); shutil.get_terminal_size()",
    "its limits": "resource.getrlimit(resource.RLIMIT_AS); resource.getrusage(resource.RUSAGE_SELF); os.nice(0)",
    "waiting for more input": "assert sys.stdin.read() == ''; assert not sys.stdin.isatty()",
    "compression": "assert zlib.decompress(zlib.compress(b'x' * 999)) == b'x' * 999; bz2.compress(b'x'); lzma",
    "a database": "d = sqlite3.connect('data.db'); d.execute('create table t (a)'); d.commit(); d.close()",
    "digests": "hashlib.sha256(b'x').hexdigest(); json.loads('[1]'); re.sub('a', 'b', 'a'); statistics.stdev([1, 2])",
}  # fmt: skip


@pytest.mark.process
def test_ordinary_programs_miss_nothing() -> None:
    modules = (
        "asyncio, bz2, concurrent.futures, ctypes, datetime, decimal, fractions, hashlib, json, lzma, math, mmap, os, "
        "platform, queue, random, re, resource, secrets, select, selectors, shutil, signal, socket, sqlite3, "
        "statistics, subprocess, sys, tempfile, threading, time, traceback, uuid, zlib"
    )
    found = json.loads(
        said(f"""
            import {modules}
            found = {{}}
            for name, program in {ORDINARY!r}.items():
                try:
                    exec(program, globals())
                    found[name] = ""
                except BaseException as error:
                    found[name] = repr(error)
            print(json.dumps(found))
        """)
        or "{}"
    )
    assert found == dict.fromkeys(ORDINARY, "")


@pytest.mark.process
def test_nothing_is_run_where_the_filter_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anything = tmp_path / "all.bpf"
    anything.write_bytes(struct.pack("<HBBI", 0x06, 0, 0, ALLOW))
    monkeypatch.setattr(bubblewrap, "FILTER", anything)
    bubblewrap._interpreter.cache_clear()
    with pytest.raises(NoSandbox, match="here the filter does not hold: use a kernel with seccomp filters"):
        check_sandbox()
    with pytest.raises(NoSandbox), closing(outputs("print(1)", [{"input": ""}])) as found:
        next(found)
    bubblewrap._interpreter.cache_clear()


def test_nothing_is_run_on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    bubblewrap._interpreter.cache_clear()
    with pytest.raises(NoSandbox, match="made for x86_64 and aarch64, and this machine is riscv64"):
        check_sandbox()
    bubblewrap._interpreter.cache_clear()
