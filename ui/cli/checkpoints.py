"""`trinity checkpoints`: list coordinators and planners, export one as a folder, import one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import CheckpointError
from ui.cli.console import print_json, print_table, say
from ui.cli.options import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from core.checkpoint import Checkpoint


app = typer.Typer(
    invoke_without_command=True,
    help="List the store's checkpoints, newest run first.\n\n"
    "[dim]$[/] trinity checkpoints --run rp12\n\n"
    "[dim]$[/] trinity checkpoints export cabc123 ./my-coordinator",
)


@app.callback()
def checkpoints(
    context: typer.Context,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Only checkpoints of this run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List checkpoints when no other command is given."""
    if context.invoked_subcommand is not None:
        return
    with opened_store(store) as opened:
        coordinators, planners = (opened.checkpoints.list(run, planners=which) for which in (False, True))
    if as_json:
        print_json(
            [
                {
                    "system": "conductor" if one.is_planner else "trinity",
                    "id": one.id,
                    "run": one.run_id,
                    "generation": one.generation,
                    "kind": one.kind,
                }
                for one in (*coordinators, *planners)
            ]
        )
        return
    columns = ["id", "run", ">generation", "kind", "models", "encoder"]
    rows = [
        (one.id, one.run_id, one.generation, one.kind, ", ".join(one.models), one.config["encoder"]["name"])
        for one in coordinators
    ]
    if coordinators or not planners:
        print_table(columns, rows, title="Coordinators (TRINITY)")
    columns = ["id", "run", ">iteration", "kind", "models", ">MB"]
    rows = [
        (one.id, one.run_id, one.generation, one.kind, ", ".join(one.models), f"{one.size_bytes / 1e6:.1f}")
        for one in planners
    ]
    if planners:
        print_table(columns, rows, title="Planners (Conductor)")


@app.command("export")
def export(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint's id.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    store: StoreOption = None,
) -> None:
    """Write a checkpoint as a folder: a coordinator's config.json and model.safetensors, or a planner's files.

    [dim]$[/] trinity checkpoints export cabc123 ./my-coordinator
    """
    from core.checkpoint import save_checkpoint
    from ui.runs import wiring

    with opened_store(store) as opened:
        if opened.checkpoints.has(checkpoint, planner=True):
            wiring.load_planner(opened, checkpoint).save(folder)
            say(f"Wrote planner {checkpoint} to {folder}.")
            return
        found = opened.checkpoints.load(checkpoint)
    save_checkpoint(found, folder)
    say(f"Wrote {found.id} to {folder}.")


@app.command("import")
def import_(
    path: Annotated[
        Path,
        typer.Argument(
            help="A folder with config.json and model.safetensors, a planner's folder, or the authors' vector (.npy)."
        ),
    ],
    run_config: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="The run configuration of the authors' vector.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="The encoder of the authors' vector: a Hugging Face folder or hub id.")
    ] = "Qwen/Qwen3-0.6B",
    store: StoreOption = None,
) -> None:
    """Import a checkpoint; importing it twice changes nothing.

    [dim]$[/] trinity checkpoints import ./my-coordinator

    [dim]$[/] trinity checkpoints import model_iter_60.npy --run-config config.json
    """
    from core.checkpoint import load_checkpoint
    from core.planner.card import CARD_FILE
    from ui.runs import wiring

    if (path / CARD_FILE).exists():
        from core.planner.planner import LanguagePlanner

        planner = LanguagePlanner.load(path)
        with opened_store(store) as opened:
            wiring.keep_planner(opened, planner)
        say(f"The store has {planner.card.id}.")
        return
    found = _released(path, run_config, encoder) if path.suffix == ".npy" else load_checkpoint(path)
    with opened_store(store) as opened:
        wiring.keep_checkpoint(opened, found)
    say(f"The store has {found.id}.")


def _released(vector: Path, run_config: Path | None, encoder: str) -> Checkpoint:
    """The authors' vector on its encoder, in the number format that they ran it in."""
    from core.coordinator.coordinator import released_checkpoint
    from core.coordinator.encoder import load_encoder
    from ui.runs import wiring
    from ui.runs.wiring import remember_encoder

    if run_config is None:
        raise CheckpointError(f"{vector} holds only numbers: give its run's configuration with --run-config.")
    loaded = remember_encoder(
        load_encoder(wiring.encoder_source(encoder), dtype="bfloat16"), wiring.data_folder()
    )
    return released_checkpoint(vector, run_config, loaded)
