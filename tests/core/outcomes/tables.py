"""Small outcome tables for tests, of which every answer is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.outcomes.table import JUDGES, PLANS, ROWS, Card, OutcomeTable, put_table

#: What a model answered to a task: a letter, several of them for several samples, "" for a reply that holds no answer,
#: None where there is no row.
Answered = str | Sequence[str] | None

#: The families of the tasks that `small_table` makes by itself, in turn.
FAMILIES = ("law", "physics")


def small_answers(tasks: int = 60) -> dict[str, list[Answered]]:
    """What three models answered where A is right: ann knows law and every third of physics, bob physics and every
    third of law, cyd two of three anywhere; two that are wrong together differ in their letters."""
    law = [i % len(FAMILIES) == 0 for i in range(tasks)]
    third = [i // len(FAMILIES) % 3 for i in range(tasks)]
    return {
        "ann": ["A" if law[i] or third[i] == 0 else "B" for i in range(tasks)],
        "bob": ["A" if not law[i] or third[i] == 0 else "C" for i in range(tasks)],
        "cyd": ["A" if third[i] != 1 else "D" for i in range(tasks)],
    }


def small_table(
    folder: Path,
    answers: Mapping[str, Sequence[Answered]] | None = None,
    *,
    name: str = "small",
    keys: str | Sequence[str] = "A",
    families: Sequence[str] = FAMILIES,
    questions: Sequence[str] | None = None,
    costs: Mapping[str, float] | None = None,
    tokens: bool = True,
    marks: Mapping[tuple[str, int], bool | None] | None = None,
    judges: Sequence[tuple[int, str, str, str]] = (),
    plans: Mapping[tuple[int, str], str] | None = None,
    comparable: bool = True,
    scores: Mapping[tuple[str, int], float] | None = None,
    said: str = "",
    **card: Any,
) -> OutcomeTable:
    """A table of questions with a letter as their answer, put on the shelf below `folder` (the data folder).

    `answers` by model in slot order, `keys` (one for all, or one a task), `families` (in turn) and `questions` by task;
    `costs`: USD of a reply by model; `tokens`: whether they are known (100 in, 20 out and 10 more a slot); `marks`:
    what the table itself says of (model, task) where that is not our grade; `judges`: (task, model, judged answer,
    verdict); `plans` by (task, model); `comparable`: whether answers can be compared;
    `scores`: those of (model, task) that are neither 0 nor 1 by the answer; `said`: how
    every reply begins. `card`: further fields of the card."""
    answers = small_answers() if answers is None else answers
    n = len(next(iter(answers.values())))
    keys = [keys] * n if isinstance(keys, str) else keys
    domains = [families[i % len(families)] for i in range(n)]
    asked = questions or [_question(i, family) for i, family in enumerate(domains)]
    tasks = [
        {"question": question, "answer": key, "grader": "choice", "family": family, "id": f"{name}-{i}"}
        for i, (question, key, family) in enumerate(zip(asked, keys, domains, strict=True))
    ]
    models = list(answers)
    rows: list[dict[str, Any]] = [
        {
            "task": i,
            "model": slot,
            "sample": sample,
            "reply": _reply(model, letter, said),
            "answer": letter or None,
            "group": ascii_uppercase.index(letter) if letter else -1,
            "right": letter == key,
            "score": (scores or {}).get((model, i), float(letter == key)),
            "marked": (marks or {}).get((model, i), letter == key),
            "tokens_in": 100 if tokens else None,
            "tokens_out": 20 + 10 * slot if tokens else None,
            "cost": costs.get(model) if costs else None,
            "seconds": 0.5,
            "error": "",
        }
        for i, key in enumerate(keys)
        for slot, model in enumerate(models)
        for sample, letter in enumerate(_samples(answers[model][i]))
    ]

    def fill(draft: Path) -> None:
        lines = "".join(json.dumps(task) + "\n" for task in tasks)
        (draft / "tasks.jsonl").write_text(lines, "utf-8")
        _write(draft / "rows.parquet", rows, ROWS)
        if judges:
            judged = [
                {
                    "task": task,
                    "model": models.index(model),
                    "judged": of,
                    "verdict": verdict,
                    "reply": verdict,
                }
                for task, model, of, verdict in judges
            ]
            _write(draft / "judges.parquet", judged, JUDGES)
        if plans:
            written = [
                {"task": task, "model": models.index(model), "plan": plan}
                for (task, model), plan in plans.items()
            ]
            _write(draft / "plans.parquet", written, PLANS)

    graded = {
        model: (sum(row["marked"] == row["right"] for row in own), len(own))
        for slot, model in enumerate(models)
        if (own := [row for row in rows if row["model"] == slot and row["marked"] is not None])
    }
    facts = {
        "kind": "test",
        "models": tuple(models),
        "tasks": n,
        "rows": len(rows),
        "samples": max(row["sample"] for row in rows) + 1,
        "judges": bool(judges),
        "plans": bool(plans),
        "answers": comparable,
        "grading": graded,
    }
    return put_table(Card(name, **{**facts, **card}), fill, folder)


def _question(i: int, family: str) -> str:
    """A question of its own that tells its family, with four options."""
    return f"Question {i} of {family}: which letter stands first?\nA. one\nB. two\nC. three\nD. four"


def _reply(model: str, letter: str, said: str) -> str:
    ends = f"{model} thinks about it. The answer is ({letter})." if letter else f"{model} cannot tell."
    return f"{said} {ends}".lstrip()


def _samples(answered: Answered) -> Sequence[str]:
    if answered is None:
        return ()
    return (answered,) if isinstance(answered, str) else answered


def _write(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), path)
