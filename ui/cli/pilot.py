"""`--pilot`: a few recorded episodes before a run whose models have nothing recorded, to know what to expect of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from core.errors import ConfigError
from ui.cli.console import progress, say
from ui.cli.play import agree, playing

if TYPE_CHECKING:
    from storage.store import Store
    from ui.runs.batch import BatchParts
    from ui.runs.evolution import EvolutionParts
    from ui.runs.training import TrainingParts

R = TypeVar("R", "BatchParts", "EvolutionParts", "TrainingParts")

PilotOption = Annotated[
    bool,
    typer.Option(
        "--pilot",
        help="Where nothing is recorded of the pool's models: first play ten episodes on tasks of the evolve split, "
        "below the same ceiling, to know what to expect.",
    ),
]


def refuse_pilot(resume: object, pilot: bool) -> None:
    """ConfigError for a pilot of what is resumed: its own episodes say what to expect."""
    if pilot and resume:
        raise ConfigError("--pilot comes before a new run: leave it out with --resume.")


def piloted(store: Store, parts: R) -> R:
    """Play the pilot of a run that is ready, as a run of its own; the parts with what it left of their ceiling. Where
    something is recorded of their models, nothing is played. Exit 1 when the pilot did not come to its end."""
    from core.episode import EpisodeFinished
    from ui.presentation.words import dollars
    from ui.runs.batch import completed, prepare
    from ui.runs.expectation import expectation, pilot_of
    from ui.runs.spending import Price, price

    plan, specs = parts.plan, parts.pool.specs
    if (known := expectation(store, plan, specs)) is not None:
        say(f"No pilot is played: {known.recorded:,} replies of these models are recorded already.")
        return parts
    pilot = prepare(store, completed(store, pilot_of(plan, specs)))
    whole, first = price(store, plan, specs), price(store, pilot.plan, specs)
    agree(Price(whole.most + first.most, specs, whole.ceiling_usd), pilot=first)
    n = len(pilot.tasks) * len(pilot.policies)
    again = "The same command goes on without another pilot."
    with playing(store, pilot, again=again) as played, progress() as bar:
        line = bar.add_task("pilot episodes", total=n, note="")
        for event in played.events:
            bar.update(line, advance=isinstance(event, EpisodeFinished))
    if not played.complete:
        raise typer.Exit(1)
    spent = store.runs.spent_usd(played.run)
    left = None if plan.max_cost_usd is None else max(0.0, plan.max_cost_usd - spent)
    below = "" if left is None else f", which leaves {dollars(left)} below the ceiling"
    say(f"The pilot played {n} episodes for {dollars(spent)}{below}: run {played.run}.")
    if not whole.is_paid and (expected := expectation(store, plan, specs)) is not None:
        say(expected.sentence())  # of models that cost money it is said with the price
    return replace(parts, plan=replace(plan, max_cost_usd=left))
