"""Outcome tables made from small files of the forms in which others publish them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.outcomes.files import (
    choice,
    csv,
    jsonl,
    log,
    made,
    mmlu_pro,
    refused,
    rows,
    sample,
    zeroeval,
    zipped,
)

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
