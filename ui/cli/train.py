"""`trinity train`: a Conductor's planner, a language model that writes workflows, trained on tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from pydantic import Field

from core.errors import ConfigError
from core.planner.config import PUBLISHED, PUBLISHED_MODEL, LearnConfig, Loss
from core.settings import POCKET_POOL, Settings
from core.workflow import AccessMode
from ui.cli.begun import (
    ConfigFileOption,
    LearnerSeedOption,
    NameOption,
    ResumeByNameOption,
    WriteConfigOption,
    as_begun,
    known_run,
)
from ui.cli.config_file import ConfigFile, Count, Size, checked, read_file, write_file
from ui.cli.console import (
    MOST_TASKS,
    JsonOption,
    MaxCostOption,
    PoolOption,
    ReuseOption,
    StoreOption,
    given,
    opened_store,
    percent,
    print_json,
    progress,
    say,
    tell,
)
from ui.cli.pilot import PilotOption, piloted, refuse_pilot
from ui.cli.playing import agree, playing, tell_what_plays, tell_what_was_reckoned, tell_what_was_reused
from ui.runs.plans import POCKET_QUESTIONS, WARM_UP_STEPS, TrainingPlan, absolute_pool, absolute_tasks

if TYPE_CHECKING:
    from core.planner.learn import Iteration
    from storage.store import Store

Share = Annotated[float, Field(ge=0, le=1)]

_BASE = LearnConfig()


class TrainFile(ConfigFile):
    """What stands in the file, and what the command line's options say. Keys are the names of `LearnConfig` and
    `TrainingPlan`."""

    command: ClassVar[str] = "train"

    tasks: str = "pocket"
    """pocket, pocket/FAMILY or a FILE.jsonl of your own"""
    n: Count | None = None
    """tasks that questions are chosen from; else 3000, or all of a file's"""
    validation: int = Field(default=200, ge=0)
    """held-apart tasks that the planner is measured on"""
    validate_every: Count = _BASE.validate_every
    """measure it every so many iterations"""
    save_every: Count = _BASE.save_every
    """keep a checkpoint, and what is needed to go on from it, every so many iterations"""
    planner: str = POCKET_POOL
    """what learns: pocket (a new small model), the id of a stored planner, or the folder of a causal language model"""
    warm_up_steps: Count = WARM_UP_STEPS
    """supervised steps that teach a new pocket planner the form of workflows, before anything else"""
    mode: AccessMode = Field(default=AccessMode.CHOOSE_POSITION, strict=False)
    """form of the access lists that a folder's model writes: binary, choose_id, choose_position or auto"""
    most_tokens: Count = 1_024
    """the most tokens of a reply that a folder's model writes"""
    show_names: bool = False
    """a folder's model is told the names of the pool's models, and not their numbers alone"""
    iterations: Count = _BASE.iterations
    """how many iterations"""
    questions: Count = _BASE.questions
    """questions in each"""
    rollouts: int = Field(default=_BASE.rollouts, ge=2)
    """workflows written and played for each question: its group"""
    learning_rate: Size = _BASE.learning_rate
    """the highest learning rate of AdamW"""
    warm_up: float = Field(default=_BASE.warm_up, ge=0, lt=1)
    """share of the iterations over which it rises; then it falls by a cosine"""
    temperature: Size = _BASE.temperature
    """at which workflows are sampled"""
    updates: Count = _BASE.updates
    """optimiser steps in an iteration"""
    batch: int = Field(default=_BASE.batch, ge=0)
    """replies that go through the model at once; 0: all of a step"""
    clip: Size = _BASE.clip
    """bound on the ratio of new to old probabilities, where there are several updates"""
    anchor_models: float = Field(default=_BASE.anchor_models, ge=0)
    """how strongly its choice of models is held to the planner it began as: weight of the divergence in the loss"""
    anchor_form: float = Field(default=_BASE.anchor_form, ge=0)
    """the same for all else that it writes: number of steps, subtasks and access"""
    loss: Loss = _BASE.loss
    """how the loss of tokens is averaged, as trl calls it: grpo, dapo or dr_grpo"""
    max_grad_norm: Size = _BASE.max_grad_norm
    """the gradient's norm is cut to this"""
    unreadable: float = _BASE.unreadable
    """reward of a plan that cannot be read"""
    wrong: float = _BASE.wrong
    """reward of a wrong answer"""
    right: float = _BASE.right
    """reward of a right answer"""
    problems: Count = _BASE.problems
    """questions that are kept, of those that single models and random workflows disagree on"""
    probes: int = Field(default=_BASE.probes, ge=0)
    """random workflows that are tried on each question, besides every model alone, to find that out"""
    subset_share: Share = _BASE.subset_share
    """share of questions that are played with a random part of the pool"""
    subset_from: Share = _BASE.subset_from
    """from which share of the iterations on they are"""
    least_models: Count = _BASE.least_models
    """the fewest models of such a part"""
    constrained: bool = _BASE.constrained
    """the planner can write nothing but lists that can be read"""
    gradient_checkpointing: bool = _BASE.gradient_checkpointing
    """less memory for more time, for large models"""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """the same seed learns the same again, bit for bit on one CPU thread"""
    pool: str | None = None
    """a pool.toml; else TRINITY_POOL, else the pocket models"""
    max_cost_usd: float | None = Field(default=None, ge=0, allow_inf_nan=True)
    """stop before spending more; else TRINITY_MAX_COST"""
    reuse: bool = False
    """take replies from earlier runs of this store, and keep its own for later ones"""
    name: str = ""
    """what to call the training"""

    def plan(self, settings: Settings) -> TrainingPlan:
        """The training that this describes. ConfigError, one sentence, when nothing could come of it."""
        tasks = absolute_tasks(self.tasks)
        of_a_folder = Path(self.planner).is_dir()
        return TrainingPlan(
            **self._fields_of(TrainingPlan)
            | {
                "learning": LearnConfig(**self._fields_of(LearnConfig)),
                "tasks": tasks,
                "n": POCKET_QUESTIONS if self.n is None and not tasks.endswith(".jsonl") else self.n,
                "planner": str(Path(self.planner).resolve()) if of_a_folder else self.planner,
                "pool": absolute_pool(settings.pool),
                "max_cost_usd": settings.max_cost_usd,
            }
        )

    def _fields_of(self, kind: type[LearnConfig | TrainingPlan]) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(kind) if hasattr(self, field.name)}


#: What `--preset NAME` means: keys that it sets, before a file and the options.
PRESETS: Mapping[str, Mapping[str, Any]] = {"default": {}, "published": asdict(PUBLISHED)}


def train(
    context: typer.Context,
    tasks: Annotated[str, typer.Option(help="pocket, pocket/FAMILY or a FILE.jsonl of your own.")] = "pocket",
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Where all other settings begin: default, or published (for {PUBLISHED_MODEL}).",
        ),
    ] = "default",
    planner: Annotated[
        str,
        typer.Option(
            metavar="pocket|ID|FOLDER",
            help="What learns: a new pocket planner, a stored planner, or a causal language model in a folder.",
        ),
    ] = POCKET_POOL,
    iterations: Annotated[
        int, typer.Option(min=1, max=MOST_TASKS, help="How many iterations.")
    ] = _BASE.iterations,
    questions: Annotated[
        int, typer.Option(min=1, max=MOST_TASKS, help="Questions in each.")
    ] = _BASE.questions,
    rollouts: Annotated[
        int, typer.Option(min=2, max=MOST_TASKS, help="Workflows written and played for each question.")
    ] = _BASE.rollouts,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            max=MOST_TASKS,
            help="Tasks that questions are chosen from. Left out: 3000, or all of a file's.",
        ),
    ] = None,
    validation: Annotated[
        int, typer.Option(min=0, max=MOST_TASKS, help="Held-apart tasks that the planner is measured on.")
    ] = 200,
    validate_every: Annotated[
        int, typer.Option(min=1, help="Measure it every so many iterations.")
    ] = _BASE.validate_every,
    save_every: Annotated[
        int, typer.Option(min=1, help="Keep a checkpoint every so many iterations.")
    ] = _BASE.save_every,
    seed: LearnerSeedOption = 0,
    pool: PoolOption = None,
    max_cost: MaxCostOption = None,
    pilot: PilotOption = False,
    reuse: ReuseOption = False,
    config: ConfigFileOption = None,
    write_config: WriteConfigOption = None,
    name: NameOption = "",
    resume: ResumeByNameOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a Conductor: a language model that writes whole workflows, by reinforcement on real episodes (GRPO).

    A new pocket planner is first taught the form of workflows, and nothing about which are good. Then each iteration
    writes workflows for some questions, plays them, and makes those likelier that did better than others of their
    question. Tasks come from the evolve split and are never seen in tests. Needs the extra: pip install
    'trinity-inspector\\[conductor]'.

    [dim]$[/] trinity train --name mine

    [dim]$[/] trinity train --name mine --resume

    [dim]$[/] trinity train --preset published --planner ./Qwen2.5-7B --pool pool.toml --tasks my.jsonl --max-cost 200

    Rewards, rates, losses and what is sampled can stand in a file. Its keys are written with their defaults by:

    [dim]$[/] trinity train --write-config mine.toml
    """
    from ui.runs import wiring
    from ui.runs.grading import name_task_file

    named = {_KEYS.get(option, option): option for option in context.params if given(context, option)}
    if preset not in PRESETS:
        raise ConfigError(f"There is no preset '{preset}': choose {' or '.join(PRESETS)}.")
    values = dict(PRESETS[preset]) | (read_file(config, TrainFile) if config else {})
    values |= {key: context.params[option] for key, option in named.items() if option not in _NO_KNOBS}
    chosen = checked(values, config, TrainFile)
    if write_config:
        write_file(write_config, chosen)
        say(f"Wrote {write_config}. Edit it, then: trinity train --config {write_config}")
        return
    refuse_pilot(resume, pilot)
    settings = wiring.settings(store=store, pool=chosen.pool, max_cost_usd=chosen.max_cost_usd)
    plan = chosen.plan(settings)
    with opened_store(settings.store) as opened:
        known = known_run(opened, "train", chosen.name, resume=resume, may_begin="tasks" in values)
        if known:
            plan = as_begun(opened, known, plan, settings, {key: named.get(key) for key in values})
        else:
            name_task_file(opened, plan.tasks)
        run_id = _play(opened, plan, known, pilot=pilot)
        _report(opened, run_id, as_json)


#: Options that say nothing about what a training is, and keys that are not called as their option is.
_NO_KNOBS = ("preset", "config", "write_config", "pilot", "resume", "store", "as_json")
_KEYS = {"max_cost": "max_cost_usd"}


def _play(store: Store, plan: TrainingPlan, known: str | None, *, pilot: bool) -> str:
    """Begin the training, or go on with the `known` run; the run's id once it is over."""
    from core.planner.learn import Iteration
    from ui.runs.expectation import expectation
    from ui.runs.spending import price
    from ui.runs.training import prepare

    parts = prepare(store, plan)
    for note in parts.notes:
        say(note)
    tell_what_plays(parts.plan.pool, parts.pool.specs)
    if parts.start is not None:
        millions = sum(one.numel() for one in parts.start.model.parameters()) / 1e6
        say(f"Planner {parts.start.card.id}: {millions:,.1f} million numbers, on the {parts.start.device}.")
    if pilot:
        parts = piloted(store, parts)
    expected = expectation(store, parts.plan, parts.pool.specs)
    agree(price(store, parts.plan, parts.pool.specs), expected, agreed=known is not None)
    with playing(store, parts, known) as played, progress() as bar:
        done = max(0, store.runs.get(played.run).generations - 1)
        line = bar.add_task(
            "iterations", total=parts.plan.learning.iterations, completed=done, note="warm-up"
        )
        for event in played.events:
            if isinstance(event, Iteration):
                say(describe(event))
                bar.update(line, completed=event.index, note="")
            else:  # of the supervised training before it
                bar.update(line, note=f"warm-up {event.step} of {event.steps}")
    tell_what_was_reckoned(parts.reckoned)
    tell_what_was_reused(parts.shelf)
    if not played.complete:
        raise typer.Exit(1)
    return played.run


def describe(iteration: Iteration) -> str:
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


def _report(store: Store, run_id: str, as_json: bool) -> None:
    """What the training came to, and where its time went."""
    from core.planner.statistics import IterationStats

    stored = store.learning.updates(run_id)
    stats = [IterationStats.stats_of(one.stats) for one in stored]
    validated: list[dict[str, Any]] = [
        {"iteration": one.index, "checkpoint": one.checkpoint_id, "validation": one.validated}
        for one in stored
        if one.validated is not None
    ]
    best = max(validated, key=itemgetter("validation"), default=None)
    last = next(one for one in reversed(stored) if one.checkpoint_id)
    took = {
        "episodes": stored[-1].episodes,
        "seconds": stored[-1].wall_s,
        "spent_usd": stored[-1].spent_usd,
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
    if best is not None:
        tell(
            f"Best on validation tasks: iteration {best['iteration']}, checkpoint {best['checkpoint']}, "
            f"{_share(best['validation'])}."
        )
    say(f"{took['episodes']:,} episodes in {took['seconds']:,.0f} seconds.")
    policy = f"conductor:{last.checkpoint_id}"
    say(f"Play it: trinity run --policy {policy} --policy conductor:random --policy random --n 200")
