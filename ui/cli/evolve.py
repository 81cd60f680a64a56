"""`trinity evolve`: a coordinator evolved on tasks, with a checkpoint per generation."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.console import (
    EncoderOption,
    JsonOption,
    MaxCostOption,
    PoolOption,
    StoreOption,
    given,
    percent,
    print_json,
    progress,
    say,
    tell,
)
from ui.cli.leased import leased

if TYPE_CHECKING:
    from core.evolution.evolve import Generation
    from core.settings import Settings
    from storage.store import Store
    from ui.evolution import Parts
    from ui.outline import Outline

PLAIN, AUTO = "plain", "auto"


def evolve(
    context: typer.Context,
    tasks: Annotated[str, typer.Option(help="pocket, pocket/FAMILY or a FILE.jsonl of your own.")] = "pocket",
    learner: Annotated[
        str,
        typer.Option(metavar="NAME", help="sep-cma-es, or what it is put beside: reinforce, random-search."),
    ] = "sep-cma-es",
    generations: Annotated[int, typer.Option(min=1, help="How many generations.")] = 60,
    population: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Candidates per generation; auto: 4 + 3 ln n for n numbers. Left out: 192; random-search 16, "
            "reinforce 1.",
        ),
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tasks each candidate plays per generation. Left out: 8; random-search 32, reinforce 512.",
        ),
    ] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Begin with so many, then as many as tell candidates apart.")
    ] = False,
    draw: Annotated[
        str,
        typer.Option(metavar="common|paper", help="One draw of tasks for all candidates, or one for each."),
    ] = "common",
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            help="Tasks to draw from; all there are, if fewer. Left out: 1000, or all of a file's.",
        ),
    ] = None,
    validation: Annotated[
        int, typer.Option(min=0, help="Held-apart tasks that the mean is measured on.")
    ] = 200,
    validate_every: Annotated[int, typer.Option(min=1, help="Measure it every so many generations.")] = 10,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The same seed evolves the same again, bit for bit.")
    ] = 0,
    turns: Annotated[int, typer.Option(min=1, max=100, help="Turn budget.")] = 5,
    head: Annotated[
        str,
        typer.Option(
            help="linear, low-rank, sparse, block-diagonal-2, block-diagonal-10 or turn-aware.",
        ),
    ] = "linear",
    svf: Annotated[
        str,
        typer.Option(
            metavar="LAYERS",
            help="Evolve singular values too: of the encoder's layers (1 or 26,27), or 'released'.",
        ),
    ] = "",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE|MODEL", help="Never choose this role or model; may be repeated."),
    ] = None,
    token_position: Annotated[
        int,
        typer.Option(max=-1, help="Which token's hidden state is read: -2 the last but one, -1 the last."),
    ] = -2,
    rates: Annotated[
        str,
        typer.Option(
            metavar="pycma|cmaes", help="Learning rates of sep-CMA-ES, by the library they are from."
        ),
    ] = "pycma",
    spread: Annotated[
        float, typer.Option(min=0.01, help="How far the first candidates' logits spread; sets the step size.")
    ] = 6.0,
    constant_spread: Annotated[
        str,
        typer.Option(
            metavar="SPREAD|plain",
            help="The same of preferences that do not depend on the transcript; 0 evolves none, 'plain' makes no "
            "difference.",
        ),
    ] = "0",
    step_size: Annotated[
        float | None,
        typer.Option(min=1e-9, help="The head's first step size as it is, instead of by --spread."),
    ] = None,
    svf_spread: Annotated[
        float, typer.Option(min=1e-6, help="How far the logits spread by singular values alone.")
    ] = 1.0,
    svf_step_size: Annotated[
        float | None,
        typer.Option(min=1e-9, help="Their first step size as it is, instead of by --svf-spread."),
    ] = None,
    learning_rate: Annotated[float, typer.Option(min=1e-9, help="REINFORCE's, for Adam.")] = 1e-3,
    box: Annotated[
        float, typer.Option(min=1e-9, help="Half of random search's box, in first step sizes.")
    ] = 3.0,
    diversity: Annotated[
        float,
        typer.Option(
            min=0.0, help="Weight of the entropy of chosen models in the fitness (released run: 0.15)."
        ),
    ] = 0.0,
    turn_cost: Annotated[
        float,
        typer.Option(min=0.0, help="Weight of the turns taken, against the fitness (released run: 0.1)."),
    ] = 0.0,
    controls: Annotated[
        bool,
        typer.Option(
            help="At the end, play what learned nothing: the same random walk, the best single model."
        ),
    ] = True,
    pool: PoolOption = None,
    encoder: EncoderOption = None,
    max_cost: MaxCostOption = None,
    name: Annotated[
        str, typer.Option(help="What to call the evolution; with --resume, which one (or a run's id).")
    ] = "",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the evolution of this --name where it was interrupted."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evolve a coordinator by separable CMA-ES: a checkpoint per generation, resumable bit for bit.

    Fitness is the share of tasks solved. Tasks come from the evolve split and are never seen in tests.
    An evolution that is resumed asks for no reply again that it has stored.

    [dim]$[/] trinity evolve --generations 30

    [dim]$[/] trinity evolve --tasks my.jsonl --pool pool.toml --population 12 --max-cost 20 --name mine

    [dim]$[/] trinity evolve --name mine --resume
    """
    from core.errors import ConfigError
    from core.evolution.config import EvolveConfig, shape_of
    from core.settings import POCKET
    from storage.store import open_store
    from ui import wiring
    from ui.evolution import prepared, with_usual_population
    from ui.lease import finish
    from ui.outline import Outline, find

    settings = wiring.settings(store=store, pool=pool, encoder=encoder, max_cost_usd=max_cost)
    shape = shape_of(learner)
    if draw not in ("common", "paper"):
        raise ConfigError(f"Tasks cannot be drawn as '{draw}': choose common or paper.")
    own = tasks.endswith(".jsonl")
    outline = Outline(
        tasks=str(Path(tasks).resolve()) if own else tasks,
        n=1000 if n is None and not own else n,
        validation=validation,
        pool=settings.pool if settings.pool == POCKET else str(Path(settings.pool).resolve()),
        encoder=settings.encoder or POCKET,
        max_cost_usd=settings.max_cost_usd,
        name=name,
        head=head,
        svf=svf,
        barred=tuple(without or ()),
        token_position=token_position,
        controls=controls,
        evolution=asdict(
            EvolveConfig(
                learner=learner,  # type: ignore[arg-type]  # checked where it is used
                generations=generations,
                population=_population(population) or shape.population,
                tasks_per_candidate=replicates or shape.tasks_per_candidate,
                rotate_every=shape.rotate_every,
                learning_rate=learning_rate,
                box=box,
                adaptive=adaptive,
                common=draw == "common",
                logit_spread=spread,
                constant_spread=_constant(constant_spread),
                step_size=step_size,
                svf_spread=svf_spread,
                svf_step_size=svf_step_size,
                diversity=diversity,
                turn_cost=turn_cost,
                turn_budget=turns,
                validate_every=validate_every,
                seed=seed,
                rates=rates,  # type: ignore[arg-type]  # checked where it is used
            )
        ),
    )
    if resume and not name:
        raise ConfigError(
            "Say which evolution goes on: --resume needs --name NAME, or a run's id as its name."
        )
    opened = open_store(settings.store)
    known = find(opened, name) if name else None
    if known and not resume:
        raise ConfigError(
            f"There is an evolution named '{name}': go on with it by --resume, or choose another name."
        )
    if resume and not known and not given(context, "tasks"):
        raise ConfigError(f"The store holds no evolution named '{name}': begin it without --resume.")
    if known:
        outline = _as_begun(context, opened, known, outline, settings)
    parts = prepared(outline)
    if population == AUTO and not known:
        parts = with_usual_population(parts)
    for note in parts.notes:
        say(note)
    _show_estimate(parts, already_agreed=known is not None)
    with leased(opened, "evolve", known, asdict(parts.outline)) as run_id:
        last = _evolve(opened, run_id, parts)
        finish(opened, run_id)
    _report(opened, run_id, last, as_json)
    opened.close()


#: Options that may differ when an evolution is resumed: they change nothing about what it is.
_FREE = ("store", "max_cost", "as_json", "name", "resume")
#: Options that the outline keeps beside the evolution's own fields, and fields that are not called as their option is.
_OUTLINE = (
    "tasks",
    "n",
    "validation",
    "pool",
    "encoder",
    "head",
    "svf",
    "without",
    "token_position",
    "controls",
)
_FIELDS = {
    "without": "barred",
    "replicates": "tasks_per_candidate",
    "draw": "common",
    "spread": "logit_spread",
    "turns": "turn_budget",
}


def _as_begun(
    context: typer.Context, store: Store, run_id: str, asked: Outline, settings: Settings
) -> Outline:
    """The stored outline; ConfigError for an option given now that would make it another evolution."""
    from core.errors import ConfigError
    from ui.outline import Outline

    begun = Outline.from_config(store.runs.get(run_id).config, settings.max_cost_usd)
    for option in context.params:
        if option in _FREE or not given(context, option) or context.params[option] == AUTO:
            continue
        kept: tuple[Any, Any] = (begun, asked) if option in _OUTLINE else (begun.config, asked.config)
        was, now = (getattr(one, _FIELDS.get(option, option)) for one in kept)
        if was != now:
            raise ConfigError(
                f"This evolution was begun with another --{option.replace('_', '-')}: it goes on as it was begun, "
                "leave the option out."
            )
    return begun


def _population(text: str | None) -> int | None:
    """None where it is left to somebody else."""
    from core.errors import ConfigError

    if text is None or text == AUTO:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"A population of '{text}' is not understood: give a number of 1 or more, or 'auto'."
        )
    return int(text)


def _constant(spread: str) -> float | None:
    from core.errors import ConfigError

    if spread == PLAIN:
        return None
    try:
        value = float(spread)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(
            f"A constant spread of '{spread}' is not understood: give 0, a positive number or 'plain'."
        )
    return value


def _show_estimate(parts: Parts, *, already_agreed: bool) -> None:
    """For models that cost money: the most this can cost, and a ceiling or a yes before it starts."""
    from ui.evolution import most
    from ui.spending import agree

    ask = sys.stdin.isatty() and not already_agreed
    ceiling = parts.outline.max_cost_usd
    sentence = agree(parts.pool.specs, most(parts), ceiling, may_ask=ask, agreed=already_agreed)
    if sentence:
        say(sentence)
        if ask and ceiling is None:
            typer.confirm("Start?", abort=True, err=True)


def _evolve(store: Store, run_id: str, parts: Parts) -> Generation | None:
    """Evolve to the end, with a bar; the last generation, None when it had been reached before."""
    from storage.recorder import beating
    from ui.evolution import played
    from ui.lease import owner

    earlier = store.evolution.generations(run_id)
    last = None
    with beating(store, run_id, owner()), progress() as bar:
        done = earlier[-1].index if earlier else 0
        line = bar.add_task("generations", total=parts.outline.config.generations, completed=done, note="")
        for last in played(store, run_id, parts):
            say(describe(last))
            bar.update(line, completed=last.index)
    return last


def describe(generation: Generation) -> str:
    """One line about a generation."""
    import numpy as np

    parts = [f"generation {generation.index}"]
    fitness = [value for value in generation.fitness if np.isfinite(value)]
    if fitness:
        parts.append(f"mean {percent(float(np.mean(fitness)))}, best {percent(max(fitness))}")
    if generation.validation is not None:
        parts.append(f"validation {percent(generation.validation.accuracy)} of {generation.validation.n}")
    parts.append(f"step size {generation.state.step_size:.3g}")
    for block, step in generation.steps.items():
        parts.append(
            f"first steps of the {block} {step.step_size:.3g} spread the logits by {step.logit_spread:.2g}"
        )
    return ", ".join(parts)


def _report(store: Store, run_id: str, last: Generation | None, as_json: bool) -> None:
    """What the evolution came to, and where its time went."""
    from core.evolution.learners import restored

    kept = store.evolution.state(run_id)
    assert kept is not None  # generation 0 is always kept
    state = restored(kept[1])
    generations = store.evolution.generations(run_id)
    validated = [one for one in generations if "validation" in one.stats]
    best = max(validated, key=lambda one: one.stats["validation"]["accuracy"], default=None)
    checkpoint = generations[-1].checkpoint_id
    beside = generations[-1].stats.get("controls", {})
    took: dict[str, Any] = {"episodes": generations[-1].evaluations, "seconds": generations[-1].wall_s}
    for key in ("calls", "calls_saved", "decisions", "forwards"):
        took[key] = sum(one.stats.get(key, 0) for one in generations)
    if as_json:
        print_json(
            {
                "run": run_id,
                "generations": state.generation,
                "checkpoint": checkpoint,
                "digest": state.digest,
                "best": None
                if best is None
                else {
                    "generation": best.index,
                    "checkpoint": best.checkpoint_id,
                    "validation": best.stats["validation"]["accuracy"],
                },
                "controls": {name: one["accuracy"] for name, one in beside.items()},
                "took": took,
            }
        )
        return
    tell(f"Generation {state.generation} is checkpoint {checkpoint} (optimiser state {state.digest[:12]}).")
    if best is not None:
        shown = percent(best.stats["validation"]["accuracy"])
        tell(f"Best on validation tasks: generation {best.index}, checkpoint {best.checkpoint_id}, {shown}.")
    for name, one in beside.items():
        tell(f"Beside it, {name}: {percent(one['accuracy'])} of {one['n']}.")
    asked = took["calls"] + took["calls_saved"]
    say(
        f"{took['episodes']:,} episodes, {took['episodes'] / max(took['seconds'], 1e-9):,.0f} a second; of {asked:,} "
        f"replies {took['calls']:,} were asked for, of {took['decisions']:,} transcripts {took['forwards']:,.0f} read."
    )
    say(f"Play it: trinity run --policy {checkpoint} --policy random --n 200")
