"""A setting is declared once: what is made from its declaration, and the sentence about a bad value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from core.episode import Protocol
from core.errors import ConfigError
from core.fields import Setting, Turns, build_settings, check, read, settings_of, validate_settings, values_of


@dataclass(frozen=True, slots=True)
class Inner:
    size: Annotated[int, Setting(ge=1, le=9, open=True, word="auto")] = 3
    """How many of them. Left
    out: 3."""
    spread: Annotated[float | None, Setting(gt=0, word="plain", help="How far.")] = 2.0
    turns: Turns = 5

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class Outer:
    seen: str
    tasks: Annotated[str, Setting("Task set", group="tasks")] = "pocket"
    inner: Inner = Inner()
    kept: Annotated[tuple[str, ...], Setting(group="models")] = ()
    way: Annotated[Literal["a", "b"], Setting(group="search")] = "a"
    rules: Annotated[Protocol, Setting(group="search")] = Protocol.PAPER


def test_settings_are_the_declared_fields_of_a_dataclass_and_of_those_within() -> None:
    found = settings_of(Outer)
    assert list(found) == ["tasks", "size", "spread", "turns", "way", "rules", "kept"]
    assert [found[key].usual for key in found] == ["pocket", None, 2.0, 5, "a", Protocol.PAPER, ()]
    assert (found["tasks"].title, found["turns"].title, found["kept"].title) == (
        "Task set",
        "Turn budget",
        "Kept",
    )
    assert (found["size"].help, found["size"].left_out) == ("How many of them. Left out: 3.", "3")
    assert (found["spread"].help, found["spread"].left_out, found["way"].help) == ("How far.", "", "")
    assert (found["way"].choices, found["rules"].choices) == (("a", "b"), tuple(Protocol))


def test_what_is_asked_for_is_checked_and_built() -> None:
    asked = {"size": 4, "spread": "plain", "kept": ["x"], "rules": "released"}
    chosen = validate_settings(Outer, asked)
    assert chosen["rules"] is Protocol.RELEASED
    assert chosen["kept"] == ("x",)
    inner = build_settings(Inner, chosen)
    assert inner == Inner(4, None, 5)
    assert values_of(Outer("", inner=inner))["spread"] is None


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"size": 0}, "size cannot be 0: give a number of at least 1"),
        ({"size": "many"}, "size cannot be 'many': give a whole number or 'auto'."),
        ({"spread": float("inf")}, "spread cannot be inf: give a finite number"),
        ({"way": "c"}, "way cannot be 'c': give 'a' or 'b'."),
        ({"turns": True}, "turns cannot be True"),
    ],
)
def test_a_bad_value_is_one_sentence_that_names_its_key(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        validate_settings(Outer, asked, "f.toml: ")
    assert str(told.value).startswith(f"f.toml: {sentence}")


def test_a_dataclass_checks_its_own_values_as_they_are() -> None:
    assert Inner(spread=None).spread is None
    for wrong in ({"size": None}, {"size": "auto"}, {"turns": 101}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} cannot be"):
            Inner(**wrong)


def test_text_is_read_as_the_settings_type() -> None:
    size = settings_of(Inner)["size"]
    assert read(size, "7", "THERE") == 7
    with pytest.raises(ConfigError, match="THERE cannot be '12': give a number"):
        read(size, "12", "THERE")
