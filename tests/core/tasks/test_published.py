"""Published benchmarks become task sets: each schema as it is published, and one sentence for a row that is faulty."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from core.episode import Failure, Grade, Task
from core.errors import TaskError
from core.grader import NO_REFERENCE
from core.play.judging import final_verdicts
from core.tasks.adding import add_set, files_of, remove_set
from core.tasks.graders import grade_many, grading_of
from core.tasks.kept_tests import kept_tests
from core.tasks.programs import passes
from core.tasks.published import PUBLISHED
from core.tasks.rows import rows_of
from core.tasks.sets import TABLE_GRADERS, added_sets, load_task_file, load_tasks, read_task_file
from tests.core.tasks.published import (
    SETS,
    SOLUTIONS,
    lcb,
    lcb_function,
    packed,
    write_csv,
    write_jsonl,
    write_parquet,
    write_set,
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of this test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "trinity-inspector"


def tasks_of(name: str, tmp_path: Path, rows: Any = None, **more: Any) -> list[Task]:
    """What becomes of a set's file."""
    return read_task_file(add_set("own", [write_set(name, tmp_path, rows)], tmp_path / "data", **more).path)


def test_the_table_says_of_each_set_where_it_is_published() -> None:
    assert PUBLISHED.keys() == SETS.keys()
    for one in PUBLISHED.values():
        assert all((one.fields, one.grader, one.splits.words, one.source, one.licence, one.sizes))


@pytest.mark.parametrize("name", [name for name in SETS if name != "bigcodebench"])
def test_each_set_is_recognised_by_its_file(name: str, tmp_path: Path) -> None:
    added = add_set("own", [write_set(name, tmp_path)], tmp_path / "data")
    tasks = read_task_file(added.path)
    assert added.published.name == name
    assert len(tasks) == added.splits.total() == len(SETS[name]) - added.left_out.total()
    assert added.bytes == added.path.stat().st_size > 0
    assert len({task.id for task in tasks}) == len(tasks)


@pytest.mark.process
def test_math_is_graded_as_mathematics_and_words_as_words(tmp_path: Path) -> None:
    tasks = tasks_of("math500", tmp_path)
    assert {task.family for task in tasks} == {"Algebra", "Logic"}
    assert {task.split for task in tasks} == {"evolve", "validation", "test"}
    third = next(task for task in tasks if task.answer == "\\frac{1}{4}")
    grades = [Grade(third, "0.25"), Grade(third, "0.26"), Grade(tasks[-1], "Ida"), Grade(tasks[-1], "Eva")]
    assert grade_many(grades) == [True, False, True, False]


@pytest.mark.parametrize(
    ("name", "letter", "text"),
    [("mmlu", "B", "5"), ("mmlu-pro", "H", "8 exactly"), ("gpqa-diamond", "", "97,\nand so on")],
)
def test_options_stand_in_the_question_and_the_letter_is_right(
    name: str, letter: str, text: str, tmp_path: Path
) -> None:
    task = next(one for one in tasks_of(name, tmp_path) if f"{one.answer}) {text}" in one.question)
    assert task.grader == "choice"
    assert not letter or task.answer == letter
    wrong = "A" if task.answer != "A" else "B"
    assert grade_many([Grade(task, task.answer), Grade(task, text), Grade(task, wrong)]) == [
        True,
        True,
        False,
    ]


def test_options_of_gpqa_are_shuffled_by_the_question_alone(tmp_path: Path) -> None:
    tasks = tasks_of("gpqa-diamond", tmp_path)
    assert len({task.answer for task in tasks}) > 1
    (tmp_path / "again").mkdir()
    few = tasks_of("gpqa-diamond", tmp_path / "again", SETS["gpqa-diamond"][5:7])
    assert few == tasks[5:7]
    assert {task.split for task in tasks} == {"test"}


def test_options_that_differ_in_case_alone_are_two(tmp_path: Path) -> None:
    row = SETS["gpqa-diamond"][0] | {"Correct Answer": "Hh", "Incorrect Answer 1": "hh"}
    [task] = tasks_of("gpqa-diamond", tmp_path, [row])
    assert f"{task.answer}) Hh" in task.question


def test_numbers_are_texts_and_what_a_table_leaves_open_is_missing(tmp_path: Path) -> None:
    first, second = (
        {**SETS["math500"][n], "level": 3.0, "answer": value} for n, value in ((0, 0.125), (1, 2e7))
    )
    file = write_parquet(tmp_path / "m.parquet", [first, second])
    assert [task.answer for task in read_task_file(add_set("m", [file], tmp_path / "data").path)] == [
        "0.125",
        "20000000",
    ]
    file = write_parquet(tmp_path / "n.parquet", [first, second | {"answer": float("nan")}])
    with pytest.raises(TaskError, match="Row 2 of n.parquet has no 'answer', which rows of math500 have"):
        add_set("n", [file], tmp_path / "data")


def test_mmlu_of_its_first_authors_has_no_line_of_names(tmp_path: Path) -> None:
    path = tmp_path / "college_sums_test.csv"
    path.write_text('"Which is 1 + 1?",1,2,3,4,B\n"Which, then, is 1 + 2?",1,2,3,4,C\n')
    first, second = read_task_file(add_set("m", [path], tmp_path / "data").path)
    assert (first.question, first.answer) == ("Which is 1 + 1?\n\nA) 1\nB) 2\nC) 3\nD) 4", "B")
    assert (second.family, second.answer) == ("college_sums", "C")


def test_a_set_that_says_so_by_its_files_is_split_by_them(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    learn = write_jsonl(tmp_path / "train.jsonl", SETS["gsm8k"][:20])
    test = write_jsonl(tmp_path / "test" / "test.jsonl", SETS["gsm8k"][20:])
    tasks = read_task_file(add_set("g", [learn, test], tmp_path / "data").path)
    assert {task.split for task in tasks[:20]} == {"evolve", "validation"}
    assert [task.split for task in tasks[20:]] == ["test"] * 4
    assert tasks[3].answer == "4000"


def test_mbpp_is_split_by_number(tmp_path: Path) -> None:
    added = add_set("m", [write_set("mbpp", tmp_path)], tmp_path / "data")
    assert dict(added.splits) == {"test": 2, "validation": 1, "evolve": 1}
    assert dict(added.left_out) == {"an example for prompts (tasks 1 to 10)": 1}


@pytest.mark.process
def test_reference_answers_say_by_which_rule_they_are_compared(tmp_path: Path) -> None:
    tasks = tasks_of("rlpr", tmp_path)
    assert [task.grader for task in tasks] == ["number", "choice", "math", "exact"]
    assert "Think first" not in tasks[0].question
    assert grade_many([Grade(tasks[2], "m c^{2}"), Grade(tasks[3], "Carbon dioxide.")]) == [True, True]


def test_livecodebench_has_the_papers_versions(tmp_path: Path) -> None:
    files = [
        write_jsonl(tmp_path / "test.jsonl", [lcb(f"old{n}") for n in range(30)]),
        write_jsonl(tmp_path / "test3.jsonl", [lcb("between")]),
        write_jsonl(tmp_path / "test6.jsonl", [lcb("new", contest_date="2025-02-01T00:00:00")]),
    ]
    added = add_set("lcb", files, tmp_path / "data")
    assert added.splits["evolve"] + added.splits["validation"] == 30
    assert (added.splits["test"], added.left_out.total()) == (1, 1)
    misnamed = write_jsonl(tmp_path / "test.jsonl", [lcb("misnamed", contest_date="2025-02-01")])
    assert dict(add_set("v6", [misnamed], tmp_path / "data").splits) == {"test": 1}
    fifth = write_jsonl(tmp_path / "test5.jsonl", [lcb("old"), lcb("fifth", contest_date="2025-01-04")])
    with pytest.raises(
        TaskError, match="No task of livecodebench came of these files: 2 neither of version 1"
    ):
        add_set("v5", [fifth], tmp_path / "data")
    days = {"2024-03-31": "learned", "2024-04-01": "", "2024-12-31": "", "2025-01-01": "test"}
    whole = write_jsonl(tmp_path / "lcb.jsonl", [lcb(day, contest_date=f"{day}T00:00:00") for day in days])
    tasks = read_task_file(add_set("by-day", [whole], tmp_path / "data").path)
    assert [task.split == "test" for task in tasks] == [False, True]


def test_what_is_pickled_is_read_and_never_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    def refused(value: object, protocol: int = 4) -> str:
        content = base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()
        path = write_jsonl(tmp_path / "test.jsonl", [lcb("p", private_test_cases=content)])
        with pytest.raises(TaskError) as error:
            add_set("own", [path], tmp_path / "data")
        return str(error.value)

    assert refused(Hostile()) == (
        "Line 1 of test.jsonl has a pickle that does more than hold a text (STACK_GLOBAL)."
    )
    assert "more than hold a text" in refused(["[]"])
    assert "not valid JSON" in refused("[")
    assert not (tmp_path / "touched").exists()
    for protocol in range(6):
        data = base64.b64encode(zlib.compress(pickle.dumps("[]", protocol))).decode()
        path = write_jsonl(tmp_path / "test.jsonl", [lcb("p", private_test_cases=data)])
        assert add_set(f"p{protocol}", [path], tmp_path / "data").splits.total() == 1


def test_tests_beyond_all_measure_are_left_out_and_long_ones_kept_aside(data: Path, tmp_path: Path) -> None:
    bomb = base64.b64encode(zlib.compress(bytes(80 << 20))).decode()
    long = [{"input": "1 " * 200_000, "output": "200000", "testtype": "stdin"}]
    rows = [lcb("bomb", private_test_cases=bomb), lcb("long", private_test_cases=packed(long)), lcb("short")]
    added = add_set("lcb", [write_jsonl(tmp_path / "test.jsonl", rows)], data)
    assert dict(added.left_out) == {"more than 64 MiB of tests": 1}
    task = load_task_file("lcb")[0]
    name = json.loads(task.answer)
    assert len(task.answer) < 100
    assert len(files_of("lcb", data)) == 2
    assert added.bytes < 10_000
    assert kept_tests(name)[2] == {"input": "1 " * 200_000, "output": "200000"}
    assert json.loads(load_task_file("lcb")[1].answer)[1] == {"input": "3 4\n", "output": "7\n"}
    kept_tests.cache_clear()
    remove_set("lcb", data)
    assert added_sets() == []
    with pytest.raises(TaskError, match="not on this machine: add its set"):
        kept_tests(name)


def graded(task: Task, *programs: str) -> list[bool]:
    return final_verdicts(grading_of([task])([Grade(task, one) for one in programs]))


@pytest.mark.process
@pytest.mark.parametrize("name", ["livecodebench", "humaneval", "mbpp"])
def test_programs_are_graded_by_the_sets_own_tests(name: str, tmp_path: Path) -> None:
    task, right = tasks_of(name, tmp_path)[0], SOLUTIONS[name]
    wrong = right.replace("sum", "max").replace("half(n)", "n").replace("11", "12")
    assert graded(task, right, f"```python\n{right}\n```", wrong, "") == [True, True, False, False]


@pytest.mark.process
def test_bigcodebench_is_graded_by_unit_tests(tmp_path: Path) -> None:
    added = add_set("own", [write_set("bigcodebench", tmp_path)], tmp_path / "data")
    assert dict(added.left_out) == {"needs nowhere_to_be_found, which the sandbox cannot import here": 1}
    [task] = read_task_file(added.path)
    right = SOLUTIONS["bigcodebench"]  # json stands in the prompt alone
    wrong = "def task_func(n):\n    return str([0] * n)"
    leaves = "import os\ndef task_func(n):\n    os._exit(0)"
    without = "import unittest\nunittest.TestLoader.loadTestsFromTestCase = lambda *_: unittest.TestSuite()"
    assert graded(task, right, wrong, leaves, without, "import sys\nsys.exit()") == [True, *[False] * 4]


@pytest.mark.process
def test_unit_tests_may_use_what_is_installed_and_says_what_is_not() -> None:
    code = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(total([1, 2]), 3)\n"

    def tests(library: str) -> str:
        before = {"before": "import numpy as np", "libraries": [library]}
        return json.dumps([before, {"unittest": code, "calls": "total"}])

    assert passes("def total(ns): return np.array(ns).sum()", tests("numpy"))
    assert not passes("def total(ns): return np.array(ns).prod()", tests("numpy"))
    task = Task("t", "q", tests("nowhere_to_be_found"), "program")
    [verdict] = grading_of([task])([Grade(task, "def total(ns): return 3")])
    assert not isinstance(verdict, bool | Failure)
    found = verdict.result()
    assert isinstance(found, Failure)
    assert found.kind == "infrastructure"
    assert "import nowhere_to_be_found, which the sandbox cannot" in found.message


@pytest.mark.process
def test_methods_get_lists_and_may_answer_with_a_tuple(tmp_path: Path) -> None:
    [task] = tasks_of("livecodebench", tmp_path, [lcb_function("f")])
    body = "n = sum(chain(a, b)); return n, n % 2 == 0"
    right = f"class Solution:\n    def total(self, a: List[int], b):\n        {body}"
    wrong = right.replace("== 0", "== 1")
    assert graded(task, right, wrong, "def total(a, b): return [6, True]") == [True, False, False]


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("math500", {"answer": None}, "Line 2 of test.jsonl has no 'answer', which rows of math500 have"),
        ("math500", {"problem": " "}, "Line 2 of test.jsonl needs a text for 'problem'."),
        ("mmlu", {"choices": ["1", "2", "3"]}, "has 3 options, and MMLU's questions have 4."),
        ("mmlu", {"answer": 4}, "has the answer 4, and 4 options counted from 0."),
        ("mmlu", {"choices": ["1", "", "3", "4"]}, "has no text for option B."),
        ("mmlu-pro", {"answer": "J"}, "has the answer 'J', and options A to H."),
        ("mmlu-pro", {"answer_index": 2}, "has two answers: H, and 2 counted from 0."),
        ("mmlu-pro", {"options": ["1"]}, "has 1 options: there may be 2 to 10."),
        ("mmlu-pro", {"options": [str(k) for k in range(11)]}, "has 11 options: there may be 2 to 10."),
        ("gpqa-diamond", {"Incorrect Answer 2": "91"}, "Line 5 of gpqa_diamond.csv has the same text for two of its"),
        ("gsm8k", {"answer": "It is 4."}, "Entry 2 of train.json has no '####' before its answer."),
        ("gsm8k", {"answer": "#### many"}, "has grader 'number', but its answer 'many' is not one number."),
        ("aime", {"answer": "1000"}, "has the answer '1000', and those of AIME are whole numbers from 0 to 999."),
        ("rlpr", {"prompt": [{"role": "system", "content": "x"}]}, "has a prompt without a message of the user."),
        ("rlpr", {"reward_model": {"style": "rule"}}, "has no 'ground_truth'."),
        ("livecodebench", {"metadata": "{"}, "has 'metadata' that are not valid JSON."),
        ("livecodebench", {"private_test_cases": "!!"}, "that are neither JSON nor compressed in base 64."),
        ("livecodebench", {"public_test_cases": '[{"input": "1"}]'}, "has a test 1 that is not understood."),
        ("livecodebench", {"public_test_cases": "{}"}, "has 'public_test_cases' that are no list."),
        ("mbpp", {"test_list": []}, "needs a list of texts for 'test_list'."),
        ("mbpp", {"test_list": ["assert f(x) > 1"]}, "has tests of a function that its code does not define."),
    ],
)  # fmt: skip
def test_a_faulty_row_is_named_and_leaves_nothing(
    name: str, change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    first, second, *_ = (dict(row) for row in SETS[name][-3 if name == "mbpp" else 0 :])
    path = write_set(name, tmp_path, [first, second | change])
    with pytest.raises(TaskError) as error:
        add_set("own", [path], tmp_path / "data")
    assert sentence in str(error.value)
    assert [*(tmp_path / "data" / "tasks").iterdir()] == []
    added = add_set("own", [path], tmp_path / "data", skip=True)
    assert (added.splits.total(), added.left_out.total()) == (1, 1)


def test_a_humaneval_whose_entry_is_no_name_and_a_bigcodebench_that_is_no_python(tmp_path: Path) -> None:
    for name, change, sentence in (
        ("humaneval", {"entry_point": "a b"}, "has an entry_point that is no name: 'a b'."),
        ("bigcodebench", {"test": "class"}, "has code that is not Python."),
        ("bigcodebench", {"test": "x = 1"}, "has a test 2 that is not understood: write each as"),
    ):
        path = write_set(name, tmp_path, [SETS[name][0] | change])
        with pytest.raises(TaskError, match=sentence):
            add_set("own", [path], tmp_path / "data")


def test_two_keys_for_one_question(tmp_path: Path) -> None:
    first, second, third = SETS["mmlu"][:3]
    rows = [first, second, third | {"answer": 1}, first, second | {"answer": 2}]
    path = write_set("mmlu", tmp_path, rows)
    with pytest.raises(
        TaskError, match=r"Row 5 of .* asks the same question as row 2 of .* and has another answer"
    ):
        add_set("own", [path], tmp_path / "data")
    added = add_set("own", [path], tmp_path / "data", skip=True)
    assert added.left_out == {
        "asked twice, with different answers": 2,
        "asked before, with the same answer": 1,
    }
    assert [task.question[:14] for task in read_task_file(added.path)] == ["Which is 0 + 1", "Which is 2 + 1"]


def test_of_mt_bench_the_first_turn_alone_is_asked_and_a_judge_rates_it(tmp_path: Path) -> None:
    writing, maths = tasks_of("mt-bench", tmp_path)
    assert (writing.question, writing.answer) == ("Write 1 lines about rain.", NO_REFERENCE)
    assert (maths.answer, maths.family, maths.id[:11]) == ("Two lines.", "math", "mt-bench-82")
    assert {(one.grader, one.split) for one in (writing, maths)} == {("judge", "test")}
    hosted = [
        {"prompt": one["turns"], "prompt_id": 7 + n, "category": "writing", "reference": []}
        for n, one in enumerate(SETS["mt-bench"])
    ]
    (tmp_path / "hosted").mkdir()
    file = write_parquet(tmp_path / "hosted" / "prompts.parquet", hosted)
    added = add_set("hosted", [file], tmp_path / "data")
    assert added.published.name == "mt-bench"
    read = read_task_file(added.path)
    assert [(one.question, one.answer) for one in read] == [
        (one.question, NO_REFERENCE) for one in (writing, maths)
    ]
    with pytest.raises(
        TaskError, match="is rated by a model, which is asked only while its episode is played"
    ):
        grade_many([Grade(writing, "Rain.")])


def test_of_mt_bench_101_the_last_turn_is_asked_after_the_published_ones(tmp_path: Path) -> None:
    memory, maths, reasoning = tasks_of("mt-bench-101", tmp_path)
    assert memory.question == (
        "[user]\nCM: ask 0\n\n[assistant]\nCM: reply 0\n\n[user]\nCM: ask 1\n\n[assistant]\nCM: reply 1\n\n"
        "[user]\nCM: ask 2"
    )
    assert (memory.answer, maths.answer, reasoning.question) == (NO_REFERENCE, "MR: reply 1", "GR: ask 0")
    assert {one.family for one in (memory, maths, reasoning)} == {"CM", "MR", "GR"}


def test_a_task_file_may_be_judged_and_an_outcome_table_may_not(tmp_path: Path) -> None:
    lines = [{"question": "Greet me.", "grader": "judge"}]
    lines += [{"question": "Greet her.", "grader": "judge", "answer": "Hello, Ida."}]
    file = write_jsonl(tmp_path / "own.jsonl", lines)
    assert [one.answer for one in read_task_file(file)] == [NO_REFERENCE, "Hello, Ida."]
    with pytest.raises(TaskError, match="Line 1 of own.jsonl has grader 'judge', and no model is asked here"):
        read_task_file(file, TABLE_GRADERS)


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    def said(content: bytes, name: str = "x.jsonl", **more: Any) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(TaskError) as error:
            add_set("own", [path], tmp_path / "data", **more)
        return str(error.value).replace(f"{tmp_path}/", "")

    assert said(b"") == "The file x.jsonl is empty: give it as it was published."
    assert said(b"\n \n") == "The file x.jsonl is empty: give it as it was published."
    assert said(b"a,b\n", "x.csv") == "The file x.csv is empty: give it as it was published."
    assert (
        "is of no published set that is known (its fields: a, b): say which by --as; known are math500"
        in said(b"a,b\n1,2\n", "x.csv")
    )
    assert "Line 2 of x.jsonl is no JSON object: write one a line." in said(
        json.dumps(SETS["math500"][0]).encode() + b"\n{", kind="math500"
    )
    assert "Entry 1 of x.json is not a JSON object." in said(b"[1]", "x.json")
    assert "Line 2 of x.csv has 3 cells where its header has 2" in said(b"a,b\n1,2,3\n", "x.csv")
    assert "x.parquet cannot be read" in said(b"PAR1 and no more", "x.parquet")
    assert "x.gz cannot be read" in said(b"\x1f\x8b\x08 and no more", "x.gz")
    assert "x.jsonl is not UTF-8 text: save it as UTF-8." in said(b'{"problem": "\xff"}')
    assert "it is UTF-16 text: save it as UTF-8." in said('{"a": 1}'.encode("utf-16"))
    assert "has no 'problem', which rows of math500 have" in said(b'{"a": 1}', kind="math500")
    assert "There is no published set 'maths': choose one of math500, mmlu" in said(b"{}", kind="maths")
    question = {"question": "q", "answer": "1", "grader": "number"}
    assert "x.jsonl is a task file already: name it by --tasks" in said(json.dumps(question).encode())
    assert "has no text for its first turn" in said(b'{"turns": "Write.", "category": "a"}', kind="mt-bench")
    mute = b'{"task": "CM", "id": 1, "history": [{"user": "Hello"}]}'
    assert "Line 1 of x.jsonl has no 'bot'." in said(mute)
    with pytest.raises(TaskError, match="There is no file .*nowhere: give its path"):
        add_set("own", [tmp_path / "nowhere"], tmp_path / "data")
    both = [write_set("gsm8k", tmp_path), write_set("math500", tmp_path)]
    with pytest.raises(TaskError, match=r"different sets, gsm8k \(train.json\) and math500 \(test.jsonl\)"):
        add_set("own", both, tmp_path / "data")
    faulty = write_csv(tmp_path / "gpqa.csv", [SETS["gpqa-diamond"][0] | {"Question": ""}])
    with pytest.raises(
        TaskError, match="No task of gpqa-diamond came of these files: 1 has no 'Question', which"
    ):
        add_set("own", [faulty], tmp_path / "data", kind="gpqa-diamond", skip=True)


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (b"a;b\r\n1;2\r\n", ["Line 2"]),
        (b"\xef\xbb\xbfa\tb\n1\t2\n\n", ["Line 2"]),
        (gzip.compress(b'{"a": "1", "b": "2"}\n\n{"a": "1", "b": "2"}'), ["Line 1", "Line 3"]),
        (b'[{"a": "1", "b": "2"}]', ["Entry 1"]),
        (b"a,b\n1,'2\n", ["Line 2"]),
        (b'"a","b; of one; two; three"\n1,2\n', ["Line 2"]),
    ],
)
def test_files_are_known_by_what_they_hold(content: bytes, places: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    rows = list(rows_of(path))
    assert [row.where for row in rows] == [f"{place} of x" for place in places]
    assert {row.text("a") + row.text(*row.fields.keys() - {"a"}).strip("'") for row in rows} == {"12"}


def test_names(data: Path, tmp_path: Path) -> None:
    path = write_set("math500", tmp_path)
    for name in ("pocket", "a/b", "../x", "outcomes:x", "", "X", "x.jsonl", "a b"):
        with pytest.raises(TaskError, match="cannot be the name of a task set"):
            add_set(name, [path], data)
    add_set("m.1-a_b", [path], data)
    with pytest.raises(TaskError, match="There is a task set 'm.1-a_b' already"):
        add_set("m.1-a_b", [path], data)
    assert added_sets() == ["m.1-a_b"]
    assert len(load_tasks("m.1-a_b", "evolve", 5, 0)) == 5
    with pytest.raises(TaskError, match="There is no task set 'm.2': use pocket.*, m.1-a_b, a .jsonl file"):
        load_tasks("m.2", "test", 5, 0)
    with pytest.raises(TaskError, match=r"There is no added task set 'm.2': there are m.1-a_b\."):
        remove_set("m.2", data)
