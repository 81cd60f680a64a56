"""Commands of `trinity`, each a process forked off the zygote, which may die by SIGKILL in a model call or around a
commit."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, event

from storage.shelves.replies import PaidReplies
from tests.core.pool.faulty_server import Answer, FaultyServer, Request
from tests.ui.sums import answer
from tests.zygote import Child, Command, begin
from ui.cli import main

#: What comes in between: a death in a call, before a commit, after one, and again.
KINDS = ("call", "before commit", "after commit")


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

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Nursery:
    """Where commands are born and die, one at a time."""

    world: World
    modules: Sequence[str] = ()  #: what its commands import besides
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: str = field(default_factory=os.getcwd)
    _child: Child = field(init=False)

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

    def done(self, *command: object) -> Ended:
        """What a command says that does what it is asked for."""
        ended = self.lives(command)
        assert ended.code == 0, ended.err
        return ended

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
        words = [str(word) for word in command]
        live = Command(
            [f"{__name__}:live", json.dumps([words, commits, after])],
            self.cwd,
            self.environment,
            self.modules,
        )
        with open(os.devnull) as silence, self._said[0].open("w") as out, self._said[1].open("w") as err:
            self._child = begin(live, [silence.fileno(), out.fileno(), err.fileno()])
        return self._child.pid

    def ended(self) -> Ended:
        """Wait for the end of the command."""
        code = self._child.ended()
        out, err = (file.read_text() for file in self._said)
        return Ended(code, out, err)

    def _died(self) -> None:
        ended = self.ended()
        assert ended.code == -signal.SIGKILL, ended.out + ended.err

    @property
    def _said(self) -> tuple[Path, Path]:
        return self.world.folder / "stdout", self.world.folder / "stderr"


def live(asked: str) -> int:
    """In a forked process: run a command that dies at a commit, and note where a paid reply is paid for twice."""
    command, commits, after = json.loads(asked)

    def count(connection: Connection) -> None:
        nonlocal commits
        if threading.current_thread() is not threading.main_thread():
            return  # a heartbeat: how many there are is a matter of the clock
        commits -= 1
        if commits == 0:
            if after:
                connection.connection.dbapi_connection.commit()  # type: ignore[union-attr]
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "commit", count)
    keep = PaidReplies.keep

    def watched(self: PaidReplies, replies: Any) -> None:
        if {key for key, _ in self.recall()} & {key for key, _ in replies}:
            Path(os.environ["ASKED_TWICE"]).touch()
        keep(self, replies)

    PaidReplies.keep = watched  # type: ignore[method-assign]
    return main(command)
