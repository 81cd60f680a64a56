"""`trinity evolve` and `trinity train`: what is asked for, its file, a name to resume it by, how it is played, and what
it came to."""

from __future__ import annotations

import difflib
import math
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from core.errors import ConfigError
from core.evolution.config import DEPARTURES, SEARCHES, EvolveConfig
from core.fields import Setting, settings_of, validate_settings, values_of
from core.planner.config import PUBLISHED_MODEL
from core.settings import DOORS, POCKET_POOL, Settings
from core.tasks.sets import POCKET_SETS
from core.texts import read_text
from ui.cli.console import making_ready, percent, print_json, say, tell, write_new
from ui.cli.options import OWN_STORE, Given, JsonOption, opened_store, setting_lines, with_options
from ui.cli.play import (
    PILOT,
    play_out,
    play_pilot,
    tell_what_is_cut,
    tell_what_plays,
    with_ceiling,
)
from ui.cli.replies import tell_lapses
from ui.runs.settings import usual_tasks
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan

if TYPE_CHECKING:
    from core.evolution.evolve import Generation
    from core.learning import Playing
    from core.planner.learn import Iteration
    from core.pocket.training import TrainingProgress
    from storage.rows.summaries import RunKind, UpdateSummary
    from storage.store import Store

P = TypeVar("P", EvolutionPlan, TrainingPlan)
#: Plays a plan in an open store, given the run that goes on (None for a new one), all settings, and whether a pilot
#: comes first; the run's id.
Play = Callable[["Store", P, str | None, Given, bool], str]

_HEAD = (
    "# For: trinity {command} --config {name}\n"
    "# Options on the command line win over this file. A key with # before it is left to what its comment says.\n"
)
#: What a reader calls them, with the article.
_WORDS = {"evolve": "an evolution", "train": "a training"}


@dataclass(frozen=True, slots=True)
class How:
    """Options that say nothing of what is learned."""

    pilot: Annotated[bool, PILOT] = False
    config: Annotated[str | None, Setting(option="--config", metavar="FILE.toml")] = None
    """File of settings; options given here override it."""
    write_config: Annotated[str | None, Setting(option="--write-config", metavar="FILE.toml")] = None
    """Write such a file, with a comment for every key, and stop."""
    resume: Annotated[bool, Setting(option="--resume")] = False
    """Resume the run of this --name where it was interrupted."""
    store: Annotated[str | None, OWN_STORE] = None


def _preset(others: str) -> Any:
    """The option for the settings to start from."""
    return typer.Option(metavar="NAME", help=f"Settings to start from: default, or {others}.")


@with_options(EvolutionPlan)
def evolve(
    *,
    context: typer.Context,
    given: Given,
    preset: Annotated[str, _preset("paper (see below)")] = "default",
    how: How,
    as_json: JsonOption = False,
) -> None:
    """Evolve a coordinator by separable CMA-ES: a checkpoint per generation, resumable bit for bit.

    Fitness is the share of tasks solved. Tasks come from the evolve split and are never seen in tests.
    A resumed evolution asks no model again for a stored reply.

    [dim]$[/] trinity evolve --generations 30

    [dim]$[/] trinity evolve --tasks my.jsonl --pool pool.toml --population 12 --max-cost 20 --name mine

    [dim]$[/] trinity evolve --name mine --resume

    A file can set every option, and spreads, step sizes, rates, learners' parameters and what is never chosen. This
    writes one with all keys and their defaults:

    [dim]$[/] trinity evolve --write-config mine.toml

    [dim]$[/] trinity evolve --config mine.toml --seed 1
    """
    learn(EvolutionPlan, given, preset, how, play_evolution, _report_evolution, as_json)


evolve.__doc__ = f"""{evolve.__doc__}
    Where the defaults differ from the paper; --preset paper follows the paper in all but the last two:

{"".join(f"    - {one}{chr(10)}" for one in DEPARTURES)}"""


def play_evolution(store: Store, plan: EvolutionPlan, known: str | None, chosen: Given, pilot: bool) -> str:
    """Begin the evolution, or go on with the `known` run; the run's id once it is over."""
    from core.learning import Playing

    with making_ready():
        from ui.runs.evolution import prepare, with_default_population

        parts = prepare(store, plan)
    if chosen["population"] == "auto" and not known:
        parts = with_default_population(parts)
    for note in parts.notes:
        say(note)
    tell_what_plays(parts.plan.pool, parts.pool.specs, parts.encoder)
    tell_what_is_cut(store, parts.encoder, parts.pool.specs, [*parts.tasks, *parts.validation])
    if pilot:
        parts = play_pilot(store, parts)
    kept = store.runs.get(known).generations if known else 0
    if not kept:
        say(f"{parts.plan.survey_words}; no model of the pool is asked for that.")

    def shows(event: Generation | Playing) -> dict[str, Any]:
        if isinstance(event, Playing):
            return {"note": playing_words(event)}
        say(generation_words(event))
        return {"completed": event.index, "note": ""}

    done = max(0, kept - 1)
    return play_out(store, parts, known, "generations", parts.updates, shows, completed=done).finished()


def playing_words(playing: Playing) -> str:
    """How far the episodes of something are."""
    turns = f", {playing.turns:,} turns" if playing.turns else ""
    return f"{playing.what}: {playing.done:,} of {playing.of:,} episodes{turns}"


def generation_words(generation: Generation) -> str:
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


def _report_evolution(store: Store, run_id: str, as_json: bool) -> None:
    """What the evolution came to, and where its time went."""
    from core.evolution.fitness import GenerationStats
    from core.evolution.learners import read_state
    from core.play.policies import SINGLE
    from ui.runs import wiring
    from ui.runs.plans import plan_of

    stored = store.learning.state(run_id)
    assert stored is not None  # generation 0 is always kept
    state = read_state(stored[1])
    generations = store.learning.updates(run_id)
    stats = [GenerationStats.of(one.stats) for one in generations]
    best = best_of(generations, "generation")
    checkpoint, controls = generations[-1].checkpoint_id, stats[-1].controls
    took: dict[str, Any] = {"episodes": generations[-1].episodes, "seconds": generations[-1].wall_s}
    for key in ("calls", "calls_saved", "decisions", "forwards", "reading_s"):
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
    single = max((one.accuracy for name, one in controls.items() if name.startswith(SINGLE)), default=0.0)
    if best is not None and single > best["validation"]:
        tell(_single_ahead_words(plan.evolution))
    noticed = [
        turns for one in stats for part in (one.episodes, one.validation) if part for turns in part.noticed
    ]
    tell_lapses(noticed, wiring.pool_specs(plan.pool), run_id, recorded=plan.record != "none")
    asked, pace = took["calls"] + took["calls_saved"], took["episodes"] / max(took["seconds"], 1e-9)
    speed = f"{pace:,.0f}" if pace >= 10 else f"{pace:.2g}"
    say(
        f"Candidates played {took['episodes']:,} episodes, {speed} a second; of {asked:,} replies {took['calls']:,} "
        f"were asked for, of {took['decisions']:,} transcripts {took['forwards']:,.0f} read, "
        f"in {took['reading_s']:,.0f} seconds."
    )
    say(_play_words(plan, str(best["checkpoint"] if best else checkpoint), "random"))


def _single_ahead_words(config: EvolveConfig) -> str:
    """That a single model is ahead of what was evolved, and what helps and was not tried yet."""
    untried = []
    if not config.label_questions:
        untried.append("--labels N begins from what each model solves")
    if config.constant_spread == 0 and config.learner in SEARCHES:
        untried.append(
            f"constant_spread = {config.logit_spread:g} in the file of --config lets the search prefer a model "
            "whatever the question is"
        )
    words = "A single model solves more of these tasks."
    if untried:
        words += f" Where one model is best at all kinds of questions, this helps: {'; '.join(untried)}."
    return words


@with_options(TrainingPlan)
def train(
    *,
    context: typer.Context,
    given: Given,
    preset: Annotated[str, _preset(f"published (for {PUBLISHED_MODEL})")] = "default",
    how: How,
    as_json: JsonOption = False,
) -> None:
    """Train a Conductor: a language model that writes whole workflows, by reinforcement on real episodes (GRPO).

    A new pocket planner first learns the form of workflows, not which are good. Then each iteration writes workflows
    for some questions, plays them, and makes likelier those that did better than others of the same question. Tasks
    come from the evolve split and are never seen in tests. It needs an
    extra: pip install 'trinity-inspector\\[conductor]'.

    [dim]$[/] trinity train --name mine

    [dim]$[/] trinity train --name mine --resume

    [dim]$[/] trinity train --preset published --planner ./Qwen2.5-7B --pool pool.toml --tasks my.jsonl --max-cost 200

    A file can set every option, and rewards, rates, losses and sampling. This writes one with all keys and their
    defaults:

    [dim]$[/] trinity train --write-config mine.toml
    """
    learn(TrainingPlan, given, preset, how, _play_training, _report_training, as_json)


def _play_training(store: Store, plan: TrainingPlan, known: str | None, _: Given, pilot: bool) -> str:
    """Begin the training, or go on with the `known` run; the run's id once it is over."""
    from core.learning import Playing
    from core.planner.learn import Iteration

    with making_ready():
        from ui.runs.training import prepare

        parts = prepare(store, plan)
    for note in parts.notes:
        say(note)
    tell_what_plays(parts.plan.pool, parts.pool.specs)
    if parts.start is not None:
        millions = sum(one.numel() for one in parts.start.model.parameters()) / 1e6
        say(f"Planner {parts.start.card.id}: {millions:,.1f} million numbers, on the {parts.start.device}.")
    if pilot:
        parts = play_pilot(store, parts)

    def shows(event: Iteration | TrainingProgress | Playing) -> dict[str, Any]:
        if isinstance(event, Iteration):
            say(iteration_words(event))
            return {"completed": event.index, "note": ""}
        if isinstance(event, Playing):
            return {"note": playing_words(event)}
        return {"note": f"warm-up {event.step} of {event.steps}"}  # the supervised training before it

    done = max(0, store.runs.get(known).generations - 1) if known else 0
    line = {"completed": done, "note": "warm-up"}
    return play_out(store, parts, known, "iterations", parts.updates, shows, **line).finished()


def iteration_words(iteration: Iteration) -> str:
    """One line about an iteration."""
    parts = [f"iteration {iteration.index}"]
    if (played := iteration.rollouts) is not None:
        parts.append(f"right {_share(played.right)}, readable {_share(played.readable)}")
        parts.append(f"{played.steps_mean:.1f} steps")
        if played.missing:
            parts.append(f"{played.missing} missing, as models could not be asked")
    if (validated := iteration.validation) is not None:
        parts.append(f"validation {_share(validated.right)} of {validated.n}")
    if not math.isnan(iteration.free):
        parts.append(f"written without the grammar {_share(iteration.free)} readable")
    if iteration.planner is not None:
        parts.append(f"checkpoint {iteration.planner.card.id}")
    return ", ".join(parts)


def _share(value: float) -> str:
    return percent(None if math.isnan(value) else value)


def _report_training(store: Store, run_id: str, as_json: bool) -> None:
    """What the training came to, and where its time went."""
    from core.planner.statistics import IterationStats
    from ui.runs.plans import plan_of

    stored = store.learning.updates(run_id)
    stats = [IterationStats.stats_of(one.stats) for one in stored]
    best = best_of(stored, "iteration")
    last = next(one for one in reversed(stored) if one.checkpoint_id)
    took = {
        "episodes": stored[-1].episodes,
        "seconds": stored[-1].wall_s,
        "spent_usd": store.runs.spent_usd(run_id),
        "calls": sum(one.calls for one in stats),
        "calls_saved": sum(one.calls_saved for one in stats),
    }
    if as_json:
        print_json(
            {
                "run": run_id,
                "iterations": stored[-1].index,
                "checkpoint": last.checkpoint_id,
                "best": best,
                "took": took,
            }
        )
        return
    tell(f"Iteration {last.index} is checkpoint {last.checkpoint_id}.")
    tell_best(best, "iteration")
    say(f"{took['episodes']:,} episodes in {took['seconds']:,.0f} seconds.")
    plan = plan_of(store.runs.get(run_id), TrainingPlan)
    say(_play_words(plan, f"conductor:{last.checkpoint_id}", "conductor:random", "random"))


def _play_words(plan: EvolutionPlan | TrainingPlan, *policies: str) -> str:
    """How to play what was learned: over the models and on the tasks with which it was."""
    asked = [word for policy in policies for word in ("--policy", policy)]
    asked += ["--pool", plan.pool] if plan.pool != POCKET_POOL else []
    asked += ["--n", "200"] if plan.tasks in POCKET_SETS else ["--tasks", plan.tasks]
    return f"Play it: trinity run {shlex.join(asked)}"


def learn(
    kind: type[P],
    given: Given,
    preset: str,
    how: How,
    play: Play[P],
    report: Callable[[Store, str, bool], None],
    as_json: bool,
) -> None:
    """Play what a preset, a file and the options that are `given` ask for, each winning over those before it, and
    report what it came to; or write all of it into a file."""
    from ui.runs import wiring
    from ui.runs.grading import name_task_file
    from ui.runs.settings.learning import plan_from, preset_values

    command: RunKind = "evolve" if kind is EvolutionPlan else "train"
    asked = preset_values(kind, preset)
    asked |= (read_file(Path(how.config), kind, command) if how.config else {}) | dict(given)
    chosen: dict[str, Any] = validate_settings(kind, asked, f"{how.config}: " if how.config else "")
    doors = {key: chosen.get(key) for key in DOORS}
    settings = wiring.settings(store=how.store, **doors)
    if "tasks" not in asked:
        chosen["tasks"] = usual_tasks(settings.pool)
    if how.write_config:
        file = Path(how.write_config)
        lines = [_HEAD.format(command=command, name=file.name), *setting_lines(kind, chosen)]
        write_new(file, "\n".join(lines))
        say(f"Wrote {how.write_config}. Edit it, then: trinity {command} --config {how.write_config}")
        return
    if how.pilot and how.resume:
        raise ConfigError("--pilot comes before a new run: leave it out with --resume.")
    with opened_store(settings.store) as opened:
        known = known_run(opened, command, chosen["name"], resume=how.resume, may_begin="tasks" in asked)
        if kind is EvolutionPlan and not known:
            settings = replace(settings, encoder=wiring.encoder_for(settings.pool, settings.encoder))
        plan = plan_from(kind, chosen, settings)
        if known:
            names = {key: settings_of(kind)[key].setting.option if key in given else key for key in asked}
            plan = stored_plan(opened, known, plan, settings, asked, names)
        else:
            name_task_file(opened, plan.tasks)
        wiring.join_ahead(plan.engine)
        report(opened, play(opened, plan, known, chosen, how.pilot), as_json)


def known_run(store: Store, kind: RunKind, name: str, *, resume: bool, may_begin: bool) -> str | None:
    """The run of this kind and name; None where a new one is to begin. ConfigError when it is there and shall not go
    on, or the other way, or a resumed one has no name."""
    article, what = _WORDS[kind].split()
    if resume and not name:
        raise ConfigError(
            f"Say which {what} to resume: --resume needs --name NAME, or a run's id as its name."
        )
    known = store.runs.find(name, kind) if name else None
    if known and not resume:
        raise ConfigError(
            f"There is {article} {what} named '{name}': resume it by --resume, or choose another name."
        )
    if resume and not known and not may_begin:
        raise ConfigError(f"The store holds no {what} named '{name}': start it without --resume.")
    return known


def stored_plan(
    store: Store, run_id: str, plan: P, settings: Settings, asked: Given, names: Mapping[str, str]
) -> P:
    """The plan that a run keeps; ConfigError for a setting among those `asked` for that would make it another one, by
    its name."""
    from ui.runs.plans import plan_of

    kind = type(plan)
    stored = with_ceiling(plan_of(store.runs.get(run_id), kind), settings, asked)
    before, now = values_of(stored), values_of(plan)
    for key, field in settings_of(kind).items():
        found_out = (
            not field.optional and asked.get(key) == field.setting.word
        )  # its word stands for no value
        if key in asked and not field.setting.free and not found_out and before[key] != now[key]:
            raise ConfigError(
                f"This {_WORDS[plan.kind].split()[1]} was begun with another {names[key]}, which --resume cannot "
                "change: leave it out."
            )
    return stored


def read_file(path: Path, kind: type, command: str) -> dict[str, Any]:
    """The settings of a file, not yet checked. ConfigError for an unknown key, or a file that is none."""
    written_by = f"trinity {command} --write-config FILE"
    try:
        found = tomllib.loads(read_text(path))
    except UnicodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: write a file with every key by {written_by}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    known = settings_of(kind)
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            meant = f"did you mean {near[0]}?" if near else f"{written_by} writes them all."
            raise ConfigError(f"{path} has an unknown key '{key}': {meant}")
    return found


def best_of(updates: Sequence[UpdateSummary], noun: str) -> dict[str, Any] | None:
    """The update that did best on validation tasks, the latest of equals; None where none was validated."""
    validated: list[dict[str, Any]] = [
        {noun: one.index, "checkpoint": one.checkpoint_id, "validation": one.validated}
        for one in updates
        if one.validated is not None
    ]
    return max(validated, key=itemgetter("validation", noun), default=None)


def tell_best(best: Mapping[str, Any] | None, noun: str) -> None:
    """Say which update did best, if one did."""
    if best is not None:
        where = f"{noun} {best[noun]}, checkpoint {best['checkpoint']}"
        tell(f"Best on validation tasks: {where}, {percent(best['validation'])}.")
