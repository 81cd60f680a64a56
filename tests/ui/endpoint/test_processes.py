"""Several processes of `trinity serve` behind one port: limits hold for all of them, and who dies is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.episode import Ask, Message, Reply, Role, Usage
from core.pool.costs import bound_usd
from core.pool.spec import ModelSpec
from storage.shelves.endpoint import Limits, Quota
from storage.store import Store, open_store
from tests.browsing import environment, serving
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import Answer, FaultyServer, Request, faulty_server
from tests.ui.endpoint.server import CALL_USD, CHAT, PRICES, raw, team
from tests.ui.pages import command
from tests.zygote import forked
from ui.endpoint.ledger import Ledger, OwnBooks, Sender
from ui.runs.lease import is_dead

SPEC = ModelSpec("a", price_in=1.0, price_out=2.0, max_tokens=20)
TIERS = '[[tier]]\nname = "trinity"\npolicy = "single:a"\nturns = 1\n'
PATIENCE_S = 20.0


@dataclass
class Shared:
    """An endpoint of two processes."""

    url: str
    store: Store
    models: FaultyServer
    folder: Path

    def ask(self, key: str = "none") -> tuple[int, Any]:
        """A request on a connection of its own: status and body; 0 where the connection broke off."""
        body = b'{"model": "trinity", "messages": [{"role": "user", "content": "How many?"}]}'
        try:
            status, _, answer = raw(self.url, "POST", CHAT, body, Authorization=f"Bearer {key}")
        except (OSError, HTTPException):
            return 0, None
        return status, answer

    def key(self, **limits: Any) -> tuple[str, str]:
        """A new key's id and text."""
        key, text = self.store.endpoint.add_key("limited", Limits(**limits))
        return key.id, text

    def owners(self) -> list[str]:
        """The processes that play, or played, requests."""
        return [one.owner or "" for one in self.store.runs.list("serve")]

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, (self.folder / "server.log").read_text()
            time.sleep(0.05)


def pid_of(owner: str) -> int:
    return int(owner.partition("@")[0].rpartition(":")[2])


@contextmanager
def shared(folder: Path, answer: Callable[[Request], Answer], tiers: str = TIERS) -> Iterator[Shared]:
    (folder / "tiers.toml").write_text(tiers)
    options = (
        "--pool",
        folder / "pool.toml",
        "--config",
        folder / "tiers.toml",
        "--processes",
        "2",
        "--port",
    )
    with closing(new_store(folder / "t.db")) as store, faulty_server(answer) as models:
        table = f'[[model]]\nname = "a"\nbase_url = "{models.url}"\nattempts = 1\nmax_tokens = 20\n{PRICES}\n'
        (folder / "pool.toml").write_text(table)
        with serving(
            [forked("trinity"), "serve", *options], folder, folder / "t.db", health="/healthz"
        ) as address:
            yield Shared(address, store, models, folder)


@pytest.mark.process
def test_two_processes_share_a_port_and_keep_every_limit_to_the_last_request(tmp_path: Path) -> None:
    with shared(tmp_path, team(wait_s=0.02)) as one, ThreadPoolExecutor(8) as threads:
        # Each answers.
        for _ in range(40):
            assert one.ask()[0] == 200
            if len(one.owners()) == 2:
                break
        first, second = one.owners()
        assert first != second
        # Of many requests at once exactly as many are answered as a day may have.
        name, text = one.key(day=Quota(requests=17))
        told = Counter(status for status, _ in threads.map(lambda _: one.ask(text), range(40)))
        assert told == {200: 17, 429: 23}
        assert one.store.endpoint.use(0.0, name).requests == 17
        # Money is spent up to the last call that fits, and not a cent further.
        bound = bound_of(one.models.requests[-1])
        most = 12 * CALL_USD + bound
        name, text = one.key(max_cost_usd=most)
        told = Counter(status for status, _ in threads.map(lambda _: one.ask(text), range(40)))
        while one.ask(text)[0] == 200:  # who was refused while others were under way
            told[200] += 1
        spent = one.store.endpoint.charged_usd(name)
        assert most - bound < spent <= most + 1e-12
        assert spent == pytest.approx(told[200] * CALL_USD)
        processes = [pid_of(owner) for owner in (first, second)]
        server = psutil.Process(processes[0]).ppid()
        assert server == psutil.Process(processes[1]).ppid()
    assert not any(psutil.pid_exists(pid) for pid in (*processes, server))
    said = (tmp_path / "server.log").read_text()
    assert said.count("Model trinity: single:a") == said.count("by 2 processes  (Ctrl-C stops it)") == 1
    assert "Traceback" not in said
    with closing(open_store(tmp_path / "t.db")) as store:
        assert [run.status for run in store.runs.list("serve")] == ["finished"] * 2


def bound_of(request: Request) -> float:
    """The most that the call can cost that a model was asked."""
    messages = tuple(Message(one["role"], one["content"]) for one in request.body["messages"])
    return bound_usd(SPEC, Ask("a", Role.WORKER, messages))


@pytest.mark.process
def test_a_process_that_is_killed_is_replaced_and_its_call_counts_as_much_as_it_could_cost(
    tmp_path: Path,
) -> None:
    """The model's server may bill a call whose answer nobody heard."""
    asked, go_on = threading.Event(), threading.Event()
    reply = team()

    def slow(request: Request) -> Answer:
        if asked.is_set() is go_on.is_set() is False:
            asked.set()
            go_on.wait(PATIENCE_S)
        return reply(request)

    with shared(tmp_path, slow) as one, ThreadPoolExecutor(2) as threads:
        go_on.set()
        assert one.ask()[0] == 200
        go_on.clear()
        bound = bound_of(one.models.requests[-1])
        name, text = one.key(max_cost_usd=2.5 * bound)
        lost = threads.submit(one.ask, text)
        assert asked.wait(PATIENCE_S)
        status, refusal = one.ask(text)
        assert (status, refusal["error"]["code"]) == (429, "cost_ceiling")
        busy = [run.owner for run in one.store.runs.list("serve") if playing(one.store, run.id)]
        assert len(busy) == 1
        os.kill(pid_of(busy[0] or ""), signal.SIGKILL)
        go_on.set()
        assert lost.result()[0] == 0  # the connection broke off
        one.until(lambda: one.ask(text)[0] == 200)
        assert one.store.endpoint.charged_usd(name) == pytest.approx(bound + CALL_USD)

        def replaced() -> bool:
            one.ask()
            return len([owner for owner in one.owners() if not is_dead(owner)]) == 2

        one.until(replaced)
        states = Counter(run.status for run in one.store.runs.list("serve"))
        assert states == {"interrupted": 1, "running": 2}
        assert "ended (signal 9); another takes its place" in (tmp_path / "server.log").read_text()
        # Nobody is left behind when the first process itself is killed.
        owners = [owner for owner in one.owners() if not is_dead(owner)]
        psutil.Process(pid_of(owners[0])).parent().kill()
        one.until(lambda: all(map(is_dead, owners)))


def playing(store: Store, run: str) -> bool:
    return any(one.status == "running" for one in store.episodes.of_run(run))


@pytest.mark.process
def test_a_process_that_cannot_start_ends_the_server_with_its_sentence(tmp_path: Path) -> None:
    (tmp_path / "tiers.toml").write_text('[[tier]]\nname = "t"\nmodels = ["nobody"]\n')
    (tmp_path / "pool.toml").write_text('[[model]]\nname = "a"\nbase_url = "http://127.0.0.1:9/v1"\n')
    options = (
        "--pool",
        "pool.toml",
        "--config",
        "tiers.toml",
        "--processes",
        "3",
        "--port",
        "29998",
    )  # none that a client is given
    done = subprocess.run(
        [forked("trinity"), "serve", *options],
        cwd=tmp_path,
        env=environment(tmp_path) | {"TRINITY_STORE": str(tmp_path / "t.db")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()  # after the line on the pool
    assert len(lines) == 2, done.stderr
    said = lines[1]
    assert said.startswith("trinity: ")
    assert "which the pool does not have" in said


@pytest.mark.parametrize("processes", ["0", "65", "many"])
def test_so_many_processes_there_cannot_be(processes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["serve", "--processes", processes]) == 2
    assert "--processes" in capsys.readouterr().err


def test_what_a_dead_process_stored_is_booked_and_what_its_call_under_way_could_cost(tmp_path: Path) -> None:
    """It dies after a reply's cost was stored and before it said so, with another call under way."""
    with closing(new_store(tmp_path / "t.db")) as store:
        ask = Ask("a", Role.WORKER, (Message("user", "How many?"),))
        key = store.endpoint.add_key("k", Limits(day=Quota(tokens=45)))[0]
        bound, mine = bound_usd(SPEC, ask), Sender(key, time.time())
        books = OwnBooks(store, ceiling_usd=4 * bound + 2 * CALL_USD)
        ledger = Ledger({"a": SPEC}, books, store)
        assert books.admit(mine) is None
        store.endpoint.note("e1", key.id, "chat", "trinity")
        for charge_s, told in ((CALL_USD, True), (CALL_USD, False)):
            assert isinstance(ledger.allows("e1", mine, ask, None), Ask)
            store.endpoint.charge("e1", charge_s, tokens=25)
            if told:
                ledger.replied("e1", mine, 0, Reply("42", usage=Usage(11, 14, charge_s)))
        assert books.spent_usd == pytest.approx(CALL_USD)
        assert isinstance(ledger.allows("e1", mine, ask, None), Ask)  # refused, or dead before it is made
        books.recover({"e1", "unknown"})
        assert books.spent_usd == pytest.approx(2 * CALL_USD)
        store.endpoint.note("e3", key.id, "chat", "trinity")
        assert isinstance(ledger.allows("e3", mine, ask, None), Ask)
        ledger.begin()  # it is about to be made
        books.recover({"e3"})
        books.recover({"e3"})
        assert books.spent_usd == pytest.approx(store.endpoint.charged_usd()) == 2 * CALL_USD + bound
        refused = books.admit(mine)
        assert refused is not None
        assert refused.what == "tokens"
        # All that is left can be held again.
        assert books.hold("e2", Sender(None, time.time()), 0, bound, None) == pytest.approx(2 * bound)
        books.recover({"e2"})
        books.recover({"e2"})
        assert books.spent_usd == pytest.approx(2 * CALL_USD + bound)
