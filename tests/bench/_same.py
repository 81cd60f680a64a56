"""What runs of every kind come to by one engine, as digests: for tests and for `trinity bench engine`.

The process that plays them is one driver for all of them, so that its helpers import what they compute with only once.
It waits until they are ready: a run as small as these would be over before they are, and would say nothing of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from core.settings import ray_address
from tests.bench._cluster import SOURCE, digest_of

#: How large they are: as small as it can be.
RUN = ("run", "--policy", "random", "--policy", "conductor:random", "--validate", 0, "--n", 24)
FORK = ("fork", "--flag", "false_accept", "--most", 4, "--n", 2, "--baseline", 2)
EVOLVE = (
    *("evolve", "--generations", 2, "--population", 6, "--replicates", 4, "--n", 40, "--validation", 8),
    *("--record", "all", "--no-controls", "--encoder", "pocket"),
)
TRAIN = ("train", "--iterations", 2, "--questions", 2, "--rollouts", 3, "--n", 64, "--validation", 4)
TRAINING = "problems = 4\nprobes = 1\nupdates = 1\nlearning_rate = 0.01\n"
#: What learning to plan imports, many seconds of work.
IMPORTS = ("core.planner.grpo", "trl.trainer.grpo_trainer", "datasets")
#: So long helpers are waited for, in seconds: several of them import torch on the cores that there are.
READY_S = 240.0


@dataclass(frozen=True, slots=True)
class Series:
    """The runs that one driver plays by an engine, each command by what it is called, all of them with the first number
    of `helpers`, then with the next."""

    folder: str
    engine: str
    helpers: Sequence[int]
    commands: Mapping[str, Sequence[str]]

    @property
    def argv(self) -> list[str]:
        """As a function that a process calls."""
        return [f"{__name__}:play", json.dumps(asdict(self))]

    @property
    def environment(self) -> dict[str, str]:
        """In which its process has to run."""
        own = {
            "OMP_NUM_THREADS": "1",
            "TRINITY_PROCESSES": str(self.helpers[0]),
            "XDG_DATA_HOME": self.folder,
        }
        return {**os.environ, **own}

    def came(self) -> list[dict[str, Any]]:
        """Once it is over, for each number of helpers: what each run came to, its `digest`, and how many jobs were
        answered for it by helpers, `helped`."""
        found: list[dict[str, Any]] = json.loads((Path(self.folder) / "came.json").read_text())
        return found

    def play(self) -> list[dict[str, Any]]:
        """Play it in a process of its own. CalledProcessError, which says what that said, where it failed."""
        code, asked = f"import sys; from {__name__} import play; sys.exit(play(sys.argv[1]))", self.argv[1]
        said = subprocess.run(
            [sys.executable, "-c", code, asked],
            cwd=SOURCE,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if said.returncode:
            print(said.stderr, file=sys.stderr)
        said.check_returncode()
        return self.came()


def commands(folder: Path, planners: Mapping[str, Path], pool: str) -> dict[str, list[str]]:
    """Every kind of run, over the pocket models and over those of a pool.toml, with what learns to plan for each."""
    (folder / "training.toml").write_text(TRAINING)
    found: dict[str, list[str]] = {}
    for world, other, more in (("pocket", "sage", ()), ("HTTP", "m1", ("--pool", pool, "--max-cost", 5))):
        of_tasks = ("--tasks", "pocket", *more)
        learns = ("--planner", planners[world], "--config", folder / "training.toml")
        kinds: dict[str, Sequence[object]] = {
            "run": (*RUN, *of_tasks),
            "fork": (*FORK, "--model", other, *more),
            "evolve": (*EVOLVE, *of_tasks, "--name", "evolved"),
            "train": (*TRAIN, *of_tasks, *learns, "--name", "trained"),
        }
        found |= {f"{world} {kind}": [str(word) for word in words] for kind, words in kinds.items()}
    return found


def play(asked: str) -> int:
    """In a process of its own: play a `Series`, given as JSON."""
    from core.cluster.workers import FarHelper

    series, helped, answer = Series(**json.loads(asked)), Counter[str](), FarHelper.answer
    kind, came = "", list[dict[str, Any]]()

    def counted(self: FarHelper, function: str, job: Any) -> dict[str, Any] | None:
        helped[kind] += 1
        return answer(self, function, job)

    with patch.object(FarHelper, "answer", counted):
        for number in series.helpers:
            if ray_address(series.engine) is not None:
                _start(series.engine, number)
            helped.clear()
            came.append({})
            for kind, words in series.commands.items():
                store = Path(series.folder) / f"{kind.split()[0]}-{number}.db"
                _run([*words, "--engine", series.engine, "--store", str(store)])
                came[-1][kind] = {"digest": digest_of(store), "helped": helped[kind]}
    (Path(series.folder) / "came.json").write_text(json.dumps(came))
    return 0


def _run(words: Sequence[str]) -> None:
    from ui.cli import main

    code: object = 0
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code or 0
    assert code == 0, words


def _start(engine: str, helpers: int) -> None:
    """Wait until there are so many helpers, and all are ready."""
    from core.cluster.cluster import Cluster
    from ui.runs import wiring

    there, until = wiring.processes(engine), time.monotonic() + READY_S
    assert isinstance(there, Cluster)
    there.size, there.most = helpers, helpers + 1
    there.start()
    while len(there.helpers) < helpers or 0 in there.helpers:
        assert time.monotonic() < until, f"{helpers} helpers are not ready: {there.helpers}"
        time.sleep(0.05)
