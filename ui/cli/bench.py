"""`trinity bench`: measure speed and results side by side with peers. The benchmarks come with the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from core.errors import ConfigError
from ui.cli.console import print_table

SOURCE = Path(__file__).resolve().parents[2]
FOLDER = SOURCE / "tests" / "bench"


def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Which one; without a name all are listed.")] = None,
) -> None:
    """Run a benchmark: ours and its peer in one run, with the ratio. Options after the name are its own, and so is
    --help there.

    [dim]$[/] trinity bench optimiser --json
    [dim]$[/] trinity bench pool --help
    """
    known = benchmarks()
    if not known:
        raise ConfigError("The benchmarks come with the source: run this in a clone of the repository.")
    if name is None:
        print_table(["benchmark", "what it measures"], sorted(known.items()))
        return
    if name not in known:
        raise ConfigError(f"There is no benchmark '{name}': choose {', '.join(sorted(known))}.")
    command = [sys.executable, "-m", f"tests.bench.{name}", *context.args]
    raise typer.Exit(subprocess.run(command, cwd=SOURCE).returncode)


def benchmarks() -> dict[str, str]:
    """Benchmark -> the first line of its docstring."""
    found = {}
    for file in FOLDER.glob("[a-z]*.py"):
        if file.name.startswith("test_"):
            continue
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        found[file.stem] = docstring.partition("\n")[0]
    return found
