"""SIGKILL to commands, over and over, in model calls and around commits.

Nothing committed is lost, what is resumed ends bit for bit as if it had never been disturbed, and no reply that was
stored is asked for again; what spends money exceeds no ceiling by more than the calls that were under way. The full
figures are taken with TRINITY_KILLS=50.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.episode import Episode
from storage.rows.engine import fetch_rows
from storage.rows.schema import episode
from tests.core.planner.tiny import tiny_planner
from tests.ui.cli.dying import Nursery
from tests.ui.cli.spending import AT_ONCE, Bill, killed_runs, killed_servers
from tests.ui.sums import Sums

pytestmark = pytest.mark.process

#: So many deaths does a command die here, each resuming what the last one left: two of each kind.
KILLS = int(os.environ.get("TRINITY_KILLS", "6"))
#: Of what spends money, where every death takes a ceiling of calls.
SPENDING_KILLS = int(os.environ.get("TRINITY_KILLS", "4"))
EVOLVE = ["--generations", 5, "--population", 6, "--replicates", 2, "--turns", 3, "--validate-every", 3]
EVOLVE += ["--record", "all", "--no-controls"]
TRAIN = ["--iterations", 7, "--questions", 2, "--rollouts", 3, "--validation", 2]
TRAIN += ["--save-every", 2, "--validate-every", 4]
TRAINING = "problems = 4\nprobes = 1\nupdates = 1\nlearning_rate = 0.01\n"
#: What learning imports, many seconds of work.
LEARNING = ("core.planner.grpo", "trl.trainer.grpo_trainer", "datasets")
_OF_THE_MOMENT = ("seconds", "calls", "calls_saved")


def killed(
    born: Nursery,
    world: Sums,
    command: Sequence[object],
    resume: Sequence[object],
    calls: Callable[[int], int],
    commits: Callable[[int], int],
    left: Callable[[str], int],
) -> str:
    """The run of a command that dies so often, each time after so many calls or commits, and more often if it has kept
    nothing by then: how far a life comes depends on which replies come first. `left` looks at what each death left of
    it and counts what was kept."""
    run = ""
    for number in range(3 * KILLS):
        born.die([*resume, run] if run else command, number, calls=calls(number), commits=commits(number))
        run = world.last_run()[0].id
        if left(run) and number + 1 >= KILLS:
            break
    return run


def turns(world: Sums, run: str) -> dict[tuple[str, int], tuple[object, ...]]:
    """Every finished turn of a run, without what a clock measured, by (task, policy) and index, and its episode's
    outcome."""

    def told(one: Episode, index: int) -> tuple[object, ...]:
        turn = replace(one.turns[index], episode_id="", reply=replace(one.turns[index].reply, latency_s=0.0))
        return turn, one.answer, one.correct, one.end_reason

    with world.kept() as store:
        episodes = [store.episodes.get(one.id) for one in store.episodes.of_run(run)]
    return {
        (f"{one.task.id} {one.policy}", turn.index): told(one, turn.index)
        for one in episodes
        for turn in one.turns
    }


def test_a_killed_run_loses_nothing_and_ends_the_same(world: Sums) -> None:
    command = ["run", "--tasks", world.tasks, "--policy", "random", "--policy", "single:guesser"]
    world.done(*command)
    expected = turns(world, world.last_run()[0].id)
    asked = len(world.server.requests)
    before: dict[tuple[str, int], object] = {}

    def left(run: str) -> int:
        nonlocal before
        kept = turns(world, run)
        assert before.keys() <= kept.keys()
        assert all(kept[key][0] == expected[key][0] for key in kept)
        before = dict(kept)
        return len(before)

    run = killed(
        Nursery(world), world, command, ["run", "--resume"], lambda n: 4 + n, lambda n: 2 + n % 3, left
    )
    assert 0 < len(before) < len(expected)
    world.done("run", "--resume", run)
    assert turns(world, run) == expected
    # A call that was under way at a death is made again; no answered one is.
    assert len(world.server.requests) - asked <= asked + KILLS * 16


def test_a_killed_evolution_loses_nothing_and_ends_the_same_bit_for_bit(
    evolving: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = evolving
    monkeypatch.setenv("ASKED_TWICE", str(tmp_path / "asked twice"))
    command, resume = ["evolve", "--tasks", world.tasks, *EVOLVE], ["evolve", "--resume", "--name"]

    def generations(run: str) -> list[tuple[int, str | None]]:
        with world.kept() as store:
            return [(one.index, one.checkpoint_id) for one in store.learning.updates(run)]

    def recorded(run: str) -> list[tuple[object, ...]]:
        """What is told of a run's episodes, whichever run it is."""
        query = select(episode.c.id, episode.c.generation, episode.c.strip, episode.c.correct)
        with world.kept() as store:
            rows = fetch_rows(store.engine, query.where(episode.c.run_id == run).order_by(episode.c.id))
        return [(name.partition("-")[2], *rest) for name, *rest in rows]

    undisturbed = world.done(*command, "--json").json
    expected = [index for index, _ in generations(undisturbed["run"])]
    before: list[tuple[int, str | None]] = []

    def left(run: str) -> int:
        nonlocal before
        kept = generations(run)
        assert kept[: len(before)] == before
        assert [index for index, _ in kept] == expected[: len(kept)]
        before = kept
        return len(before)

    run = killed(Nursery(world), world, command, resume, lambda n: n, lambda n: 4 + n, left)
    assert 0 < len(before) < len(expected)
    assert world.done(*resume, run, "--json").json["digest"] == undisturbed["digest"]
    assert recorded(run) == recorded(undisturbed["run"])
    assert not (tmp_path / "asked twice").exists()
    assert [index for index, _ in generations(run)] == list(range(len(expected)))


def test_a_killed_training_loses_nothing_and_ends_the_same_bit_for_bit(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED_TWICE", str(tmp_path / "asked twice"))
    world.add_tasks_to_evolve_on()
    planner = tiny_planner().frozen(models=("adder", "guesser")).save(tmp_path / "planner")
    (tmp_path / "small.toml").write_text(TRAINING)
    own = ("--planner", planner, "--config", tmp_path / "small.toml")
    command, resume = ["train", "--tasks", world.tasks, *own, *TRAIN], ["train", "--resume", "--name"]

    def kept(run: str) -> list[dict[str, Any]]:
        """Every iteration without what depends on time or on replies that were there already, and its planner's
        weights."""
        with world.kept() as store:
            listed = store.checkpoints.list(run, planners=True)
            iterations = store.learning.updates(run)
        weights = {one.id: one.config["weights_sha256"] for one in listed}
        return [
            {name: value for name, value in one.stats.items() if name not in _OF_THE_MOMENT}
            | {"index": one.index, "weights": weights.get(one.checkpoint_id or ""), "episodes": one.episodes}
            for one in iterations
        ]

    born = Nursery(world, LEARNING)  # its undisturbed commands too, so that one process imports it
    expected = kept(born.done(*command, "--json").json["run"])
    assert [one["index"] for one in expected] == list(range(8))
    assert len({one["weights"] for one in expected if one["weights"]}) == 5, "it learned between checkpoints"
    run = killed(
        born,
        world,
        command,
        resume,
        lambda n: 4 + n % 3,
        lambda n: 9 + 2 * (n % 4),
        lambda run: len(kept(run)),
    )
    assert 0 < len(kept(run)) < len(expected)
    born.done(*resume, run, "--json")
    assert kept(run) == expected
    assert not (tmp_path / "asked twice").exists()


@pytest.mark.parametrize("killed", [killed_runs, killed_servers])
def test_killed_over_and_over_it_pays_no_more_than_it_records_and_records_no_more_than_its_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: Callable[..., Bill]
) -> None:
    bill = killed(tmp_path, monkeypatch, SPENDING_KILLS)
    # What calls under way at a kill could cost, the next life charges.
    assert bill.paid_usd <= bill.recorded_usd <= bill.ceiling_usd
    assert max(bill.lost) > 0, "no kill came in the middle of calls"
    assert max(bill.lost) <= 2 * AT_ONCE  # some replies had come and were not recorded yet
    assert bill.asked_again == 0
    assert bill.integrity == {"ok"}
