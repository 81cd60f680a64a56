"""A file carries runs from store to store unchanged, and a bad file changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.checkpoint import Checkpoint, EncoderIdentity
from core.episode import Episode, EpisodeFinished, Status
from core.errors import ImportFormatError, StoreError
from storage import interchange
from storage.engine import writing
from storage.interchange import export_runs, import_file, import_runs
from storage.lines import EpisodeLine, dump, parse
from storage.recorder import record
from storage.store import Store, open_store
from storage.summaries import CandidateSummary, GenerationSummary
from storage.whole import insert_episode
from tests.storage.play import MODELS, HashPolicy, births, events, tasks

GOLDEN = Path(__file__).parent / "data" / "golden.jsonl"


def fill(store: Store) -> Checkpoint:
    """An evolution run with a checkpoint, and a run played with it and another policy."""
    one = Checkpoint.begin(MODELS, EncoderIdentity("tiny", 4, digest="d"), parent_run="r0")
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
    "version": (lambda: swap(b'"version":1', b'"version":3', 0), "line 1, says trinity-jsonl version 3"),
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
    "turn numbers": (lambda: swap(b'"index":0', b'"index":1'), "not numbered through"),
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
    assert now[0] == then[0].replace(b'"version":1', b'"version":2')
    assert now[1:-1] == then[1:-1]
    assert json.loads(now[-1])["counts"] == json.loads(then[-1])["counts"]


PLAYED = [one.episode for one in events(births("r1", tasks(6))) if isinstance(one, EpisodeFinished)]
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """A played episode with arbitrary texts, numbers and flags in it."""
    whole = draw(st.sampled_from(PLAYED))
    turns = []
    for turn in whole.turns:
        decision = replace(
            turn.decision,
            model_logits=tuple(draw(st.lists(NUMBERS, min_size=3, max_size=3))),
            hidden_state=draw(st.binary(max_size=32)),
            model_mask=tuple(draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))),
        )
        usage = replace(turn.reply.usage, cost_usd=draw(st.none() | st.floats(0, 1e6)))
        reply = replace(turn.reply, text=draw(TEXTS), reasoning=draw(TEXTS), usage=usage)
        answer, correct = draw(st.none() | TEXTS), draw(st.none() | st.booleans())
        turns.append(
            replace(turn, decision=decision, reply=reply, answer_after=answer, correct_after=correct)
        )
    task = replace(whole.task, question=draw(TEXTS), id=draw(TEXTS))
    return replace(whole, task=task, turns=tuple(turns), meta=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=episodes())
def test_any_episode_survives_line_and_store(other: Store, whole: Episode) -> None:
    line = EpisodeLine(
        started=1.5,
        finished=None,
        turn_started=tuple(float(turn.index) for turn in whole.turns),
        episode=whole,
    )
    assert parse(dump(line)) == line
    if not other.runs.list():
        other.runs.create("r1", "run", {})
    other.episodes.delete([whole.id])
    with writing(other.engine) as connection:
        insert_episode(connection, line.episode, line.started, line.finished, line.turn_started)
    assert other.episodes.get(whole.id) == whole
