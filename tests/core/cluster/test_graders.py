"""Programs that are graded on a cluster of two real nodes: the same verdicts as here, when a grader is lost too, and
nothing is run on a machine without a sandbox."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

from core.cluster.cluster import Cluster, Machines
from core.cluster.graders import FarGraders, Grader
from core.episode import Failure, Grade, Task
from core.errors import TaskError
from core.play.judging import final_verdicts
from core.tasks import bubblewrap, graders
from core.tasks.background import Background
from core.tasks.graders import grading_of
from core.tasks.kept_tests import TASK_SETS, TESTS_END, keep_tests
from storage.store import Store, open_store
from tests.bench._cluster import Nodes, said, trinity
from tests.core.pool.faulty_server import faulty_server
from tests.ui.endpoint.server import team
from ui.runs import wiring

pytestmark = [pytest.mark.process, pytest.mark.integration]

#: The environment of a machine that has none.
WITHOUT_SANDBOX = {"PATH": "/nowhere"}
#: What pretends to be a sandbox and runs the program as it is.
PRETENDS = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
#: Programs for the tests of `add`, a right one, a wrong one, and those that fail, hang and print too much.
PROGRAMS = (
    "def add(a, b): return a + b",
    "```python\nadd = lambda a, b: a - b\n```",
    "def add(a, b): raise SystemExit",
    "def add(a, b): return 'x' * 10**9",
    "not Python",
    "def add(a, b):\n    while True: pass",
)
TESTS = json.dumps([{"call": "add", "arguments": [3, 4], "value": 7}, "assert add(1, 1) == 2"])


@pytest.fixture(scope="module")
def joined(nodes: Nodes) -> Iterator[Cluster]:
    before = signal.signal(signal.SIGTERM, on_sigterm)
    found = Cluster(Machines(nodes.address), 2)
    try:
        yield found
    finally:
        found.leave()
        signal.signal(signal.SIGTERM, before)


def on_sigterm(_signal: int, _frame: FrameType | None) -> None:
    """What a run does where it is told to end."""


def test_a_process_that_joins_is_ended_as_before(joined: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    """By SIGTERM too, for which Ray has handlers: one would leave a run as if it were played, one tells of a crash."""
    assert joined.nodes
    signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is on_sigterm
    assert "SIGTERM" not in "".join(capfd.readouterr())


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict is known."""
    monkeypatch.setattr(graders, "BACKGROUND", Background())


def asked(programs: tuple[str, ...], tests: str = TESTS) -> list[Grade]:
    return [Grade(Task("t", "Add.", tests, "program"), one) for one in programs]


def test_verdicts_are_those_of_this_machine(joined: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    grades = asked(PROGRAMS)
    far = grading_of([grades[0].task], helpers=joined)
    with monkeypatch.context() as nowhere:  # nothing is run here
        nowhere.setattr(bubblewrap, "start_child", None)
        verdicts = far(grades)
        assert verdicts[0] is far(grades)[0]  # each once
        found = final_verdicts(verdicts)
    monkeypatch.setattr(graders, "BACKGROUND", Background())
    assert found == [True, *[False] * 5]
    # All but the one that takes as long as it may.
    assert final_verdicts(grading_of([grades[0].task])(grades[:-1])) == found[:-1]


def test_tests_that_are_kept_in_a_file_of_this_machine_are_sent(
    joined: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = wiring.data_folder() / TASK_SETS / f"sums{TESTS_END}"
    name = keep_tests(
        [*json.loads(TESTS), {"call": "len", "arguments": ["x" * 200_000], "value": 200_000}], folder
    )
    grades = asked(PROGRAMS[:2], json.dumps(name))
    far = grading_of([grades[0].task], helpers=joined)
    assert final_verdicts(far(grades)) == [True, False]
    next(folder.iterdir()).unlink()
    [missing] = far(asked(("pass",), json.dumps(name)))
    assert isinstance(missing, Failure)
    assert "are not on this machine: add its set" in missing.message


def test_what_a_lost_grader_had_is_graded_again(nodes: Nodes, joined: Cluster) -> None:
    grades = asked(tuple(f"def add(a, b): return a + b + {n % 2}  # {n}" for n in range(24)))
    verdicts = grading_of([grades[0].task], helpers=joined)(grades)
    pending = [one for one in verdicts if not isinstance(one, bool | Failure)]
    lost, until = joined.state().lost, time.monotonic() + 60
    while not any(one.done() for one in pending):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert nodes.lose("Grader")
    assert not all(one.done() for one in pending)
    assert final_verdicts(verdicts) == [n % 2 == 0 for n in range(24)]
    assert joined.state().lost == lost + 1


def end_process() -> None:
    """In a grader: what memory that ran out comes to."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_answer_that_ends_every_grader_is_given_up(joined: Cluster) -> None:
    found = joined.graders().begin(f"{__name__}:end_process").result(120)
    assert isinstance(found, Failure)
    assert found.message.startswith("3 processes of the cluster were lost that graded this answer")


def test_a_run_grades_programs_on_the_cluster(nodes: Nodes, tmp_path: Path) -> None:
    """From a machine that has no sandbox of its own."""
    tasks, store, pool = (tmp_path / name for name in ("tasks.jsonl", "s.db", "pool.toml"))
    texts = [f"Print {n % 2}. [{n}]" for n in range(12)]
    tasks.write_text(
        "\n".join(
            json.dumps({"question": one, "grader": "program", "tests": [{"input": "", "output": one[6]}]})
            for one in texts
        )
    )
    words = (
        f"run --policy single:a --split evolve --validate 0 --tasks {tasks} --pool {pool} --engine".split()
    )
    with faulty_server() as models:
        models.answer = team("```python\nprint(1)\n```")
        pool.write_text(f'[[model]]\nname = "a"\nbase_url = "{models.url}"\nallow_private = true\n')
        _, refused = trinity(store, *words, "local", env=WITHOUT_SANDBOX).communicate()
        assert "bubblewrap, which makes it, is not installed" in refused
        said(trinity(store, *words, f"ray={nodes.address}", env=WITHOUT_SANDBOX))
    with closing(open_store(str(store))) as opened:
        run = opened.runs.list(limit=1)[0].id
        found = {(one.task.question[6], one.correct) for one in map(opened.episodes.get, ids(opened, run))}
    assert found == {("0", False), ("1", True)}


def ids(store: Store, run: str) -> list[str]:
    return [one.id for one in store.episodes.of_run(run)]


def test_on_a_machine_without_a_sandbox_nothing_is_run(
    joined: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text(PRETENDS)
    (tmp_path / "bwrap").chmod(0o755)
    there = {"env_vars": {"PATH": f"{tmp_path}:/usr/bin:/bin"}}
    unsafe = FarGraders(
        joined.ray, joined.actors(Grader, 2, runtime_env=there), joined.note_lost, joined.check
    )
    monkeypatch.setattr(joined, "graders", lambda: unsafe)
    [grade] = asked(PROGRAMS[:1])
    said = "cannot make one here .* This is on the machine .* of the cluster"
    with pytest.raises(TaskError, match=said):
        grading_of([grade.task], helpers=joined)
    monkeypatch.setattr(unsafe, "check_sandbox", lambda: None)  # it was there when the run began
    with pytest.raises(TaskError, match=said):
        final_verdicts(grading_of([grade.task], helpers=joined)([grade]))
    unsafe.close()
