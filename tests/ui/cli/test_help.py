"""What every command says of itself, and the files of settings that are written: as they stood when last agreed to.

`python -m tests.ui.cli.test_help` writes them anew, to be read in the difference of a commit.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.ui.pages import command
from tests.zygote import forked
from ui.cli import main
from ui.cli.commands import Commands

DATA = Path(__file__).with_name("data")
HELP = "help.txt"
WRITERS = ("evolve", "train", "serve")


def said(*arguments: str) -> str:
    """What `trinity ARGUMENTS` prints, an option on a line, without frames and columns."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        with pytest.raises(SystemExit):
            main([*arguments])
    lines = (re.sub(r" {2,}|─+", "  ", line.strip(" │╭╮╰╯─")) for line in out.getvalue().splitlines())
    return "\n".join(line for line in lines if line)


def commands() -> Iterator[tuple[str, ...]]:
    """Every command, and every command of a group."""
    yield ()
    for name, one in Commands.listed.items():
        if name != "bench":  # its help is the benchmark's own
            yield (name,)
            yield from ((name, inner) for inner in getattr(one.load(name), "commands", ()))


def agreed() -> Iterator[tuple[str, str]]:
    """Names and texts of the files: the help of all commands, and the settings that `--write-config` writes."""
    yield HELP, "\n\n".join(said(*words, "--help") for words in commands()) + "\n"
    with TemporaryDirectory() as folder:
        for name in WRITERS:
            file = Path(folder) / f"{name}.toml"
            with redirect_stderr(io.StringIO()), suppress(SystemExit):
                main([name, "--write-config", str(file)])
            yield file.name, file.read_text("utf-8")


def test_commands_and_files_of_settings_say_what_was_agreed() -> None:
    for name, text in agreed():
        assert text == (DATA / name).read_text("utf-8"), f"{name}: see the module's first lines"


def test_every_command_teaches_with_an_example() -> None:
    general, *said_of_each = (DATA / HELP).read_text("utf-8").split("\n\n")
    for text in said_of_each:
        found = re.match(r"Usage: trinity (\w+)", text)
        assert found is not None
        assert f"$ trinity {found[1]} " in f"{text} ".replace("\n", " ")
        assert f"\n{found[1]} " in general


@pytest.mark.process
def test_help_after_a_benchmarks_name_is_that_benchmarks_own(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(forked("python")))

    def said(*arguments: str) -> str:
        assert command(["bench", *arguments]) == 0
        return capfd.readouterr().out

    own = said("pool", "--help")
    assert own.startswith("usage: trinity bench pool ")
    assert "--per-second" in own
    assert "usage: trinity bench page_quality " in said("page_quality", "-h")
    general = said("--help")
    assert "Usage: trinity bench" in general
    assert "--per-second" not in general


if __name__ == "__main__":
    for file_name, said_now in agreed():
        (DATA / file_name).write_text(said_now, "utf-8")
