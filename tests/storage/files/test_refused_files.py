"""A bad file changes nothing."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import ImportFormatError, StoreError
from storage.files import interchange
from storage.files.interchange import import_file, import_runs
from storage.store import Store
from tests.builders.interchange import GOLDEN, contents, edited, export_runs, swap

BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "truncated"),
    "foreign": (lambda: b'{"hello": 1}\n', "line 1, is not the header"),
    "text": (lambda: b"Dear reader,\n", "line 1, is not the header"),
    "binary": (lambda: bytes(range(256)) * 10, "line 1"),
    "no header": (
        lambda: b"".join(GOLDEN.read_bytes().splitlines(keepends=True)[1:]),
        "line 1, is not the header",
    ),
    "version": (lambda: swap(b'"version":1', b'"version":7', 0), "line 1, says trinity-jsonl version 7"),
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
    "no rules": (lambda: swap(b'"protocol":"paper",', b""), "unusable value at episode.protocol"),
    "no pool": (lambda: swap(b'"pool":"3fa9c2d155"', b'"pool":null', 1), "unusable value at .*pool"),
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
