"""`trinity evolve`: a coordinator evolved on tasks, with a checkpoint per generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.evolution.config import DEPARTURES
from ui.cli.console import percent, print_json, say, tell
from ui.cli.learning import How, best_of, learn, tell_best
from ui.cli.options import Given, JsonOption, with_options
from ui.cli.play import piloted, play_out, tell_what_is_cut, tell_what_plays
from ui.cli.replies import tell_lapses
from ui.runs.settings.learning import EvolutionPlan

if TYPE_CHECKING:
    from core.evolution.evolve import Generation
    from storage.store import Store


@with_options(EvolutionPlan)
def evolve(
    *,
    context: typer.Context,
    given: Given,
    preset: Annotated[
        str,
        typer.Option(metavar="NAME", help="Where all other settings begin: default, or paper (see below)."),
    ] = "default",
    how: How,
    as_json: JsonOption = False,
) -> None:
    """Evolve a coordinator by separable CMA-ES: a checkpoint per generation, resumable bit for bit.

    Fitness is the share of tasks solved. Tasks come from the evolve split and are never seen in tests.
    A resumed evolution asks no model again for a stored reply.

    [dim]$[/] trinity evolve --generations 30

    [dim]$[/] trinity evolve --tasks my.jsonl --pool pool.toml --population 12 --max-cost 20 --name mine

    [dim]$[/] trinity evolve --name mine --resume

    A file can set spreads, step sizes, rates, learners' parameters, what is never chosen, and every option. This
    writes one that has all keys with their defaults:

    [dim]$[/] trinity evolve --write-config mine.toml

    [dim]$[/] trinity evolve --config mine.toml --seed 1
    """

    def play(opened: Store, plan: EvolutionPlan, known: str | None, chosen: Given) -> None:
        default_population = chosen["population"] == "auto" and not known
        run_id = _play(opened, plan, known, default_population=default_population, pilot=how.pilot)
        _report(opened, run_id, as_json)

    learn(EvolutionPlan, given, play, preset, how)


evolve.__doc__ = f"""{evolve.__doc__}
    Where the defaults differ from the paper; --preset paper follows the paper in all but the last two:

{"".join(f"    - {one}{chr(10)}" for one in DEPARTURES)}"""


def _play(
    store: Store, plan: EvolutionPlan, known: str | None, *, default_population: bool, pilot: bool
) -> str:
    """Begin the evolution, or go on with the `known` run; the run's id once it is over."""
    from ui.runs.evolution import prepare, with_default_population

    parts = prepare(store, plan)
    if default_population:
        parts = with_default_population(parts)
    for note in parts.notes:
        say(note)
    tell_what_plays(parts.plan.pool, parts.pool.specs, parts.encoder)
    tell_what_is_cut(store, parts.encoder, parts.pool.specs, [*parts.tasks, *parts.validation])
    if pilot:
        parts = piloted(store, parts)
    kept = store.runs.get(known).generations if known else 0
    if not kept:
        say(f"{parts.plan.survey_words}; no model of the pool is asked for that.")

    def shows(generation: Generation) -> dict[str, Any]:
        say(describe(generation))
        return {"completed": generation.index}

    done = max(0, kept - 1)
    return play_out(store, parts, known, "generations", parts.updates, shows, completed=done).finished()


def describe(generation: Generation) -> str:
    """One line about a generation."""
    import numpy as np

    from core.learning import MISSING_AT_MOST

    parts = [f"generation {generation.index}"]
    fitness = [value for value in generation.fitness if np.isfinite(value)]
    if fitness:
        parts.append(f"mean {percent(float(np.mean(fitness)))}, best {percent(max(fitness))}")
    if generation.validation is not None:
        parts.append(f"validation {percent(generation.validation.accuracy)} of {generation.validation.n}")
    parts.append(f"step size {generation.state.step_size:.3g}")
    if lost := sum(generation.missing):
        share = lost / max(1, len(generation.missing) * generation.tasks_per_candidate)
        loud = "Warning: " if share > MISSING_AT_MOST else ""
        parts.append(f"{loud}{lost} episodes missing ({percent(share)}), as models could not be asked")
    for block, step in generation.steps.items():
        parts.append(
            f"first steps of the {block} {step.step_size:.3g} spread the logits by {step.logit_spread:.2g}"
        )
    return ", ".join(parts)


def _report(store: Store, run_id: str, as_json: bool) -> None:
    """What the evolution came to, and where its time went."""
    from core.evolution.fitness import GenerationStats
    from core.evolution.learners import read_state
    from ui.runs import wiring
    from ui.runs.plans import plan_of
    from ui.runs.settings.learning import EvolutionPlan

    stored = store.learning.state(run_id)
    assert stored is not None  # generation 0 is always kept
    state = read_state(stored[1])
    generations = store.learning.updates(run_id)
    stats = [GenerationStats.of(one.stats) for one in generations]
    best = best_of(generations, "generation")
    checkpoint, controls = generations[-1].checkpoint_id, stats[-1].controls
    took: dict[str, Any] = {"episodes": generations[-1].episodes, "seconds": generations[-1].wall_s}
    for key in ("calls", "calls_saved", "decisions", "forwards"):
        took[key] = sum(getattr(one, key) or 0 for one in stats)
    if as_json:
        print_json(
            {
                "run": run_id,
                "generations": state.generation,
                "checkpoint": checkpoint,
                "digest": state.digest,
                "best": best,
                "controls": {name: one.accuracy for name, one in controls.items()},
                "took": took,
            }
        )
        return
    tell(f"Generation {state.generation} is checkpoint {checkpoint} (optimiser state {state.digest[:12]}).")
    tell_best(best, "generation")
    for name, control in controls.items():
        tell(f"Control, {name}: {percent(control.accuracy)} of {control.n}.")
    plan = plan_of(store.runs.get(run_id), EvolutionPlan)
    noticed = [
        turns for one in stats for part in (one.episodes, one.validation) if part for turns in part.noticed
    ]
    tell_lapses(noticed, wiring.pool_specs(plan.pool), run_id, recorded=plan.record != "none")
    asked = took["calls"] + took["calls_saved"]
    say(
        f"{took['episodes']:,} episodes, {took['episodes'] / max(took['seconds'], 1e-9):,.0f} a second; of {asked:,} "
        f"replies {took['calls']:,} were asked for, of {took['decisions']:,} transcripts {took['forwards']:,.0f} read."
    )
    say(f"Play it: trinity run --policy {checkpoint} --policy random --n 200")
