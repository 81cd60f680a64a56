"""Programs and functions of one's own as graders, from task file to accuracies: real commands, a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.episode import Task
from core.errors import TaskError
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.builders.stores import empty_store
from tests.core.pool.faulty_server import Answer, Request, chat, faulty_server, respond
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.grading import grading, name_task_file
from ui.runs.paper.reproduction import Reproduction
from ui.runs.plans import LivePlan
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import Suite

pytestmark = pytest.mark.process

POOL = """
[[model]]
name = "coder"
base_url = "{url}"

[[model]]
name = "other"
base_url = "{url}"
"""
TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]
ADD = "def add(a, b):\n    # the sum\n    return a + b"
#: What the coder writes, by a word of the question.
REPLIES = {
    "right": f"Let me add.\n<answer>\n```python\n{ADD}\n```\n</answer>",
    "untagged": f"Here it is:\n\n```python\n{ADD}\n```\n\nFor example:\n\n```\nadd(1, 2)  ->  3\n```\n",
    "prints": "<answer>print(sum(map(int, input().split())))</answer>",
    "wrong": "<answer>def add(a, b):\n    return a - b</answer>",
    "loops": "<answer>while True: pass</answer>",
    "silent": "I cannot.",
    "hostile": """<answer>
import os, glob, subprocess
for place in ("{folder}", "/root", "/home"):
    for name in ("pool.toml", "store.db", "tasks.jsonl"):
        try:
            open(os.path.join(place, "escaped"), "w").write(open(os.path.join(place, name)).read())
        except OSError:
            pass
os.system("kill -9 " + str(os.getppid()))
def add(a, b): return 3
</answer>""",
    "yes": "<answer>yes it is</answer>",
    "no": "<answer>no</answer>",
}
GRADE = """
from pathlib import Path
here = Path(__file__).parent

def agrees(said, expected, question):
    with open(here / "calls", "a") as log:
        log.write(said + "\\n")
    if not (here / "ready").exists():
        raise RuntimeError("not ready")
    return said.startswith(expected)
"""


@pytest.fixture
def world(evolving: Sums) -> Iterator[Sums]:
    """Two models that write programs, and a folder with an own grader."""

    def answer(request: Request) -> Answer:
        user = request.body["messages"][-1]["content"]
        if verdict := re.search(r"^VERDICT-\w+: ACCEPT$", user, re.MULTILINE):
            return (respond(chat(f"Fine.\n{verdict[0]}"), kept=True),)
        if "you are the Thinker" in user or "You coordinate a pool" in user:
            return (respond(chat("<suggestion>Add them.</suggestion>"), kept=True),)
        assert "one whole Python 3 program" in user or "the final answer alone" in user
        word = next(word for word in REPLIES if f"[{word}]" in user)
        return (respond(chat(REPLIES[word].replace("{folder}", str(evolving.folder))), kept=True),)

    with faulty_server(answer) as server:
        (evolving.folder / "pool.toml").write_text(POOL.format(url=server.url))
        (evolving.folder / "grade.py").write_text(GRADE)
        evolving.server = server
        yield evolving


def written(world: Sums, *lines: dict[str, Any]) -> str:
    file = world.folder / "tasks.jsonl"
    file.write_text("".join(json.dumps({"split": "test"} | line) + "\n" for line in lines))
    return str(file)


def program(word: str, *tests: Any, **more: Any) -> dict[str, Any]:
    return {"question": f"Add two numbers. [{word}]", "grader": "program", "tests": tests or TESTS, **more}


def own(word: str, **more: Any) -> dict[str, Any]:
    return {"question": f"Is it? [{word}]", "grader": "python:grade.py:agrees", "answer": "yes", **more}


def calls(world: Sums) -> int:
    log = world.folder / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0


def run(world: Sums, tasks: str, *more: object) -> Any:
    return world.trinity(
        "run", "--tasks", tasks, "--split", "test", "--policy", "single:coder", "--json", *more
    )


def episodes(store: Store) -> dict[str, Any]:
    """Every episode by the word of its question."""
    page = store.episodes.page(EpisodeFilter(), limit=50)
    played = [store.episodes.get(one.id) for one in page.items]
    return {re.findall(r"\[(\w+)\]", one.task.question)[0]: one for one in played}


def test_programs_are_graded_by_their_tests_and_nothing_escapes(world: Sums) -> None:
    (world.folder / "ready").touch()
    prints = program("prints", {"input": "3 4\n", "output": "7\n"}, {"input": "1 1", "output": "2"})
    words = ("right", "untagged", "wrong", "loops", "silent", "hostile")
    tasks = written(world, *(program(word) for word in words), prints, own("yes"), own("no"))
    listed = world.trinity("tasks", "list", tasks, "--json").json
    assert [(one["grader"], one["n"]) for one in listed] == [("program", 7), ("python:grade.py:agrees", 2)]
    result = run(world, tasks)
    assert (result.json[0]["n"], result.json[0]["accuracy"]) == (9, 4 / 9)
    with world.kept() as store:
        played = episodes(store)
    right = {word for word, one in played.items() if one.correct}
    assert right == {"right", "untagged", "prints", "yes"}
    assert played["right"].answer == played["untagged"].answer == ADD
    assert [played[word].turns[1].answer_rule for word in ("right", "untagged")] == ["tag", "fence"]
    assert json.loads(played["right"].task.answer) == TESTS
    assert not (world.folder / "escaped").exists()


def test_a_grader_that_gives_no_verdict_leaves_the_episode_missing_until_it_does(world: Sums) -> None:
    tasks = written(world, own("yes"), own("no"))
    first = run(world, tasks)
    assert first.code == 1
    known, _ = world.last_run()
    with world.kept() as store:
        errors = {one.error for one in episodes(store).values()}
    assert errors == {"The grader agrees in grade.py gave no verdict: it raises RuntimeError (not ready)."}
    asked = len(world.server.requests)
    (world.folder / "ready").touch()
    resumed = world.done("run", "--resume", known.id, "--json")
    assert (resumed.json[0]["n"], resumed.json[0]["accuracy"]) == (2, 0.5)
    assert len(world.server.requests) == asked + 2  # the replies that had no verdict are not paid for again
    (world.folder / "grade.py").write_text(GRADE + "# changed\n")
    changed = world.trinity(
        "fork", _episode(world, "yes"), "--turn", 2, "--model", "other", "--n", 1, "--baseline", 1
    )
    assert changed.code == 1
    assert "called only in runs that are begun here with its task file" in changed.err


def _episode(world: Sums, word: str) -> str:
    with world.kept() as store:
        return str(episodes(store)[word].id)


def test_forks_are_graded_as_their_episodes_were(world: Sums) -> None:
    (world.folder / "ready").touch()
    assert run(world, written(world, program("wrong"), own("no"))).code == 0
    (world.folder / "mended.txt").write_text(f"<answer>{ADD}</answer>")
    (world.folder / "yes.txt").write_text(REPLIES["yes"])
    for word, text in (("wrong", "mended.txt"), ("no", "yes.txt")):
        once = ("--turn", 2, "--n", 1, "--baseline", 1, "--json")
        world.done("fork", _episode(world, word), "--reply", world.folder / text, *once)
        with world.kept() as store:
            last = store.runs.list(kind="fork")[0]
            children = [store.episodes.get(one.id) for one in store.episodes.of_run(last.id)]
        assert {(one.fork.part, one.correct) for one in children if one.fork} == {
            ("baseline", False),
            ("fork", True),
        }


def test_what_came_in_with_an_import_has_no_code_loaded(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = written(world, own("yes"), own("no"))
    assert run(world, tasks).code == 1  # missing, so that it can be resumed
    (world.folder / "ready").touch()
    known, _ = world.last_run()
    file = tmp_path / "runs.jsonl"
    world.done("export", known.id, "--out", file)
    other = tmp_path / "other.db"
    empty_store(other)
    world.done("import", file, "--store", other)
    before = calls(world)
    monkeypatch.chdir(Path(tasks).parent)  # where the files lie that the run names
    begun_here = "called only in runs that are begun here"
    assert begun_here in world.trinity("run", "--resume", known.id, "--store", other).err
    with closing(open_store(str(other))) as store:
        name = episodes(store)["yes"].id
        with pytest.raises(TaskError, match=begun_here):
            grading(store, [episodes(store)["yes"].task], tasks)
        task, pool = episodes(store)["yes"].task, str(world.folder / "pool.toml")
        run_id, _ = enqueue(store, LivePlan(task, "single:coder", ("coder", "other"), pool), Ticket())
        assert [*play(store, run_id)] == []
        assert "called only" in str(store.runs.get(run_id).error)
        name_task_file(store, tasks)  # also when the person has named the file for a run of this store
    fork = ("fork", name, "--store", other, "--turn", 1, "--n", 1, "--baseline", 1, "--model", "other")
    assert begun_here in world.trinity(*fork).err
    assert calls(world) == before


def test_an_unknown_grader_is_not_imported(world: Sums, tmp_path: Path) -> None:
    (world.folder / "ready").touch()
    assert run(world, written(world, own("yes"))).code == 0
    file = tmp_path / "runs.jsonl"
    world.done("export", world.last_run()[0].id, "--out", file)
    file.write_text(file.read_text().replace("python:grade.py:agrees", "shell:rm"))
    empty_store(tmp_path / "other.db")
    assert "episode.task.grader" in world.refused("import", file, "--store", tmp_path / "other.db")


def test_an_evolution_is_graded_by_both(world: Sums) -> None:
    (world.folder / "ready").touch()
    tasks = written(
        world,
        *(program(word, split="evolve") for word in ("right", "wrong")),
        *(own(word, split="evolve") for word in ("yes", "no")),
        program("untagged", split="validation"),
    )
    small = ("--generations", 1, "--population", 4, "--replicates", 4, "--turns", 2, "--validate-every", 1)
    result = world.done("evolve", "--tasks", tasks, *small, "--name", "own", "--json")
    assert result.json["took"]["episodes"] == 16
    assert calls(world) > 0
    with world.kept() as store:
        [one] = [run for run in store.runs.list() if run.kind == "evolve"]
        last = store.learning.updates(one.id)[-1]
    assert 0 < last.stats["best"] <= 1


def test_a_live_program_and_a_suite_of_ones_own_are_graded_too(world: Sums) -> None:
    tasks = written(world, program("right"), own("yes"))
    with world.kept() as store:
        task = Task("t", "Add two numbers. [right]", json.dumps(TESTS), "program")
        plan = LivePlan(task, "single:coder", ("coder", "other"), pool=str(world.folder / "pool.toml"))
        run_id, _ = enqueue(store, plan, Ticket())
        assert [*play(store, run_id)]
        assert [one.correct for one in store.episodes.of_run(run_id)] == [True]
        pool = wiring.resolve_pool(plan.pool)
        reproduction = Reproduction(store, Suite(tasks=tasks, held_out=tasks), pool)
        with pytest.raises(TaskError, match="called only"):
            _ = reproduction.grade
        name_task_file(store, tasks)
        assert reproduction.grade([]) == []


def test_bad_lines_are_named(world: Sums) -> None:
    for line, sentence in (
        ({"question": "q", "grader": "program", "answer": "7"}, "Line 1 of tasks.jsonl has grader 'program' and"),
        (program("right", {"input": "1"}), "has a test 1 that is not understood: write each as"),
        (own("yes", grader="python:grade.py:nobody"), "names the grader 'nobody', and grade.py defines no such"),
        (own("yes", grader="perl:x"), "has an unknown grader 'perl:x': choose exact, number"),
    ):  # fmt: skip
        assert sentence in run(world, written(world, line)).err
    assert world.server.requests == []


def test_without_bubblewrap_nothing_is_asked(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.tasks.bubblewrap import _interpreter

    _interpreter.cache_clear()
    monkeypatch.setenv("PATH", str(world.folder))
    said = run(world, written(world, program("right"))).err
    assert "bubblewrap, which makes it, is not installed: install it (apt install bubblewrap" in said
    assert world.server.requests == []


def test_answers_to_both_are_checked(world: Sums) -> None:
    (world.folder / "ready").touch()
    lines = [
        {"tests": TESTS, "said": f"```python\n{ADD}\n```", "grader": "program", "right": True},
        {"tests": TESTS, "said": "def add(a, b): return 3", "grader": "program", "right": True},
        {"answer": "yes", "said": "yes", "grader": "python:grade.py:agrees", "right": True},
        {"answer": "yes", "said": "no", "grader": "python:grade.py:agrees", "right": True},
    ]
    checked = world.trinity("tasks", "check", written(world, *lines), "--json")
    assert checked.code == 1
    assert [checked.json[name] for name in ("n", "agree", "false_right", "false_wrong")] == [4, 2, 0, 2]
    assert "add" in world.trinity("tasks", "check", world.folder / "tasks.jsonl").out
    (world.folder / "ready").unlink()
    failed = world.trinity("tasks", "check", world.folder / "tasks.jsonl")
    assert "gave no verdict: it raises RuntimeError (not ready)." in failed.err
