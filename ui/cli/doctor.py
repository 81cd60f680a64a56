"""`trinity doctor`: where everything is, whether it is well, and how to back it up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.pocket import MODELS, WEIGHTS
from core.processes import cores
from ui.cli.console import print_json, print_table, printable, tell
from ui.cli.options import JsonOption, StoreOption, opened_store
from ui.program import name_clashes, packages, version

if TYPE_CHECKING:
    from storage.rows.summaries import RunSummary


def doctor(
    store: StoreOption = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Say what every table and column of a store means.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show where the store is, its schema, how to back it up, whether pool and weights are there, on which devices
    encoders can read, and whether another installed package owns an import name of Trinity Inspector.

    [dim]$[/] trinity doctor --json

    [dim]$[/] trinity doctor --tables
    """
    if tables:
        _tables(as_json)
        return
    from ui.runs import wiring

    settings = wiring.settings(store=store)
    with opened_store(store, mark_dead=True) as opened:
        health, runs = asdict(opened.health()), opened.runs.list(limit=5)
    found = [name for name in MODELS if (WEIGHTS / name / "model.safetensors").exists()]
    versions = packages()
    report: dict[str, Any] = {
        "version": version(),
        "store": {"backup" if name == "backup_hint" else name: value for name, value in health.items()},
        "data_folder": str(settings.data_folder),
        "readings": _readings(settings.data_folder),
        "pool": settings.pool,
        "devices": _devices(versions["torch"]),
        "pocket_models": found,
        "sample_runs": str(wiring.SAMPLE_RUNS) if wiring.has_samples() else None,
        "python": versions.pop("python"),
        "packages": versions,
        "name_clashes": name_clashes(),
    }
    if as_json:
        print_json(report)
    else:
        _print(report, runs)


def _devices(torch: str) -> dict[str, str]:
    """The devices that encoders can read on. Torch is asked in a process of its own, as it takes long to load; a build
    for the CPU alone need not be asked."""
    if not torch.endswith("+cpu"):
        code = "import json; from core.pocket.devices import devices_here; print(json.dumps(devices_here()))"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if told.returncode == 0:
            return dict(json.loads(told.stdout))
    return {"cpu": f"{cores()} cores"}


def _print(report: dict[str, Any], runs: Sequence[RunSummary]) -> None:
    from ui.presentation.words import size_words
    from ui.runs.plans import kind_of

    flat = {f"store.{key}": value for key, value in report["store"].items() if value is not None}
    flat |= {key: value for key, value in report.items() if not isinstance(value, dict)}
    flat["readings"] = (
        f"{size_words(report['readings']['size_bytes'])} of at most {size_words(report['readings']['most_bytes'])}"
    )
    found = report["pocket_models"]
    flat["pocket_models"] = f"{len(found)} of {len(MODELS)}: {', '.join(found)}"
    flat["devices"] = ", ".join(f"{name} ({words})" for name, words in report["devices"].items())
    flat["packages"] = ", ".join(f"{name} {number}" for name, number in report["packages"].items())
    print_table(["what", "value"], sorted(flat.items()))
    for name, owners in report["name_clashes"].items():
        tell(
            f"{printable(', '.join(owners))} also installs a package named '{name}', and the one installed last wins:"
            " install Trinity Inspector into an environment of its own, by pipx or uv tool."
        )
    tell()
    print_table(
        ["newest runs", "kind", "status", ">episodes"],
        [(run.id, run.kind, run.status, f"{run.finished_episodes}/{run.episodes}") for run in runs],
    )
    for run in runs:
        if run.status == "interrupted" and (command := kind_of(run).resume_command(printable(run.id))):
            tell(f"Go on with it: {command}")


def _readings(data_folder: Path) -> dict[str, int]:
    """What is kept of what large encoders have read."""
    from storage.shelves.states import MOST_BYTES
    from ui.runs import wiring

    return {"size_bytes": wiring.state_file(data_folder).size_bytes, "most_bytes": MOST_BYTES}


def _tables(as_json: bool) -> None:
    """The store's tables and columns in words, for people who read it with their own tools."""
    from storage.upkeep.tables import TABLE_MEANINGS, columns

    if as_json:
        print_json(
            {
                name: {"meaning": meaning, "columns": [asdict(one) for one in columns(name)]}
                for name, meaning in TABLE_MEANINGS.items()
            }
        )
        return
    for name, meaning in TABLE_MEANINGS.items():
        tell(f"{name}: {meaning}", style="bold")
        print_table(
            ["column", "type", "empty", "key", "meaning"],
            [
                (one.name, one.type.lower(), "" if one.required else "may be", one.key, one.meaning)
                for one in columns(name)
            ],
        )
        tell()
