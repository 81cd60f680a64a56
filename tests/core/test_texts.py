"""Files of text as editors leave them: with a byte order mark, other ends of lines, or in another encoding."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ConfigError, TaskError, TrinityError
from core.pool_file import load_specs, pool_template
from core.settings import read_settings
from core.tasks.sets import read_task_file
from core.texts import check_encoding, read_text, well_formed
from ui.cli.learning import read_file
from ui.endpoint.tiers import read_endpoint
from ui.runs.settings.learning import EvolutionPlan


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_text_is_the_same_with_a_mark_and_other_ends_of_lines(
    tmp_path: Path, mark: bytes, end: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(mark + end.join(["naïve", "", "☃", ""]).encode())
    assert read_text(path) == "naïve\n\n☃\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_another_encoding_is_named_and_what_to_do(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("{naïve} text".encode(encoding))
    with pytest.raises(UnicodeError, match="save it as UTF-8"):
        read_text(path)


@pytest.mark.parametrize("content", [b"", b"a", b"\0\1binary", b"{}"])
def test_no_other_encoding_is_guessed(content: bytes) -> None:
    check_encoding(content)


@given(st.text(st.characters()))
def test_well_formed_text_is_stored_and_read_as_it_is(text: str) -> None:
    mended = well_formed(text)
    assert mended.encode().decode() == mended == well_formed(mended)
    assert "\0" not in mended
    if text.isprintable() and not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert mended == text


TASK = '{"question": "2+2?", "answer": "4", "grader": "number"}\n'
#: A file of each kind that is read, and whether it was understood.
READ: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "tasks": (TASK, lambda path: read_task_file(path)[0].answer == "4"),
    "pool": (pool_template(), lambda path: bool(load_specs(path))),
    "settings": ("port = 8081\n", lambda path: read_settings({}, {}, path.parent).port == 8081),
    "config": (
        "generations = 7\n",
        lambda path: read_file(path, EvolutionPlan, "evolve") == {"generations": 7},
    ),
    "endpoint": (
        '[[tier]]\nname = "mine"\n',
        lambda path: read_endpoint(path, path.parent).tier[0].name == "mine",
    ),
}


@pytest.mark.parametrize("kind", READ)
def test_every_file_is_read_with_a_mark_and_other_ends_of_lines(tmp_path: Path, kind: str) -> None:
    text, understood = READ[kind]
    path = tmp_path / ("config.toml" if kind == "settings" else "file.jsonl")
    path.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    assert understood(path)
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(TrinityError, match=r"UTF-16 text: save it as UTF-8") as caught:
        understood(path)
    assert isinstance(caught.value, TaskError if kind == "tasks" else ConfigError)
