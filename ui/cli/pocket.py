"""`trinity pocket`: the embedded small world: its model cards, and training its models again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.errors import ConfigError
from core.pocket import ENCODER, MODELS
from ui.cli.console import percent, print_json, print_table, progress, say, tell
from ui.cli.options import JsonOption

app = typer.Typer(
    no_args_is_help=True,
    help="The embedded small models. Their figures say nothing about frontier models.\n\n"
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
    from core.pocket.models import read_card

    found = [read_card(one) for one in _named(name, (*MODELS, ENCODER))]
    if as_json:
        print_json(found)
        return
    for card in found:
        megabytes, minutes = card.bytes / 1e6, card.training_s / 60
        if card.loss is not None:
            tell(
                f"{card.name}: {card.purpose} ({card.parameters:,} parameters, {megabytes:.1f} MB, "
                f"{card.recipe['steps']} steps in {minutes:.0f} min); {card.loss:.3f} nats per token of validation "
                "transcripts"
            )
            continue
        print_table(
            ["family", ">direct", ">own plan", ">good plan", ">planning", ">accepts right", ">revises wrong"],
            [
                (one.family, percent(one.direct), percent(one.own_plan), percent(one.good_plan))
                + (percent(one.plan), percent(one.accept_right), percent(one.revise_wrong))
                for one in card.skills
            ],
            title=f"{card.name}: {card.purpose} ({card.parameters:,} parameters, {megabytes:.1f} MB, "
            f"{card.recipe['steps']} steps in {minutes:.0f} min, temperature {card.temperature:g})",
        )
        tell()


@app.command()
def temperatures(
    name: Annotated[str | None, typer.Argument(help="One model; all when left out.")] = None,
    n: Annotated[
        int, typer.Option("--n", min=1, max=2000, help="Validation tasks of each trained family.")
    ] = 100,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of weights; the shipped ones when left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play each model alone at several temperatures and cycles of roles; the pool uses the best of each.

    [dim]$[/] trinity pocket temperatures jack
    """
    from core.evolution.cycles import best_tried, try_temperatures
    from core.pocket import TRAINED_FAMILIES, WEIGHTS
    from core.pocket.models import pocket_spec
    from core.pocket.pool import PocketPool
    from core.pocket.tasks import draw_tasks
    from core.tasks.graders import grade_many
    from ui.runs import wiring

    tasks = [task for family in TRAINED_FAMILIES for task in draw_tasks(family, "validation", n, 0)]
    chosen, processes = _named(name, MODELS), wiring.processes()

    def pool_at(model: str, temperature: float) -> PocketPool:
        spec = replace(pocket_spec(model), temperature=temperature)
        return PocketPool((model,), weights=weights or WEIGHTS, specs=(spec,), processes=processes)

    found = {one: list(try_temperatures(one, partial(pool_at, one), grade_many, tasks)) for one in chosen}
    if as_json:
        print_json(found)
        return
    for model, tried in found.items():
        cycles = list(dict.fromkeys(one.cycle for one in tried))
        letters = ["".join(role.value[0].upper() for role in cycle) for cycle in cycles]
        share = {(one.temperature, one.cycle): one.solved for one in tried}
        print_table(
            [model, *(f">{cycle}" for cycle in letters)],
            [
                (f"{temperature:g}", *(percent(share[temperature, cycle]) for cycle in cycles))
                for temperature in dict.fromkeys(one.temperature for one in tried)
            ],
        )
        found_best = best_tried(tried)
        tell(f"{model} does best alone at {found_best.temperature:g}.")


@app.command()
def train(
    name: Annotated[str | None, typer.Argument(help="One model; all in order when left out.")] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where to write: each model gets a folder of its name in here.")
    ] = Path("pocket-weights"),
) -> None:
    """Train pocket models again by their recorded recipes and seeds, and measure a card for each.

    On one CPU thread (OMP_NUM_THREADS=1) the same recipe gives the same weights.
    The shipped weights stay as they are.

    [dim]$[/] trinity pocket train pip --out ./my-weights
    """
    from core.pocket.models import RECIPES, measure_card
    from core.pocket.training import train as train_model
    from core.tasks.graders import grade_many

    for one in _named(name, RECIPES):
        began = time.monotonic()
        with progress() as bar:
            line = bar.add_task(one, total=RECIPES[one].steps, note="")
            for report in train_model(one, folder / one):
                bar.update(line, completed=report.step, total=report.steps, note=f"loss {report.loss:.3f}")
            for measured in measure_card(RECIPES[one], folder / one, time.monotonic() - began, grade_many):
                bar.update(line, note=f"measuring {getattr(measured, 'family', 'done')}")
        say(f"Wrote {folder / one}.")
