"""A file carries runs from store to store unchanged, and a bad file changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from core.checkpoint import Checkpoint
from core.episode import CHANGE_KINDS, Change, Episode, EpisodeFinished, Fork, Status
from core.errors import ImportFormatError, StoreError
from core.play.forking import prefix_digest
from storage.files import interchange, validation
from storage.files.interchange import export_runs, import_file, import_runs
from storage.files.jsonl import EpisodeLine, dump_line, parse_line
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.summaries import CandidateSummary, GenerationSummary
from storage.store import Store, open_store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, tasks

GOLDEN = Path(__file__).parents[1] / "data" / "golden.jsonl"
#: Version 2, with forks, a swapped coordinator and a missing episode; and what is written of it today.
GOLDEN_2, GOLDEN_3 = (GOLDEN.with_name(f"golden-{version}.jsonl") for version in (2, 3))


def fill(store: Store) -> Checkpoint:
    """An evolution run with a checkpoint, and a run played with it and another policy."""
    one = checkpoint(MODELS, parent_run="r0")
    store.runs.create("r0", "evolve", {"population": 2, "note": "naïve ☃"})
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes(), run_id="r0", generation=0)
    entry = GenerationSummary("r0", 0, 0.5, 0.375, 0.375, 0.1, 8, 1.5, one.id, {"entropy": 0.7})
    store.evolution.add(
        entry, [CandidateSummary(0, 0.5, 4), CandidateSummary(1, None, 4, 4)], b"\x00state\xff"
    )
    store.runs.finish("r0")
    store.runs.create("r1", "run", {"seed": 0})
    for first, policy in ((0, one.id), (3, "hash")):
        for _ in record(store, events(births("r1", tasks(3), policy, first=first), HashPolicy(policy))):
            pass
    store.runs.finish("r1")
    return one


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "one.db", now=lambda: 1_790_000_000.5)
    fill(opened)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "other.db")
    yield opened
    opened.close()


def contents(store: Store) -> dict[str, Any]:
    """Everything a reader can see."""
    runs = store.runs.list()
    episodes = [one for run in runs for one in store.episodes.of_run(run.id)]
    return {
        "runs": {run.id: (run.kind, run.status, run.config, run.created, run.finished) for run in runs},
        "episodes": {
            one.id: (one, store.episodes.get(one.id), store.episodes.outline(one.id)) for one in episodes
        },
        "checkpoints": {one.id: (one, store.checkpoints.weights(one.id)) for one in store.checkpoints.list()},
        "generations": [(store.evolution.generations(run.id), store.evolution.state(run.id)) for run in runs],
        "candidates": store.evolution.candidates("r0", 0),
    }


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
def test_runs_travel_unchanged(store: Store, other: Store, tmp_path: Path, name: str) -> None:
    counts = export_runs(store, ["r0", "r1"], tmp_path / name)
    assert counts == {"run": 2, "checkpoint": 1, "generation": 1, "optimiser": 1, "episode": 6}
    report = import_file(other, tmp_path / name)
    assert (report.added, report.unchanged, report.runs) == (counts, 0, ("r0", "r1"))
    assert contents(other) == contents(store)
    export_runs(other, ["r0", "r1"], tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_importing_twice_changes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    export_runs(store, ["r0", "r1"], tmp_path / "runs.jsonl")
    for target in (store, other):
        import_runs(other, tmp_path)
        before = contents(target)
        (report,) = import_runs(target, tmp_path)
        assert (report.added, report.unchanged) == ({}, 11)
        assert "nothing new" in str(report)
        assert contents(target) == before


def test_a_deleted_episode_comes_back(store: Store, tmp_path: Path) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    before = contents(store)
    store.episodes.delete([store.episodes.of_run("r1")[2].id])
    assert import_file(store, tmp_path / "runs.jsonl").added == {"episode": 1}
    assert contents(store) == before


def test_a_run_brings_the_checkpoints_it_played(store: Store, other: Store, tmp_path: Path) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    import_file(other, tmp_path / "runs.jsonl")
    (held,) = other.checkpoints.list()
    assert held.run_id is None
    assert other.episodes.page().items[-1].checkpoint_id == held.id
    export_runs(store, ["r0"], tmp_path / "evolution.jsonl")
    import_file(other, tmp_path / "evolution.jsonl")
    assert other.runs.get("r0").generations == 1
    assert [one.id for one in other.checkpoints.list("r0")] == [held.id], "its run is known now"
    export_runs(other, ["r0"], tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "evolution.jsonl").read_bytes()


def test_what_was_running_is_exported_as_interrupted(store: Store, other: Store, tmp_path: Path) -> None:
    store.runs.create("r2", "live", {})
    happened = record(store, events(births("r2", tasks(2, start=7))))
    for _ in range(9):
        next(happened)
    export_runs(store, ["r2"], tmp_path / "runs.jsonl")
    happened.close()  # type: ignore[attr-defined]  # a generator
    import_file(other, tmp_path / "runs.jsonl")
    assert other.runs.get("r2").status == "interrupted"
    assert {one.status for one in other.episodes.of_run("r2")} == {Status.INTERRUPTED}


def edited(change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """The golden file with changed lines and an end mark that fits them."""
    lines = change(GOLDEN.read_bytes().splitlines(keepends=True)[:-1])
    counts: dict[str, int] = {}
    for line in lines[1:]:
        kind = line.split(b'"')[3].decode() if line.startswith(b'{"kind":') else "?"
        counts[kind] = counts.get(kind, 0) + 1
    end = {"kind": "end", "counts": counts, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return b"".join(lines) + json.dumps(end).encode() + b"\n"


def swap(old: bytes, new: bytes, line: int = -1) -> bytes:
    """The golden file with `old` once replaced in one line."""

    def change(lines: list[bytes]) -> list[bytes]:
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)
        return lines

    return edited(change)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "truncated"),
    "foreign": (lambda: b'{"hello": 1}\n', "line 1, is not the header"),
    "text": (lambda: b"Dear reader,\n", "line 1, is not the header"),
    "binary": (lambda: bytes(range(256)) * 10, "line 1"),
    "no header": (
        lambda: b"".join(GOLDEN.read_bytes().splitlines(keepends=True)[1:]),
        "line 1, is not the header",
    ),
    "version": (lambda: swap(b'"version":1', b'"version":4', 0), "line 1, says trinity-jsonl version 4"),
    "format": (lambda: swap(b"trinity-jsonl", b"other-jsonl", 0), "line 1, says other-jsonl version 1"),
    "second header": (lambda: edited(lambda lines: [*lines, lines[0]]), "is a second header"),
    "no end": (
        lambda: b"".join(GOLDEN.read_bytes().splitlines(keepends=True)[:-1]),
        "truncated: its end mark",
    ),
    "cut line": (lambda: GOLDEN.read_bytes()[:-1], "breaks off"),
    "after end": (lambda: GOLDEN.read_bytes() + b"{}\n", "comes after the end mark"),
    "changed": (
        lambda: GOLDEN.read_bytes().replace(b"plus 1?", b"plus 2?", 1),
        "does not match the lines before it",
    ),
    "lost line": (
        lambda: b"".join(GOLDEN.read_bytes().splitlines(keepends=True)[i] for i in (*range(8), -1)),
        "does not match the lines before it",
    ),
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
        lambda: edited(lambda lines: [*lines[:1], *lines[2:]]),
        "neither in the file nor in the store",
    ),
    "running": (
        lambda: swap(b'"status":"finished","end_reason"', b'"status":"running","end_reason"'),
        "still running",
    ),
    "turn numbers": (lambda: swap(b'"index":0', b'"index":1'), "numbered through from 0"),
    "weights": (lambda: swap(b'"generation":0', b'"generation":1,"x":0', 3), "line 4"),
    "checkpoint": (lambda: swap(b'"weights":"', b'"weights":"AAAA', 3), "cannot be used"),
    "bad gzip": (lambda: b"\x1f\x8b" + b"nonsense" * 10, "gzip stream breaks"),
    "cut gzip": (lambda: gzip.compress(GOLDEN.read_bytes())[:-200], "gzip stream breaks"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_whole(other: Store, tmp_path: Path, case: str) -> None:
    make, said = BAD[case]
    (tmp_path / "bad.jsonl").write_bytes(make())
    with pytest.raises(ImportFormatError, match=said) as caught:
        import_file(other, tmp_path / "bad.jsonl")
    assert "bad.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)
    health = other.health()
    assert (health.runs, health.episodes, health.checkpoints) == (0, 0, 0)


@pytest.mark.parametrize(
    ("line", "old", "new", "kind"),
    [
        (1, b'"population":2', b'"population":3', "run"),
        (4, b'"best":0.5', b'"best":0.6', "generation"),
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


def test_the_golden_file_reads_and_writes_as_ever(other: Store, tmp_path: Path) -> None:
    """Change the format only with a new version number, and keep reading this one."""
    import_file(other, GOLDEN)
    assert [run.id for run in other.runs.list()] == ["r1", "r0"]
    assert other.health().episodes == 6
    assert other.runs.policies("r1")[0].n == 3
    export_runs(other, ["r0", "r1"], tmp_path / "again.jsonl")
    now, then = ((file.read_bytes().splitlines()) for file in (tmp_path / "again.jsonl", GOLDEN))
    assert now[0] == then[0].replace(b'"version":1', b'"version":3')
    rest = [line for line in now if b'"kind":"episode"' not in line]
    assert rest[1:-1] == [line for line in then if b'"kind":"episode"' not in line][1:-1]
    assert json.loads(now[-1])["counts"] == json.loads(then[-1])["counts"]


def test_what_older_files_noted_of_a_fork_an_error_or_a_decider_is_read_into_fields(
    other: Store, tmp_path: Path
) -> None:
    import_file(other, GOLDEN_2)
    (parent, lost, steered), forks = (
        [other.episodes.get(one.id) for one in other.episodes.of_run(run)] for run in ("r1", "r2")
    )
    assert (parent.generation, parent.meta, parent.fork) == (7, {"note": "of a stranger"}, None)
    assert (lost.status, lost.error) == (Status.MISSING, "no route to host")
    assert (steered.deciders, steered.removed) == ({1: "random"}, {"states": "2026-11-05"})
    base = Fork(parent.id, 1, None, 0, prefix_digest(parent, 1), "0123456789abcdef")
    assert [one.fork for one in forks] == [
        base,
        replace(base, change=Change("reply", "answer 1"), number=1),
        replace(base, parent=steered.id, change=Change("model", "bo"), number=2),
    ]
    assert [one.left_out for one in forks] == [(), ("m2",), ("m2",)]
    assert [one.deciders for one in forks] == [{}, {}, {0: "hash", 1: "random"}]
    assert not any(one.meta for one in (lost, steered, *forks))
    assert import_file(other, GOLDEN_2).added == {}, "a file that was read before is known again"
    export_runs(other, ["r1", "r2"], tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == GOLDEN_3.read_bytes()
    assert import_file(other, GOLDEN_3).added == {}


FORGED = {
    "fork": "fork",
    "fork_number": "0",
    "fork_change": '["model", "bo"]',
    "error": "no",
    "deciders": '{"1": "random"}',
    "left_out": '["bo"]',
    "generation": "9",
    "texts_removed": "2026-01-01",
    "meta": "{}",
}


def test_what_a_stranger_notes_forges_nothing(other: Store, tmp_path: Path) -> None:
    """Neither in a file of today nor on its way through a store."""
    run = ["r1"]
    other.runs.create("r1", "run", {})
    born = [replace(one, meta=FORGED, fork=Fork("gone", 0)) for one in births("r1", tasks(1))]
    list(record(other, events(born)))
    other.runs.finish("r1")
    export_runs(other, run, tmp_path / "one.jsonl")
    whole = other.episodes.get(born[0].id)
    assert whole.meta == FORGED
    assert whole == replace(
        whole, fork=Fork("gone", 0), error=None, deciders={}, left_out=(), generation=None, removed={}
    )
    other.runs.delete("r1")
    import_file(other, tmp_path / "one.jsonl")
    assert other.episodes.get(whole.id) == whole


@pytest.mark.parametrize("told", ["", "[]", "7", '{"x": "b"}', "{", "9" * 5000, "[" * 9000])
def test_what_is_unreadable_in_an_older_file_says_nothing(other: Store, tmp_path: Path, told: str) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        line = json.loads(lines[-1])
        notes = dict.fromkeys(("fork", "fork_number", "fork_change", "deciders", "left_out"), told)
        line["episode"] |= {"meta": notes, "parent_episode_id": "e0"}
        return [*lines[:-1], json.dumps(line, separators=(",", ":")).encode() + b"\n"]

    (tmp_path / "odd.jsonl").write_bytes(edited(change))
    import_file(other, tmp_path / "odd.jsonl")
    last = json.loads(GOLDEN.read_bytes().splitlines()[-2])["episode"]["id"]
    whole = other.episodes.get(last)
    assert (whole.fork, whole.deciders, whole.left_out, whole.meta) == (Fork("e0", 0), {}, (), {})


PLAYED = [one.episode for one in events(births("r1", tasks(6))) if isinstance(one, EpisodeFinished)]
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
    "parent is a path": (-1, "episode.parent_episode_id", "../../etc/passwd", r"fork\.parent .*an id is"),
    "its own parent": (-1, "episode.parent_episode_id", "e1-00005", "the id of another episode"),
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


def test_an_import_asks_the_database_by_batches_and_not_by_episodes(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    asked: list[str] = []
    event.listen(other.engine, "before_cursor_execute", lambda *called: asked.append(called[2]))
    import_file(other, tmp_path / "runs.jsonl")
    assert sum("INSERT INTO episode" in one for one in asked) == 1, "six episodes, one statement"
    assert sum("FROM task" in one or "FROM episode" in one for one in asked) <= 4
    monkeypatch.setattr(interchange, "BATCH_LINES", 2)
    other.episodes.delete([one.id for one in store.episodes.of_run("r1")])
    import_file(other, tmp_path / "runs.jsonl")
    assert contents(other)["episodes"] == contents(store)["episodes"], "in three batches, nothing is lost"


def test_an_episode_that_is_twice_in_a_file_is_taken_once(other: Store, tmp_path: Path) -> None:
    (tmp_path / "twice.jsonl").write_bytes(edited(lambda lines: [*lines, lines[-1]]))
    report = import_file(other, tmp_path / "twice.jsonl")
    assert (report.added["episode"], report.unchanged) == (6, 1)


TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """A played episode with arbitrary texts, numbers and flags in it."""
    whole = draw(st.sampled_from(PLAYED))
    turns = []
    for turn in whole.turns:
        state = draw(st.lists(st.floats(-60_000, 60_000, width=16), max_size=16))
        decision = replace(
            turn.decision,
            model_logits=tuple(draw(st.lists(NUMBERS, min_size=3, max_size=3))),
            hidden_state=struct.pack(f"<{len(state)}e", *state),
            model_mask=tuple(draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))),
        )
        usage = replace(turn.reply.usage, cost_usd=draw(st.none() | st.floats(0, 1e6)))
        reply = replace(turn.reply, text=draw(TEXTS), reasoning=draw(TEXTS), usage=usage)
        answer, correct = draw(st.none() | TEXTS), draw(st.none() | st.booleans())
        turns.append(
            replace(turn, decision=decision, reply=reply, answer_after=answer, correct_after=correct)
        )
    task = replace(whole.task, question=draw(TEXTS), id=draw(TEXTS))
    change = draw(st.none() | st.builds(Change, st.sampled_from(CHANGE_KINDS), TEXTS))
    fork = Fork(
        "e0", draw(st.integers(0, 4)), change, draw(st.none() | st.integers(-1, 63)), draw(TEXTS), draw(TEXTS)
    )
    return replace(
        whole,
        task=task,
        turns=tuple(turns),
        generation=draw(st.none() | st.integers(0, 99)),
        left_out=tuple(draw(st.lists(TEXTS, max_size=2))),
        deciders=dict(sorted(draw(st.dictionaries(st.integers(0, 9), TEXTS, max_size=2)).items())),
        fork=draw(st.sampled_from([None, fork, Fork("e0", 1)])),
        error=draw(st.none() | TEXTS),
        removed=draw(st.dictionaries(st.sampled_from(["states", "texts"]), TEXTS, max_size=2)),
        meta=draw(st.dictionaries(TEXTS | st.sampled_from(sorted(FORGED)), TEXTS, max_size=2)),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=episodes())
def test_any_episode_survives_line_and_store(other: Store, whole: Episode) -> None:
    line = EpisodeLine(
        started=1.5,
        finished=None,
        turn_started=tuple(2.0 + turn.index for turn in whole.turns),
        episode=whole,
    )
    assert (found := parse_line(dump_line(line))) == line
    assert isinstance(found, EpisodeLine)
    validation.check_line(found)
    if not other.runs.list():
        other.runs.create("r1", "run", {})
    other.episodes.delete([whole.id])
    with writing(other.engine) as connection:
        insert_episodes(
            connection, [TimedEpisode(line.episode, line.started, line.finished, line.turn_started)]
        )
    assert other.episodes.get(whole.id) == whole
