"""Python values as answers: what is allowed is computed, everything else has no value and does no harm."""

import pytest

from core.episode import Grade, Task
from core.tasks import graders
from core.tasks.graders import evaluate_many, grade_many, is_allowed

pytestmark = pytest.mark.process


def test_allowed_expressions_have_their_python_values() -> None:
    expressions = [
        "1 + 2 * 3",
        "sum([x for x in [4, 5, 6] if x % 2 == 0])",
        "{'a': 3}['a']",
        "max([3, 9, 2][0:2])",
        "'ab'[1]",
    ]
    assert evaluate_many(expressions) == ["7", "10", "3", "9", "'b'"]


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__.__bases__[0].__subclasses__()", "open('/etc/passwd').read()",
        "__import__('os').system('true')", "eval('1')", "exec('x = 1')", "(lambda: 1)()", "[].append(1)",
        "f'{1}'", "9 ** 9 ** 9", "x", "__builtins__", "sum.__self__", "(x := 5)", "[y for x in [1]]",
        "sum([1], start=2)", "1; 2", "import os", "b'x'", "1e400", "await x", "(" * 300 + "1" + ")" * 300,
        "[" * 90 + "]" * 90 + "]", "", "\0", "1 +", "getattr(1, 'real')", "range.__init__", "[*[1]]",
        "print(1)", "input()", "globals()",
    ],
)  # fmt: skip
def test_everything_else_is_refused_before_it_runs(expression: str) -> None:
    assert not is_allowed(expression)
    assert evaluate_many([expression]) == [None]


def test_bad_style_is_read_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    assert evaluate_many(["1if 1else 2"]) == ["1"]
    assert not recwarn.list


def test_a_bomb_ends_its_child_and_not_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sooner = graders._CHILD.replace('("CPU", 2)', '("CPU", 1)')
    assert sooner != graders._CHILD
    monkeypatch.setattr(graders, "_CHILD", sooner)
    assert evaluate_many(["1 + 1", "sum(range(99999999999))", "2 + 2"]) == ["2", None, "4"]
    assert evaluate_many(["'a' * 99999999999", "3 + 3"]) == [None, "6"]


def test_failures_have_no_value() -> None:
    assert evaluate_many(["1 // 0", "[1][5]", "5"]) == [None, None, "5"]


@pytest.mark.parametrize(
    ("answer", "said", "verdict"),
    [
        ("18", "18", True), ("18", " 18 ", True), ("18", "17", False), ("18", "+18", True),
        ("-3", "-3", True),
        ("[1, 2]", "[1,2]", True), ("'ab'", '"ab"', True), ("[1, 2]", "[2, 1]", False),
        ("18", "sum([9, 9])", False),
        ("18", "9 + 9", False), ("18", "[18][0]", False), ("18", "__import__('os')", False),
        ("18", "18; 1", False),
        ("18", "", False), ("18", "(" * 300, False), ("18", "9" * 500, False),
    ],
)  # fmt: skip
def test_a_python_value_and_not_the_way_to_it(answer: str, said: str, verdict: bool) -> None:
    assert grade_many([Grade(Task("t", "q", answer, "code"), said)]) == [verdict]


def test_a_mixed_batch_keeps_its_order() -> None:
    tasks = [
        Task("a", "q", "12", "number"),
        Task("b", "q", "[1, 2]", "code"),
        Task("c", "q", "B", "choice"),
    ]
    said = ["12 km", "[1,2]", "b"]
    assert grade_many([Grade(t, s) for t, s in zip(tasks * 2, said + ["1"] * 3, strict=True)]) == [
        True, True, True, False, False, False]  # fmt: skip
    assert grade_many([]) == []
