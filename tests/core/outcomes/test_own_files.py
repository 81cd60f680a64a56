"""Outcome tables of our own format, what is refused or stated of any, and those that are published."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import TaskError
from core.outcomes import gather
from core.outcomes.table import judges_of, plans_of, tables
from tests.core.outcomes.files import (
    choice,
    csv,
    jsonl,
    made,
    mmlu_pro,
    refused,
    rows,
)

#: Published tables that lie beside some checkouts.
SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


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
