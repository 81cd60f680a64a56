"""Task sets by name and by file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import TaskError
from core.pocket import FAMILIES, TRAINED_FAMILIES
from core.tasks.sets import (
    FILE_SPLITS,
    digest_of_tasks,
    labelled_tasks,
    load_tasks,
    read_task_file,
    remembered_tasks,
)


def test_sets_are_balanced_in_every_prefix() -> None:
    tasks = load_tasks("pocket", "test", 42, 7)
    assert len(tasks) == 42
    assert [task.family for task in tasks[:8]] == [*TRAINED_FAMILIES, *TRAINED_FAMILIES]
    assert {task.family for task in load_tasks("pocket/all", "test", 16, 7)} == set(FAMILIES)
    assert {task.family for task in load_tasks("pocket/dates", "evolve", 5, 7)} == {"dates"}


def test_a_seed_draws_the_same_and_another_draws_others() -> None:
    drawn = load_tasks("pocket", "test", 20, 1)
    remembered_tasks.cache_clear()
    assert load_tasks("pocket", "test", 20, 1) == drawn
    assert load_tasks("pocket", "test", 20, 1) != load_tasks("pocket", "test", 20, 2)


def test_fewer_are_taken_only_where_that_will_do() -> None:
    assert len(load_tasks("pocket/dates", "unseen", 300, 0, at_most=True)) == 120


@pytest.mark.parametrize(
    ("spec", "split", "n", "says"),
    [
        *((spec, "test", 5, "no task set") for spec in ("pocket/nothing", "pockets", "", "tasks.csv")),
        ("nowhere.jsonl", "test", 5, "no task file nowhere.jsonl"),
        ("pocket", "test", None, "how many"),
        ("pocket", "test", 0, "at least 1"),
        ("pocket", "dev", 5, "split 'dev'"),
        ("pocket/dates", "unseen", 300, "only 120"),
    ],
)
def test_what_cannot_be_drawn_is_refused(spec: str, split: str, n: int | None, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        load_tasks(spec, split, n, 0)


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def line(question: str, answer: object = "12", grader: str = "number", **more: object) -> dict[str, object]:
    return {"question": question, "answer": answer, "grader": grader, **more}


def test_every_line_belongs_to_one_split_and_stays_there(tmp_path: Path) -> None:
    many = [line(f"What is {k} + 1?", k + 1) for k in range(300)]
    path = write(tmp_path / "sums.jsonl", *many)
    splits = {split: load_tasks(str(path), split, None, 0) for split in FILE_SPLITS}
    assert sum(map(len, splits.values())) == 300
    assert 150 < len(splits["evolve"]) < 210
    assert 40 < len(splits["validation"]) < 80
    fewer = write(tmp_path / "fewer.jsonl", *many[:150])
    stayed = {task.question: task.split for task in read_task_file(fewer)}
    assert all(stayed[t.question] == t.split for s in splits.values() for t in s if t.question in stayed)


def test_a_smaller_sample_is_part_of_a_larger_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "sums.jsonl", *[line(f"What is {k} + 1?", k + 1, split="test") for k in range(30)]
    )
    ten, twenty = (load_tasks(str(path), "test", n, 5) for n in (10, 20))
    assert twenty[:10] == ten
    assert ten != load_tasks(str(path), "test", 10, 6)
    assert len(load_tasks(str(path), "test", 1000, 5)) == 30


def test_fields_are_taken_as_given(tmp_path: Path) -> None:
    path = write(
        tmp_path / "my tasks.jsonl",
        line("One?", 1, id="q 1/\u00e9", family="sums", split="evolve", source="a book"),
        "",
        line("Two?", "Eva", "exact"),
    )
    one, two = read_task_file(path)
    assert (one.question, one.answer, one.grader, one.family, one.split) == (
        "One?", "1", "number", "sums", "evolve")  # fmt: skip
    assert one.id.startswith("q-1-")
    assert two.id.startswith("my-tasks-")
    assert two.family == "user"


def test_defaults_hold_for_the_lines_after_them(tmp_path: Path) -> None:
    first = {"question": "One?", "answer": "1", "grader": "exact"}
    path = write(
        tmp_path / "d.jsonl",
        first,
        {"defaults": {"grader": "number", "answer_pattern": r"RESULT (\d+)", "family": "sums"}},
        {"question": "Two?", "answer": 2},
        {"question": "Three?", "answer": "B", "grader": "choice", "answer_pattern": "[A-D]$"},
    )
    one, two, three = read_task_file(path)
    assert (one.grader, one.answer_pattern, one.family) == ("exact", "", "user")
    assert (two.grader, two.answer_pattern, two.family) == ("number", r"RESULT (\d+)", "sums")
    assert (three.grader, three.answer_pattern, three.family) == ("choice", "[A-D]$", "sums")
    assert digest_of_tasks([one]) != digest_of_tasks([replace(one, answer_pattern="x")])


def test_ids_change_with_the_content(tmp_path: Path) -> None:
    a, b = (read_task_file(write(tmp_path / "f.jsonl", line("One?", k, id="1")))[0].id for k in (1, 2))
    assert a != b


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(line("One?")).encode() + b"\r\n" + b"\r\n")
    assert len(read_task_file(path)) == 1


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "Line 2 of f.jsonl is not valid JSON"),
        ("[" * 100_000, "Line 2 .* not valid JSON"),
        ("[1]", "Line 2 .* not a JSON object"),
        ({"answer": "1", "grader": "exact"}, "Line 2 .* no 'question'"),
        ({"question": "q", "grader": "exact"}, "Line 2 .* no 'answer'"),
        ({"question": "q", "answer": "1"}, "Line 2 .* no 'grader'"),
        (line("q", ["1"]), "Line 2 .* text for 'answer'"),
        (line("q", True), "Line 2 .* text for 'answer'"),
        (line(" "), "Line 2 .* text for 'question'"),
        (line("q", "1", "open"), "Line 2 .* unknown grader 'open'"),
        (line("q", "1", "code"), "Line 2 .* unknown grader 'code'"),
        (line("q", "many"), "Line 2 .* not one number"),
        (line("q", "Oslo", "choice"), "Line 2 .* not one letter"),
        (line("q", split="train"), "Line 2 .* unknown split 'train'"),
        (line("q", "1", answer_pattern="("), r"Line 2 .* no regular expression \(missing \)"),
        ({"defaults": {"answer": "1"}}, "Line 2 .* they may set grader, family, split, answer_pattern"),
        ({"defaults": 7}, "Line 2 .* defaults that are not understood"),
        (line("FIRST   q?"), "Line 2 .* same question as line 1"),
        ('{"question": "\\ud800", "answer": "1", "grader": "number"}', "Line 2 .* surrogate"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: object, says: str) -> None:
    path = write(tmp_path / "f.jsonl", line("first q?"), bad)
    with pytest.raises(TaskError, match=says):
        load_tasks(str(path), "test", 5, 0)


def test_an_empty_file_and_an_empty_split_are_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="empty"):
        load_tasks(str(write(tmp_path / "e.jsonl", "")), "test", 5, 0)
    with pytest.raises(TaskError, match="no task in split 'test'"):
        load_tasks(str(write(tmp_path / "f.jsonl", line("q", split="evolve"))), "test", 5, 0)
    with pytest.raises(TaskError, match="no split 'train'"):
        load_tasks(str(tmp_path / "f.jsonl"), "train", 5, 0)


def test_bytes_that_are_no_text_are_said(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="UTF-8"):
        load_tasks(str(path), "test", 5, 0)


def test_tasks_are_labelled_by_what_their_lines_say(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    lines: list[dict[str, object]] = [
        {"defaults": {"grader": "number", "family": "sums"}},
        {"question": "1 + 1?", "answer": 2, "subject": " easy  sums ", "solved": True},
        {"question": "2 + 2?", "answer": 4, "subject": 7, "solved": False},
        {"question": "3 + 3?", "answer": 6, "subject": ["no", "label"], "solved": None, "family": "more"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")

    def labels(by: str, most: int = 10) -> dict[str, str]:
        return {task.question: label for task, label in labelled_tasks(str(path), by, most)[0]}

    assert labels("subject") == {"1 + 1?": "easy sums", "2 + 2?": "7"}
    assert labels("solved") == {"1 + 1?": "yes", "2 + 2?": "no"}
    assert labels("family") == {"1 + 1?": "sums", "2 + 2?": "sums", "3 + 3?": "more"}
    some, total = labelled_tasks(str(path), "grader", 2)
    assert (len(some), total) == (2, 3)
    assert some == labelled_tasks(str(path), "grader", 3)[0][:2]
    with pytest.raises(
        TaskError, match="has a field 'colour': choose one of family, grader, split, solved, subject"
    ):
        labelled_tasks(str(path), "colour", 10)
    assert {label for _, label in labelled_tasks("pocket", "family", 8)[0]} == set(TRAINED_FAMILIES)
