"""A bad file changes nothing, and what no run, episode or label can have is refused with its line and field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import ImportFormatError, StoreError
from storage.files import interchange
from storage.files.interchange import import_file, import_runs
from storage.store import Store
from tests.builders.interchange import GOLDEN, contents, edited, export_runs, swap

LINES = GOLDEN.read_bytes().splitlines(keepends=True)
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "truncated"),
    "foreign": (lambda: b'{"hello": 1}\n', "line 1, is not the header"),
    "text": (lambda: b"Dear reader,\n", "line 1, is not the header"),
    "binary": (lambda: bytes(range(256)) * 10, "line 1"),
    "no header": (lambda: b"".join(LINES[1:]), "line 1, is not the header"),
    "version": (lambda: swap(b'"version":1', b'"version":7', 0), "line 1, says trinity-jsonl version 7"),
    "format": (lambda: swap(b"trinity-jsonl", b"other-jsonl", 0), "line 1, says other-jsonl version 1"),
    "second header": (lambda: edited(lambda lines: [*lines, lines[0]]), "is a second header"),
    "no end": (lambda: b"".join(LINES[:-1]), "truncated: its end mark"),
    "cut line": (lambda: GOLDEN.read_bytes()[:-1], "breaks off"),
    "after end": (lambda: GOLDEN.read_bytes() + b"{}\n", "comes after the end mark"),
    "changed": (
        lambda: b"".join(LINES).replace(b"plus 1?", b"plus 2?", 1),
        "does not match the lines before",
    ),
    "lost line": (lambda: b"".join([*LINES[:8], LINES[-1]]), "does not match the lines before it"),
    "nan": (lambda: swap(b'"latency_s":0', b'"latency_s":NaN,"x":0'), "holds NaN"),
    "infinite": (lambda: swap(b'"latency_s":0', b'"latency_s":1e999,"x":0'), "beyond 64 bits"),
    "huge integer": (lambda: swap(b'"seed":0', b'"seed":' + b"9" * 5000), "beyond 64 bits"),
    "double key": (lambda: swap(b'"seed":0', b'"seed":0,"seed":1'), "same key twice"),
    "unknown key": (lambda: swap(b'"seed":0', b'"seed":0,"sneed":1'), "unusable value at .*sneed"),
    "wrong type": (lambda: swap(b'"seed":0', b'"seed":"0"'), "unusable value at .*seed"),
    "bad role": (lambda: swap(b'"role":"', b'"role":"over'), "unusable value at .*role"),
    "bad base64": (
        lambda: swap(b'"hidden_state":"', b'"hidden_state":"!'),
        "unusable value at .*hidden_state",
    ),
    "deep": (lambda: edited(lambda lines: [*lines, b"[" * 100_000 + b"\n"]), "nested too deeply|is not JSON"),
    "path as id": (lambda: swap(b'"id":"r0"', b'"id":"../r0"', 1), "unusable value at .*id"),
    "unnamed run": (lambda: swap(b'["r0","r1"]', b'["r0"]', 0), "the header does not name"),
    "lost run": (
        lambda: edited(lambda lines: [lines[0], *lines[2:]]),
        "neither in the file nor in the store",
    ),
    "running": (
        lambda: swap(b'"status":"finished","end_reason"', b'"status":"running","end_reason"'),
        "still running",
    ),
    "turn numbers": (lambda: swap(b'"index":0', b'"index":1'), "numbered through from 0"),
    "no rules": (lambda: swap(b'"protocol":"paper",', b""), "unusable value at episode.protocol"),
    "no pool": (lambda: swap(b'"pool":"3fa9c2d155"', b'"pool":null', 1), "unusable value at .*pool"),
    "weights": (lambda: swap(b'"generation":0', b'"generation":1,"x":0', 3), "line 4"),
    "checkpoint": (lambda: swap(b'"weights":"', b'"weights":"AAAA', 3), "cannot be used"),
    "bad gzip": (lambda: b"\x1f\x8b" + b"nonsense" * 10, "gzip stream breaks"),
    "cut gzip": (lambda: gzip.compress(GOLDEN.read_bytes())[:-200], "gzip stream breaks"),
}


def nothing_of(store: Store) -> bool:
    health = store.health()
    return (health.runs, health.episodes, health.checkpoints) == (0, 0, 0)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_whole(other: Store, tmp_path: Path, case: str) -> None:
    make, said = BAD[case]
    (tmp_path / "bad.jsonl").write_bytes(make())
    with pytest.raises(ImportFormatError, match=said) as caught:
        import_file(other, tmp_path / "bad.jsonl")
    assert "bad.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert nothing_of(other)


@pytest.mark.parametrize(
    ("line", "old", "new", "kind"),
    [
        (1, b'"population":2', b'"population":3', "run"),
        (4, b'"best":0.5', b'"best":0.6', "update"),
        (5, b'"state":"A', b'"state":"B', "optimiser"),
        (-1, b'"seed":0', b'"seed":1', "episode"),
        (-1, b'"text":"', b'"text":"x', "episode"),
    ],
)
def test_other_content_under_a_known_id_is_refused(
    other: Store, tmp_path: Path, line: int, old: bytes, new: bytes, kind: str
) -> None:
    import_file(other, GOLDEN)
    before = contents(other)
    (tmp_path / "bad.jsonl").write_bytes(swap(old, new, line))
    with pytest.raises(ImportFormatError, match=f"another {kind} under the same id"):
        import_file(other, tmp_path / "bad.jsonl")
    assert contents(other) == before


def test_bombs_are_refused(other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    monkeypatch.setattr(interchange, "MAX_LINE_BYTES", 2**20)
    with gzip.open(bomb, "wb") as file:
        file.write(b'{"kind":"header","format":"trinity-jsonl","version":1,"runs":["r0"]}\n' + b" " * 2**23)
    with pytest.raises(ImportFormatError, match="too large"):
        import_file(other, bomb)
    monkeypatch.setattr(interchange, "_Reader", Swallow)
    with gzip.open(bomb, "wb") as file:
        file.write((b" " * 1000 + b"\n") * 50_000)
    with pytest.raises(ImportFormatError, match="far more than an export"):
        import_file(other, bomb)


class Swallow:
    """A reader that takes every line."""

    def __init__(self, *_: object) -> None: ...

    def read(self, _: Path, contents: Iterator[bytes]) -> None:
        for _line in contents:
            pass


def test_files_that_are_not_there(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="cannot be read: No such file"):
        import_file(store, tmp_path / "none.jsonl")
    with pytest.raises(StoreError, match="cannot be written"):
        export_runs(store, ["r0"], tmp_path / "no" / "folder" / "x.jsonl")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        export_runs(store, ["r0"], tmp_path / "file" / "x.jsonl")
    with pytest.raises(StoreError, match="holds no run r9"):
        export_runs(store, ["r0", "r9"], tmp_path / "x.jsonl")
    assert [one.name for one in tmp_path.glob("*.jsonl*")] == [], "nothing half-written"
    assert [one.name for one in tmp_path.glob(".*")] == []


def test_a_folder_without_anything_to_import_is_a_mistake(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFormatError, match="holds no .jsonl"):
        import_runs(store, tmp_path / "empty")


DECISION, REPLY = "episode.turns.0.decision", "episode.turns.0.reply"
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
    "probability of 5": (-1, DECISION + ".model_probs", [5.0, -3.0, -1.0], r"model_probs\.0 .*0 to 1"),
    "sum": (-1, DECISION + ".role_probs", [0.5, 0.1, 0.1], r"role_probs \(their sum is 0\.7"),
    "probabilities": (-1, DECISION + ".model_probs", [1.0], "model_probs .*one for each model, 3"),
    "mask": (-1, DECISION + ".model_mask", [True] * 50, "model_mask .*one for each model, 3"),
    "mask of nothing": (-1, DECISION + ".role_mask", [False] * 3, "at least one role"),
    "logit": (-1, DECISION + ".model_logits", [1e300, 0, 0], r"model_logits\.0"),
    "hidden state": (-1, DECISION + ".hidden_state", "AAB8", "hidden_state"),
    "recipe": (-1, DECISION + ".recipe", "my GPU", r"decision\.recipe .*cuda/bfloat16/sdpa"),
    "chosen model": (-1, DECISION + ".model", "eve", r"decision\.model .*one of the episode's"),
    "best model": (-1, DECISION + ".argmax_model", "eve", "argmax_model"),
    "chosen role": (-1, DECISION + ".role", "boss", r"at episode\.turns\.0\.decision\.role .*worker"),
    "more tokens read before than sent": (-1, REPLY + ".usage.tokens_cached", 10**6, "tokens_cached .*0 to "),
    "tokens": (-1, REPLY + ".usage.tokens_in", -1, "tokens_in .*0 to 2,147,483,647"),
    "cost": (-1, REPLY + ".usage.cost_usd", -0.5, "cost_usd"),
    "latency": (-1, REPLY + ".latency_s", -0.5, "latency_s"),
    "prompt tokens": (-1, DECISION + ".prompt_tokens", 2**40, "prompt_tokens"),
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
    assert nothing_of(other)


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
