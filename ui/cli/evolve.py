"""`trinity evolve`: a coordinator evolved on tasks, with a checkpoint per generation."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.episode import Protocol
from core.errors import ConfigError
from core.evolution.departures import DEPARTURES
from ui.cli.begun import (
    ConfigFileOption,
    LearnerSeedOption,
    NameOption,
    ResumeByNameOption,
    WriteConfigOption,
    as_begun,
    known_run,
)
from ui.cli.console import (
    MOST_TASKS,
    EncoderOption,
    JsonOption,
    MaxCostOption,
    PoolOption,
    ReuseOption,
    RulesOption,
    StoreOption,
    given,
    opened_store,
    percent,
    print_json,
    progress,
    say,
    tell,
)
from ui.cli.lapses import tell_lapses
from ui.cli.pilot import PilotOption, piloted, refuse_pilot
from ui.cli.playing import (
    agree,
    playing,
    tell_what_is_cut,
    tell_what_plays,
    tell_what_was_reckoned,
    tell_what_was_reused,
)

if TYPE_CHECKING:
    from core.evolution.evolve import Generation
    from storage.store import Store
    from ui.runs.plans import EvolutionPlan


def evolve(
    context: typer.Context,
    tasks: Annotated[str, typer.Option(help="pocket, pocket/FAMILY or a FILE.jsonl of your own.")] = "pocket",
    preset: Annotated[
        str,
        typer.Option(metavar="NAME", help="Where all other settings begin: default, or paper (see below)."),
    ] = "default",
    learner: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="sep-cma-es, or one to compare it with: pycma, reinforce, random-search."
        ),
    ] = "sep-cma-es",
    generations: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TASKS, help="How many generations. Left out: as many as make 92,160 episodes."
        ),
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Candidates per generation; auto: 4 + 3 ln n for n numbers. Left out: 96; pycma 32, "
            "random-search 16, reinforce 1.",
        ),
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_TASKS,
            help="Tasks each candidate plays per generation. Left out: 8; pycma 16, random-search 32, "
            "reinforce 128.",
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            max=MOST_TASKS,
            help="Tasks to draw from; all there are, if fewer. Left out: 1000, or all of a file's.",
        ),
    ] = None,
    validation: Annotated[
        int, typer.Option(min=0, max=MOST_TASKS, help="Held-apart tasks that the mean is measured on.")
    ] = 200,
    validate_every: Annotated[int, typer.Option(min=1, help="Measure it every so many generations.")] = 10,
    seed: LearnerSeedOption = 0,
    turns: Annotated[int, typer.Option(min=1, max=100, help="Turn budget.")] = 5,
    head: Annotated[
        str,
        typer.Option(help="linear, low-rank, sparse, block-diagonal-2, block-diagonal-10 or turn-aware."),
    ] = "linear",
    svf: Annotated[
        str,
        typer.Option(
            metavar="LAYERS",
            help="Evolve singular values too: of the encoder's layers (1 or 26,27), or 'released'.",
        ),
    ] = "",
    labels: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=MOST_TASKS,
            help="First teach the head which model does best on each of N questions, asked three times.",
        ),
    ] = 0,
    mirrored: Annotated[bool, typer.Option(help="Candidates in mirrored pairs, or each on its own.")] = True,
    protocol: RulesOption = Protocol.PAPER,
    controls: Annotated[
        bool,
        typer.Option(
            help="At the end, play what learned nothing: the same random walk, the best single model."
        ),
    ] = True,
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    max_cost: MaxCostOption = None,
    pilot: PilotOption = False,
    reuse: ReuseOption = False,
    record: Annotated[
        str,
        typer.Option(
            metavar="none|share|all",
            help="Store episodes to replay: share, of each validation and of 4 candidates in each generation; all, of "
            "every candidate too. An episode takes about 7 kB with the pocket models, more where replies are long.",
        ),
    ] = "none",
    config: ConfigFileOption = None,
    write_config: WriteConfigOption = None,
    name: NameOption = "",
    resume: ResumeByNameOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evolve a coordinator by separable CMA-ES: a checkpoint per generation, resumable bit for bit.

    Fitness is the share of tasks solved. Tasks come from the evolve split and are never seen in tests.
    An evolution that is resumed asks for no reply again that it has stored.

    [dim]$[/] trinity evolve --generations 30

    [dim]$[/] trinity evolve --tasks my.jsonl --pool pool.toml --population 12 --max-cost 20 --name mine

    [dim]$[/] trinity evolve --name mine --resume

    Spreads, step sizes, rates, learners' parameters, what is never chosen: these and all options can stand in a
    file. Its keys are written with their defaults by:

    [dim]$[/] trinity evolve --write-config mine.toml

    [dim]$[/] trinity evolve --config mine.toml --seed 1
    """
    from ui.cli.config_file import checked, read_file, write_file
    from ui.cli.evolve_config import AUTO, EvolveFile, preset_values
    from ui.runs import wiring
    from ui.runs.grading import name_task_file

    named = {_KEYS.get(option, option): option for option in context.params if given(context, option)}
    values = preset_values(preset) | (read_file(config, EvolveFile) if config else {})
    values |= {key: context.params[option] for key, option in named.items() if option not in _NO_KNOBS}
    if "population" in named:
        values["population"] = _population(population)
    chosen = checked(values, config, EvolveFile)
    if write_config:
        write_file(write_config, chosen)
        say(f"Wrote {write_config}. Edit it, then: trinity evolve --config {write_config}")
        return
    refuse_pilot(resume, pilot)
    settings = wiring.settings(
        store=store, pool=chosen.pool, encoder=chosen.encoder, max_cost_usd=chosen.max_cost_usd
    )
    plan = chosen.plan(settings)
    with opened_store(settings.store) as opened:
        known = known_run(opened, "evolve", chosen.name, resume=resume, may_begin="tasks" in values)
        if known:
            fixed = {key: named.get(key) for key in values if values[key] != AUTO}
            plan = as_begun(opened, known, plan, settings, fixed)
        else:
            name_task_file(opened, plan.tasks)
            plan = replace(plan, encoder=wiring.encoder_for(plan.pool, settings.encoder))
        default_population = chosen.population == AUTO and not known
        run_id = _play(opened, plan, known, default_population=default_population, pilot=pilot)
        _report(opened, run_id, as_json)


evolve.__doc__ = f"""{evolve.__doc__}
    Where the defaults are not the paper's; with --preset paper all but the last two is as in the paper:

{"".join(f"    - {one}{chr(10)}" for one in DEPARTURES)}"""


#: Options that say nothing about what an evolution is, and keys that are not called as their option is.
_NO_KNOBS = ("preset", "config", "write_config", "pilot", "resume", "store", "as_json")
_KEYS = {
    "replicates": "tasks_per_candidate",
    "labels": "label_questions",
    "turns": "turn_budget",
    "max_cost": "max_cost_usd",
}


def _play(
    store: Store, plan: EvolutionPlan, known: str | None, *, default_population: bool, pilot: bool
) -> str:
    """Begin the evolution, or go on with the `known` run; the run's id once it is over."""
    from ui.runs.evolution import prepare, with_default_population
    from ui.runs.expectation import expectation
    from ui.runs.spending import price

    parts = prepare(store, plan)
    if default_population:
        parts = with_default_population(parts)
    for note in parts.notes:
        say(note)
    tell_what_plays(parts.plan.pool, parts.pool.specs, parts.encoder)
    tell_what_is_cut(store, parts.encoder, parts.pool.specs, [*parts.tasks, *parts.validation])
    if pilot:
        parts = piloted(store, parts)
    expected = expectation(store, parts.plan, parts.pool.specs)
    agree(price(store, parts.plan, parts.pool.specs), expected, agreed=known is not None)
    with playing(store, parts, known) as played, progress() as bar:
        done = max(0, store.runs.get(played.run).generations - 1)
        if not store.runs.get(played.run).generations:
            say(f"{parts.plan.survey_words}; no model of the pool is asked for that.")
        line = bar.add_task("generations", total=parts.plan.evolution.generations, completed=done, note="")
        for generation in played.events:
            say(describe(generation))
            bar.update(line, completed=generation.index)
    tell_what_was_reckoned(parts.reckoned)
    tell_what_was_reused(parts.shelf)
    if not played.complete:
        raise typer.Exit(1)
    return played.run


def _population(text: str | None) -> int | str | None:
    """The option as the file's key has it."""
    from ui.cli.evolve_config import AUTO

    if text is None or text == AUTO:
        return text
    # By its length first: a number of thousands of digits cannot be read at all.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 0 < int(text) <= MOST_TASKS):
        raise ConfigError(
            f"A population of '{text[:40]}' is not understood: give a number from 1 to {MOST_TASKS:,}, or 'auto'."
        )
    return int(text)


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
    from core.evolution.generation_stats import GenerationStats
    from core.evolution.learners import restored
    from ui.runs import wiring
    from ui.runs.plans import EvolutionPlan, plan_of

    stored = store.learning.state(run_id)
    assert stored is not None  # generation 0 is always kept
    state = restored(stored[1])
    generations = store.learning.updates(run_id)
    stats = [GenerationStats.of(one.stats) for one in generations]
    validated: list[dict[str, Any]] = [
        {"generation": one.index, "checkpoint": one.checkpoint_id, "validation": one.validated}
        for one in generations
        if one.validated is not None
    ]
    best = max(validated, key=itemgetter("validation"), default=None)
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
    if best is not None:
        found = f"generation {best['generation']}, checkpoint {best['checkpoint']}"
        tell(f"Best on validation tasks: {found}, {percent(best['validation'])}.")
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
