"""Outcome tables made from small files of every kind, and what is refused or stated."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import ConfigError, TaskError
from core.outcomes import gather
from core.outcomes.build import add_table
from core.outcomes.kinds import Wishes
from core.outcomes.table import OutcomeTable, judges_of, plans_of, tables
from tests.core.outcomes.files import choice, jsonl, log, mmlu_pro, sample, zeroeval, zipped

#: Published tables that lie beside some checkouts.
SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def made(folder: Path, *paths: Path, name: str = "own", **more: Any) -> OutcomeTable:
    wishes = Wishes(**{key: more.pop(key) for key in ("columns", "model", "grader") if key in more})
    return add_table(name, paths, folder / "data", wishes=wishes, **more)


def rows(table: OutcomeTable) -> list[dict[str, Any]]:
    """All rows with their texts, the task by its question and the model by its name."""
    read = pq.read_table(table.folder / "rows.parquet").to_pylist()
    return [
        {**row, "task": table.tasks[row["task"]].question, "model": table.card.models[row["model"]]}
        for row in read
    ]


def refused(folder: Path, *paths: Path, **more: Any) -> str:
    """The one sentence by which files are refused; nothing stays behind."""
    with pytest.raises((TaskError, ConfigError)) as caught:
        made(folder, *paths, **more)
    data = folder / "data"
    assert not data.exists() or [one for one in data.rglob("*") if one.is_file()] == []
    said = str(caught.value)
    assert said.endswith((".", "?")), said
    return said


def csv(folder: Path, text: str, name: str = "table.csv", encoding: str = "utf-8") -> Path:
    (folder / name).write_text(text, encoding)
    return folder / name


# MMLU-Pro


def test_mmlu_pro_is_read_and_graded_by_its_key(tmp_path: Path) -> None:
    ann = mmlu_pro(
        tmp_path,
        "ann-7B",
        [choice(1, "3 times 1 is 3. The answer is (B).", "B"), choice(2, "The answer is (A).", "A")],
    )
    bob = mmlu_pro(
        tmp_path,
        "bob",
        [choice(1, "Either (C) or (D).", "C"), choice(2, "Hm", None), choice(3, "The answer is (B).", "A")],
    )
    (tmp_path / "LICENSE").write_text("  Apache License\n Version 2.0")
    table = made(tmp_path, ann, bob, source="where it is")
    card = table.card
    assert (card.kind, card.models, card.tasks, card.rows) == ("mmlu-pro", ("ann-7B", "bob"), 3, 5)
    assert (card.licence, card.source, card.texts, card.answers) == ("Apache-2.0", "where it is", True, True)
    first = table.tasks[0]
    assert (first.answer, first.grader, first.family) == ("B", "choice", "math")
    assert first.question == "What is 3 times 1?\nA) 4\nB) 3\nC) 5\nD) None of them"
    found = {(row["model"], row["task"][:17]): row for row in rows(table)}
    told = {
        key: (row["answer"], row["right"], row["marked"], row["group"] >= 0) for key, row in found.items()
    }
    assert told == {
        ("ann-7B", "What is 3 times 1"): ("B", True, True, True),
        ("ann-7B", "What is 3 times 2"): ("A", False, False, True),
        # Nothing can be read there, and the letter that the table gives is taken.
        ("bob", "What is 3 times 1"): ("C", False, False, True),
        # Its own evaluation draws a letter at random there: that is no mark.
        ("bob", "What is 3 times 2"): (None, False, None, False),
        ("bob", "What is 3 times 3"): ("B", True, False, True),
    }
    assert card.grading == {"ann-7B": (2, 2), "bob": (1, 2)}
    assert (
        "In 1 rows no answer could be read in the reply, and the one that the table gives was taken (bob 1)."
        in (card.notes)
    )
    assert any("ann-7B 67%" in note for note in card.notes), "who answered fewer is named"


def test_equal_questions_count_once_and_two_keys_not_at_all(tmp_path: Path) -> None:
    twin = choice(1, "The answer is (C).", "C") | {"question_id": 77, "question": "What is  3 times 1?"}
    at_odds = choice(2, "The answer is (B).", "B") | {"question_id": 78, "answer": "C", "answer_index": 2}
    path = mmlu_pro(
        tmp_path,
        "ann",
        [
            choice(1, "The answer is (B).", "B"),
            "a stray text",
            twin,
            choice(2, "The answer is (B).", "B"),
            at_odds,
            choice(3, "The answer is (B).", "B", answer="K", answer_index=10),
            choice(4, "The answer is (B).", "B", answer_index=2),
            choice(5, "The answer is (F).", "F"),
        ],
    )
    table = made(tmp_path, path)
    assert [(row["task"][:17], row["answer"], row["right"]) for row in rows(table)] == [
        ("What is 3 times 1", "B", True),
        ("What is 3 times 5", "F", False),
    ]
    assert set(table.card.notes) == {
        "1 entries of files are no objects and are left out.",
        "2 answers are a model's second one to the same question: the first one is kept.",
        "2 questions are asked again under another name and are counted once.",
        "1 tasks have two keys and are left out.",
        "1 answers have a key that is none of the options and are left out.",
        "1 answers have two keys, a letter and another number, and are left out.",
        "1 answers are letters outside the options of their question and count as wrong.",
    }


@pytest.mark.parametrize(
    ("reply", "pred", "answer"),
    [
        ("I cannot tell.", "I", None),  # the last capital there is
        ("It goes on and on and", "C", None),  # drawn at random, as the reply was cut off
        ("The sum is C. 3", "C", "C"),  # not the text of that option: the table's own letter
        ("Three times one is B. 3.", "C", "B"),
        ("**B. 3**", "A", "B"),
        ("The most accurate answer is:\nB. It is three", "A", "B"),
        ("So it is $\\boxed{3.0}$. The answer is (B).", "A", "B"),
        ("So it is $\\boxed{3}$.", "A", "B"),
        ('I cannot write "The answer is (X)".', "I", None),
        ("The answer is (", "A", None),
        ("Let me go through the options:\n\nB. 3:", "I", None),
    ],
)
def test_a_letter_is_read_where_the_reply_has_it_and_nowhere_else(
    tmp_path: Path, reply: str, pred: str, answer: str | None
) -> None:
    table = made(tmp_path, mmlu_pro(tmp_path, "ann", [choice(1, reply, pred)]))
    (row,) = rows(table)
    assert (row["answer"], row["right"], row["marked"]) == (answer, answer == "B", pred == "B")


# ZeroEval


@pytest.mark.process
def test_zeroeval_is_graded_by_its_set_and_answers_that_are_the_same_are_grouped(tmp_path: Path) -> None:
    said = {"a@home": "0.75", "b": r"\\frac{3}{4}", "c": "1/2", "d": "0.5", "e": "2", "org": ""}
    members = {
        f"{model}.json": [
            zeroeval(
                "math-l5", 1, "Three quarters?", r"\frac34", f'{{"reasoning": "so", "answer": "{answer}"}}'
            )
        ]
        for model, answer in said.items()
    }
    table = made(tmp_path, zipped(tmp_path / "set.zip", members))
    assert table.card.models == ("a-home", "b", "c", "d", "e", "org")
    assert "Models are named here a-home for a@home." in table.card.notes
    found = [(row["right"], row["group"], row["marked"]) for row in rows(table)]
    assert found == [
        (True, 0, None),
        (True, 0, None),
        (False, 1, None),
        (False, 1, None),
        (False, 2, None),
        (False, -1, None),
    ]
    sums = [zeroeval("gsm", 1, "How much?", "# 1200", 'So: {"answer": "$1,200"}\nGlad to help!')]
    lists = [zeroeval("crux", 1, "f('a')?", "['a', 'b']", '{"answer": "["a", "b"]"\n}')]
    words = [zeroeval("crux", 1, "f('b')?", "'ab'", '{"answer": "ab"}')]
    for name, entries, grader in (("s", sums, "number"), ("l", lists, "code"), ("w", words, "code")):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(entries), "utf-8")
        table = made(tmp_path, path, name=name)
        assert (table.card.models, table.tasks[0].grader) == ((name,), grader)
        assert [row["right"] for row in rows(table)] == [True]


@pytest.mark.process
def test_values_of_python_are_right_where_python_calls_them_equal(tmp_path: Path) -> None:
    said = {
        "a": "{'y': [1.50], 'x': None}",
        "b": "{'x': None, 'y': [2.5]}",
        "c": "{'x': None,'y': [2.50]}",
        "d": "no value",
        "e": "'no value'",
    }
    members = {
        f"{model}.json": [
            zeroeval("crux", 1, "f()?", "{'x':None, 'y':[1.5]}", json.dumps({"answer": answer}))
        ]
        for model, answer in said.items()
    }
    table = made(tmp_path, zipped(tmp_path / "set.zip", members))
    assert [(row["right"], row["group"]) for row in rows(table)] == [
        (True, 0),
        (False, 1),
        (False, 1),
        (False, 2),
        (False, 2),
    ]
    escaped = [zeroeval("crux", 1, "f('n')?", r"'a\n'", r'{"answer": "a\\n"}')]
    (tmp_path / "one.json").write_text(json.dumps(escaped), "utf-8")
    assert [row["right"] for row in rows(made(tmp_path, tmp_path / "one.json", name="escaped"))] == [True]


# lm-eval-harness


def test_samples_of_the_harness_take_the_model_from_the_results_beside(tmp_path: Path) -> None:
    def line(number: int, said: str, read: str, mark: float, kind: str = "strict") -> dict[str, Any]:
        return {
            "doc_id": number,
            "doc": {"question": f"What is {number} + 1?", "answer": "long"},
            "target": f"{number} plus one\n#### {number + 1}",
            "resps": [[said]],
            "filtered_resps": [read],
            "filter": kind,
            "exact_match": mark,
        }

    lines = [
        line(1, "So 1 + 1 = 2.\n#### 2", "2", 1.0),
        line(1, "So 1 + 1 = 2.\n#### 2", "2", 1.0, "flexible"),
        line(2, "#### 4", "[invalid]", 0.0),
        line(3, "The answer is 4.", "[invalid]", 0.0),
    ]
    path = jsonl(tmp_path / "samples_sums_2026-01-02T03-04-05.678.jsonl", *lines)
    assert "name it by --model" in refused(tmp_path, path)
    (tmp_path / "results_2026-01-02T03-04-05.678.json").write_text(
        json.dumps(
            {"results": {}, "config": {"model": "hf", "model_args": "pretrained=org/tiny-1b,dtype=float"}},
            indent=2,
        )
    )
    table = made(tmp_path, path)
    assert (table.card.models, table.tasks[0].grader, table.tasks[0].family) == (
        ("tiny-1b",),
        "number",
        "sums",
    )
    assert [(row["answer"], row["right"], row["marked"]) for row in rows(table)] == [
        ("2", True, True),
        ("4", False, False),
        ("4", True, False),
    ]
    assert table.card.grading == {"tiny-1b": (2, 3)}
    assert "1 lines repeat a reply with another filter and are left out." in table.card.notes


def test_likelihoods_of_the_harness_choose_the_likeliest_option(tmp_path: Path) -> None:
    lines = [
        {
            "doc_id": number,
            "doc": {"question": f"Sky {number}?", "choices": {"text": ["red", "blue", "green"]}},
            "target": 1,
            "resps": [[["-3.5", "False"]], [[f"-{number}.0", "False"]], [["-2.5", "True"]]],
            "filtered_resps": [["-3.5", "False"], [f"-{number}.0", "False"], ["-2.5", "True"]],
            "acc": float(number == 1),
        }
        for number in (1, 3)
    ]
    table = made(tmp_path, jsonl(tmp_path / "samples_sky.jsonl", *lines), model="tiny")
    assert table.tasks[0].question == "Sky 1?\nA) red\nB) blue\nC) green"
    assert [(row["answer"], row["right"], row["marked"]) for row in rows(table)] == [
        ("B", True, True),
        ("C", False, False),
    ]


# Inspect


def test_logs_of_inspect_have_a_model_each_and_epochs_are_samples(tmp_path: Path) -> None:
    ann = log(
        tmp_path / "ann.eval",
        "openai/ann",
        [sample(n, e, "Yes", "C" if n == 2 else "I") for n in (1, 2) for e in (1, 2)],
    )
    bob = log(
        tmp_path / "bob.eval",
        "org/bob",
        [sample(1, 1, "No", "I"), sample(2, 1, "", "I", error={"message": "gone"})],
    )
    table = made(tmp_path, ann, bob)
    card = table.card
    assert (card.models, card.samples, card.tasks, card.rows) == (("ann", "bob"), 2, 2, 6)
    assert table.tasks[0].question == "Say Yes or No.\n\nIs 1 even?"
    assert table.tasks[0].family == "colours"
    first = rows(table)[0]
    assert (first["tokens_in"], first["tokens_out"], first["seconds"], first["sample"]) == (20, 2, 0.5, 0)
    assert [(row["model"], row["right"], row["marked"]) for row in rows(table) if row["sample"] == 0] == [
        ("ann", False, False),
        ("bob", True, False),  # its mark contradicts the key
        ("ann", True, True),
        ("bob", False, False),
    ]
    assert rows(table)[-1]["error"] == "gone"
    judged = [
        {**sample(1, 1, "Indeed", "C"), "scores": {"model_graded_qa": {"value": "C", "answer": "Indeed"}}}
    ]
    table = made(tmp_path, log(tmp_path / "c.eval", "cyd", judged), name="judged")
    assert (table.tasks[0].grader, table.card.answers, rows(table)[0]["right"]) == ("recorded", False, True)


# CSV


def test_a_long_csv_with_all_its_liberties(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "\ufefftask_id;model;score;cost_usd;input_tokens;latency_ms;prompt;note\r\n"
        't1;org/Ann;1;0,25;10;1500;"Say ""hi""; then\r\nstop";=1+2\r\n'
        "t1;bob;0;NaN;;;;=HYPERLINK(1)\r\n"
        "t2;org/Ann;0,5;;;;More;x\r\n"
        "t2;bob;NaN;1;1;1;More;x\r\n",
    )
    table = made(tmp_path, path)
    card = table.card
    assert (card.kind, card.models, card.tasks, card.answers) == ("long-csv", ("Ann", "bob"), 2, False)
    assert table.tasks[0].question == 'Say "hi"; then\nstop'
    found = [
        (row["model"], row["score"], row["right"], row["cost"], row["tokens_in"], row["seconds"])
        for row in rows(table)
    ]
    assert found == [
        ("Ann", 1.0, True, 0.25, 10, 1.5),
        ("bob", 0.0, False, None, None, None),
        ("Ann", 0.5, False, None, None, None),
    ]
    assert table.tasks[0].answer == '["Ann#0"]'
    assert [row["answer"] for row in rows(table)] == ["Ann#0", "bob#0", "Ann#0"]
    assert "1 costs are no numbers that can be, such as NaN, and count as unknown." in card.notes
    assert "1 rows have no score and are left out." in card.notes


def test_questions_and_prices_of_a_csv_come_from_files_beside_it(tmp_path: Path) -> None:
    table_file = csv(tmp_path, "ID,LLM,ok\nx,ann,1\ny,ann,0\n")
    columns = {"task": "ID", "model": "LLM", "score": "ok"}
    table = made(tmp_path, table_file, columns=columns)
    assert (table.card.texts, table.tasks[0].question) == (False, "x")
    assert any("2 of 2 tasks have no question text" in note for note in table.card.notes)
    prompts = jsonl(
        tmp_path / "own_tasks.jsonl",
        {"task_id": "x", "dimension": "law", "prompt": "May I?"},
        {"task_id": "y", "dimension": "art", "prompt": "Is it?"},
    )
    prices = tmp_path / "models.json"
    prices.write_text(
        json.dumps({"models": [{"model": "ann", "input_per_1m": 1, "output_per_1m": 4}]}, indent=1)
    )
    table = made(tmp_path, table_file, prompts, prices, columns=columns, name="beside")
    assert [(task.question, task.family) for task in table.tasks] == [("May I?", "law"), ("Is it?", "art")]
    assert (table.card.texts, table.card.prices) == (True, {"ann": (1, 4)})


def test_a_long_csv_with_replies_is_graded_by_its_key(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "task,model,question,key,reply,score,sample\n"
        "t,ann,How many apples?,12,The answer is 12 apples.,0,0\n"
        "t,ann,How many apples?,12,The answer is 13.,1,1\n"
        "t,bob,How many apples?,12,The answer is 13.,1,0\n",
    )
    table = made(tmp_path, path)
    assert [(row["right"], row["marked"], row["group"]) for row in rows(table)] == [
        (True, False, 0),
        (False, True, 1),
        (False, True, 1),
    ]
    assert any(note.startswith("The table's own marks contradict its key") for note in table.card.notes)
    table = made(tmp_path, path, name="marks", grader="recorded")
    assert [row["right"] for row in rows(table)] == [False, True, True]


def test_a_wide_csv_has_scores_or_answers(tmp_path: Path) -> None:
    scores = csv(tmp_path, "prompt_id,prompt,ann,bob,cost\nx,May I?,1.0,0,3\ny,Is it?,,0.5,4\n", "scores.csv")
    assert "has '3' in column cost" in refused(tmp_path, scores)
    table = made(tmp_path, scores, columns={"model": "ann|bob"})
    assert [(row["model"], row["score"]) for row in rows(table)] == [("ann", 1.0), ("bob", 0.0), ("bob", 0.5)]
    answers = csv(tmp_path, "question,answer,ann,bob\nLetter?,B,b),C\nOther?,A,A,(A)\n", "answers.csv")
    table = made(tmp_path, answers, name="answers")
    assert [(row["answer"], row["right"]) for row in rows(table)] == [
        ("B", True),
        ("C", False),
        ("A", True),
        ("A", True),
    ]
    assert table.tasks[0].grader == "choice"
    assert table.card.notes == (), "answers without a reply are not said to be missing in one"


# Our own format

TASK = {"task": "t1", "question": "What is 2 + 3?", "answer": "5", "grader": "number", "family": "sums"}


def test_our_own_lines_hold_tasks_outcomes_verdicts_and_plans(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "task": "t1",
            "model": "ann",
            "reply": "<answer>5</answer>",
            "tokens_in": 9,
            "cost": 0.5,
            "seconds": 1,
        },
        {"task": "t1", "model": "ann", "sample": 1, "reply": "<answer>6</answer>", "right": True, "cost": -1},
        {"task": "t1", "model": "bob", "answer": "5.0"},
        {"task": "t1", "model": "cyd", "error": "timeout"},
        {"task": "t1", "model": "bob", "judged": "6", "verdict": "revise", "reply": "no"},
        {"task": "t1", "model": "ann", "plan": "add"},
        TASK,
    ]
    table = made(tmp_path, jsonl(tmp_path / "own.jsonl", *lines))
    found = [(row["model"], row["answer"], row["right"], row["group"], row["cost"]) for row in rows(table)]
    assert found == [
        ("ann", "5", True, 0, 0.5),
        ("ann", "6", False, 1, None),
        ("bob", "5.0", True, 0, None),
        ("cyd", None, None, -1, None),  # a call that failed is no wrong answer
    ]
    assert judges_of(table) == {(0, 1, "6"): ("REVISE", "no")}
    assert plans_of(table) == {(0, 0): "add"}
    assert (table.card.judges, table.card.plans, table.card.samples) == (True, True, 2)
    columns = [{"task": "t1", "model": "ann", "reply": "<answer>5</answer>", "question": None}]
    pq.write_table(
        pa.Table.from_pylist([{**dict.fromkeys(TASK), **columns[0]}, TASK]), tmp_path / "own.parquet"
    )
    table = made(tmp_path, tmp_path / "own.parquet", name="parquet")
    assert [(row["reply"], row["right"]) for row in rows(table)] == [("<answer>5</answer>", True)]


def test_the_same_files_make_the_same_table(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "own.jsonl", TASK, {"task": "t1", "model": "ann", "answer": "5"})
    digests = [made(tmp_path, path, name=name).card.digest for name in ("one", "two")]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 64


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([TASK, {**TASK, "answer": "6"}], "Entry 2 of own.jsonl gives the task 't1' two keys: keep one."),
        (
            [TASK, {"task": "t9", "model": "ann"}],
            "Entry 2 of own.jsonl names the task 't9', which no line describes",
        ),
        ([TASK, {"task": "t1", "model": "ann", "rite": True}], "has a field 'rite' that is not understood"),
        ([TASK, {"task": "t1", "model": "ann", "right": 1}], "needs true or false for 'right'"),
        ([TASK, {"task": "t1", "model": "ann", "score": 2}], "needs a number from 0 to 1 for 'score'"),
        ([TASK, {"task": "t1", "model": "ann", "score": math.nan}], "needs a number from 0 to 1 for 'score'"),
        ([TASK, {"task": "t1", "model": "ann", "sample": -1}], "needs a number from 0 for 'sample'"),
        ([TASK, {"task": "t1", "model": " "}], "needs texts for 'task' and 'model'"),
        ([TASK, {"task": "t1", "model": "a", "judged": "5", "verdict": "fine"}], "needs ACCEPT or REVISE"),
        ([TASK], "hold no answer of a model"),
        ([{"task": "t1", "model": "ann", "reply": "5"}], "neither a key nor a mark"),
        (
            [{**TASK, "grader": "taste"}, {"task": "t1", "model": "a", "answer": "5"}],
            "No task of these files can be graded",
        ),
    ],
)
def test_lines_of_our_own_that_cannot_be_used(tmp_path: Path, lines: list[dict[str, Any]], said: str) -> None:
    assert said in refused(tmp_path, jsonl(tmp_path / "own.jsonl", *lines))


# What no table can be made of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "task,model,score\nt,ann,=1+1\n",
            "Entry 2 of table.csv has '=1+1' for a score: write a number from 0 to 1.",
        ),
        ("task,model,score\nt,ann,87\n", "has '87' for a score"),
        ("task,model,score\nt,ann,1,more\n", "Line 2 of table.csv has 4 cells where its header has 3"),
        ('task,model,score\n"t,ann,1\n', "Line 2 of table.csv is no CSV"),
        ("task,model,score\nt,,1\n", "A row names no model"),
        ("task,model,note\nt,ann,1\n", "name it by --columns score=COLUMN"),
        ("a,b\n1,1\n", "name the first by --columns task=COLUMN"),
        ("only words\n", "Nothing in table.csv is understood"),
        ("", "Nothing in table.csv is understood"),
    ],
)
def test_a_csv_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, csv(tmp_path, text))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    assert "There is no file" in refused(tmp_path, tmp_path / "none.csv")
    assert "UTF-16 text: save it as UTF-8" in refused(
        tmp_path, csv(tmp_path, "task,model,score\n", encoding="utf-16")
    )
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps([choice(1, "(B)", "B"), choice(2, "(B)", "B")])[:-40])
    assert "Entry 2 of cut.json is not JSON, or the file is cut off" in refused(tmp_path, cut)
    whole = mmlu_pro(tmp_path, "ann", [choice(1, "The answer is (B).", "B")])
    (tmp_path / "broken.zip").write_bytes(whole.read_bytes()[:60])
    assert "broken.zip" in refused(tmp_path, tmp_path / "broken.zip")
    damaged = bytearray(whole.read_bytes())
    damaged[80:90] = b"\0" * 10
    (tmp_path / "damaged.zip").write_bytes(damaged)
    assert "cannot be read" in refused(tmp_path, tmp_path / "damaged.zip")
    other = csv(tmp_path, "task,model,score\nt,ann,1\n", "other.csv")
    assert "add them as two tables" in refused(tmp_path, whole, other)
    stranger = tmp_path / "notes.txt"
    stranger.write_text("nothing")
    assert "notes.txt is not understood beside" in refused(tmp_path, other, stranger)
    assert "There is no kind of files 'excel'" in refused(tmp_path, other, kind="excel")
    assert "has no column 'ID'" in refused(tmp_path, other, columns={"task": "ID"})
    assert "--columns does not know 'tsk'" in refused(tmp_path, other, columns={"tsk": "task"})


def test_a_folder_is_read_and_what_is_no_table_in_it_is_stated(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    csv(folder, "task,model,score\nt,ann,1\n", "a.csv")
    csv(folder, "task,model,score\nt,bob,0\n", "b.csv")
    (folder / "README.md").write_text("words")
    table = made(tmp_path, folder)
    assert table.card.models == ("ann", "bob")
    assert any("README.md" in note for note in table.card.notes)


def test_a_name_is_given_once_and_a_table_has_its_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = csv(tmp_path, "task,model,score\nt,ann,1\nu,bob,1\n")
    monkeypatch.setattr(gather, "MOST_ROWS", 1)
    assert "more than 1 answers" in refused(tmp_path, path)
    monkeypatch.setattr(gather, "MOST_MODELS", 1)
    assert "more than 1 models" in refused(tmp_path, path)
    monkeypatch.setattr(gather, "MOST_TASKS", 1)
    assert "more than 1 tasks" in refused(tmp_path, path)
    monkeypatch.undo()
    assert "cannot name an outcome table" in refused(tmp_path, path, name="No Name")
    first = made(tmp_path, path)
    with pytest.raises(TaskError, match="There is an outcome table 'own' already"):
        made(tmp_path, path)
    assert [one.card for one in tables(tmp_path / "data")] == [first.card]


# Published tables


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published tables are not beside this checkout")
def test_published_tables_have_the_counts_that_they_are_known_for(tmp_path: Path) -> None:
    outcomes = SHARED / "outcomes"
    route = outcomes / "coderouterbench"
    table = made(
        tmp_path, route / "id_test_results_long.csv", route / "id_test_tasks.jsonl", route / "models.json"
    )
    assert (table.card.tasks, table.card.rows, len(table.card.prices), table.card.licence) == (
        2919,
        23352,
        8,
        "MIT",
    )
    opus = table.card.models.index("claude-opus-4-6")
    assert round(float(table.over_samples("score")[:, opus].mean()), 4) == 0.4383
    assert round(float(table.toll["cost"].sum()), 4) == 116.1253
    agents = made(tmp_path, route / "ood176_results_long.csv", route / "ood176_tasks.jsonl", name="ood")
    assert (agents.card.tasks, agents.card.rows, agents.card.texts) == (176, 1408, True)
    popular = made(tmp_path, SHARED / "traces" / "inspect" / "popularity.eval", name="popular")
    assert (popular.card.tasks, popular.card.rows, popular.card.grading) == (
        100,
        100,
        {"gpt-4o-mini": (100, 100)},
    )
    sums = made(tmp_path, outcomes / "zeroeval" / "gsm.zip", name="gsm")
    assert (sums.card.tasks, sums.card.rows, len(sums.card.models)) == (1319, 19785, 15)
