"""`trinity tasks add` and the sets that it makes, named by --tasks: real commands, a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.settings import data_folder
from core.tasks.kept_tests import kept_tests
from tests.core.pool.faulty_server import Answer, Request, chat, faulty_server, respond
from tests.core.tasks.published import SETS, SOLUTIONS, lcb, packed, write_jsonl, write_set
from tests.ui.pages import command
from tests.ui.sums import Sums
from ui.runs.settings import absolute_tasks

POOL = """
[[model]]
name = "good"
base_url = "{url}"

[[model]]
name = "bad"
base_url = "{url}"
"""


def replied(request: Request) -> str:
    """The good model solves the problems of two sets, by what their questions say."""
    user = request.body["messages"][-1]["content"]
    if verdict := re.search(r"^VERDICT-\w+: ACCEPT$", user, re.MULTILINE):
        return f"Fine.\n{verdict[0]}"
    if "you are the Thinker" in user:
        return "<suggestion>Think.</suggestion>"
    good = request.body["model"] == "good"
    if option := re.search(r"^([A-J])\) \d+ exactly$", user, re.MULTILINE):
        assert "the letter of the right choice alone" in user
        return f"<answer>{option[1] if good else 'A'}</answer>"
    program = SOLUTIONS["livecodebench" if "Print the sum" in user else "bigcodebench"]
    assert "one whole Python 3 program" in user
    return f"<answer>\n```python\n{program if good else program.replace('sum', 'max')}\n```\n</answer>"


@pytest.fixture
def world(evolving: Sums) -> Iterator[Sums]:
    """Two models of which one is always right."""

    def answer(request: Request) -> Answer:
        return (respond(chat(replied(request)), kept=True),)

    with faulty_server(answer) as server:
        (evolving.folder / "pool.toml").write_text(POOL.format(url=server.url))
        evolving.server = server
        yield evolving


BOTH = ("--policy", "single:good", "--policy", "single:bad", "--json")


@pytest.mark.integration
def test_a_set_of_choices_is_added_and_played_by_its_name(world: Sums) -> None:
    file = write_set("mmlu-pro", world.folder)
    said = world.done("tasks", "add", "pro", file).out
    assert "pro: 20 tasks of mmlu-pro (" in said
    assert "Splits: evolve 60 %, validation 20 %, test 20 %" in said
    assert "Licence: MIT." in said
    counts = {one["split"]: one["n"] for one in world.done("tasks", "list", "pro", "--json").json}
    assert sum(counts.values()) == 20
    right, wrong = world.done("run", "--tasks", "pro", "--split", "evolve", *BOTH).json
    assert (right["n"], right["accuracy"], wrong["accuracy"]) == (counts["evolve"], 1.0, 0.0)
    run, _ = world.last_run()
    assert run.config["tasks"] == str(data_folder() / "tasks" / "pro.jsonl") == absolute_tasks("pro")
    assert world.done("tasks", "remove", "pro").out == "The task set pro is removed.\n"
    assert "There is no task set 'pro': use pocket" in world.refused("run", "--tasks", "pro", *BOTH)


@pytest.mark.process
def test_a_set_of_programs_is_added_and_played_by_its_name(world: Sums) -> None:
    long = [{"input": "1 " * 100_000, "output": "100000", "testtype": "stdin"}]
    rows = [lcb("a"), lcb("b", private_test_cases=packed(long)), lcb("between", contest_date="2024-08-01")]
    file = write_jsonl(world.folder / "problems.jsonl", rows)
    added = world.done("tasks", "add", "lcb", file, "--json").json
    assert (added["set"], added["tasks"], sum(added["splits"].values())) == ("livecodebench", 2, 2)
    assert added["left_out"] == {"neither of version 1 nor new in version 6": 1}
    world.done("tasks", "add", "bcb", write_set("bigcodebench", world.folder))
    listed = world.done("tasks", "list", "--json").json
    assert [one["name"] for one in listed["added"]] == ["bcb", "lcb"]
    assert "livecodebench" in [one["name"] for one in listed["published"]]
    split = max(added["splits"], key=added["splits"].get)
    right, wrong = world.done("run", "--tasks", "lcb", "--split", split, *BOTH).json
    assert (right["accuracy"], wrong["accuracy"]) == (1.0, 0.0)
    [only] = world.done("run", "--tasks", "bcb", *BOTH[:2], "--json").json
    assert (only["n"], only["accuracy"]) == (1, 1.0)


@pytest.mark.process
def test_tests_that_are_gone_leave_episodes_missing_and_never_wrong(world: Sums) -> None:
    long = [{"input": "1 " * 90_000, "output": "90000", "testtype": "stdin"}]
    row = lcb("a", private_test_cases=packed(long), contest_date="2025-03-01")
    world.done("tasks", "add", "lcb", write_jsonl(world.folder / "problems.jsonl", [row]))
    kept = next((data_folder() / "tasks" / "lcb.tests").iterdir())
    content = kept.read_bytes()
    kept.unlink()
    kept_tests.cache_clear()
    assert world.trinity("run", "--tasks", "lcb", *BOTH[:2]).code == 1
    with world.kept() as store:
        [played] = store.episodes.of_run(store.runs.list()[0].id)
        episode = store.episodes.get(played.id)
    assert episode.correct is None
    assert "not on this machine: add its set by trinity tasks add" in str(episode.error)
    kept.write_bytes(content)
    assert world.done("run", "--resume", episode.run_id, "--json").json[0]["accuracy"] == 1.0


def test_what_cannot_be_added_is_one_sentence_and_leaves_nothing(world: Sums) -> None:
    good, faulty = SETS["mmlu-pro"][:2]
    file = write_jsonl(world.folder / "pro.jsonl", [good, faulty | {"answer": "J"}])
    assert "Line 2 of pro.jsonl has the answer 'J', and options A to H." in world.refused(
        "tasks", "add", "pro", file
    )
    assert "cannot be the name of a task set" in world.refused("tasks", "add", "pocket", file)
    assert "There is no published set 'mmlu-max': choose one of" in world.refused(
        "tasks", "add", "pro", file, "--as", "mmlu-max"
    )
    assert not [*Path(data_folder() / "tasks").glob("*")]
    said = world.done("tasks", "add", "pro", file, "--skip-faulty").out
    assert "Left out: 1, has the answer 'J', and options A to H." in said


def test_each_published_set_is_listed_with_its_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["tasks", "list"]) == 0
    said = capsys.readouterr().out
    assert command(["tasks", "--help"]) == 0
    help = capsys.readouterr().out
    assert [name for name in SETS if name not in said or name not in help] == []
    assert "huggingface.co/datasets/livecodebench/code_generation_lite" in said
