"""What can go wrong with a Ray cluster while a run is played on it: the run comes to the same in the end, or stops with
one sentence and goes on later. The cluster, its drivers and the models are real processes of this machine."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from storage.store import open_store
from tests.bench._cluster import SOURCE, Models, Nodes, digest_of, said, trinity

pytestmark = [pytest.mark.process, pytest.mark.integration]

NODES = 3

BATCH = ("run", "--policy", "random", "--tasks", "pocket", "--validate", 0, "--max-cost", 5)


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happens to, on this machine alone: how it was asked for, and what it came to."""

    asked: Sequence[object]
    calls: int
    digest: str


#: The most that a call of it can cost, in USD: a token for each byte of its longest prompt, and the longest reply.
BOUND_USD = 1500e-6
#: Calls that are given to a pool of three models at once, of which half wait for room.
AHEAD = 2 * 3 * 8


@pytest.fixture(scope="module")
def undisturbed(served: Models, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    pool = served.pool(folder / "pool.toml", more="max_tokens = 50\n")
    asked, before = (*BATCH, "--n", 60, "--pool", pool), served.books()["calls"]
    said(trinity(folder / "here.db", *asked))
    return Undisturbed(asked, served.books()["calls"] - before, digest_of(folder / "here.db"))


@dataclass
class Watched:
    """A run that plays, beside the books of the models that it asks."""

    served: Models
    process: subprocess.Popen[str]
    before: Counter[str]

    def wait_for(self, calls: float) -> None:
        """Until so many calls have been made."""
        while self.served.books()["calls"] < self.before["calls"] + calls:
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)

    def usd(self) -> float:
        """What has been billed since it began."""
        now = self.served.books()
        return sum(price * (now[key] - self.before[key]) for key, price in PRICES.items())

    def refused(self) -> str:
        """What it said when it ended without its end: one sentence, and how to go on."""
        out, err = self.process.communicate()
        assert self.process.returncode == 1, (out, err)
        assert "Traceback" not in out + err
        return err


#: USD for each token.
PRICES = {"tokens_in": 1e-6, "tokens_out": 2e-6}


def test_a_killed_driver_goes_on_from_its_store_and_a_lost_node_stops_nothing(
    nodes: Nodes, served: Models, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    store, env, before = tmp_path / "far.db", {"TRINITY_PROCESSES": "3"}, served.books()
    killed = trinity(store, *undisturbed.asked, "--engine", f"ray={nodes.address}", env=env)
    Watched(served, killed, before).wait_for(0.3 * undisturbed.calls)
    killed.kill()
    killed.communicate()
    resumed = Watched(served, trinity(store, "run", "--resume", _newest(store), env=env), before)
    resumed.wait_for(0.6 * undisturbed.calls)
    nodes.lose_one()
    said(resumed.process)
    nodes.add_one()
    assert digest_of(store) == undisturbed.digest
    # What was under way when the driver died, and what was lost with the node, is charged at its bound.
    assert resumed.usd() <= _spent(store) + 1e-9 <= resumed.usd() + (24 + AHEAD) * BOUND_USD


def test_a_caller_that_hangs_is_started_again_and_its_calls_are_paid_at_their_bound(
    nodes: Nodes, served: Models, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    store, before, patched = tmp_path / "far.db", served.books(), {"core.cluster.callers.SILENT_S": 4.0}
    engine, env = ("--engine", f"ray={nodes.address}"), {"TRINITY_PROCESSES": "3"}
    process = trinity(store, *undisturbed.asked, *engine, env=env, patched=patched)
    run = Watched(served, process, before)
    run.wait_for(0.3 * undisturbed.calls)
    assert nodes.lose("Caller", signal.SIGSTOP)
    told = said(process)
    assert "has said nothing for 4 s, and is started again" in told
    assert "(raylet)" not in told, "Ray tells of it among what --json writes"
    assert digest_of(store) == undisturbed.digest
    assert served.books()["calls"] - before["calls"] <= undisturbed.calls + 24
    assert run.usd() < _spent(store) <= run.usd() + 24 * BOUND_USD


def test_when_the_store_cannot_be_written_nothing_more_is_asked(
    nodes: Nodes, served: Models, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    store, before = tmp_path / "far.db", served.books()
    process = trinity(store, *undisturbed.asked, "--engine", f"ray={nodes.address}", patched={})
    run = Watched(served, process, before)
    run.wait_for(0.3 * undisturbed.calls)
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (1, 1))
    time.sleep(1.0)
    asked, since = served.books()["calls"], time.monotonic()
    assert "trinity: Nothing was stored: disk I/O error." in run.refused()
    assert served.books()["calls"] == asked
    assert time.monotonic() - since < 15, "Ray was started again where nothing is left to do"
    said(trinity(store, "run", "--resume", _newest(store), "--engine", "local"))
    assert digest_of(store) == undisturbed.digest


def test_a_machine_with_another_version_is_refused(nodes: Nodes, served: Models, tmp_path: Path) -> None:
    info = tmp_path / "other" / "trinity_inspector-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trinity-inspector\nVersion: 0.0.1\n")
    asked = (*BATCH, "--n", 4, "--pool", served.pool(tmp_path / "pool.toml"))
    engine, env = ("--engine", f"ray={nodes.address}"), {"TRINITY_PROCESSES": "4"}
    nodes.add_one(PYTHONPATH=f"{info.parent}:{SOURCE}")
    try:
        other = Watched(served, trinity(tmp_path / "s.db", *asked, *engine, env=env), served.books())
        assert "and Trinity Inspector 0.0.1: install Python" in other.refused()
    finally:
        nodes.lose_one()
    # It imports Ray before the program can tell it that all is on 127.0.0.1.
    env = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    process = trinity(tmp_path / "s.db", *asked, *engine, env=env, patched={"ray.__version__": "2.1.0"})
    told = Watched(served, process, served.books()).refused()
    assert re.search(
        r"runs Ray \S+ and Python \S+, this process Ray 2\.1\.0 and .*: install here what runs", told
    )


def test_a_cluster_that_is_gone_ends_the_run_which_goes_on_without_one(
    nodes: Nodes, served: Models, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    store, before, patched = tmp_path / "far.db", served.books(), {"core.cluster.cluster.GONE_S": 6.0}
    process = trinity(store, *undisturbed.asked, "--engine", f"ray={nodes.address}", patched=patched)
    run = Watched(served, process, before)
    run.wait_for(0.3 * undisturbed.calls)
    nodes.lose_all()  # no test after this one has the cluster
    assert "The Ray cluster is gone: it has not answered for 6 s." in run.refused()
    with closing(open_store(str(store))) as opened:
        ended = opened.runs.list(limit=1)[0]
    assert (ended.status, ended.error) == ("interrupted", _GONE)
    said(trinity(store, "run", "--resume", ended.id, "--engine", "local"))
    assert digest_of(store) == undisturbed.digest
    assert run.usd() <= _spent(store) + 1e-9 <= run.usd() + AHEAD * BOUND_USD
    with closing(open_store(str(store))) as opened:
        assert "engine" not in opened.runs.get(ended.id).config


_GONE = (
    "The Ray cluster is gone: it has not answered for 6 s. Start it, then resume the run or restart the server; with "
    "--engine local this machine works alone, and the results are the same."
)


def _spent(store: Path) -> float:
    with closing(open_store(str(store))) as opened:
        return opened.runs.spent_usd(opened.runs.list(limit=1)[0].id)


def _newest(store: Path) -> str:
    with closing(open_store(str(store))) as opened:
        return opened.runs.list(limit=1)[0].id
