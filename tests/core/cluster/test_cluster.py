"""Helpers on a Ray cluster of three nodes: the same results to the bit, whoever is lost, and one sentence for what is
wrong. The cluster, its drivers and the models are real processes of this machine."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.cluster.callers import Caller
from core.cluster.cluster import Cluster, Machines
from core.episode import EpisodeFinished, Task
from core.errors import ConfigError
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from core.pocket import MODELS
from core.pool.client import Limits, Progress
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from core.settings import ray_address
from storage.store import open_store
from tests.bench._cluster import SOURCE, Models, Nodes, digest_of, said, trinity
from tests.bench._same import IMPORTS, Series, commands
from tests.builders.play import births
from tests.core.planner.tiny import tiny_planner
from tests.zygote import Command, begin

pytestmark = [pytest.mark.process, pytest.mark.integration]

NODES = 3

#: No machine of a test has it.
KEY = "TRINITY_TEST_KEY_OF_NOBODY"
#: What every kind of run is played over; in the evolution over HTTP helpers ask and read.
KINDS = ("pocket run", "pocket fork", "pocket evolve", "pocket train", "HTTP evolve")
BATCH = ("run", "--policy", "random", "--tasks", "pocket", "--validate", 0, "--max-cost", 5)


def test_a_run_comes_to_the_same_with_any_number_of_helpers_and_pays_the_same(
    nodes: Nodes, served: Models, tmp_path: Path
) -> None:
    pool, came = served.pool(tmp_path / "pool.toml"), []
    for name, engine, n in (("here", "local", 1), ("four", "ray", 4)):
        before, store = served.books(), tmp_path / f"{name}.db"
        address = engine if engine == "local" else f"ray={nodes.address}"
        env = {"TRINITY_PROCESSES": str(n)}
        said(trinity(store, *BATCH, "--n", 30, "--pool", pool, "--engine", address, env=env))
        after = served.books()
        paid = {one: after[one] - before[one] for one in ("calls", "tokens_in", "tokens_out")}
        assert _spent(store) == pytest.approx((paid["tokens_in"] + 2 * paid["tokens_out"]) / 1e6)
        came.append((digest_of(store), paid))
    assert came[0] == came[1]


def test_runs_of_every_kind_come_to_the_same_with_helpers(
    nodes: Nodes, served: Models, tmp_path: Path
) -> None:
    planner = tiny_planner().frozen(models=MODELS).save(tmp_path / "planner")
    came: dict[str, list[dict[str, Any]]] = {}
    for name, engine, helpers in (("here", "local", [1]), ("far", f"ray={nodes.address}", [2])):
        folder = tmp_path / name
        folder.mkdir()
        found = commands(
            folder, dict.fromkeys(("pocket", "HTTP"), planner), served.pool(folder / "pool.toml")
        )
        series = Series(str(folder), engine, helpers, {kind: found[kind] for kind in KINDS})
        with open(os.devnull) as silence, (folder / "said").open("w") as said:
            played = Command(series.argv, str(SOURCE), series.environment, IMPORTS)
            ended = begin(played, [silence.fileno(), said.fileno(), said.fileno()]).ended()
        assert ended == 0, (folder / "said").read_text()[-2000:]
        came[name] = series.came()
    [here], [far] = came["here"], came["far"]
    assert len({one["digest"] for one in here.values()}) == len(KINDS)
    for kind, undisturbed in here.items():
        assert far[kind]["digest"] == undisturbed["digest"], kind
        assert far[kind]["helped"] > 0, f"{kind} was played without its helpers"


class FaultyClient:
    """Warns at each try and fails at it, as a mistake of this program would."""

    async def call(self, body: Mapping[str, Any], on_piece: Callable[[str], None], progress: Progress) -> Any:
        logging.getLogger("faulty").warning("This try is going to fail.")
        raise ZeroDivisionError("a mistake of the program")

    async def aclose(self) -> None:
        """It holds nothing."""


class FaultyCaller(Caller):
    """In an actor: has such clients."""

    def __init__(self, specs: Sequence[ModelSpec], limits: Limits) -> None:
        super().__init__(specs, limits)
        self._clients = {spec.name: FaultyClient() for spec in specs}


@pytest.fixture
def joined(nodes: Nodes) -> Iterator[Cluster]:
    found = Cluster(Machines(nodes.address), 1)
    yield found
    found.leave()


def test_what_goes_wrong_in_a_helper_is_told_as_where_it_goes_wrong_here(
    joined: Cluster, served: Models, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [ModelSpec("m0", base_url=f"{served.address}/v1", concurrency=4)]
    tasks = [Task(f"t{n}", f"What is {n} + 1?", str(n), "exact", "math") for n in range(2)]
    episodes = [replace(one, models=("m0",)) for one in births("r1", tasks, "random", budget=2)]
    errors: dict[str, list[str | None]] = {}
    logged: dict[str, list[str]] = {}
    for name, clients in {
        "here": lambda specs, limits: {spec.name: FaultyClient() for spec in specs},
        "far": lambda specs, limits: joined.clients(specs, limits, FaultyCaller),
    }.items():
        caplog.clear()
        with closing(HttpPool(specs, clients=clients)) as pool:
            played = drive_many(episodes, RandomPolicy(("m0",)), pool, lambda asked: [False] * len(asked))
            errors[name] = [one.episode.error for one in played if isinstance(one, EpisodeFinished)]
        logged[name] = [one.getMessage() for one in caplog.records if one.name == "core.pool.pool"]
    # On each episode, and in the log with whose call it was and where in the program that happened.
    assert errors["far"] == errors["here"]
    assert {*errors["far"]} == {
        "This program failed at a call to model 'm0' (ZeroDivisionError); its log says more."
    }
    assert sorted(logged["far"]) == sorted(logged["here"])
    assert all(any(one.id in said for said in logged["far"]) for one in episodes)
    assert re.search(r"of the cluster, episode \S+:\nTraceback.*test_cluster\.py", caplog.text, re.DOTALL)
    warned = [one.getMessage() for one in caplog.records if one.name == "faulty"]
    assert [said.partition(", ")[2] for said in sorted(warned)] == [
        f"episode {one.id}: This try is going to fail." for one in episodes
    ]

    # A job that fails there is worked out here, which is said once, as it takes longer.
    caplog.clear()
    helper = joined.new_helper()
    assert helper.ready()
    for _ in range(2):
        assert helper.answer("tests.core.jobs:failing", 1) == {"answer": None}
    assert helper.answer("tests.core.jobs:warning", 2) == {"answer": 2}
    helper.end()
    assert re.fullmatch(
        r"A helper of the cluster failed, .*This job cannot be done\.\n"
        r"Process \d+ on \S+ of the cluster: This job is strange: 2",
        "\n".join(one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING),
    )


def test_an_evolution_comes_to_the_same_when_helpers_are_lost(
    nodes: Nodes, served: Models, tmp_path: Path
) -> None:
    pool = served.pool(tmp_path / "pool.toml")
    size = ("--generations", 2, "--population", 6, "--replicates", 6, "--validation", 16, "--n", 60)
    asked = ("evolve", "--name", "e", "--pool", pool, "--encoder", "pocket", "--tasks", "pocket", *size)
    before = served.books()["calls"]
    said(trinity(tmp_path / "here.db", *asked, "--no-controls", "--max-cost", 5))
    undisturbed = served.books()["calls"] - before
    engine = ("--engine", f"ray={nodes.address}")
    process = trinity(tmp_path / "far.db", *asked, *engine, "--no-controls", "--max-cost", 5)
    killed = 0
    while process.poll() is None and killed < 2:
        if served.books()["calls"] > before + undisturbed * (1.3 + 0.3 * killed):
            killed += bool(nodes.lose("Caller"))
        time.sleep(0.02)
    said(process)
    assert killed == 2
    assert digest_of(tmp_path / "far.db") == digest_of(tmp_path / "here.db")
    # What was under way with a helper that was lost is asked again, and nothing else.
    assert served.books()["calls"] - before - undisturbed <= undisturbed + 2 * 24


def test_a_pool_whose_key_no_machine_has_is_refused(nodes: Nodes, served: Models, tmp_path: Path) -> None:
    pool = served.pool(tmp_path / "pool.toml", key=KEY)
    engine = ("--engine", f"ray={nodes.address}")
    process = trinity(tmp_path / "s.db", *BATCH, "--n", 4, "--pool", pool, *engine, env={KEY: "sesame"})
    _, err = process.communicate()
    assert process.returncode == 1
    assert KEY in err
    assert "of the cluster" in err
    assert "Traceback" not in err
    assert "sesame" not in err


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"No Ray cluster listens at 127\.0\.0\.1:1 .*ray start --head"):
        Cluster(Machines("127.0.0.1:1"), None)
    with pytest.raises(ConfigError, match=r"names no address: write ray=HOST:6379"):
        ray_address("ray=somewhere")
    with pytest.raises(ConfigError, match=r"The engine must be local, ray or ray=ADDRESS, not 'rays'"):
        ray_address("rays")


def test_a_cluster_that_never_answers_is_one_sentence(tmp_path: Path) -> None:
    patched = {"core.cluster.cluster.JOIN_S": 4.0, "core.cluster.cluster.LEAVE_S": 1.0}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = ("--engine", f"ray=127.0.0.1:{silent.getsockname()[1]}")
        _, err = trinity(tmp_path / "s.db", *BATCH, "--n", 4, *engine, patched=patched).communicate(
            timeout=60
        )
    assert re.fullmatch(r"trinity: The Ray cluster at \S+ has not answered for 4 s: see that it is .*\n", err)


@pytest.mark.usefixtures("ray")
def test_a_cluster_that_is_started_for_a_run_that_cannot_be_played_ends_with_it(tmp_path: Path) -> None:
    # Ray is begun while the rest gets ready; all that it starts has this environment.
    mark = {"TRINITY_TEST_MARK": str(tmp_path)}
    asked = ("evolve", "--name", "e", "--tasks", "pocket", "--encoder", "/nowhere", "--engine", "ray")
    process = trinity(tmp_path / "s.db", *asked, env=mark, patched={})
    begun = set[str]()
    while process.poll() is None:
        begun |= _names_with(mark)
        time.sleep(0.05)
    _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith("trinity: There is no encoder '/nowhere'")
    assert "Traceback" not in err
    assert "gcs_server" in begun
    assert not _names_with(mark)


def _names_with(mark: Mapping[str, str]) -> set[str]:
    """What the processes are called that have this in their environment."""
    found = set[str]()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and mark.items() <= process.environ().items():
                found.add(process.name())
    return found


def test_without_ray_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'trinity-inspector\[ray\]'"):
        Cluster(Machines(""), None)


def _spent(store: Path) -> float:
    with closing(open_store(str(store))) as opened:
        return opened.runs.spent_usd(opened.runs.list(limit=1)[0].id)
