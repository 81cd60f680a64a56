"""Child processes that judge answers: how they are started, and those that answer line by line until they are ended."""

from __future__ import annotations

import atexit
import select
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def start_child(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "/", **more: Any
) -> subprocess.Popen[bytes]:
    """A process of its own session with pipes for input and output, and nothing of this one's environment unless it
    is given."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **more}
    return subprocess.Popen(command, env=env or {}, cwd=cwd, start_new_session=True, **streams)


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
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline().strip() if ready else b""
        if not line:
            self.end()
        return line

    def end(self) -> None:
        """End the process, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            with process:  # its pipes are closed, and it is waited for
                pass
