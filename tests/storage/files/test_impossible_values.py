"""What no run, episode or label can have is refused with its line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import ImportFormatError
from storage.files.interchange import import_file
from storage.store import Store
from tests.builders.interchange import edited

#: What no episode, run, generation or label can have: the line (from 0), a path in it, a value, what is said of it.
NONSENSE: dict[str, tuple[int, str, Any, str]] = {
    "time beyond the calendar": (-1, "started", 1e15, "started .*up to the year 9999"),
    "time before 1970": (-1, "finished", -1.0, "finished .*seconds since 1970"),
    "turn's time": (-1, "turn_started.0", 1e300, r"turn_started\.0"),
    "time reversed": (-1, "finished", 1e9, "finished .*more than a day before started"),
    "turns' times": (-1, "turn_started", [], "a time for each turn"),
    "turn budget": (-1, "episode.turn_budget", -5, r"episode\.turn_budget \(-5, where 1 to 10,000"),
    "more turns than the budget": (-1, "episode.turn_budget", 1, "at most as many as the turn budget, 1,"),
    "no models": (-1, "episode.models", [], r"episode\.models \(1 to 1,000 models"),
    "model twice": (-1, "episode.models", ["ada", "ada"], "each once"),
    "model without a name": (-1, "episode.models.0", " ", r"episode\.models\.0 \(one line"),
    "policy": (-1, "episode.policy", "", "episode.policy"),
    "name of nothing": (1, "name", " ", r"at name \(one line of 1 to 300 characters"),
    "purpose": (1, "purpose", "fun", r"at .*purpose .*measured"),
    "parent is a path": (-1, "episode.fork", {"parent": "../x", "turn": 1}, r"fork\.parent .*an id is"),
    "its own parent": (-1, "episode.fork", {"parent": "e1-00005", "turn": 1}, "the id of another episode"),
    "number of a fork": (-1, "episode.fork", {"parent": "e0", "turn": 1, "number": 10**12}, r"fork\.number"),
    "id is a path": (-1, "episode.id", "../x", r"episode\.id \(an id is"),
    "probability of 5": (
        -1,
        "episode.turns.0.decision.model_probs",
        [5.0, -3.0, -1.0],
        r"model_probs\.0 .*0 to 1",
    ),
    "sum": (-1, "episode.turns.0.decision.role_probs", [0.5, 0.1, 0.1], r"role_probs \(their sum is 0\.7"),
    "probabilities": (
        -1,
        "episode.turns.0.decision.model_probs",
        [1.0],
        "model_probs .*one for each model, 3",
    ),
    "mask": (-1, "episode.turns.0.decision.model_mask", [True] * 50, "model_mask .*one for each model, 3"),
    "mask of nothing": (-1, "episode.turns.0.decision.role_mask", [False] * 3, "at least one role"),
    "logit": (-1, "episode.turns.0.decision.model_logits", [1e300, 0, 0], r"model_logits\.0"),
    "hidden state": (-1, "episode.turns.0.decision.hidden_state", "AAB8", "hidden_state"),
    "chosen model": (-1, "episode.turns.0.decision.model", "eve", r"decision\.model .*one of the episode's"),
    "best model": (-1, "episode.turns.0.decision.argmax_model", "eve", "argmax_model"),
    "chosen role": (
        -1,
        "episode.turns.0.decision.role",
        "boss",
        r"at episode\.turns\.0\.decision\.role .*worker",
    ),
    "more tokens read before than sent": (
        -1,
        "episode.turns.0.reply.usage.tokens_cached",
        10**6,
        "tokens_cached .*0 to ",
    ),
    "tokens": (-1, "episode.turns.0.reply.usage.tokens_in", -1, "tokens_in .*0 to 2,147,483,647"),
    "cost": (-1, "episode.turns.0.reply.usage.cost_usd", -0.5, "cost_usd"),
    "latency": (-1, "episode.turns.0.reply.latency_s", -0.5, "latency_s"),
    "prompt tokens": (-1, "episode.turns.0.decision.prompt_tokens", 2**40, "prompt_tokens"),
    "a hole in the turns": (-1, "episode.turns.1.index", 2, r"turns\.1\.index .*so 1 is allowed"),
    "turn of another": (-1, "episode.turns.1.episode_id", "e9", r"turns\.1\.episode_id"),
    "run's time": (1, "created", 1e15, "created"),
    "run reversed": (1, "finished", 5.0, "finished .*before started"),
    "checkpoint's time": (3, "created", -1e9, "created"),
    "generation": (4, "index", -1, "index"),
    "evaluations": (4, "evaluations", -1, "evaluations"),
    "step size": (4, "sigma", -1.0, "sigma"),
    "candidate twice": (4, "candidates.1.index", 0, r"candidates\.1\.index"),
    "rollouts": (4, "candidates.0.missing", 5, r"candidates\.0\.missing \(5, where 0 to 4"),
    "optimiser": (5, "generation", -1, "generation"),
}


def with_value(line: bytes, path: str, value: object) -> bytes:
    """The line with another value at a path; a number in a path is a place in a list."""
    whole = place = json.loads(line)
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    place[last] = value
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("case", NONSENSE)
def test_what_cannot_be_is_refused_with_its_line_and_field(other: Store, tmp_path: Path, case: str) -> None:
    number, path, value, said = NONSENSE[case]

    def change(lines: list[bytes]) -> list[bytes]:
        lines[number] = with_value(lines[number], path, value)
        return lines

    content = edited(change)
    (tmp_path / "bad.jsonl").write_bytes(content)
    line = (number if number >= 0 else content.count(b"\n") - 1 + number) + 1
    with pytest.raises(ImportFormatError, match=said) as caught:
        import_file(other, tmp_path / "bad.jsonl")
    assert str(caught.value).startswith(f"bad.jsonl, line {line}, has an unusable value at ")
    health = other.health()
    assert (health.runs, health.episodes, health.checkpoints) == (0, 0, 0)


LABEL: dict[str, Any] = {
    "kind": "label",
    "episode": "",
    "turn": 0,
    "span_start": 0,
    "span_end": 1,
    "name": "quality",
    "value": "good",
    "note": "",
    "author": "me",
    "at": 5.0,
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"turn": 99}, "at turn "),
        ({"span_end": 10**6}, "at span_end .*the length of the reply"),
        ({"name": "x" * 61}, "at name .*at most 60"),
        ({"value": "a=b"}, "at value .*without an equals sign"),
        ({"author": "x" * 61}, "at author"),
        ({"note": "x" * 5001}, "at note .*5,000"),
        ({"at": 1e15}, "at at "),
        ({"episode": "e9"}, "neither in the file nor in the store"),
    ],
)
def test_a_label_of_what_is_not_there_is_refused(
    other: Store, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        about = json.loads(lines[-1])["episode"]["id"]
        return [
            *lines,
            json.dumps({**LABEL, "episode": about, **changed}, separators=(",", ":")).encode() + b"\n",
        ]

    (tmp_path / "bad.jsonl").write_bytes(edited(change))
    with pytest.raises(ImportFormatError, match=said):
        import_file(other, tmp_path / "bad.jsonl")
    assert other.health().episodes == 0
    changed.clear()
    (tmp_path / "good.jsonl").write_bytes(edited(change))
    assert import_file(other, tmp_path / "good.jsonl").added["label"] == 1
