"""SIGKILL to `trinity train`, ten times, in model calls and around commits: what is resumed ends with the same weights
as if it had never been disturbed, every iteration is kept once, and no reply that was stored is asked for again."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage.store import open_store
from tests.core.planner.tiny import tiny_planner
from tests.ui.cli.dying import Nursery, last_run
from tests.ui.sums import Sums

pytestmark = pytest.mark.process

#: All deaths are of one training: each resumes what the last one left.
TRAIN_DEATHS = int(os.environ.get("TRAIN_DEATHS", "10"))
#: What learning imports, many seconds of work.
LEARNING = ("core.planner.grpo", "trl.trainer.grpo_trainer", "datasets")
SETTINGS = """
problems = 4
probes = 1
updates = 1
learning_rate = 0.01
"""
_OF_THE_MOMENT = ("seconds", "calls", "calls_saved")
SMALL = ["--iterations", 16, "--questions", 2, "--rollouts", 3, "--validation", 2]
SMALL += ["--save-every", 2, "--validate-every", 4]


def kept(store_url: str, run: str) -> list[dict[str, Any]]:
    """Every iteration without what depends on time or on replies that were there already, and its planner's weights."""
    with closing(open_store(store_url)) as store:
        weights = {one.id: one.config["weights_sha256"] for one in store.checkpoints.list(run, planners=True)}
        iterations = store.learning.updates(run)
    return [
        {name: value for name, value in one.stats.items() if name not in _OF_THE_MOMENT}
        | {"index": one.index, "weights": weights.get(one.checkpoint_id or ""), "episodes": one.episodes}
        for one in iterations
    ]


def test_a_killed_training_loses_nothing_and_ends_the_same_bit_for_bit(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED_TWICE", str(tmp_path / "asked twice"))
    world.add_tasks_to_evolve_on()
    planner = tiny_planner().frozen(models=("adder", "guesser")).save(tmp_path / "planner")
    (tmp_path / "small.toml").write_text(SETTINGS)
    arguments = [
        "train",
        "--tasks",
        world.tasks,
        "--planner",
        str(planner),
        "--config",
        str(tmp_path / "small.toml"),
    ]
    arguments += map(str, SMALL)
    undisturbed = world.trinity(*arguments, "--json")
    assert undisturbed.code == 0, undisturbed.err
    expected = kept(world.store, undisturbed.json["run"])
    assert [one["index"] for one in expected] == list(range(17))
    assert len({one["weights"] for one in expected if one["weights"]}) == 9, "it learned between checkpoints"
    run = ""
    born = Nursery(world, LEARNING)
    for number in range(TRAIN_DEATHS):
        command = ["train", "--resume", "--name", run] if run else arguments
        born.die(command, number, calls=4 + number % 3, commits=9 + 3 * (number % 4))
        run = last_run(world.store)
    assert 0 < len(kept(world.store, run)) < len(expected)
    resumed = world.trinity("train", "--resume", "--name", run, "--json")
    assert resumed.code == 0, resumed.err
    assert kept(world.store, run) == expected
    assert not (tmp_path / "asked twice").exists()
