"""Commands of `trinity`, born with all imports done, which may die by SIGKILL in a model call or around a commit.

Each is a real process of its own; that it is forked off one which has imported everything spares it the seconds that
an interpreter, SQLAlchemy and torch take to start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

from storage.store import open_store
from tests.core.pool.faulty_server import Answer, FaultyServer, Request
from tests.ui.sums import answer

#: What comes in between: a death in a call, before a commit, after one, and again.
KINDS = ("call", "before commit", "after commit")

#: What every command imports that plays with hosted models and records it.
SERVED = (
    "ui.cli.commands",
    "ui.runs.queue",
    "storage.store",
    "sqlalchemy.dialects.sqlite",
    "core.pool_file",
    "core.pool.mixed",
    "core.pool.hosted",
    "anyio._backends._asyncio",
)

#: Imports what is named, then runs each command of stdin in a child: its process id and how it ended go to stdout.
_NURSERY = """
import importlib, json, os, signal, sys, threading
from sqlalchemy import Engine, event
from ui.cli import main
for name in sys.argv[1:]:
    importlib.import_module(name)

def live(command, commits, after):
    left = commits
    def count(connection):
        nonlocal left
        if threading.current_thread() is not threading.main_thread():
            return  # a heartbeat: how many there are is a matter of the clock
        left -= 1
        if left == 0:
            if after:
                connection.connection.dbapi_connection.commit()
            os.kill(os.getpid(), signal.SIGKILL)
    event.listen(Engine, "commit", count)
    from storage.shelves.replies import PaidReplies
    keep = PaidReplies.keep
    def watched(self, replies):
        if {key for key, _ in self.recall()} & {key for key, _ in replies}:
            open(os.environ["ASKED_TWICE"], "w").close()
        keep(self, replies)
    PaidReplies.keep = watched
    return main(command)

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        for number in (1, 2):
            os.dup2(os.open(asked["said"][number - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        try:
            code = live(asked["command"], asked["commits"], asked["after"])
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class World(Protocol):
    """Where commands play: a folder, and a server with models."""

    @property
    def folder(self) -> Path: ...

    @property
    def server(self) -> FaultyServer: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


@dataclass
class Nursery:
    """Where commands are born and die, one at a time."""

    world: World
    process: subprocess.Popen[str]

    def die(self, command: Sequence[object], number: int, *, calls: int, commits: int) -> None:
        """Run a command until SIGKILL, the `number`-th in the order of KINDS: after so many calls while it waits for a
        model, or at its n-th commit."""
        kind = next(islice(cycle(KINDS), number, None))
        if kind == "call":
            self._die_in_call(command, calls)
        else:
            self.born(command, commits, after=kind == "after commit")
            self._died()

    @contextmanager
    def alive(self, command: Sequence[object]) -> Iterator[None]:
        """Run a command until the block ends, and end it by SIGKILL, if it has not come to its end by itself."""
        child = self.born(command)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            self.ended()

    def lives(self, command: Sequence[object]) -> Ended:
        """Run a command to its end."""
        self.born(command)
        return self.ended()

    def _die_in_call(self, command: Sequence[object], after: int) -> None:
        child: list[int] = []
        started = len(self.world.server.requests)

        def deadly(request: Request) -> Answer:
            if len(self.world.server.requests) - started > after:
                with suppress(IndexError):  # several calls can be under way: one of them kills
                    os.kill(child.pop(), signal.SIGKILL)
                    return ()
            return answer(request)

        self.world.server.answer = deadly
        child.append(self.born(command))
        self._died()
        self.world.server.answer = answer

    def born(self, command: Sequence[object], commits: int = 0, *, after: bool = False) -> int:
        """Begin a command, which dies before or `after` so many commits (0: it does not); its process id."""
        asked = {
            "command": [str(word) for word in command],
            "commits": commits,
            "after": after,
            "said": [str(file) for file in self._said],
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def ended(self) -> Ended:
        """Wait for the end of the command."""
        code = int(self._line())
        out, err = (file.read_text() for file in self._said)
        return Ended(code, out, err)

    def _died(self) -> None:
        ended = self.ended()
        assert ended.code == -signal.SIGKILL, ended.out + ended.err

    @property
    def _said(self) -> tuple[Path, Path]:
        return self.world.folder / "stdout", self.world.folder / "stderr"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def nursery(
    world: World, *modules: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[Nursery]:
    """A nursery that has imported these modules, with this environment (None: as it is now), in this folder."""
    with subprocess.Popen(
        [sys.executable, "-c", _NURSERY, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
    ) as process:
        yield Nursery(world, process)
        assert process.stdin is not None
        process.stdin.close()


def last_run(store_url: str) -> str:
    """The id of the newest run."""
    store = open_store(store_url)
    run = store.runs.list()[0].id
    store.close()
    return run
