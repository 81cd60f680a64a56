"""`trinity evolve` with a tiny encoder: a checkpoint per generation, the same end after being interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.evolution import Evolution
from storage.store import open_store
from tests.core.tiny_encoder import tiny_qwen3
from tests.ui.sums import Sums
from ui.cli.evolve import Outline

SMALL = ["--generations", 3, "--population", 4, "--per-candidate", 4, "--turns", 2, "--validate-every", 2]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def world(world: Sums, monkeypatch: pytest.MonkeyPatch, encoder: Path) -> Sums:
    """The world with tasks to evolve on and a tiny encoder."""
    world.add_tasks_to_evolve_on()
    monkeypatch.setenv("TRINITY_ENCODER", str(encoder))
    return world


def test_an_evolution_leaves_a_checkpoint_per_generation_that_can_be_played(world: Sums) -> None:
    result = world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--json")
    assert result.code == 0, result.err
    assert list(result.json) == ["run", "generations", "checkpoint", "digest"]
    assert result.json["generations"] == 3
    assert "generation 2, mean" in result.err
    listed = world.trinity("checkpoints", "--run", result.json["run"], "--json").json
    assert [one["generation"] for one in listed] == [0, 1, 2, 3]
    assert listed[-1]["id"] == result.json["checkpoint"]
    played = world.run("--policy", result.json["checkpoint"], "--n", 3, "--json")
    assert played.json[0]["n"] == 3, played.err
    store = open_store(world.store)
    generations = store.evolution.generations(result.json["run"])
    assert [one.evaluations for one in generations] == [0, 16, 32, 48]
    assert "validation" in generations[2].stats
    store.close()


def test_an_interrupted_evolution_ends_the_same_bit_for_bit(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--json").json
    add = Evolution.add

    def interrupted(self: Evolution, entry: object, *rest: object) -> None:
        add(self, entry, *rest)  # type: ignore[arg-type]
        if getattr(entry, "index", 0) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Evolution, "add", interrupted)
    result = world.trinity("evolve", "--tasks", world.tasks, *SMALL)
    monkeypatch.setattr(Evolution, "add", add)
    assert result.code == 130
    assert "Go on with: trinity evolve --resume r" in result.err
    run = result.err.strip().split()[-1]
    longer = world.trinity("evolve", "--resume", run, "--generations", 100)
    assert (longer.code, longer.err.count("\n")) == (1, 1)
    assert "leave --generations out" in longer.err
    resumed = world.trinity("evolve", "--resume", run, "--json").json
    assert resumed["digest"] == undisturbed["digest"]
    assert resumed["run"] == run
    again = world.trinity("evolve", "--resume", run)
    assert (again.code, again.err.count("\n")) == (1, 1)


def spent(world: Sums, run: str) -> float:
    """What a run knows to have cost."""
    store = open_store(world.store)
    known = store.runs.spent_usd(run)
    store.close()
    return known


def test_a_paid_evolution_stops_below_its_ceiling_and_can_go_on(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    undecided = world.trinity("evolve", "--tasks", world.tasks, *SMALL).err
    calls = (3 * 4 * 4 + 3 * 4) * 2  # candidates of three generations, three validations, two turns
    assert f"up to {calls} calls" in undecided
    assert "set a ceiling" in undecided
    result = world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--max-cost", "0.043")
    assert result.code == 1
    assert "could exceed the ceiling of $0.0430" in result.err
    assert "the one under way will be played (and paid for) again" in result.err
    run = result.err.split("--resume ")[1].split()[0]
    assert 0 < spent(world, run) <= 0.043
    assert world.trinity("evolve", "--resume", run, "--max-cost", "9", "--json").json["generations"] == 3
    assert spent(world, run) == pytest.approx(len(world.server.requests) * 18 * 10 / 1e6, abs=0.002)


def test_a_file_without_tasks_to_evolve_on(world: Sums) -> None:
    only = world.folder / "only.jsonl"
    only.write_text('{"question": "1 + 1?", "answer": "2", "grader": "number", "split": "test"}\n')
    result = world.trinity("evolve", "--tasks", only)
    assert result.code == 1
    assert "has no task in split 'evolve'" in result.err
    assert open_store(world.store).runs.list() == []


def test_an_evolution_from_before_the_constant_spread_goes_on_in_the_space_it_was_begun_in() -> None:
    outline = Outline("pocket", 1, 1, "pocket", "pocket", None, {"generations": 3})
    assert outline.config.constant_spread is None
    assert replace(outline, evolution={"constant_spread": 0.0}).config.constant_spread == 0.0
