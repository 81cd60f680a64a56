"""Answers graded as a careful reader would: a corpus labelled by hand, and what is hostile, slow or huge."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Failure, Grade, Task
from core.play.judging import final_verdicts
from core.processes import cores
from core.tasks import mathematics
from core.tasks.choices import options_of, read_choice
from core.tasks.graders import grading_of
from core.tasks.mathematics import COMPARERS, Comparers, math_answer, mathematics_verdict
from tests.zygote import forked

CORPUS = Path(__file__).parent / "data" / "answers.jsonl"
#: Of all answers of the corpus, so many have to be graded as its labels say; none of the wrong ones may pass.
LEAST = 0.97


def graded(lines: list[dict[str, Any]], grader: str = "") -> list[bool]:
    """By one process: each has to learn anew how LaTeX is read."""
    grades = [
        Grade(Task("t", one.get("question", ""), one["answer"], grader or one["grader"]), one["said"])  # type: ignore[arg-type]
        for one in lines
    ]
    return final_verdicts(grading_of([], processes=1)(grades))


@pytest.mark.process
def test_the_corpus_is_graded_as_labelled_and_no_wrong_answer_passes() -> None:
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    assert len(lines) > 300
    verdicts = graded(lines)
    falsely_right = [
        one for one, verdict in zip(lines, verdicts, strict=True) if verdict and not one["right"]
    ]
    assert falsely_right == []
    found: Counter[tuple[str, bool]] = Counter(
        (one["grader"], verdict == one["right"]) for one, verdict in zip(lines, verdicts, strict=True)
    )
    for grader in ("math", "number", "choice", "exact"):
        assert found[grader, True] / (found[grader, True] + found[grader, False]) >= LEAST, grader
    naive = graded(lines, "exact")
    rightly = sum(verdict == one["right"] for one, verdict in zip(lines, naive, strict=True))
    assert rightly < 0.8 * len(lines), "by exact text alone much is lost"


def same(*pairs: tuple[str, str]) -> list[bool]:
    return final_verdicts([mathematics_verdict(*pair) for pair in pairs])


@pytest.mark.process
@pytest.mark.parametrize(
    ("given_", "right", "verdict"),
    [
        (r"\dfrac{1}{2}", "0.5", True), (r"x \in (2, 5)", "(2,5)", True), ("(5,2)", "(2,5)", False),
        (r"\text{no solution}", "No solution.", True), ("10^{10^{10}}", "10", False),
        ("9^{9^{9^{9}}}", "1", False), ("99999999!", "1", False),
        ("__import__('os').system('true')", "0", False), (r"\left(" * 60, "1", False), ("", "1", False),
        ("not 42", "42", False),
    ],
)  # fmt: skip
def test_single_answers(given_: str, right: str, verdict: bool) -> None:
    assert same((given_, right)) == [verdict]


@pytest.mark.process
def test_a_process_that_dies_or_hangs_loses_one_answer_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "LIMIT_S", 3.0)
    monkeypatch.setattr(mathematics, "WORTH_S", 600.0)  # no other process helps out
    assert same(("1+1", "2")) == [True]
    for child in COMPARERS.children:
        assert child.process is not None
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait()
    assert same(("2+1", "3"), ("2+2", "4")) == [True, True]
    running = [
        child.process for child in COMPARERS.children if child.process and child.process.poll() is None
    ]
    os.kill(running[0].pid, signal.SIGSTOP)
    verdicts = same(*((f"{n}+4", str(n + 4)) for n in range(50, 60)))
    assert verdicts.count(False) <= 1
    os.kill(running[0].pid, signal.SIGCONT) if running[0].poll() is None else None
    assert same(*((f"{n}+4", str(n + 4)) for n in range(60, 70))) == [True] * 10


@pytest.mark.process
def test_many_answers_are_compared_side_by_side_by_no_more_processes_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mathematics, "_WORKER", (str(forked("python")), "-m", "core.tasks.math_worker"))
    comparers = Comparers()
    slow = [(rf"\\frac{{x^{n}+1}}{{x+{n}}}", rf"\\frac{{1+x^{n}}}{{{n}+x}}") for n in range(2, 18)]
    assert comparers.same(("1+1", "2"), 2), "it starts"
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda n: comparers.same((f"{n}+1", str(n + 1)), 2), range(3))) == [True] * 3
        assert len(comparers.children) == 1, "a few answers are not worth a second process"
        monkeypatch.setattr(mathematics, "WORTH_S", 0.1)
        verdicts = list(threads.map(lambda pair: comparers.same(pair, 2), slow))
    assert verdicts == [True] * len(slow)
    assert len(comparers.children) == min(2, cores())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda pair: comparers.same(pair, 1), slow[:8]))
    assert len(comparers.children) == min(2, cores())
    for child in comparers.children:
        child.end()


@pytest.mark.process
def test_a_comparison_that_takes_its_time_holds_up_no_other_answer() -> None:
    assert same(("1+1", "2")) == [True]
    running = [one.process for one in COMPARERS.children if one.process and one.process.poll() is None]
    for process in running:
        os.kill(process.pid, signal.SIGSTOP)
    grade = grading_of([])
    [slow] = grade([Grade(Task("m", "q", r"\frac{7}{8}", "math"), "0.875")])
    assert grade([Grade(Task("n", "q", "4", "number"), "4")]) == [True]
    assert not isinstance(slow, bool | Failure)
    assert not slow.done()
    for process in running:
        os.kill(process.pid, signal.SIGCONT)
    assert final_verdicts([slow]) == [True]


@given(st.text(max_size=60) | st.text(alphabet=r"\{}()[]^_0123x/,.-+<>=$ frac", max_size=60))
def test_any_text_is_made_uniform_without_a_fault(text: str) -> None:
    found = math_answer(text)
    assert found is None or not (found.latex and "__" in found.latex)
    assert read_choice(text, "Which? A) Mars B) Jupiter") in (None, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_options_are_read_from_the_question() -> None:
    assert options_of("Which? A) Mars B) Jupiter C) vitamin C") == {
        "A": "Mars",
        "B": "Jupiter",
        "C": "vitamin C",
    }
    assert options_of("Which?\n(A) 1\n(B) 2\n(C) A or B") == {"A": "1", "B": "2", "C": "A or B"}
    assert options_of("What did Plan A. do?") == {}
