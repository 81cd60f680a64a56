"""A file from another machine: bytes that editors put into it, texts that no store holds, and its places."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.episode import EpisodeFinished, Status
from core.errors import ImportFormatError
from storage.files.interchange import import_file
from storage.files.jsonl import file_name, without_places
from storage.recorder import record
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.builders.interchange import GOLDEN, GOLDEN_FORKS, contents, edited, export_runs, swap
from tests.builders.play import births, events, tasks

#: What an editor or a mail program may do to a file.
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda content: codecs.BOM_UTF8 + content,
    "other ends of lines": lambda content: content.replace(b"\n", b"\r\n"),
    "empty lines at the end": lambda content: content + b"\n\n  \r\n",
    "empty lines at the start": lambda content: codecs.BOM_UTF8 + b"\n\r\n" + content,
    "empty lines between": lambda content: content.replace(b"\n", b"\n\n"),
    "all of it, packed": lambda content: gzip.compress(
        codecs.BOM_UTF8 + content.replace(b"\n", b"\r\n") + b"\r\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_editor_changes_is_taken(other: Store, tmp_path: Path, change: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(CHANGES[change](GOLDEN_FORKS.read_bytes()))
    assert import_file(other, path).added["episode"] > 0
    before = contents(other)
    path.write_bytes(GOLDEN_FORKS.read_bytes())
    assert import_file(other, path).added == {}, "it is the same file"
    assert contents(other) == before


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_said(other: Store, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(GOLDEN.read_text("utf-8").encode(encoding))
    with pytest.raises(ImportFormatError, match=r"line 1, cannot be read: it is UTF-\d\d text: save it as"):
        import_file(other, path)


#: A JSON escape of what no store holds, and what stands for it.
UNSTORABLE = {
    "NUL": (rb"a\u0000b", "a\ufffdb"),
    "half a character": (rb"a\ud83db", "a\ufffdb"),
    "the other half": (rb"a\uDE00b", "a\ufffdb"),
    "halves the wrong way round": (rb"\ude00\ud83d", "\ufffd\ufffd"),
    "a whole character in halves": (rb"\ud83d\ude00", "\U0001f600"),
    "a NUL that is spelt": (rb"a\\u0000b", "a\\u0000b"),
}
#: Where it may stand, and how it is read there.
PLACES: dict[str, tuple[bytes, Callable[[Store], object]]] = {
    "question": (b'"question":"', lambda store: _last(store).task.question),
    "reply": (b'"text":"', lambda store: _last(store).turns[0].reply.text),
    "note": (b'"meta":{"repeat":"', lambda store: _last(store).meta["repeat"]),
    "finish reason": (b'"finish_reason":"', lambda store: _last(store).turns[0].reply.finish_reason),
    "message": (b'"content":"', lambda store: _last(store).turns[0].messages[0].content),
}


def _last(store: Store) -> Any:
    run = store.runs.list()[-1] if store.runs.list()[-1].id == "r1" else store.runs.get("r1")
    return store.episodes.get(max(one.id for one in store.episodes.of_run(run.id)))


@pytest.mark.parametrize("what", UNSTORABLE)
def test_what_no_store_holds_is_replaced_once_and_for_all(other: Store, tmp_path: Path, what: str) -> None:
    escape, stands = UNSTORABLE[what]

    def change(lines: list[bytes]) -> list[bytes]:
        for field, _ in PLACES.values():
            assert field in lines[-1]
            lines[-1] = lines[-1].replace(field, field + escape, 1)
        return lines

    path = tmp_path / "runs.jsonl"
    path.write_bytes(edited(change))
    first = import_file(other, path)
    assert first.added["episode"] == 6
    for place, (_, read) in PLACES.items():
        assert str(read(other)).startswith(stands), place
    again = import_file(other, path)
    assert (again.added, again.unchanged) == ({}, sum(first.added.values()))
    export_runs(other, ["r0", "r1"], tmp_path / "again.jsonl")
    assert import_file(other, tmp_path / "again.jsonl").added == {}


def test_what_a_run_of_ones_own_holds_is_exported_as_it_can_be_imported(
    store: Store, other: Store, tmp_path: Path
) -> None:
    store.runs.create("r2", "run", {"question": "a\0b", "nested": {"half\ud83d": ["\0"]}})
    store.runs.finish("r2")
    export_runs(store, ["r2"], tmp_path / "runs.jsonl")
    assert b"u0000" not in (tmp_path / "runs.jsonl").read_bytes()
    for target in (other, store, other):
        import_file(target, tmp_path / "runs.jsonl")
    assert other.runs.get("r2").config == {"question": "a\ufffdb", "nested": {"half\ufffd": ["\ufffd"]}}


#: A text that may name a file, and what is told of it elsewhere.
NAMES = {
    "/home/ada/sums.jsonl": "sums.jsonl",
    "/home/ada lovelace/my sums.jsonl": "my sums.jsonl",
    "/data/encoders/small/": "small",
    "~/pool.toml": "pool.toml",
    "./pool.toml": "pool.toml",
    "../../ada/pool.toml": "pool.toml",
    "C:\\Users\\ada\\pool.toml": "pool.toml",
    "c:/Users/ada/pool.toml": "pool.toml",
    "\\\\server\\ada\\pool.toml": "pool.toml",
    "/home/ada/..": "unnamed",
    "pocket": "pocket",
    "pocket/held-out": "pocket/held-out",
    "Qwen/Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "single:*": "single:*",
    "c92ktghosg0": "c92ktghosg0",
    "": "",
}


@pytest.mark.parametrize("path", NAMES)
def test_a_file_is_known_by_its_name_elsewhere(path: str) -> None:
    assert file_name(path) == NAMES[path] == file_name(file_name(path))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("The task file /home/ada/sums.jsonl cannot be read.", "The task file sums.jsonl cannot be read."),
        ("Broke at '/a/b/c.py', line 3", "Broke at 'c.py', line 3"),
        (r"Not C:\Users\ada\x.toml.", "Not x.toml."),
        ("~/x/y is a folder", "y is a folder"),
        ("http://127.0.0.1:8000/v1/models gave 404", "http://127.0.0.1:8000/v1/models gave 404"),
        ("and/or 3/4 of 1/2/2026", "and/or 3/4 of 1/2/2026"),
    ],
)
def test_a_sentence_keeps_all_but_the_places(words: str, told: str) -> None:
    assert without_places(words) == told == without_places(told)


def test_a_run_leaves_without_the_places_of_its_machine_and_comes_back_as_itself(
    store: Store, other: Store, tmp_path: Path
) -> None:
    config = {
        "tasks": "/home/ada/sums.jsonl",
        "digest": "0123",
        "pool": "/home/ada/pool.toml",
        "encoder": "/home/ada/encoders/small",
        "suite": {"tasks": "/home/ada/sums.jsonl", "held_out": "pocket/held-out", "pool": "pocket"},
        "tiers": {"trinity": ["/home/ada/heads/best", 5]},
        "task": {"question": "/home/ada is what?"},
        "question": "/home/ada is what?",
    }
    store.runs.create("r2", "run", config)
    *before, end = events(births("r2", tasks(1, start=7)))
    assert isinstance(end, EpisodeFinished)
    missing = replace(end.episode, status=Status.MISSING, error="The grader /home/ada/own.py cannot be run.")
    list(record(store, [*before, EpisodeFinished(missing)]))
    store.runs.finish("r2", RunStatus.FAILED, "The task file /home/ada/sums.jsonl cannot be read.")
    export_runs(store, ["r2"], tmp_path / "runs.jsonl")
    content = (tmp_path / "runs.jsonl").read_bytes()
    assert content.count(b"/home/ada") == 2, "only what was asked is said as it was"
    assert import_file(store, tmp_path / "runs.jsonl").added == {}, "it is the same run"
    assert store.runs.get("r2").config == config, "which is found here as before"
    import_file(other, tmp_path / "runs.jsonl")
    taken = other.runs.get("r2")
    assert taken.config == {
        "tasks": "sums.jsonl",
        "digest": "0123",
        "pool": "pool.toml",
        "encoder": "small",
        "suite": {"tasks": "sums.jsonl", "held_out": "pocket/held-out", "pool": "pocket"},
        "tiers": {"trinity": ["best", 5]},
        "task": {"question": "/home/ada is what?"},
        "question": "/home/ada is what?",
    }
    assert taken.error == "The task file sums.jsonl cannot be read."
    assert import_file(other, tmp_path / "runs.jsonl").added == {}


def test_a_file_that_still_names_places_is_taken_without_them(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(swap(b'"config":{', b'"config":{"pool":"/home/ada/pool.toml","name":"a",', 2))
    import_file(other, path)
    assert other.runs.get("r1").config["pool"] == "pool.toml"
    assert import_file(other, path).added == {}
