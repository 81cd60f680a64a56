"""An audit of the sample runs: hidden states, logits and grades computed again without the program's own code.

Only the file is read. Transcripts are written out and encoded with plain transformers, logits are the product of a
stored state and the checkpoint's weights, and answers are compared with those of an independent solver.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from transformers import AutoModel, AutoTokenizer

from core.pocket import FAMILIES, WEIGHTS
from core.pocket.tasks import UNSEEN, draw_tasks
from tests.journeys.solver import solve
from ui.runs.wiring import SAMPLE_RUNS

#: Turns that are encoded again, evenly over all runs.
TURNS = 290


@pytest.fixture(scope="module")
def lines() -> dict[str, list[dict[str, Any]]]:
    """The sample runs' lines by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(SAMPLE_RUNS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for line in file:
                one = json.loads(line)
                found.setdefault(one["kind"], []).append(one)
    return found


def episodes(lines: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [one["episode"] for one in lines["episode"]]


def decided(lines: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(episode, turn) of every turn that a checkpoint decided."""
    for episode in episodes(lines):
        for turn in episode["turns"]:
            if turn["decision"].get("hidden_state"):
                yield episode, turn


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def state_of(turn: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(unpacked(turn["decision"]["hidden_state"]), "<f2").astype(np.float32)


def test_states_are_those_of_plain_transformers_at_the_penultimate_token(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS / "encoder")
    model = AutoModel.from_pretrained(WEIGHTS / "encoder", dtype=torch.float32).eval()
    every = list(decided(lines))
    some = every[:: max(1, len(every) // TURNS)][:TURNS]
    assert len(some) == TURNS
    worst = 0.0
    for episode, turn in some:
        text = f"<|im_start|>user\n{episode['task']['question']}<|im_end|>\n"
        for before in episode["turns"][: turn["index"]]:
            choice = before["decision"]
            text += f"<|im_start|>{choice['role']} {choice['model']}\n{before['reply']['text']}<|im_end|>\n"
        text += "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.inference_mode():
            hidden = model(input_ids=ids).last_hidden_state[0, -2].numpy()
        assert turn["decision"]["prompt_tokens"] == ids.shape[1]
        worst = max(worst, float(np.abs(hidden - state_of(turn)).max() / np.abs(hidden).max()))
    assert worst < 2e-3  # states are kept as float16


def test_logits_are_the_stored_states_times_the_checkpoints_weights(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    heads = {
        one["id"]: load(unpacked(one["weights"]))["head.weight"]
        for one in lines["checkpoint"]
        if one["config"]["format"] == "trinity-checkpoint"
    }
    worst, n = 0.0, 0
    for episode, turn in decided(lines):
        logits = np.array(turn["decision"]["model_logits"] + turn["decision"]["role_logits"])
        again = heads[episode["policy"]].astype(float) @ state_of(turn).astype(float)
        worst, n = max(worst, float(np.abs(again - logits).max() / max(1.0, np.abs(logits).max()))), n + 1
    assert n >= TURNS
    assert worst < 5e-3


def test_answers_are_graded_as_an_independent_solver_grades_them(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    finished = [one for one in episodes(lines) if one["status"] == "finished"]
    assert len(finished) >= 500
    for one in finished:
        task, answer = one["task"], one["answer"] or ""
        truth = solve(task["family"], task["question"])
        numeric = task["grader"] in ("number", "code")
        right = bool(re.fullmatch(rf"\s*{truth}\s*", answer)) if numeric else answer.strip() == truth
        assert right == one["correct"], (task["question"], answer, truth)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_worlds_answers_are_those_of_an_independent_solver(family: str) -> None:
    for split in ("train", "evolve", "validation", UNSEEN):
        for task in draw_tasks(family, split, 60, 11, at_most=True):
            assert solve(family, task.question) == task.answer, task.question
