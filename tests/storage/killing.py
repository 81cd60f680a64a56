"""Writers of one store that are killed while they record, and what became of all that was acknowledged to them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fcntl import F_SETPIPE_SZ, fcntl
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from core.episode import Status
from storage.store import Store, open_store
from tests.storage.writer import Heard, write

#: Fresh processes that need not import everything again.
START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["tests.storage.writer"])
#: A writer is killed when at most so much was acknowledged to it, and a little later.
MOST_HEARD = 150
#: Bytes of what a writer has said and nobody has heard, more than a hundred messages; then it waits. On a busy machine
#: it would write on and on while the other one is heard.
UNHEARD = 8192
STAGES = {"TurnStarted": 0, "Replied": 1, "Turn": 2}
STORED = {"asked": 0, "replied": 1, "finished": 2}


@dataclass
class Killed:
    """What writers were told is stored before they were killed, what of it is not there, and what SQLite says of the
    file then."""

    kills: int
    acknowledged: list[Heard] = field(default_factory=list)
    lost: list[Heard] = field(default_factory=list)
    integrity: list[str] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        """How many finished episodes were acknowledged."""
        return sum(kind == "EpisodeFinished" for kind, _, _ in self.acknowledged)


def killed_writers(file: Path, kills: int, most_heard: int = MOST_HEARD) -> Killed:
    """Two writers at a time on one store, each killed at another moment, an even number of kills in all. Moments are
    counted in what a writer has recorded, so that a busy machine does not make them all the first one."""
    open_store(file).close()
    found = Killed(kills)
    for pair in range(kills // 2):
        for i, (process, heard) in enumerate([_writer(file, f"r{pair}{side}") for side in "ab"]):
            found.acknowledged += [heard.recv() for _ in range(1 + (pair * 37 + i * 19) % most_heard)]
            time.sleep(0.001 * ((pair * 7 + i * 3) % 20))
            process.kill()
            process.join()
            found.acknowledged += _rest(heard)
    store = open_store(file)
    found.lost = [*_lost(store, found)]
    with store.engine.connect() as connection:
        found.integrity += connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        found.integrity += map(str, connection.exec_driver_sql("PRAGMA foreign_key_check").all())
    store.close()
    return found


def _lost(store: Store, killed: Killed) -> Iterator[Heard]:
    """What was acknowledged and is not stored, or not as far as it was said to be."""
    runs = store.runs.list(limit=killed.kills)
    held = {one.id: one for run in runs for one in store.episodes.of_run(run.id)}
    stages = {
        (turn.episode_id, turn.index): STORED[turn.stage]
        for begun in store.episodes.outlines([*held]).values()
        for turn in begun
    }
    for kind, name, index in killed.acknowledged:
        there = name in held and stages.get((name, index), -1) >= STAGES.get(kind, -1)
        if not there or (kind == "EpisodeFinished" and held[name].status is not Status.FINISHED):
            yield kind, name, index


def _writer(file: Path, run: str) -> tuple[ForkServerProcess, Connection[None, Heard]]:
    heard, said = START.Pipe(duplex=False)
    fcntl(said.fileno(), F_SETPIPE_SZ, UNHEARD)
    process = START.Process(target=write, args=(str(file), run, said))
    process.start()
    said.close()
    return process, heard


def _rest(heard: Connection[None, Heard]) -> Iterator[Heard]:
    """What was said before the kill; a message that the kill cut short was not heard."""
    with heard:
        try:
            while True:
                yield heard.recv()
        except (EOFError, OSError):
            return
