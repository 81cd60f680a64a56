"""`trinity tasks`: a file of one's own is counted, and its graded answers are held against a person's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ui.sums import Sums


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return path


def test_a_file_is_counted(world: Sums, tmp_path: Path) -> None:
    file = written(
        tmp_path / "own.jsonl",
        {"question": "What is 2 + 2?", "answer": "4", "grader": "math", "split": "test"},
        {"question": "Who?", "answer": "Eva", "grader": "exact", "split": "test"},
    )
    listed = world.trinity("tasks", "list", file, "--json").json
    assert [(one["split"], one["grader"], one["n"]) for one in listed] == [
        ("test", "exact", 1),
        ("test", "math", 1),
    ]


@pytest.mark.process
def test_labelled_answers_are_graded_and_differences_shown(world: Sums, tmp_path: Path) -> None:
    lines = [
        {"answer": "\\frac{1}{2}", "said": "0.5", "grader": "math", "right": True},
        {"answer": "\\frac{1}{2}", "said": "0.33", "grader": "math", "right": False},
        {"answer": "B", "said": "Venus", "grader": "choice", "right": True, "question": "Which? A) Mars B) Venus"},
    ]  # fmt: skip
    agrees = world.done("tasks", "check", written(tmp_path / "a.jsonl", *lines), "--json")
    assert agrees.json == {"n": 3, "agree": 3, "false_right": 0, "false_wrong": 0, "differs": []}
    lines += [
        {"answer": "42", "said": "42", "grader": "number", "right": False},
        {"answer": "42", "said": "43", "grader": "number", "right": True},
    ]
    file = written(tmp_path / "b.jsonl", *lines)
    differs = world.trinity("tasks", "check", file, "--json")
    assert differs.code == 1
    assert [differs.json[name] for name in ("n", "agree", "false_right", "false_wrong")] == [5, 3, 1, 1]
    assert [one["said"] for one in differs.json["differs"]] == ["42", "43"]
    told = world.trinity("tasks", "check", file).out
    assert "3 of 5 answers are graded as they are labelled; 1 wrong ones count as right" in told


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "Line 1 of c.jsonl is not valid JSON"),
        ({"answer": "1", "said": 1, "grader": "exact", "right": True}, 'needs texts for "answer", "said"'),
        ({"answer": "1", "said": "1", "grader": "exact"}, 'needs true or false for "right"'),
        (
            {"answer": "1", "said": "1", "grader": "judge", "right": True},
            "has an unknown grader 'judge': choose exact",
        ),
        ("", "is empty"),
    ],
)
def test_a_bad_line_is_one_sentence(world: Sums, tmp_path: Path, line: object, says: str) -> None:
    assert says in world.refused("tasks", "check", written(tmp_path / "c.jsonl", line))
