"""A command's options are made from settings: help, bounds, default, and what stands on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from core.fields import Setting
from ui.cli.options import Given, with_options


@dataclass(frozen=True, slots=True)
class Tea:
    cups: Annotated[int, Setting(ge=1, le=9, option="--cups", metavar="N")] = 2
    """How many cups."""
    sugar: Annotated[bool, Setting(option="--sweet")] = True
    milk: Annotated[bool, Setting(option="--milk")] = False
    minutes: Annotated[int, Setting(ge=0, open=True, word="auto", option="--minutes")] = 3
    """How long. Left out: 3."""
    leaves: Annotated[tuple[str, ...], Setting(option="--leaf")] = ()
    hidden: Annotated[int, Setting(help="In files alone.")] = 1


@dataclass(frozen=True, slots=True)
class Cake:
    kind: Annotated[str | None, Setting(help="Which cake.", option="--cake")] = None
    slices: Annotated[int, Setting(ge=0, option="--slices")] = 1


def brewed(*arguments: str) -> tuple[dict[str, Any], str]:
    app = typer.Typer()
    found: dict[str, Any] = {}

    @app.command()
    @with_options(Tea)
    def brew(*, context: typer.Context, given: Given, loud: bool = False, cake: Cake) -> None:
        """Make tea."""
        found.update(given, loud=loud, cake=cake)

    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    return found, result.output


def test_a_command_is_handed_what_stands_on_its_command_line() -> None:
    assert brewed() == ({"loud": False, "cake": Cake()}, "")
    every = "--cups 2 --no-sweet --minutes 4 --leaf a --leaf b --loud --slices 2"
    tea = {"cups": 2, "sugar": False, "minutes": 4, "leaves": ["a", "b"]}
    assert brewed(*every.split())[0] == {**tea, "loud": True, "cake": Cake(slices=2)}
    assert brewed("--minutes", "auto", "--cake", "plum")[0] == {
        "minutes": "auto",
        "loud": False,
        "cake": Cake("plum"),
    }


def test_help_tells_what_is_declared() -> None:
    told = brewed("--help")[1]
    for part in ("How many cups.", "[default: 2]", "--no-sweet", "How long. Left out: 3.", "--milk"):
        assert part in told
    assert "--hidden" not in told
    assert "--no-milk" not in told


@pytest.mark.parametrize("cups", ["0", "10", "two"])
def test_a_number_out_of_its_bounds_is_refused(cups: str) -> None:
    found, told = brewed("--cups", cups)
    assert found == {}
    assert "--cups" in told
