"""The tree of commands; each command's module is small and imports what is heavy only when it runs."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from ui.cli import (
    bench,
    checkpoints,
    compare,
    doctor,
    episodes,
    evolve,
    exchange,
    fork,
    labels,
    pocket,
    policy,
    pool,
    prune,
    reproduce,
    routing,
    run,
    separability,
    serve,
    worker,
)
from ui.versions import version as program_version

app = typer.Typer(
    name="trinity",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="See why a coordinator of language models did what it did.\n\n"
    "Begin with [bold]trinity ui[/]: it opens the app with recorded sample runs, needing no key and no "
    "network. Then record something of your own:\n\n"
    "[dim]$[/] trinity run --policy single:jack --policy random --tasks pocket --n 20",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(program_version())
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[bool, typer.Option("--verbose", help="Say on stderr what is being done.")] = False,
    version: Annotated[  # eager: its callback has answered before a command is looked for
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Options of every command."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


app.command("ui")(serve.ui)
app.command("worker")(worker.worker)
app.command("run")(run.run)
app.command("evolve")(evolve.evolve)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(episodes.app, name="episodes")
app.command("label")(labels.label)
app.command("labels")(labels.labels)
app.command("compare")(compare.compare)
app.command("fork")(fork.fork)
app.command("routing")(routing.routing)
app.command("verifier")(routing.verifier)
app.command("policy")(policy.policy)
app.command("separability")(separability.separability)
app.command("prune")(prune.prune)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)
app.add_typer(pool.app, name="pool")
app.add_typer(pocket.app, name="pocket")
app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench.bench)
app.command("doctor")(doctor.doctor)
