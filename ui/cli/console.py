"""What all commands print: tables, JSON, sentences, progress, and how numbers are written."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status
from rich.table import Table
from rich.text import Text

from core.errors import ConfigError

T = TypeVar("T")

#: Results go to stdout, everything said along the way to stderr, so that a script can read the first.
#: A pipe has no width: what a program reads must not be wrapped at the 80 columns that are assumed for it.
out = Console(width=None if sys.stdout.isatty() else 1000)
err = Console(stderr=True)

#: Time left is reckoned by so many seconds past: a generation of slow models takes minutes.
SPEED_S = 1800.0


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet. ConfigError when it is, or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already: name another file, or move it away.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None


def print_json(value: Any) -> None:
    """The value as indented JSON; dataclasses become objects, bytes hexadecimal, other types their text."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, bytes):  # such as a hidden state
        return value.hex()
    return dict(value) if isinstance(value, Mapping) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table. Cells are text, never markup: they may hold what a model wrote."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    out.print(table)


def say(text: str) -> None:
    """A line on stderr for the person who waits; never markup, never wrapped, so that it can be copied."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def tell(text: str = "", style: str | None = None) -> None:
    """A line of the result on stdout; never markup."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def printable(value: object) -> str:
    """A cell's text on one line; control characters, which could drive the terminal, are shown escaped."""
    text = "" if value is None else str(value)
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text
    )


def percent(share: float | None) -> str:
    """0.575 as '57.5 %', nothing as '-'."""
    return "-" if share is None else f"{100 * share:.1f} %"


def interval(ends: tuple[float, float]) -> str:
    """A 95 % interval of shares in per cent."""
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"


def counted(counts: Mapping[str, int]) -> str:
    """How many of what, the things there are: "36 episodes, 1 checkpoint"."""
    return ", ".join(f"{n} {thing}{'' if n == 1 else 's'}" for thing, n in counts.items() if n)


def progress() -> Progress:
    """A progress bar on stderr, with the time that it has taken and that is left; silent where stderr is no terminal,
    apart from what is printed."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left", style="dim"),
        console=err,
        disable=not err.is_terminal,
        speed_estimate_period=SPEED_S,
    )


@contextmanager
def making_ready(what: str = "Loading libraries and models") -> Iterator[Status | None]:
    """Beside the block, which takes seconds, one line on stderr that moves and then is gone; None and no line where
    stderr is no terminal. Whoever knows more may change what it says by its `update`."""
    if not err.is_terminal:
        yield None
        return
    with err.status(f"{what} ...") as line:
        yield line


def with_progress(steps: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The steps as they come, with the bar of `progress`."""
    with progress() as bar:
        line = bar.add_task(what, total=total, note="")
        for step in steps:
            bar.update(line, advance=1)
            yield step
