"""`trinity checkpoints`: list coordinators, take one out as a folder, bring one in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import CheckpointError
from ui.cli.console import JsonOption, StoreOption, opened_store, print_json, print_table, say

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
    run: Annotated[str | None, typer.Option(help="Only this evolution run's.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List checkpoints when no other command is given."""
    if context.invoked_subcommand is not None:
        return
    with opened_store(store) as opened:
        found = opened.checkpoints.list(run)
    if as_json:
        print_json([{"id": c.id, "run": c.run_id, "generation": c.generation, "kind": c.kind} for c in found])
        return
    print_table(
        ["id", "run", ">generation", "kind", "models", "encoder"],
        [
            (c.id, c.run_id, c.generation, c.kind, ", ".join(c.config["models"]), c.config["encoder"]["name"])
            for c in found
        ],
    )


@app.command("export")
def export(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint's id.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    store: StoreOption = None,
) -> None:
    """Write a checkpoint as a folder: config.json and model.safetensors.

    [dim]$[/] trinity checkpoints export cabc123 ./my-coordinator
    """
    from core.checkpoint import save_checkpoint

    with opened_store(store) as opened:
        found = opened.checkpoints.load(checkpoint)
    save_checkpoint(found, folder)
    say(f"Wrote {found.id} to {folder}.")


@app.command("import")
def import_(
    path: Annotated[
        Path,
        typer.Argument(
            help="A folder with config.json and model.safetensors, or the authors' vector (.npy)."
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
    """Bring a checkpoint into the store; bringing it in twice changes nothing.

    [dim]$[/] trinity checkpoints import ./my-coordinator

    [dim]$[/] trinity checkpoints import model_iter_60.npy --run-config config.json
    """
    from core.checkpoint import load_checkpoint
    from ui.runs import wiring

    found = _released(path, run_config, encoder) if path.suffix == ".npy" else load_checkpoint(path)
    with opened_store(store) as opened:
        wiring.keep_checkpoint(opened, found)
    say(f"The store has {found.id}.")


def _released(vector: Path, run_config: Path | None, encoder: str) -> Checkpoint:
    """The authors' vector on its encoder, in the number format that they ran it in."""
    from core.coordinator.encoder import load_encoder
    from core.coordinator.released import released_checkpoint

    if run_config is None:
        raise CheckpointError(f"{vector} is numbers alone: name its run's configuration with --run-config.")
    return released_checkpoint(vector, run_config, load_encoder(encoder, dtype="bfloat16"))
