"""Programs are right when they pass every test: what counts as the same output, and what stands for a test."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.episode import Failure, Grade, Task
from core.errors import TaskError
from core.play.judging import final_verdicts
from core.tasks.bubblewrap import Limits, _interpreter, check_sandbox
from core.tasks.graders import grading_of
from core.tasks.programs import passes, read_tests

pytestmark = pytest.mark.process

LIMITS = Limits(CPU=2, wall_s=6.0, total_s=20.0)
ADD = "def add(a, b):\n    return a + b\n"


def right(program: str, *tests: Any) -> bool:
    return passes(program, json.dumps(tests), LIMITS)


@pytest.mark.parametrize(
    ("program", "tests", "verdict"),
    [
        ("print(sum(map(int, input().split())))", [{"input": "3 4\n", "output": "7\n"}], True),
        ("print(7)", [{"input": "3 4\n", "output": "7"}, {"input": "1 1\n", "output": "2"}], False),
        ("```python\nprint('a b')\n```\n", [{"input": "", "output": "a  b  \n\n"}], True),
        ("print('a\\nb')", [{"input": "", "output": "a b"}], False),
        ("print('A')", [{"input": "", "output": "a"}], False),
        ("print(1 / 3)", [{"input": "", "output": "0.33333333"}], True),
        ("print(0.34)", [{"input": "", "output": "0.33333333"}], False),
        ("print('007')", [{"input": "", "output": "7"}], False),
        ("print(10**30 + 1)", [{"input": "", "output": str(10**30)}], False),
        ("print('7')\nraise ValueError", [{"input": "", "output": "7"}], False),
        ("print('ä€')", [{"input": "", "output": "ä€"}], True),
        ("import sys\nprint(sys.stdin.read()[::-1])", [{"input": "ab", "output": "ba"}], True),
        ("if __name__ == '__main__':\n    print(input())\n    exit()", [{"input": "x", "output": "x"}], True),
        (ADD, ["assert add(3, 4) == 7", "add(1, 1) == 2"], None),
        (ADD, ["assert add(3, 4) == 7", "assert add('a', 'b') == 'ab'"], True),
        (ADD, ["assert add(0.1, 0.2) == 0.3", "assert add(1, 1) == 2.0"], True),
        (ADD, ["assert add((1,), (2,)) == [1, 2]"], False),
        (ADD, ["assert set(add([2], [2, 1])) == set((1, 2))", "assert add(1, 1) is not 3"], None),
        (ADD, ["assert set(add([2], [2, 1])) == set((1, 2))"], True),
        ("def f(x): return {x: None, (1,): b'c', 3: {2}}", ["assert f(0) == {3: {2}, (1,): b'c', 0: None}"], True),
        ("def f(): return True", ["assert f() is True", "assert f() == 1"], True),
        ("def f(): return '1'", ["assert f() == 1"], False),
        ("def f(): return float('nan')", ["assert f() == 1.0"], False),
        ("def f(): return 10 ** 400", ["assert f() == 1.0"], False),
        ("print(input())\n" + ADD, ["assert add(1, 2) == 3"], False),  # it reads what nobody gives
        ("class Solution:\n    def add(self, a, b): return a + b", ["assert Solution().add(1, 2) == 3"], True),
        ("from dataclasses import *\n@dataclass\nclass P: x: 'int'\ndef f(): return P(3).x", ["assert f() == 3"], True),
        (ADD, [{"call": "add", "arguments": [3, 4], "value": 7}], True),
        (ADD, [{"call": "add", "arguments": [[1], [2.0]], "value": [1, 2]}], True),
        (ADD, [{"call": "add", "arguments": ["3", "4"], "value": 34}], False),
        ("def f(): return 1, [2]", [{"call": "f", "arguments": [], "value": [1, [2]]}], True),
        ("def f(): return [1, (2,)]", [{"call": "f", "arguments": [], "value": [1, [2]]}], False),
        ("f = sqrt", [{"before": "from math import *"}, "assert f(4) == 2"], True),
        ("from __future__ import annotations\nf = sqrt", [{"before": "from math import *"}, "assert f(9) == 3"], True),
        ("print(sqrt(4))", [{"before": "from math import *"}, {"input": "", "output": "2.0"}], True),
        ("not Python", ["assert f() == 3"], False),
        ("", [{"input": "", "output": "1"}], False),
    ],
)  # fmt: skip
def test_verdicts(program: str, tests: list[Any], verdict: bool | None) -> None:
    if verdict is None:
        with pytest.raises(ValueError, match="has a test 2 that is not understood"):
            right(program, *tests)
    else:
        assert right(program, *tests) is verdict


@pytest.mark.parametrize(
    "tests",
    [
        None, [], {}, "assert f() == 1", [1], [{"input": "1"}], [{"input": 1, "output": "1"}],
        [{"input": "1", "output": "1", "testtype": "functional"}], ["assert f()"], ["assert f() == g()"], ["f( == 1"],
        [{"before": "import math"}], [{"before": "not a program"}, "assert f() == 1"],
        [{"before": 1}, "assert f() == 1"], [{"before": "", "libraries": ["a.b"]}, "assert f() == 1"],
        [{"unittest": "x = 1", "calls": "f"}], [{"unittest": "class T(C):\n  def test(self): f()", "calls": "f()"}],
        [{"call": "f", "arguments": 1, "value": 1}], [{"call": "f(1)", "arguments": [], "value": 1}],
        ["assert f() == 1", {"before": "import math"}],
        ["assert f() == 1; import os"], ["assert f() == " + "[" * 300], ["assert 1 < f() < 2"], ["assert f() == x"],
    ],
)  # fmt: skip
def test_what_is_no_list_of_tests(tests: Any) -> None:
    with pytest.raises(ValueError, match="write (each as|it as|them as)|is not Python"):
        read_tests(tests)


def test_many_programs_are_graded_side_by_side_and_each_once() -> None:
    tasks = [Task(f"t{n}", "q", json.dumps([{"input": "", "output": f"{n}"}]), "program") for n in range(3)]
    grade = grading_of(tasks)
    asked = [Grade(task, f"print({n})") for task in tasks for n in (0, 1, 2, 0)]
    verdicts = grade(asked)
    assert verdicts[0] is verdicts[3]
    assert final_verdicts(verdicts) == [a.answer == f"print({a.task.id[1:]})" for a in asked]
    assert final_verdicts(grade([Grade(Task("n", "q", "4", "number"), "4"), asked[0]])) == [True, True]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Nothing is known of the sandbox, before and after."""
    _interpreter.cache_clear()
    yield
    _interpreter.cache_clear()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may read: the sandbox may run as another one than the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("bwrap", "sentence"),
    [
        (None, "bubblewrap, which makes it, is not installed: install it"),
        (
            "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1",
            "uid map: Permission denied.*AppArmor",
        ),
        ("exec sleep 0.1", "it says nothing"),
        # Whoever pretends to be a sandbox and runs the program as it is.
        ('while [ "$1" != -- ]; do shift; done; shift; exec "$@"', "cannot make one here"),
    ],
)
def test_without_a_sandbox_nothing_is_run(
    bwrap: str | None, sentence: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bwrap is not None:
        script = open_folder / "bwrap"
        script.write_text(f"#!/bin/sh\n{bwrap}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{open_folder}:/usr/bin:/bin")
    else:
        monkeypatch.setenv("PATH", str(open_folder))
    task = Task("t", "q", json.dumps([{"input": "", "output": "7"}]), "program")
    with pytest.raises(TaskError, match=sentence):
        grading_of([task])
    monkeypatch.undo()
    check_sandbox()
    grade = grading_of([task])
    _interpreter.cache_clear()
    monkeypatch.setenv("PATH", str(open_folder / "nowhere"))
    [verdict] = grade([Grade(task, f"print(7)  # {sentence}")])  # it was there when the run began
    assert not isinstance(verdict, bool | Failure)
    found = verdict.result()
    assert isinstance(found, Failure)
    assert found.kind == "infrastructure"
