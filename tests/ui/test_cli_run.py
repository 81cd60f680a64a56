"""`trinity run` on a real store and a real server: recording, resuming, ceilings, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.evolution.cycles import CYCLES
from storage.store import open_store
from tests.ui.sums import Sums, sums


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sums]:
    with sums(tmp_path, monkeypatch, capsys) as made:
        yield made


def test_the_json_contract(world: Sums) -> None:
    rows = world.run("--policy", "single:adder", "--policy", "random", "--json").json
    assert [list(row) for row in rows] == [["policy", "accuracy", "ci95", "n", "turns_mean"]] * 2
    assert [row["policy"] for row in rows] == ["single:adder", "random"]
    assert rows[0]["accuracy"] == 1.0
    assert rows[0]["n"] == 12
    assert rows[0]["turns_mean"] == 3.0
    low, high = rows[0]["ci95"]
    assert 0.7 < low < 1.0 == high


def test_single_star_is_every_model_once(world: Sums) -> None:
    rows = world.run("--policy", "single:*", "--policy", "single:adder", "--n", 2, "--json").json
    assert [row["policy"] for row in rows] == ["single:adder", "single:guesser"]


def test_the_table_names_the_run_and_how_to_look_into_it(world: Sums) -> None:
    result = world.run("--policy", "round-robin", "--n", 3)
    assert "round-robin" in result.out
    assert "trinity episodes --run r" in result.err


def test_every_turn_is_recorded(world: Sums) -> None:
    world.run("--policy", "single:guesser")
    page = world.trinity("episodes", "--json").json
    assert len(page["episodes"]) == 12
    assert page["next"] is None
    assert {one["strip"] for one in page["episodes"]} == {"T·b W·b V·b✓"}
    wrong = world.trinity("episodes", "--correct", "wrong", "--flag", "false_accept", "--json").json[
        "episodes"
    ]
    assert len(wrong) == 6


def test_the_best_role_cycle_is_chosen_on_validation_tasks_and_frozen(world: Sums) -> None:
    with Path(world.tasks).open("a") as file:
        for a in range(50, 56):
            line = {
                "question": f"What is {a} + 2?",
                "answer": a + 2,
                "grader": "number",
                "split": "validation",
            }
            file.write(json.dumps(line) + "\n")
    first = world.run("--policy", "single:adder", "--policy", "single:guesser", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in first.err
    assert [row["turns_mean"] for row in first.json] == [2.0, 2.0]
    calls = len(world.server.requests)
    second = world.run("--policy", "single:adder", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in second.err
    assert len(world.server.requests) - calls == 8
    store = open_store(world.store)
    assert store.runs.list()[0].config["cycles"] == {"single:adder": ["worker", "verifier"]}
    store.close()


def test_all_role_cycles_are_tried_once() -> None:
    cycles = ["".join(role[0] for role in cycle) for cycle in CYCLES]
    assert len(cycles) == len(set(cycles)) == 23
    assert {"w", "tw", "twv", "wvw"} <= set(cycles)
    assert not {"ww", "www", "tv", "t"} & set(cycles)


def test_the_same_seed_plays_the_same_again(world: Sums) -> None:
    for _ in range(2):
        world.run("--policy", "random", "--seed", 7, "--turns", 4)
    store = open_store(world.store)
    first, second = (store.episodes.of_run(run.id) for run in store.runs.list())
    store.close()
    assert [one.strip for one in first] == [one.strip for one in second]
    assert len({one.strip for one in first}) > 3


def test_an_interrupted_run_is_resumed_to_the_same_end(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = world.run("--policy", "random", "--policy", "round-robin", "--json").json
    import ui.plan

    played = ui.plan.play

    def broken(*arguments: object) -> Iterator[object]:
        for count, event in enumerate(played(*arguments)):  # type: ignore[arg-type]
            if count == 60:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(ui.plan, "play", broken)
    result = world.run("--policy", "random", "--policy", "round-robin", "--json")
    monkeypatch.setattr(ui.plan, "play", played)
    assert result.code == 130
    assert "Go on with: trinity run --resume r" in result.err
    run = result.err.strip().split()[-1]
    before = len(world.server.requests)
    assert world.trinity("run", "--resume", run, "--json").json == undisturbed
    assert 0 < len(world.server.requests) - before < before
    store = open_store(world.store)
    runs = store.runs.list()
    strips = [[one.strip for one in store.episodes.of_run(one.id)] for one in runs]
    assert [one.status for one in runs] == ["finished", "finished"]
    store.close()
    assert strips[0] == strips[1]


def test_a_finished_run_is_not_resumed(world: Sums) -> None:
    world.run("--policy", "random", "--n", 1)
    store = open_store(world.store)
    run = store.runs.list()[0].id
    store.close()
    result = world.trinity("run", "--resume", run)
    assert result.code == 1
    assert result.err == f"trinity: Run {run} is finished: there is nothing to resume.\n"


def test_paid_models_ask_for_a_ceiling(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    result = world.run("--policy", "random")
    assert result.code == 1
    assert "up to 60 calls, at most $" in result.err
    assert "set a ceiling with --max-cost USD" in result.err
    assert world.server.requests == []
    assert open_store(world.store).runs.list() == []


def test_a_ceiling_is_never_exceeded_and_the_run_can_go_on(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    result = world.run("--policy", "round-robin", "--max-cost", "0.06", "--json")
    assert "Go on with" in result.err
    store = open_store(world.store)
    run = store.runs.list()[0]
    spent = sum(one.cost_usd or 0.0 for one in store.episodes.of_run(run.id))
    store.close()
    assert run.status == "interrupted"
    assert 0 < spent <= 0.06
    rows = world.trinity("run", "--resume", run.id, "--max-cost", "10", "--json").json
    assert rows[0]["n"] == 12


def test_an_unknown_price_cannot_be_kept_below_a_ceiling(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    file = world.folder / "pool.toml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "price" not in line))
    result = world.run("--policy", "random", "--max-cost", "1")
    assert result.code == 1
    assert "The price of adder, guesser is not known" in result.err


def test_a_changed_task_file_is_not_resumed(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    import ui.plan

    def stop(*_: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(ui.plan, "play", stop)
    run = world.run("--policy", "random").err.strip().split()[-1]
    monkeypatch.undo()
    lines = Path(world.tasks).read_text().splitlines()
    Path(world.tasks).write_text("\n".join(lines[1:]))
    result = world.trinity("run", "--resume", run, "--store", world.store)
    assert result.code == 1
    assert "have changed since this run began" in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "cabc"], "There is no policy or checkpoint 'cabc'"),
        (["--policy", "single:nobody"], "There is no model 'nobody' in the pool"),
        (["--policy", "random", "--tasks", "chess"], "There is no task set 'chess'"),
        (["--policy", "random", "--tasks", "none.jsonl"], "cannot be read"),
        (["--policy", "random", "--pool", "none.toml"], "There is no pool file"),
        (["--policy", "random", "--store", "mysql://x"], "trinity: "),
        ([], "Name at least one policy"),
        (["--resume", "r0"], "r0"),
        (["--resume", "r0", "--policy", "random"], "leave --policy out"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    world: Sums, arguments: list[str], sentence: str
) -> None:
    result = world.run(*arguments)
    assert result.code == 1
    assert sentence in result.err
    assert result.err.startswith("trinity: ")
    assert result.err.count("\n") == 1
    assert open_store(world.store).runs.list() == []


def test_a_missing_key_is_named(world: Sums) -> None:
    world.price(0.0)
    result = world.run("--policy", "random")
    assert result.code == 1
    assert "SUMS_KEY" in result.err
