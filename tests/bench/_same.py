"""What runs of every kind come to by one engine, as digests: for tests and for `trinity bench engine`.

The process that plays them is one driver for all of them, so that its helpers import what they compute with only once.
It waits until they are ready: a run as small as these would be over before they are, and would say nothing of them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from core.settings import ray_address
from tests.bench._cluster import digest_of

#: What is learned from, as small as it can be: generations of the evolutions, iterations of the training.
LEARNED = ("--record", "all", "--no-controls", "--validation", 8)
EVOLVE = ("evolve", *LEARNED, "--generations", 2, "--population", 6, "--replicates", 4, "--n", 40)
TRAIN = ("train", "--iterations", 2, "--questions", 2, "--rollouts", 3, "--validation", 4, "--n", 12)
TRAINING = "problems = 4\nprobes = 1\nupdates = 1\nlearning_rate = 0.01\n"
#: What learning to plan imports, many seconds of work.
IMPORTS = ("core.planner.grpo", "trl.trainer.grpo_trainer", "datasets")
#: So long helpers are waited for, in seconds: several of them import torch on the cores that there are.
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Series:
    """The runs that one driver plays, each command by its name, with an engine and so many `helpers`."""

    folder: str
    engine: str
    helpers: int
    commands: Mapping[str, Sequence[str]]

    @property
    def argv(self) -> list[str]:
        """As a function that a process calls."""
        return [f"{__name__}:play", json.dumps(asdict(self))]

    @property
    def environment(self) -> dict[str, str]:
        """In which its process has to run."""
        own = {"OMP_NUM_THREADS": "1", "TRINITY_PROCESSES": str(self.helpers), "XDG_DATA_HOME": self.folder}
        return {**os.environ, **own}

    @property
    def came(self) -> dict[str, dict[str, Any]]:
        """Once it is over, of each run: its digest, and how many jobs helpers answered for it."""
        found: dict[str, dict[str, Any]] = json.loads((Path(self.folder) / "came.json").read_text())
        return found


def commands(folder: Path, pool: str, planner: Path) -> dict[str, list[str]]:
    """Every kind of run: over the pocket models, and an evolution over HTTP models."""
    (folder / "training.toml").write_text(TRAINING)
    of_policies = ("--policy", "random", "--policy", "conductor:random", "--validate", 0, "--n", 24)
    found: dict[str, Sequence[object]] = {
        "run": ("run", "--tasks", "pocket", *of_policies),
        "fork": ("fork", "--flag", "false_accept", "--model", "sage", "--most", 4, "--n", 2, "--baseline", 2),
        "evolve": (*EVOLVE, "--tasks", "pocket", "--name", "pocket"),
        "train": (*TRAIN, "--tasks", "pocket", "--planner", planner, "--config", folder / "training.toml"),
        "evolve over HTTP": (
            *(*EVOLVE, "--tasks", "pocket", "--name", "http", "--encoder", "pocket"),
            *("--pool", pool, "--max-cost", 5),
        ),
    }
    return {name: [str(word) for word in words] for name, words in found.items()}


def play(asked: str) -> int:
    """In a process of its own: play a `Series`, given as JSON."""
    from core.cluster.workers import FarHelper
    from ui.cli import main
    from ui.runs import wiring

    series = Series(**json.loads(asked))
    folder, helped, answer = Path(series.folder), Counter[str](), FarHelper.answer
    kind, came = "", dict[str, dict[str, Any]]()

    def counted(self: FarHelper, function: str, job: Any) -> dict[str, Any] | None:
        helped[kind] += 1
        return answer(self, function, job)

    if ray_address(series.engine) is not None:
        there, until = wiring.processes(series.engine), time.monotonic() + READY_S
        there.start()
        while len(there.helpers) < series.helpers or 0 in there.helpers:
            assert time.monotonic() < until, f"{there.helpers} of {series.helpers} helpers are ready"
            time.sleep(0.05)
    with patch.object(FarHelper, "answer", counted):
        for kind, words in series.commands.items():
            store = folder / "store.db"
            began = time.perf_counter()
            with suppress(SystemExit):
                assert main([*words, "--engine", series.engine, "--store", str(store)]) == 0, words
            seconds = time.perf_counter() - began
            came[kind] = {"digest": digest_of(store), "helped": helped[kind], "seconds": seconds}
    (folder / "came.json").write_text(json.dumps(came))
    return 0


if __name__ == "__main__":
    sys.exit(play(sys.argv[1]))
