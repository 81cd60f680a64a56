"""Commands that spend money and are killed at random moments, over and over: what was paid in the end, as the models'
server counts it, beside what the store knows of."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from storage.store import Store, open_store
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.cli.dying import Nursery
from tests.ui.endpoint.server import raw
from tests.ui.sums import Sums, answer, sums

#: What a call may cost and does, in US dollars; how many are under way at once; how long each takes, in seconds.
CALL_USD, AT_ONCE, CALL_S = 7.0, 4, 0.05
#: The ceiling allows so many calls for each kill.
CALLS = 30
POOL = """
[[model]]
name = "adder"
base_url = "{url}"
dialect = "terse"
price_in = 0.0
price_out = 1000000.0
max_tokens = 7
concurrency = {at_once}
"""
TIERS = '[[tier]]\nname = "trinity"\npolicy = "single:adder"\nturns = 3\n'


@dataclass
class Bill:
    """What was paid by a command that was killed so often."""

    kills: int
    ceiling_usd: float
    paid: int = 0  # calls, as the server counts them
    recorded_usd: float = 0.0
    # By each kill: how many more calls were paid until then than are recorded. Lost ones are recorded by the next life,
    # with those that were about to be made, so that the first kill tells the most.
    lost: list[int] = field(default_factory=list)
    asked_again: int = 0  # calls whose reply was recorded
    integrity: set[str] = field(default_factory=set)  # what SQLite says of the store after each kill

    @property
    def paid_usd(self) -> float:
        """What the server was paid."""
        return self.paid * CALL_USD

    @property
    def over_usd(self) -> float:
        """By how much that is more than the ceiling allows."""
        return max(0.0, self.paid_usd - self.ceiling_usd)


def killed_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int = 0) -> Bill:
    """`trinity run`, killed so often, resumed after each kill, and in the end until its ceiling stops it."""
    draw = random.Random(seed)
    bill = Bill(kills, ceiling_usd=CALLS * CALL_USD * kills)
    with _world(folder, monkeypatch, tasks=CALLS * kills) as world:
        audit = _Audit(world, bill)
        command = ["run", *world.test_tasks, "--policy", "single:adder", "--max-cost", bill.ceiling_usd]
        born = Nursery(world)
        for _ in range(kills):
            with born.alive(command):
                if draw.random() < 0.8:  # else perhaps before it has called at all
                    audit.wait_for_call()
                time.sleep(draw.uniform(0.0, 0.4))
            with audit.of_store() as store:
                audit.take(_spent(store))
                audit.remember(store)
                if runs := store.runs.list():
                    command = ["run", "--resume", runs[0].id]
        ended = born.lives(command)
        assert ended.code == 1, ended.err
        assert "could exceed the ceiling" in ended.out + ended.err
        with audit.of_store() as store:
            bill.recorded_usd = _spent(store)
    return bill


def killed_servers(folder: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int = 0) -> Bill:
    """`trinity serve`, asked by several clients at once, killed so often and started again, and in the end until its
    ceiling refuses a request."""
    draw = random.Random(seed)
    bill = Bill(kills, ceiling_usd=CALLS * CALL_USD * kills)
    numbers = count(10)
    with _world(folder, monkeypatch, tasks=1) as world:
        audit = _Audit(world, bill)
        born = Nursery(world)
        for _ in range(kills):
            with _asked(born, bill.ceiling_usd, numbers):
                audit.wait_for_call()
                time.sleep(draw.uniform(0.0, 0.6))
            with audit.of_store() as store:
                audit.take(store.endpoint.charged_usd())
        with _asked(born, bill.ceiling_usd, numbers) as refused:
            assert refused.wait(120)
        with audit.of_store() as store:
            store.runs.mark_interrupted(lambda owner: True)
            store.endpoint.charge_lost()  # as the next life would
            bill.recorded_usd = store.endpoint.charged_usd()
    return bill


@contextmanager
def _world(folder: Path, monkeypatch: pytest.MonkeyPatch, tasks: int) -> Iterator[Sums]:
    def slow(request: Request) -> Answer:
        return (CALL_S, *answer(request))

    with sums(folder, monkeypatch, n=tasks) as world:
        world.server.answer = slow
        (folder / "pool.toml").write_text(POOL.format(url=world.server.url, at_once=AT_ONCE))
        (folder / "tiers.toml").write_text(TIERS)
        yield world


@dataclass
class _Audit:
    """Compares what the server was asked with what the store holds, after each kill."""

    world: Sums
    bill: Bill
    looked_at: int = 0  # of the server's requests
    known: set[tuple[str, ...]] = field(default_factory=set)  # prompts whose replies are recorded
    finished: set[str] = field(default_factory=set)  # episodes, all of whose prompts are known

    @contextmanager
    def of_store(self) -> Iterator[Store]:
        """The store, once the server has seen that its client is gone; every request has then been counted."""
        server = self.world.server
        until = time.monotonic() + 10
        while server.in_flight and time.monotonic() < until:
            time.sleep(0.01)
        fresh, self.looked_at = server.requests[self.looked_at :], len(server.requests)
        self.bill.paid = self.looked_at
        prompts = (tuple(message["content"] for message in one.body["messages"]) for one in fresh)
        self.bill.asked_again += sum(prompt in self.known for prompt in prompts)
        store = open_store(self.world.store)
        with store.engine.connect() as connection:
            self.bill.integrity |= set(connection.exec_driver_sql("PRAGMA integrity_check").scalars())
        yield store
        store.close()

    def wait_for_call(self) -> None:
        """Until the server is asked again, or nobody will."""
        until = time.monotonic() + 5
        while len(self.world.server.requests) == self.looked_at and time.monotonic() < until:
            time.sleep(0.01)

    def take(self, recorded_usd: float) -> None:
        """Compare what is paid with what is recorded after a kill."""
        self.bill.lost.append(self.bill.paid - round(recorded_usd / CALL_USD))

    def remember(self, store: Store) -> None:
        """Which prompts must not be asked again."""
        for run in store.runs.list():
            for one in store.episodes.of_run(run.id):
                if one.id not in self.finished:
                    turns = store.episodes.get(one.id).turns
                    self.known |= {tuple(message.content for message in turn.messages) for turn in turns}
                    self.finished |= {one.id} if one.end_reason else set()
            for _, _, _, messages in store.episodes.stored_replies(run.id):
                self.known.add(tuple(message.content for message in messages))


def _spent(store: Store) -> float:
    return sum(store.runs.spent_usd(run.id) for run in store.runs.list())


@contextmanager
def _asked(born: Nursery, ceiling_usd: float, numbers: Iterator[int]) -> Iterator[Event]:
    """A server that several clients ask over and over until the block ends, which kills it. The event is set once a
    request was refused for want of money."""
    refused, over = Event(), Event()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def ask() -> None:
        while not (over.is_set() or refused.is_set()):
            question = f"What is {next(numbers)} + 13?"
            body = {"model": "trinity", "messages": [{"role": "user", "content": question}]}
            try:
                status, _, _ = raw(
                    f"http://127.0.0.1:{port}", "POST", "/v1/chat/completions", json.dumps(body).encode()
                )
            except (OSError, HTTPException):  # killed in the middle
                continue
            if status == 429:
                refused.set()

    folder = born.world.folder
    options = ["--pool", folder / "pool.toml", "--config", folder / "tiers.toml", "--max-cost", ceiling_usd]
    clients = [Thread(target=ask) for _ in range(AT_ONCE)]
    with born.alive(["serve", "--port", port, *options]):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        for one in clients:
            one.start()
        yield refused
        over.set()
    for one in clients:
        one.join()
