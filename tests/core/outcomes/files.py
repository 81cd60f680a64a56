"""Small files of outcomes in the forms in which others publish them, with questions of our own."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


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
