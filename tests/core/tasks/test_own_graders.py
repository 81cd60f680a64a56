"""Functions of the user's own as graders: what they are given, what counts as a verdict, and who may call them."""

from __future__ import annotations

import json
import os
import resource
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from core.episode import Failure, Grade, Task
from core.errors import TaskError
from core.grader import is_grader
from core.tasks import own_graders
from core.tasks.background import LineChild
from core.tasks.graders import grading_of
from core.tasks.sets import load_tasks, own_functions, read_task_file

pytestmark = pytest.mark.process

CODE = """
import os, sys, time
from words import fold

def same(said, expected):
    print("what it prints is no verdict")
    return fold(said) == fold(expected)

def asked(said, expected, question):
    return said in question

def boom(said, expected):
    raise ValueError("no\\nway")

def none(said, expected):
    return None

def leaves(said, expected):
    sys.exit(0)

def dies(said, expected):
    os._exit(1)

def hangs(said, expected):
    time.sleep(60)

def one(said):
    return True

value = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    (tmp_path / "words.py").write_text("def fold(text): return text.strip().lower()\n")
    return tmp_path


def written(folder: Path, *functions: str) -> Path:
    lines = [
        {"question": f"{n}: x y?", "answer": "Yes", "grader": f"python:own.py:{name}", "split": "test"}
        for n, name in enumerate(functions)
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def verdicts(file: Path, *said: str) -> list[bool | Failure]:
    """What each task of a file says of each answer."""
    tasks, own = read_task_file(file), own_functions(str(file))
    found = grading_of(tasks, own)([Grade(task, one) for task in tasks for one in said])
    return [one.result() if isinstance(one, Future) else one for one in found]


def test_a_function_grades_with_the_question_or_without(folder: Path) -> None:
    assert verdicts(written(folder, "same", "asked"), " yes", "no", "x y") == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]


def test_what_is_no_verdict_is_missing_and_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_graders, "LIMIT_S", 1.0)
    functions = ("boom", "none", "leaves", "dies", "hangs", "one", "value", "same")
    *failed, right = verdicts(written(folder, *functions), "yes")
    assert right is True
    words = ("raises ValueError (no way)", "NoneType and not with True or False", "SystemExit", "it ended its process",
             "took longer than 1 s", "raises TypeError", "raises TypeError")  # fmt: skip
    for one, name, why in zip(failed, functions, words, strict=False):
        assert isinstance(one, Failure)
        assert one.kind == "infrastructure"
        assert one.message.startswith(f"The grader {name} in own.py gave no verdict: it ")
        assert why in one.message


@pytest.mark.parametrize(
    ("grader", "sentence"),
    [
        ("python:own.py:nothing", "Line 1 of tasks.jsonl names the grader 'nothing', and own.py defines no such"),
        ("python:other.py:same", "Line 1 of tasks.jsonl names the grader file other.py, which cannot be read"),
        ("python:tasks.jsonl:same", "Line 1 of tasks.jsonl has an unknown grader"),
        ("python:bad.py:same", "Line 1 of tasks.jsonl names the grader file bad.py, which is not Python."),
        ("python:own.py", "choose exact, number, choice, math, program, judge or python:FILE.py:FUNCTION."),
        ("code", "Line 1 of tasks.jsonl has an unknown grader 'code'"),
    ],
)  # fmt: skip
def test_a_grader_that_is_not_there_is_named_with_its_line(folder: Path, grader: str, sentence: str) -> None:
    (folder / "bad.py").write_text("def same(:\n")
    file = folder / "tasks.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": "a", "grader": grader}) + "\n")
    with pytest.raises(TaskError) as raised:
        read_task_file(file)
    assert sentence in str(raised.value)


def test_reading_a_task_file_runs_nothing(folder: Path) -> None:
    (folder / "own.py").write_text(
        f"open({str(folder / 'ran')!r}, 'w')\ndef same(said, expected): return True\n"
    )
    file = written(folder, "same")
    assert len(load_tasks(str(file), "test", None, 0)) == len(own_functions(str(file))) == 1
    assert not (folder / "ran").exists()


def test_only_tasks_of_the_named_file_are_graded_by_it(folder: Path) -> None:
    file = written(folder, "same")
    own = own_functions(str(file))
    [task] = read_task_file(file)
    stranger = Task("s", "q", "Yes", task.grader)
    with pytest.raises(TaskError, match="called only in runs that are begun here"):
        grading_of([stranger], own)
    with pytest.raises(TaskError, match="called only in runs that are begun here"):
        grading_of([task])
    [found] = grading_of([], own)([Grade(stranger, "yes")])
    assert isinstance(found, Failure)


def test_a_changed_file_makes_other_tasks_and_no_verdicts(folder: Path) -> None:
    file = written(folder, "same")
    before, own = read_task_file(file), own_functions(str(file))
    grade = grading_of(before, own)
    (folder / "own.py").write_text(CODE + "# changed\n")
    assert read_task_file(file)[0].id != before[0].id
    [found] = grade([Grade(before[0], "YES")])
    assert isinstance(found, Future)
    failure = found.result()
    assert isinstance(failure, Failure)
    assert "its file has changed since the run began" in failure.message


def test_names() -> None:
    known = ("exact", "program", "open", "python:a.py:f", "python:a b/c.py:f")
    assert all(map(is_grader, known))
    assert not any(
        map(is_grader, ("judged", "python:", "python:a.py", "python:a.py:1", "python:a.txt:f", ""))
    )


def test_a_process_with_many_open_files_grades_too() -> None:
    """As a driver has that keeps thousands of calls in flight: what `select.select` refuses from 1,024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    child = LineChild([sys.executable, "-c", "print('ready', flush=True); print(input(), flush=True)"], 20.0)
    try:
        assert max(held) > 1024
        assert child.begin() == b"ready"
        assert child.ask(b"a line", 20.0) == b"a line"
    finally:
        child.end()
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
