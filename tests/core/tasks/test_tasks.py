"""Task sets by name and by file, and the graders."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Grade, Grader, Task
from core.errors import TaskError
from core.pocket import FAMILIES, TRAINED_FAMILIES
from core.tasks.choices import read_choice
from core.tasks.graders import grade_many, normalise_answer
from core.tasks.numbers import read_number
from core.tasks.sets import FILE_SPLITS, digest_of_tasks, load_tasks, read_task_file, remembered_tasks


def right(grader: Grader, answer: str, said: str) -> bool:
    return grade_many([Grade(Task("t", "q", answer, grader), said)])[0]


class TestNumber:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("12", 12), ("-12", -12), ("\u221212", -12), ("- 3", -3), ("+4", 4), ("12.", 12),
            ("12.50", Fraction(25, 2)),
            (".5", Fraction(1, 2)), ("1,234,567", 1234567), ("1,234.5", Fraction(2469, 2)), ("1_000", 1000),
            ("1e3", 1000), ("2.5E-1", Fraction(1, 4)), ("3/4", Fraction(3, 4)), ("-3/4", Fraction(-3, 4)),
            ("1 1/2", Fraction(3, 2)), ("\\frac{1}{2}", Fraction(1, 2)), ("\\dfrac{-1}{2}", Fraction(-1, 2)),
            ("$12.00", 12), ("50%", 50), ("12 km", 12), ("12 apples", None), ("x = 12", 12), ("5 + 7 = 12", 12),
            ("**12**", 12),
            ("The result - 42", 42), ("The result -42", -42), ("The answer is - 3", -3), ("x = - 3", -3),
            ("Answer: - 3", -3), ("**Answer:** - 3", -3), ("8 - 5", None), ("8 - 3/4", None),
            ("1" * 400 + "2", None), ("7" + " " * 400 + "or 8", None), ("7" + " " * 400 + "days", 7),
            ("1 + 1 = 2" + " " * 400 + "days", 2),
            ("3 or 4", None), ("3,5", None), ("1,2345", None), ("1.2.3", None), ("1/0", None),
            ("1e99999", None),
            ("", None), ("twelve", 12), ("=", None), ("\u0661\u0662", 12),
        ],
    )  # fmt: skip
    def test_is_read_when_it_is_the_only_one(self, text: str, value: Fraction | int | None) -> None:
        assert read_number(text) == value

    @given(st.integers(-(10**12), 10**12))
    def test_any_integer_is_read_in_any_dress(self, value: int) -> None:
        for dress in ("{}", "{:,}", "{}.0", " {} km", "${}$", "= {}"):
            assert read_number(dress.format(value)) == value

    @given(st.text())
    def test_no_text_breaks_it(self, text: str) -> None:
        read_number(text)
        read_choice(text)
        normalise_answer(text)

    def test_rounding_is_forgiven_and_another_number_is_not(self) -> None:
        assert right("number", "1/3", "0.33333333")
        assert not right("number", "1/3", "0.333")
        assert not right("number", "0", "0.0000001")
        assert right("number", "1000000", "1e6")
        assert not right("number", "1000000", "1000002")


class TestChoice:
    @pytest.mark.parametrize(
        ("text", "letter"),
        [
            ("B", "B"), ("b", "B"), ("(B)", "B"), ("[b]", "B"), ("B.", "B"), ("B)", "B"), ("B) Oslo", "B"),
            ("B: Oslo", "B"),
            ("(B) Oslo.", "B"), ("**B**", "B"), ("\\boxed{B}", "B"), ("option B", "B"),
            ("The answer is B", "B"),
            ("Answer: (b)", "B"), ("A cat", None), ("A or B", None),
            ("A) or B)", None), ("A. or B.", None), ("A), B)", None), ("(A) and (C)", None),
            ("A) Oslo B) Rome", None), ("A) Oslo (A)", "A"), ("B) (a + b)", "B"), ("B) f(x)", "B"), ("B) x", "B"),
            ("B) Vitamin C.", "B"),
            ("AB", None), ("", None), ("Oslo", None),
            ("\u0410", None), ("1", None),
        ],
    )  # fmt: skip
    def test_is_read_when_it_is_plain(self, text: str, letter: str | None) -> None:
        assert read_choice(text) == letter

    def test_is_compared_by_letter(self) -> None:
        assert right("choice", "B", "(b) Oslo")
        assert not right("choice", "B", "C")
        assert not right("choice", "B", "A or B")


class TestExactAndCode:
    @pytest.mark.parametrize("said", ["Eva", "eva", " EVA. ", '"Eva"', "$Eva$", "\\boxed{Eva}"])
    def test_dress_is_no_difference(self, said: str) -> None:
        assert right("exact", "Eva", said)

    @pytest.mark.parametrize("said", ["", "Ev a", "Eva Ann", "not Eva", "\u0415va"])
    def test_another_text_is(self, said: str) -> None:
        assert not right("exact", "Eva", said)

    @given(st.text())
    def test_normal_form_is_stable(self, text: str) -> None:
        assert normalise_answer(normalise_answer(text)) == normalise_answer(text)

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
    @pytest.mark.process
    def test_a_python_value_and_not_the_way_to_it(self, answer: str, said: str, verdict: bool) -> None:
        assert right("code", answer, said) is verdict

    @pytest.mark.process
    def test_a_mixed_batch_keeps_its_order(self) -> None:
        tasks = [
            Task("a", "q", "12", "number"),
            Task("b", "q", "[1, 2]", "code"),
            Task("c", "q", "B", "choice"),
        ]
        said = ["12 km", "[1,2]", "b"]
        assert grade_many([Grade(t, s) for t, s in zip(tasks * 2, said + ["1"] * 3, strict=True)]) == [
            True, True, True, False, False, False]  # fmt: skip
        assert grade_many([]) == []


class TestPocket:
    def test_sets_are_balanced_in_every_prefix(self) -> None:
        tasks = load_tasks("pocket", "test", 42, 7)
        assert len(tasks) == 42
        assert [task.family for task in tasks[:8]] == [*TRAINED_FAMILIES, *TRAINED_FAMILIES]
        assert {task.family for task in load_tasks("pocket/all", "test", 16, 7)} == set(FAMILIES)
        assert {task.family for task in load_tasks("pocket/dates", "evolve", 5, 7)} == {"dates"}

    def test_a_seed_draws_the_same_and_another_draws_others(self) -> None:
        drawn = load_tasks("pocket", "test", 20, 1)
        remembered_tasks.cache_clear()
        assert load_tasks("pocket", "test", 20, 1) == drawn
        assert load_tasks("pocket", "test", 20, 1) != load_tasks("pocket", "test", 20, 2)

    def test_fewer_are_taken_only_where_that_will_do(self) -> None:
        assert len(load_tasks("pocket/dates", "unseen", 300, 0, at_most=True)) == 120
        with pytest.raises(TaskError, match="only 120"):
            load_tasks("pocket/dates", "unseen", 300, 0)

    @pytest.mark.parametrize("spec", ["pocket/nothing", "pockets", "", "nowhere.jsonl", "tasks.csv"])
    def test_an_unknown_set_is_refused(self, spec: str) -> None:
        with pytest.raises(TaskError):
            load_tasks(spec, "test", 5, 0)

    def test_a_count_is_needed(self) -> None:
        with pytest.raises(TaskError, match="how many"):
            load_tasks("pocket", "test", None, 0)
        with pytest.raises(TaskError, match="at least 1"):
            load_tasks("pocket", "test", 0, 0)

    def test_an_unknown_split_is_refused(self) -> None:
        with pytest.raises(TaskError, match="split 'dev'"):
            load_tasks("pocket", "dev", 5, 0)


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def line(question: str, answer: object = "12", grader: str = "number", **more: object) -> dict[str, object]:
    return {"question": question, "answer": answer, "grader": grader, **more}


class TestFile:
    def test_every_line_belongs_to_one_split_and_stays_there(self, tmp_path: Path) -> None:
        many = [line(f"What is {k} + 1?", k + 1) for k in range(300)]
        path = write(tmp_path / "sums.jsonl", *many)
        splits = {split: load_tasks(str(path), split, None, 0) for split in FILE_SPLITS}
        assert sum(map(len, splits.values())) == 300
        assert 150 < len(splits["evolve"]) < 210
        assert 40 < len(splits["validation"]) < 80
        fewer = write(tmp_path / "fewer.jsonl", *many[:150])
        stayed = {task.question: task.split for task in read_task_file(fewer)}
        assert all(stayed[t.question] == t.split for s in splits.values() for t in s if t.question in stayed)

    def test_a_smaller_sample_is_part_of_a_larger_one(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "sums.jsonl", *[line(f"What is {k} + 1?", k + 1, split="test") for k in range(30)]
        )
        ten, twenty = (load_tasks(str(path), "test", n, 5) for n in (10, 20))
        assert twenty[:10] == ten
        assert ten != load_tasks(str(path), "test", 10, 6)
        assert len(load_tasks(str(path), "test", 1000, 5)) == 30

    def test_fields_are_taken_as_given(self, tmp_path: Path) -> None:
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

    def test_defaults_hold_for_the_lines_after_them(self, tmp_path: Path) -> None:
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

    def test_ids_change_with_the_content(self, tmp_path: Path) -> None:
        a, b = (read_task_file(write(tmp_path / "f.jsonl", line("One?", k, id="1")))[0].id for k in (1, 2))
        assert a != b

    def test_a_byte_order_mark_and_windows_lines_do_no_harm(self, tmp_path: Path) -> None:
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
            (line("q", "1", "judge"), "Line 2 .* unknown grader 'judge'"),
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
    def test_a_bad_line_is_named(self, tmp_path: Path, bad: object, says: str) -> None:
        path = write(tmp_path / "f.jsonl", line("first q?"), bad)
        with pytest.raises(TaskError, match=says):
            load_tasks(str(path), "test", 5, 0)

    def test_an_empty_file_and_an_empty_split_are_said(self, tmp_path: Path) -> None:
        with pytest.raises(TaskError, match="empty"):
            load_tasks(str(write(tmp_path / "e.jsonl", "")), "test", 5, 0)
        with pytest.raises(TaskError, match="no task in split 'test'"):
            load_tasks(str(write(tmp_path / "f.jsonl", line("q", split="evolve"))), "test", 5, 0)
        with pytest.raises(TaskError, match="no split 'train'"):
            load_tasks(str(tmp_path / "f.jsonl"), "train", 5, 0)

    def test_bytes_that_are_no_text_are_said(self, tmp_path: Path) -> None:
        path = tmp_path / "b.jsonl"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(TaskError, match="UTF-8"):
            load_tasks(str(path), "test", 5, 0)
