"""`trinity doctor`: where everything is, whether it is well, and how to back it up."""

from __future__ import annotations

from typing import Any

from ui.cli.console import JsonOption, StoreOption, print_json, print_table, printable, resume_command, tell
from ui.versions import packages, version


def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say where the store is, its schema, how to back it up, and whether pool and weights are there.

    [dim]$[/] trinity doctor --json
    """
    from core import pocket
    from storage.store import open_store
    from ui import wiring

    settings = wiring.settings(store=store)
    opened = open_store(settings.store)
    health, runs = opened.health(), opened.runs.list(limit=5)
    opened.close()
    found = [name for name in pocket.MODELS if (pocket.WEIGHTS / name / "model.safetensors").exists()]
    versions = packages()
    report: dict[str, Any] = {
        "version": version(),
        "store": {
            "url": health.url,
            "schema": health.schema,
            "database": health.database,
            "warning": health.warning,
            "runs": health.runs,
            "running": health.running,
            "stalled": health.stalled,
            "episodes": health.episodes,
            "turns": health.turns,
            "checkpoints": health.checkpoints,
            "size_bytes": health.size_bytes,
            "free_bytes": health.free_bytes,
            "backup": health.backup_hint,
        },
        "data_folder": str(settings.data_folder),
        "pool": settings.pool,
        "pocket_models": found,
        "sample_runs": str(wiring.SAMPLE_RUNS) if wiring.has_samples() else None,
        "python": versions.pop("python"),
        "packages": versions,
    }
    if as_json:
        print_json(report)
        return
    flat = {f"store.{key}": value for key, value in report["store"].items() if value is not None}
    flat |= {key: value for key, value in report.items() if not isinstance(value, dict)}
    flat["pocket_models"] = f"{len(found)} of {len(pocket.MODELS)}: {', '.join(found)}"
    flat["packages"] = ", ".join(f"{name} {number}" for name, number in report["packages"].items())
    print_table(["what", "value"], sorted(flat.items()))
    tell()
    print_table(
        ["newest runs", "kind", "status", ">episodes"],
        [(run.id, run.kind, run.status, f"{run.finished_episodes}/{run.episodes}") for run in runs],
    )
    for run in runs:
        if run.status == "interrupted" and run.kind in ("run", "evolve"):
            tell(f"Go on with it: {resume_command(run.kind, printable(run.id))}")
