"""Small files of outcomes in the forms in which others publish them, with questions of our own."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.errors import ConfigError, TaskError
from core.outcomes.build import add_table
from core.outcomes.kinds import Wishes
from core.outcomes.table import OutcomeTable


def zipped(path: Path, members: Mapping[str, Any]) -> Path:
    """A zip archive of JSON files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return path


def jsonl(path: Path, *lines: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def choice(number: int, reply: str, pred: str | None, **more: Any) -> dict[str, Any]:
    """An entry of MMLU-Pro's outputs: 3 x NUMBER, whose right answer is B."""
    right = 3 * number
    return {
        "question_id": number,
        "question": f"What is 3 times {number}?",
        "options": [str(right + 1), str(right), str(right + 2), "None of them"],
        "answer": "B",
        "answer_index": 1,
        "category": "math" if number % 2 else "law",
        "pred": pred,
        "model_outputs": reply,
        **more,
    }


def mmlu_pro(folder: Path, model: str, entries: Sequence[Any]) -> Path:
    name = f"model_outputs_{model}_5shots"
    return zipped(folder / f"{name}.zip", {f"{name}.json": list(entries)})


def zeroeval(dataset: str, number: int, question: str, key: str, reply: str) -> dict[str, Any]:
    """An entry of ZeroEval's results."""
    return {
        "session_id": f"{dataset}-{number}",
        "output": [reply],
        "generator": "someone/some-model",
        "dataset": dataset,
        "id": f"{dataset}-{number}",
        "question": question,
        "answer": key,
    }


def log(path: Path, model: str, samples: Sequence[Mapping[str, Any]]) -> Path:
    """An .eval log of Inspect."""
    head = {"version": 2, "status": "success", "eval": {"model": model, "task": "own/colours"}}
    members = {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples}
    return zipped(path, {"_journal/start.json": head, **members, "header.json": head})


def sample(number: int, epoch: int, said: str, grade: str, **more: Any) -> dict[str, Any]:
    """A sample of such a log: is NUMBER even?"""
    return {
        "id": number,
        "epoch": epoch,
        "input": [
            {"role": "system", "content": "Say Yes or No."},
            {"role": "user", "content": "attachment://abc"},
        ],
        "attachments": {"abc": f"Is {number} even?"},
        "target": "No" if number % 2 else "Yes",
        "output": {"completion": said, "usage": {"input_tokens": 20, "output_tokens": 2}, "time": 0.5},
        "scores": {"match": {"value": grade, "answer": said}},
        **more,
    }


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
