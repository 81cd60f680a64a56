"""`trinity outcomes` from a file to its removal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.outcomes.files import choice, mmlu_pro
from tests.ui.sums import Sums


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two models of MMLU-Pro, one of which reads off a letter that its reply does not give."""
    ann = [choice(n, "The answer is (B).", "B" if n < 3 else "C") for n in range(1, 5)]
    bob = [choice(n, f"The answer is ({letter}).", letter) for n, letter in ((1, "B"), (2, "A"))]
    return [mmlu_pro(tmp_path, "ann", ann), mmlu_pro(tmp_path, "bob", bob)]


def test_a_table_is_added_listed_shown_and_removed(world: Sums, files: list[Path]) -> None:
    assert "no outcome table" in world.refused("outcomes", "show", "own")
    assert world.done("outcomes", "list").err == "Add one by trinity outcomes add NAME FILE.\n"
    said = world.done("outcomes", "add", "own", *files, "--licence", "mine", "--source", "here").out
    assert said.startswith(
        "own has 4 tasks, 2 models and 6 answers: play it by --pool outcomes:own --tasks outcomes:own.\n"
    )
    assert "Models with answers to fewer than 95 % of the tasks: bob 50%." in said
    assert "There is an outcome table 'own' already" in world.refused("outcomes", "add", "own", *files)
    (one,) = world.done("outcomes", "list", "--json").json
    assert (one["name"], one["tasks"], one["licence"], one["source"]) == ("own", 4, "mine", "here")
    assert "mmlu-pro" in world.done("outcomes", "list").out
    shown = world.done("outcomes", "show", "own", "--json").json
    models = {
        model["name"]: (model["accuracy"], model["coverage"], model["agreement"]) for model in shown["models"]
    }
    assert models == {"ann": (1.0, 1.0, 0.5), "bob": (0.5, 0.5, 1.0)}
    assert shown["coverage"] == {"ann": 1.0, "bob": 0.5}
    printed = world.done("outcomes", "show", "own").out
    assert f"own@{one['digest'][:8]}" in printed
    assert "100.0 %" in printed
    differ = world.done("outcomes", "show", "own", "--disagreements", "--json").json
    assert [
        (case["model"], case["key"], case["answer"], case["right"], case["marked"]) for case in differ
    ] == [("ann", "B", "B", True, False)] * 2
    told = world.done("outcomes", "show", "own", "--disagreements").out
    assert told.startswith("2 of 6 marked answers are graded otherwise here than the table marks them.\n")
    world.done("outcomes", "remove", "own", "--yes")
    assert world.done("outcomes", "list", "--json").json == []
    assert "no outcome table" in world.refused("outcomes", "remove", "own", "--yes")


@pytest.mark.integration
def test_a_table_that_was_added_is_played(world: Sums, tmp_path: Path) -> None:
    said = [choice(n, f"The answer is ({'A' if n % 4 else 'B'}).", "B") for n in range(1, 41)]
    table = world.done("outcomes", "add", "own", mmlu_pro(tmp_path, "ann", said), "--json").json
    world.done("run", "--pool", "outcomes:own", "--tasks", "outcomes:own", "--policy", "single:ann")
    with world.kept() as store:
        (run,) = store.runs.list()
        found = [store.episodes.get(one.id) for one in store.episodes.of_run(run.id)]
    assert len(found) > 4
    assert {one.correct for one in found} == {True, False}
    for one in found:
        number = int(one.task.question.splitlines()[0].rstrip("?").split()[-1])
        recorded = one.turns[0].reply.recorded
        assert recorded is not None
        assert recorded.table == f"own@{table['digest'][:8]}"
        assert one.correct == (number % 4 == 0)


def test_what_cannot_be_added_is_refused_in_one_sentence(world: Sums, files: list[Path]) -> None:
    add = ("outcomes", "add", "own")
    assert "write OURS=THEIRS" in world.refused(*add, *files, "--columns", "task")
    assert "--grader cannot be 'taste'" in world.refused(*add, *files, "--grader", "taste")
    assert "There is no file" in world.refused(*add, world.folder / "none.csv")
    assert "is not understood" in world.refused(*add, *files, world.folder / "pool.toml")
    assert "trinity outcomes add" in world.refused(
        "run", "--pool", "outcomes:own", "--tasks", "outcomes:own", "--policy", "random"
    )
