"""`trinity import` and `trinity export`: runs as versioned JSON Lines files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ui.cli.console import JsonOption, StoreOption, counted, print_json, say, tell


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files (.jsonl or .jsonl.gz), or folders of them.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring exported runs into the store: a file at a time, each whole or not at all.

    Importing twice changes nothing; the same id with other content is refused.

    [dim]$[/] trinity import colleague.jsonl.gz
    """
    from storage.interchange import import_runs
    from storage.store import open_store
    from ui import wiring

    opened = open_store(wiring.settings(store=store).store)
    reports = [report for path in paths for report in import_runs(opened, path)]
    opened.close()
    if as_json:
        print_json(reports)
        return
    for report in reports:
        tell(str(report))


def export(
    runs: Annotated[list[str], typer.Argument(help="Ids of runs; they go into one file.")],
    path: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Else RUN.jsonl.gz; .gz means gzipped.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs with their checkpoints, generations and episodes to one file that another store can import.

    [dim]$[/] trinity export rp12ab --out for-my-colleague.jsonl.gz
    """
    from core.errors import ConfigError
    from storage.interchange import export_runs
    from storage.store import open_store
    from ui import wiring

    target = path or Path(f"{runs[0]}.jsonl.gz")
    if target.exists() and not force:
        raise ConfigError(
            f"{target} exists already: name another file with --out, or write over it with --force."
        )
    opened = open_store(wiring.settings(store=store).store)
    counts = export_runs(opened, runs, target)
    opened.close()
    say(f"Wrote {target}: {counted(counts)}")
    if as_json:
        print_json({"file": str(target), "lines": counts})
