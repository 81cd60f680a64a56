"""Gradings that take long, off the caller's thread: in threads, as many at once as there are cores, or elsewhere; and
child processes that answer line by line until they are ended."""

from __future__ import annotations

import atexit
import select
import subprocess
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from core.episode import Failure, PendingVerdict
from core.processes import cores


def start_child(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "/", **more: Any
) -> subprocess.Popen[bytes]:
    """A process of its own session with pipes for input and output, and nothing of this one's environment unless it
    is given."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **more}
    return subprocess.Popen(command, env=env or {}, cwd=cwd, start_new_session=True, **streams)


def is_readable(stream: IO[bytes], seconds: float) -> bool:
    """Whether there is something to read, or the end, within so many seconds; also in a process with so many open files
    that `select.select` refuses."""
    waiting = select.poll()
    waiting.register(stream, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


@dataclass
class LineChild:
    """A process that greets and then answers each line with a line; one that had to be ended is begun anew. It ends
    with this process."""

    command: Sequence[str]
    start_s: float
    env: Mapping[str, str] | None = None
    cwd: Path = Path("/")
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    greeting: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        atexit.register(self.end)

    def begin(self) -> bytes:
        """See to it that it runs; its greeting, nothing when it could not be started in time."""
        if self.process is None or self.process.poll() is not None:
            self.end()
            self.process = start_child(self.command, env=self.env, cwd=str(self.cwd))
            self.greeting = self._line(self.process, self.start_s)
        return self.greeting

    def ask(self, line: bytes, seconds: float) -> bytes:
        """The answer of one that was begun; nothing when it ended, or took longer and was ended."""
        if self.process is None or self.process.stdin is None:
            return b""
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
            return self._line(self.process, seconds)
        except OSError:  # it ended itself, by a limit of its own
            self.end()
            return b""

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """The next line, or nothing from a process that is then ended."""
        assert process.stdout is not None
        line = process.stdout.readline().strip() if is_readable(process.stdout, seconds) else b""
        if not line:
            self.end()
        return line

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            with process:  # its pipes are closed, and it is waited for
                pass


#: So many verdicts are remembered.
_REMEMBERED = 50_000

Judge = Callable[[], bool | Failure]
#: Has it judged elsewhere.
Begin = Callable[[], PendingVerdict]


@dataclass
class Background:
    """Verdicts under way and those that came, each by what was graded: the same is worked out once. Its threads end
    with this process, whatever they are at."""

    _known: dict[Hashable, bool] = field(default_factory=dict)
    _under_way: dict[Hashable, PendingVerdict] = field(default_factory=dict)
    _waiting: SimpleQueue[tuple[Hashable, Judge]] = field(default_factory=SimpleQueue)
    _threads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verdict(self, key: Hashable, judge: Judge, begin: Begin | None = None) -> bool | PendingVerdict:
        """What `judge` says, or will have said, or whoever `begin` asks in its place. A failure is not remembered."""
        with self._lock:
            if key in self._known:
                return self._known[key]
            if key in self._under_way:
                return self._under_way[key]
            pending = self._under_way[key] = PendingVerdict()
            if begin is None:
                self._waiting.put((key, judge))
                if self._threads < cores():
                    self._threads += 1
                    threading.Thread(target=self._work, daemon=True).start()
        if begin is not None:
            begin().add_done_callback(lambda come: self._settle(key, come.result))
        return pending

    def _work(self) -> None:
        while True:
            self._settle(*self._waiting.get())

    def _settle(self, key: Hashable, judge: Judge) -> None:
        try:
            found = judge()
        except Exception as error:  # whoever waits for the verdict meets it
            self._over(key).set_exception(error)
        else:
            self._over(key, found).set_result(found)

    def _over(self, key: Hashable, found: bool | Failure | None = None) -> PendingVerdict:
        with self._lock:
            if isinstance(found, bool):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[key] = found
            return self._under_way.pop(key)


BACKGROUND = Background()
