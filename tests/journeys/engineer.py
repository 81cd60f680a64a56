"""What an engineer's journey needs: a folder with a pool of seven models and tasks of four families, `trinity` as it is
typed, and the truth of the server, which the store's has to equal."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from core.episode import Episode, Role
from storage.rows.engine import fetch_scalar
from storage.rows.schema import run as run_table
from storage.store import Store, open_store
from tests.browsing import environment
from tests.builders.own_models import KEY, KEY_VARIABLE, MODELS, Call, Team
from tests.builders.own_tasks import FAMILIES, exercises, task_file
from tests.core.pool.faulty_server import FaultyServer, faulty_server
from tests.ui.cli.dying import Nursery

#: Calls in flight: to one model, and to all of them together.
EACH, ALL = 6, 24
PATIENCE_S = 300
#: A file that is there once an evolution kept a reply twice.
ASKED_TWICE = "asked twice"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said and how it ended, with the calls that the server had meanwhile, and the seconds it took."""

    code: int
    out: str
    err: str
    calls: Sequence[Call]
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def run(self) -> str:
        """The run that was played."""
        return str(re.findall(r"^Run (\w+)$", self.err, re.MULTILINE)[-1])

    @property
    def bound_usd(self) -> float:
        """What it can cost at most, as it was said before."""
        return _dollars(r"at most \$([\d.,]+)", self.err)

    @property
    def expected_usd(self) -> float:
        """What is to be expected, as it was said before."""
        return _dollars(r"To expect: about [\d,]+ calls, \$([\d.,]+\d)", self.err)

    @property
    def billed_usd(self) -> float:
        """What the server bills for it."""
        return sum(call.cost_usd for call in self.calls)


@dataclass
class Engineer:
    """An engineer in a folder, with models of their own behind a server."""

    folder: Path
    server: FaultyServer
    team: Team
    nursery: Nursery = field(init=False)
    heard: list[str] = field(default_factory=list)

    def trinity(self, *command: object, killed_after: int | None = None) -> Said:
        """Type a command and wait for its end, which SIGKILL brings once the server had so many calls of it."""
        began, first = time.monotonic(), len(self.team.calls)
        child = self.nursery.born(command)
        if killed_after is not None:
            until = began + PATIENCE_S
            while len(self.team.calls) - first < killed_after and time.monotonic() < until:
                time.sleep(0.002)
            os.kill(child, signal.SIGKILL)
        ended = self.nursery.ended()
        while self.server.in_flight:  # of a killed one nobody waits for the answers
            time.sleep(0.01)
        self.heard += [ended.out, ended.err]
        return Said(ended.code, ended.out, ended.err, self.team.calls[first:], time.monotonic() - began)

    @contextmanager
    def serving(self, *command: object) -> Iterator[str]:
        """The address of what a command serves until the block ends, which Ctrl-C ends."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        child = self.nursery.born([*command, "--port", port])
        try:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.kill(child, signal.SIGINT)
            ended = self.nursery.ended()
            self.heard += [ended.out, ended.err]

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store as it is now."""
        [file] = self.folder.glob("*/trinity.db")
        with closing(open_store(file)) as store:
            yield store

    def played(self, run: str) -> list[Episode]:
        """The episodes of a run, as far as they are played."""
        with self.store() as store:
            return [store.episodes.get(one.id) for one in store.episodes.of_run(run)]

    def spent_usd(self, run: str) -> float:
        """What a run has cost by the store, but for answers that could not be read: this server does not bill them, and
        they are reckoned at the most that they can have cost."""
        with self.store() as store:
            lost = fetch_scalar(store.engine, select(run_table.c.lost_usd).where(run_table.c.id == run))
            return float(store.runs.spent_usd(run) - store.runs.unread_usd(run) + lost)

    def written(self) -> Iterator[tuple[Path, bytes]]:
        """Every file of the folder, with what it holds."""
        for file in self.folder.rglob("*"):
            if file.is_file():
                yield file, file.read_bytes()


@contextmanager
def engineer(
    folder: Path,
    *,
    each: int,
    per_second: float,
    faulty: bool = False,
    families: Sequence[str] = tuple(FAMILIES),
) -> Iterator[Engineer]:
    """An engineer with so many tasks of each of these families. A good server's limits stand in the pool file; a faulty
    one does not say them."""
    tasks = [one for one in exercises(each) if one.family in families]
    team = Team(tasks, per_second, faulty=faulty)
    with faulty_server(team) as server:
        (folder / "tasks.jsonl").write_text(task_file(team.tasks))
        limits = "" if faulty else f"requests_per_minute = {60 * per_second}\n"
        (folder / "pool.toml").write_text(
            f"[defaults]\nsend_seed = true\nmax_tokens = 2000\ntimeout_s = 6\nconcurrency = {EACH}\n"
            f'[[provider]]\nname = "observatory"\nbase_url = "{server.url}"\n'
            f'api_key_env = "{KEY_VARIABLE}"\nconcurrency = {ALL}\n{limits}'
            + "".join(
                f'[[model]]\nname = "{one.name}"\nprovider = "observatory"\n'
                f"price_in = {one.price_in}\nprice_out = {one.price_out}\n"
                for one in MODELS
            )
        )
        world = Engineer(folder, server, team)
        own = {KEY_VARIABLE: KEY, "TRINITY_PROCESSES": "1", "ASKED_TWICE": str(folder / ASKED_TWICE)}
        world.nursery = Nursery(world, environment=environment(folder) | own, cwd=str(folder))
        yield world


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server knows of the Worker turns of episodes, beside what was read from them: the answers that were
    `right`, by model, those of them that do not count as right, the wrong ones that do, and, by policy, the shares of
    episodes solved."""

    right: Counter[str]
    unreadable: Counter[str]
    taken: int
    accuracy: dict[str, float]

    @property
    def unreadable_share(self) -> float:
        return self.unreadable.total() / max(1, self.right.total())


def truth(team: Team, episodes: Sequence[Episode]) -> Truth:
    """Put the store's episodes beside the server's truth."""
    known = {(call.question, call.text): call.right for call in team.calls if call.role == "Worker"}
    right: Counter[str] = Counter()
    unreadable: Counter[str] = Counter()
    taken, solved = 0, defaultdict(list)
    for episode in episodes:
        is_right: bool | None = False
        for turn in episode.turns:
            if turn.decision.role is Role.WORKER:
                model, is_right = turn.decision.model, known[episode.task.question, turn.reply.text]
                right[model] += bool(is_right)
                unreadable[model] += bool(is_right) and not turn.correct_after
                taken += not is_right and bool(turn.correct_after)
        solved[episode.policy].append(bool(is_right))
    return Truth(right, unreadable, taken, {name: sum(of) / len(of) for name, of in solved.items()})


def calls_of(episodes: Sequence[Episode]) -> Counter[tuple[str, tuple[str, ...]]]:
    """Model and texts of the calls behind finished turns, and how many turns each is behind."""
    asked = [turn for episode in episodes for turn in episode.turns if turn.messages]
    return Counter((one.decision.model, tuple(message.content for message in one.messages)) for one in asked)


def _dollars(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1].replace(",", "").rstrip("."))
