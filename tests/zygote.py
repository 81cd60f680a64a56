"""A process that has imported what the program needs, and forks for each command that a test starts.

To import torch, transformers and Streamlit takes a process longer than most tests play. What `forked` names is called
as the program and the interpreter are: it hands its arguments, folder, environment and streams to this process, which
forks one that runs the command; it passes signals on, and ends as the command ends. The workers that a forked app
starts are forked too. All processes of a test run share one that forks. The workers of the test run itself are forked
off one that has imported all tests as well: for each to import them anew took a twentieth of the suite's time.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import mkdtemp
from typing import TextIO
from unittest.mock import patch

#: What commands import before they do anything, and what they import for what they are asked for.
PRELOADED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "sqlalchemy.dialects.sqlite",
    "anyio._backends._asyncio",
    "uvicorn.protocols.http.auto",
    "uvicorn.lifespan.on",
    "streamlit.web.cli",
    "streamlit.material_icon_names",
    "plotly.graph_objects",
    "math_verify",
    "genai_prices.data",
    "genai_prices.data_snapshot",
    "rich._emoji_codes",
    "encodings.idna",
    "tests.ui.cli.dying",
    "core.pool_file",
    "core.pool.pool",
    "core.pool.hosted",
    "core.pocket.pool",
    "core.play.role_check",
)
#: Packages all of whose modules they import, some in one command and some on one page of the app.
PRELOADED_WHOLE = (
    "storage",
    "ui.answers",
    "ui.cli",
    "ui.endpoint",
    "ui.export",
    "ui.presentation",
    "ui.runs",
    "ui.web",
)
#: What is a script in them: it draws a page, or changes a database, as it is imported.
SCRIPTS = ("ui.web.frame", "ui.web.views.", "storage.migrations.")
#: What stands for `trinity` and `python`: a script that this interpreter runs without its libraries.
STANDS_FOR = ("trinity", "python")
#: The variable that names the folder in which to ask for forks.
FOLDER = "ZYGOTE_FOLDER"
#: Memory that a process of the suite has had it keeps: to give back and ask for again what each step of a model needs
#: took a sixth of the time of what works with models.
KEPT = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
CALLER = Path(__file__).with_name("zygote_caller.py")
PATIENCE_S = 600  # a busy machine is no failure


@dataclass(frozen=True, slots=True)
class Command:
    """What a forked process is to run: `trinity` or `python -m` with arguments as `sys.argv` has them, or a function of
    a module, as `module:function`, which gets the arguments and returns an exit status; or `python -u -c`, as a worker
    of the test run is begun. `modules` are imported once for all that come after it. `caller`: the process that stands
    for the one that runs it; a store knows it by that one's name."""

    argv: list[str]
    folder: str
    environment: dict[str, str]
    modules: Sequence[str] = ()
    caller: int = 0

    def run(self) -> None:
        """Run it to its end in this process, which is then as one that was started for it."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        name, *arguments = self.argv
        if arguments[:2] == ["-u", "-c"]:
            sys.argv = ["-c"]
            exec(arguments[2], {"__name__": "__main__"})  # what execnet calls an interpreter with
            return
        if self.caller:
            from ui.runs import lease

            with patch("os.getpid", return_value=self.caller):
                lease.owner()  # which is remembered
        if Path(name).name == "trinity":
            sys.argv = self.argv
            from ui.cli import main

            sys.exit(main())
        module, called, function = name.partition(":")
        if called:
            sys.exit(getattr(import_module(module), function)(*arguments))
        assert arguments[0] == "-m"
        if arguments[1] == "core.tasks.math_worker":  # what a fork has from here is no memory of its own
            from core.tasks import math_worker

            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
            math_worker.MEMORY += pages * os.sysconf("SC_PAGE_SIZE")
            math_worker.main()
            return
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


@cache
def forked(name: str) -> Path:
    """What is called in place of `trinity` or `python`. The process that forks is started with the first."""
    return _folder() / name


@dataclass(frozen=True, slots=True)
class Child:
    """A command that was begun: the id of its process, and what says how it ended."""

    pid: int
    answers: TextIO

    def ended(self) -> int:
        """Its exit status once it has one; below zero the signal that it died of."""
        with self.answers:
            return int(self.answers.readline())


def begin(command: Command, streams: Sequence[int]) -> Child:
    """Begin a command with these files as its standard input, output and error."""
    sys.audit("subprocess.Popen", command.argv[0], command.argv)  # it starts a process, though elsewhere
    folder, until = _folder(), time.monotonic() + PATIENCE_S
    asker = socket.socket(socket.AF_UNIX)
    while asker.connect_ex(str(folder / "socket")):  # it is still importing
        assert time.monotonic() < until
        if _spawned and os.waitpid(_spawned[0], os.WNOHANG)[0]:
            raise ChildProcessError(
                "The process that forks has died: what it could not import is said above."
            )
        time.sleep(0.05)
    socket.send_fds(asker, [json.dumps(asdict(command)).encode()], streams)
    answers = asker.makefile()
    asker.close()  # the file holds it
    return Child(int(answers.readline()), answers)


def worker_python(paths: Sequence[str]) -> Path:
    """What is called in place of `python` to begin a worker of this test run, which is forked off a process that has
    imported all tests of the paths once for all workers. ChildProcessError when they cannot be imported so."""
    folder = Path(mkdtemp(prefix="workers", dir=share()))
    named = [f"{__name__}:fork_workers", str(folder / "socket"), *paths]
    with (share() / "held").open("rb", buffering=0) as held, (folder / "log").open("wb") as log:
        streams = [held.fileno(), log.fileno(), log.fileno()]
        collector = begin(Command(named, os.getcwd(), dict(os.environ)), streams)
    _kept.append(collector)
    _stand_in(folder / "python")
    with socket.socket(socket.AF_UNIX) as asker:
        while asker.connect_ex(str(folder / "socket")):
            if select.select([collector.answers], [], [], 0.05)[0]:
                said = (folder / "log").read_text("utf-8", "replace")[-2000:]
                raise ChildProcessError(f"Each worker imports all tests, as no process did for all:\n{said}")
    return folder / "python"


def fork_workers(path: str, *paths: str) -> int:
    """Import all tests of the paths and fork workers for who asks at the path of a socket; in a worker: run it."""
    import pytest

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        # A module that cannot be imported is tried again, and told of, by each worker.
        pytest.main(["--collect-only", "-qq", "-o", "addopts=", "-p", "no:cacheprovider", *paths])
        asked = _listen(listener)
    if asked is not None:
        asked.run()
    return 0


def share() -> Path:
    """The folder by which this process and all that it starts ask one process to fork for them. That one ends with
    whoever called this first: its standard input is a pipe that nobody else holds open."""
    if FOLDER not in os.environ:
        folder = Path(mkdtemp(prefix="zygote"))
        os.mkfifo(folder / "held")
        held = os.open(folder / "held", os.O_RDWR)
        os.environ |= {FOLDER: str(folder), **KEPT}
        atexit.register(_end, held, folder)
    return Path(os.environ[FOLDER])


def _end(held: int, folder: Path) -> None:
    """End the process that forks and wait for it, so that its time counts as this one's."""
    os.close(held)
    with suppress(ChildProcessError):
        for pid in _spawned:
            os.waitpid(pid, 0)
    shutil.rmtree(folder)


#: The process that forks, in the process that started it, and what it must not end before.
_spawned: list[int] = []
_kept: list[Child] = []


@cache
def _folder() -> Path:
    """The folder to ask in; whoever comes first starts the process that forks."""
    folder = share()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / STANDS_FOR[0]).exists():
            for name in STANDS_FOR:
                _stand_in(folder / name)
            own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CALLER.parents[1])}
            command = [sys.executable, "-m", __name__, str(folder / "socket")]
            held = (os.POSIX_SPAWN_OPEN, 0, str(folder / "held"), os.O_RDONLY, 0)
            _spawned.append(os.posix_spawn(sys.executable, command, own, file_actions=[held]))
    return folder


def _stand_in(path: Path) -> None:
    """A script that stands for an interpreter, and asks at the socket beside it."""
    path.write_text(f"#!{sys.executable} -SE\n{CALLER.read_text('utf-8')}")
    path.chmod(0o755)


@dataclass
class Zygote:
    """Forks for everybody who asks, until its standard input ends."""

    listener: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    #: The id of a process that runs -> who waits for its end. Not its file: the next process may get that number
    #: while events of this one are still to be handled.
    running: dict[int, socket.socket] = field(default_factory=dict)

    def serve(self) -> Command | None:
        """In a forked process: what it is to run. In this one: None, at the end."""
        self.selector.register(self.listener, selectors.EVENT_READ, self._fork)
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for ready, _ in self.selector.select():
                if ready.data is None:
                    for pid in self.running:
                        self._kill(pid)
                        os.waitpid(pid, 0)
                    return None
                command = ready.data()
                if command is not None:
                    return command  # type: ignore[no-any-return]

    def _fork(self) -> Command | None:
        asker, _ = self.listener.accept()
        said, streams, *_ = socket.recv_fds(asker, 1 << 20, 3)
        if not said:  # it only looked whether it is answered
            asker.close()
            return None
        command = Command(**json.loads(said))
        for name in command.modules:
            import_module(name)
        pid = os.fork()
        if not pid:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for other in (asker, *self.running.values()):
                other.close()
            self.selector.close()
        for stream in streams:
            os.close(stream)
        if not pid:
            return command
        process = os.pidfd_open(pid)
        self.running[pid] = asker
        self.selector.register(process, selectors.EVENT_READ, partial(self._ended, pid, process))
        self.selector.register(asker, selectors.EVENT_READ, partial(self._kill, pid))
        asker.sendall(f"{pid}\n".encode())
        return None

    def _kill(self, pid: int) -> None:
        """Who waited for it is gone."""
        if pid in self.running:
            os.kill(pid, signal.SIGKILL)
            self.selector.unregister(self.running[pid])

    def _ended(self, pid: int, process: int) -> None:
        asker = self.running.pop(pid)
        _, status = os.waitpid(pid, 0)
        with asker, suppress(BrokenPipeError):
            asker.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            with suppress(KeyError):
                self.selector.unregister(asker)
        self.selector.unregister(process)
        os.close(process)


def serve(path: str) -> Command | None:
    """Import what is needed and listen at the path of a socket; see `Zygote.serve`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        gc.disable()
        with warnings.catch_warnings(action="error"):  # as the tests have it, for what they import
            _import_all()
        gc.freeze()  # no forked process looks for garbage in what is imported
        gc.enable()
        return _listen(listener)


def _listen(listener: socket.socket) -> Command | None:
    """Fork for who asks here, as `Zygote.serve` says."""
    assert threading.active_count() == 1, "a thread would not be there in a forked process"
    listener.listen(100)
    return Zygote(listener).serve()


def _let_fork(python: Path) -> None:
    """The processes that this one starts are forked, too."""
    from core.tasks import mathematics
    from ui.runs import queue

    queue.PYTHON = str(python)
    mathematics._WORKER = (queue.PYTHON, "-m", "core.tasks.math_worker")


def _import_all() -> None:
    """What is preloaded, and what transformers makes once for all models that are loaded."""
    for name in PRELOADED:
        import_module(name)
    for package in PRELOADED_WHOLE:
        for found in walk_packages(import_module(package).__path__, f"{package}."):
            if not found.name.startswith(SCRIPTS):
                import_module(found.name)
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("qwen3")  # type: ignore[no-untyped-call]


def _leave() -> None:
    """End a forked process at once: to take apart all that is imported, as an interpreter does at its end, takes longer
    than most commands."""
    if _status:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_status[0])


#: How a forked process ends, once that is known.
_status: list[int] = []

if __name__ == "__main__":
    atexit.register(_leave)  # the first, so that it is called last
    path = Path(sys.argv[1])
    asked = serve(str(path))
    if asked is None:
        _status.append(0)
    else:
        if not asked.argv[0].endswith(f":{fork_workers.__name__}"):
            _let_fork(path.with_name("python"))
        try:
            asked.run()
            _status.append(0)
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                _status.append(ended.code or 0)
            raise
