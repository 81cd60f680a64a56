"""`trinity pocket`: the embedded small world: its model cards, and training its models again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from core.errors import ConfigError
from core.pocket import MODELS
from ui.cli.console import JsonOption, percent, print_json, print_table, progress, say, tell

app = typer.Typer(
    no_args_is_help=True,
    help="The embedded small world. Its figures say nothing about frontier models.\n\n"
    "[dim]$[/] trinity pocket cards\n\n[dim]$[/] trinity pocket train pip",
)


def _named(name: str | None, models: Iterable[str]) -> list[str]:
    """The model of this name, or all of them; ConfigError when there is none."""
    known = list(models)
    if name is not None and name not in known:
        raise ConfigError(f"There is no pocket model '{name}': choose one of {', '.join(known)}.")
    return known if name is None else [name]


@app.command()
def cards(
    name: Annotated[str | None, typer.Argument(help="One model; all when left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the model cards: sizes, training, and what each model was measured to do in each family.

    [dim]$[/] trinity pocket cards jack
    """
    from core.pocket.cards import read_card

    found = [read_card(one) for one in _named(name, MODELS)]
    if as_json:
        print_json(found)
        return
    for card in found:
        megabytes, minutes = card.bytes / 1e6, card.training_s / 60
        print_table(
            ["family", ">direct", ">own plan", ">good plan", ">planning", ">accepts right", ">revises wrong"],
            [
                (one.family, percent(one.direct), percent(one.own_plan), percent(one.good_plan))
                + (percent(one.plan), percent(one.accept_right), percent(one.revise_wrong))
                for one in card.skills
            ],
            title=f"{card.name}: {card.purpose} ({card.parameters:,} parameters, {megabytes:.1f} MB, "
            f"{card.recipe['steps']} steps in {minutes:.0f} min)",
        )
        tell()


@app.command()
def train(
    name: Annotated[str | None, typer.Argument(help="One model; all in order when left out.")] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Each model goes into a folder of its name in here.")
    ] = Path("pocket-weights"),
) -> None:
    """Train pocket models again by their recorded recipes and seeds, and measure a card for each.

    On one CPU thread (OMP_NUM_THREADS=1) the same recipe gives the same weights.
    The shipped weights stay as they are.

    [dim]$[/] trinity pocket train pip --out ./my-weights
    """
    from core.pocket.cards import measure_card
    from core.pocket.recipes import RECIPES
    from core.pocket.training import train as train_model

    for one in _named(name, RECIPES):
        began = time.monotonic()
        with progress() as bar:
            line = bar.add_task(one, total=RECIPES[one].steps, note="")
            for report in train_model(one, folder / one):
                bar.update(line, completed=report.step, total=report.steps, note=f"loss {report.loss:.3f}")
            if one in MODELS:
                for measured in measure_card(RECIPES[one], folder / one, time.monotonic() - began):
                    bar.update(line, note=f"measuring {getattr(measured, 'family', 'done')}")
        say(f"Wrote {folder / one}.")
