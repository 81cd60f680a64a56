"""`trinity run`: the same tasks under each policy, recorded, with accuracy and its interval."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.console import (
    JsonOption,
    MaxCostOption,
    PoolOption,
    StoreOption,
    interval,
    percent,
    print_json,
    print_table,
    printable,
    progress,
    refuse_with_resume,
    say,
)
from ui.cli.leased import leased
from ui.spending import MeteredPool, dollars

if TYPE_CHECKING:
    from core.episode import Task
    from core.policy import Policy
    from core.settings import Settings
    from storage.store import Store
    from ui.plan import Plan


def run(
    context: typer.Context,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A checkpoint's id or folder, single:MODEL, single:* (each model), random, random-model or "
            "round-robin. Repeat it to play the same tasks under several."
        ),
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(help="pocket, pocket/FAMILY, pocket/held-out, pocket/all or a FILE.jsonl of your own."),
    ] = "pocket",
    split: Annotated[str, typer.Option(help="evolve, validation or test.")] = "test",
    n: Annotated[
        int | None, typer.Option("--n", help="How many tasks. Left out: 100, or all of a file's.", min=1)
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**63 - 1, help="Chooses tasks and draws; the same seed plays the same again."
        ),
    ] = 0,
    turns: Annotated[
        int, typer.Option(help="Turn budget: model calls per task at most.", min=1, max=100)
    ] = 5,
    argmax: Annotated[
        bool, typer.Option("--argmax", help="Coordinators take their best choice, not a draw.")
    ] = False,
    pool: PoolOption = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder folder or hub id of the checkpoints. Else the one they name.")
    ] = None,
    max_cost: MaxCostOption = None,
    validate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Validation tasks that choose the role cycles. Left out: 40, or 0 where models cost money; "
            "0 means plan, work, check.",
        ),
    ] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with an interrupted run.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play tasks under one or more policies, record every turn, print accuracies with 95 % Wilson intervals.

    Single models, random-model and round-robin follow the cycle of roles that did best on validation tasks.
    Models that cost money show an estimate first. Ctrl-C keeps every committed turn. Episodes that were lost
    because a model could not be asked are played by --resume; until then the exit code is 1.

    A task file has one object per line: {"question": ..., "answer": ..., "grader": ...}, where the grader is
    "exact", "number" or "choice".

    [dim]$[/] trinity run --policy single:jack --policy random --tasks pocket --n 100

    [dim]$[/] trinity run --policy cabc123 --tasks my.jsonl --pool pool.toml --max-cost 2

    [dim]$[/] trinity run --resume rp12ab
    """
    from core.errors import ConfigError
    from core.settings import POCKET
    from storage.store import open_store
    from ui import wiring
    from ui.plan import Plan

    settings = wiring.settings(store=store, pool=pool, encoder=encoder, max_cost_usd=max_cost)
    opened = open_store(settings.store)
    if resume is not None:
        refuse_with_resume(context, "resume", "store", "max_cost", "as_json")
        parts = _stored(opened, resume, settings)
    elif policy:
        plan = Plan(
            policies=tuple(policy),
            tasks=str(Path(tasks).resolve()) if tasks.endswith(".jsonl") else tasks,
            split=split,
            n=100 if n is None and not tasks.endswith(".jsonl") else n,
            seed=seed,
            turns=turns,
            argmax=argmax,
            pool=settings.pool if settings.pool == POCKET else str(Path(settings.pool).resolve()),
            encoder=settings.encoder,
            max_cost_usd=settings.max_cost_usd,
        )
        parts = _prepared(opened, plan)
    else:
        raise ConfigError("Name at least one policy, for example: trinity run --policy random --n 20")
    validation = [] if resume is not None else _validation(parts, validate)
    _show_estimate(parts, validation, already_agreed=resume is not None)
    if validation:
        parts = _with_cycles(opened, parts, validation, settings.data_folder)
    with leased(opened, "run", resume, parts.plan.to_config()) as run_id:
        complete = _play(opened, run_id, parts)
    _report(opened, run_id, parts.plan, as_json)
    opened.close()
    if not complete:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Parts:
    """All that a run needs besides the store."""

    plan: Plan
    pool: MeteredPool
    policies: list[Policy]
    tasks: list[Task]


def _prepared(store: Store, plan: Plan) -> Parts:
    """A new run's parts; everything that can be wrong is found here, before anything is written."""
    from ui import wiring
    from ui.plan import digest

    tasks = plan.load_tasks()
    pool = MeteredPool(wiring.resolve_pool(plan.pool), plan.max_cost_usd)
    models = tuple(spec.name for spec in pool.specs)
    names = dict.fromkeys(_kept(store, name) for name in wiring.expand(plan.policies, models))
    plan = replace(plan, policies=tuple(names), models=models, digest=digest(tasks))
    return Parts(plan, pool, _resolved(store, plan), tasks)


def _validation(parts: Parts, n: int | None) -> list[Task]:
    """The tasks that choose role cycles; none when no policy follows a cycle or there are none."""
    from core.errors import TaskError
    from core.policies import follows_cycle
    from core.tasks.sets import load_tasks
    from ui.spending import paid_models

    if n is None:
        n = 0 if paid_models(parts.pool.specs) else 40
    if n == 0 or not any(follows_cycle(name) for name in parts.plan.policies):
        return []
    try:
        return load_tasks(parts.plan.tasks, "validation", n, 0)
    except TaskError as error:
        say(f"Role cycles stay plan, work, check: {error}")
        return []


def _with_cycles(store: Store, parts: Parts, validation: list[Task], folder: Path) -> Parts:
    """The parts with the best cycle of roles for each policy that follows one, chosen once, then frozen."""
    from core.evolution.cycles import CYCLES, choose_cycles, try_cycles
    from core.policies import follows_cycle
    from core.pool.cache import CachedPool
    from core.tasks.graders import grade_many
    from ui.cycles import Remembered

    plan = parts.plan
    remembered = Remembered(folder, parts.pool, validation, plan.turns)
    chosen = remembered.get()
    if unknown := [one for one in plan.policies if follows_cycle(one) and one not in chosen]:
        trials = try_cycles(unknown, CachedPool(parts.pool), grade_many, validation, turn_budget=plan.turns)
        with progress() as bar:
            total = len(unknown) * len(CYCLES) * len(validation)
            line = bar.add_task("choosing role cycles", total=total, note="on validation tasks")
            found = choose_cycles(bar.track(trials, total=total, task_id=line))
        remembered.add({name: one.cycle for name, one in found.items() if not one.missing})
        chosen |= {name: one.cycle for name, one in found.items()}
    mine = {name: chosen[name] for name in plan.policies if name in chosen}
    for name, cycle in mine.items():
        say(f"{name} plays {', '.join(cycle)}")
    plan = replace(plan, cycles=mine, choice_usd=parts.pool.spent_usd)
    return replace(parts, plan=plan, policies=_resolved(store, plan))


def _resolved(store: Store, plan: Plan) -> list[Policy]:
    from ui.wiring import Policies

    resolver = Policies(
        store, plan.models, argmax=plan.argmax, encoder=plan.encoder, cycles=plan.role_cycles()
    )
    return [resolver.resolve(name) for name in plan.policies]


def _kept(store: Store, name: str) -> str:
    """The policy's name; a checkpoint folder is put into the store, so that the run can name it by its id."""
    from core.checkpoint import load_checkpoint
    from ui import wiring

    if not os.path.isdir(name):  # of a name that no path can have: no error, no folder
        return name
    checkpoint = load_checkpoint(name)
    wiring.keep_checkpoint(store, checkpoint)
    return checkpoint.id


def _stored(store: Store, run_id: str, settings: Settings) -> Parts:
    """The parts of a run that is to be resumed; a ceiling given now replaces the stored one."""
    from core.errors import ConfigError
    from ui import wiring
    from ui.plan import Plan

    plan = Plan.from_config(store.runs.get(run_id).config)
    if settings.max_cost_usd is not None:
        plan = replace(plan, max_cost_usd=settings.max_cost_usd)
    spent = store.runs.spent_usd(run_id) + plan.choice_usd
    pool = MeteredPool(wiring.resolve_pool(plan.pool), plan.max_cost_usd, spent)
    if tuple(spec.name for spec in pool.specs) != plan.models:
        raise ConfigError(
            f"The models in {plan.pool} have changed since this run began, so it cannot be resumed."
        )
    return Parts(plan, pool, _resolved(store, plan), plan.load_tasks())


def _show_estimate(parts: Parts, validation: list[Task], *, already_agreed: bool) -> None:
    """For models that cost money: the most this can cost, and a ceiling or a yes before it starts."""
    from core.evolution.cycles import CYCLES
    from core.policies import follows_cycle
    from ui.spending import agree, estimate

    plan, specs = parts.plan, parts.pool.specs
    tried = sum(follows_cycle(name) for name in plan.policies) * len(CYCLES) * len(validation)
    questions = [task.question for task in (*parts.tasks, *validation)]
    most = estimate(specs, tried + len(parts.tasks) * len(plan.policies), plan.turns, questions)
    ask = sys.stdin.isatty() and not already_agreed
    sentence = agree(specs, most, plan.max_cost_usd, may_ask=ask, agreed=already_agreed)
    if sentence:
        say(sentence)
        if ask and plan.max_cost_usd is None:
            typer.confirm("Start?", abort=True, err=True)


def _play(store: Store, run_id: str, parts: Parts) -> bool:
    """Play to the end, with a bar; whether every episode got there. If not, the run can be resumed."""
    from core.episode import EpisodeFinished, Status
    from core.errors import BudgetError
    from core.pool.cache import CachedPool
    from storage.summaries import RunStatus
    from ui.lease import finish
    from ui.plan import play

    plan, policies, tasks = parts.plan, parts.policies, parts.tasks
    right = over = 0
    try:
        with progress() as bar:
            line = bar.add_task("episodes", total=len(tasks) * len(policies), note="")
            for event in play(store, run_id, plan, policies, tasks, CachedPool(parts.pool)):
                if isinstance(event, EpisodeFinished):
                    over += event.episode.status is Status.FINISHED
                    right += bool(event.episode.correct)
                    note = f"{printable(event.episode.policy)}, {right} of {over} right"
                    bar.update(line, advance=1, note=note)
    except BudgetError:
        finish(store, run_id, RunStatus.INTERRUPTED, "The spend ceiling was reached.")
        say(
            f"Stopped: {dollars(parts.pool.spent_usd)} of {dollars(plan.max_cost_usd)} spent. "
            f"Go on with: trinity run --resume {run_id} --max-cost USD",
        )
        return False
    if missing := sum(one.missing for one in store.runs.policies(run_id)):
        lost = f"{missing} episode{' is' if missing == 1 else 's are'} missing: models could not be asked."
        finish(store, run_id, RunStatus.INTERRUPTED, f"{lost} Resume the run to play what is missing.")
        say(f"{lost} Go on with: trinity run --resume {run_id}")
        return False
    finish(store, run_id)
    return True


def _report(store: Store, run_id: str, plan: Plan, as_json: bool) -> None:
    """Accuracies per policy, in the order they were asked for."""
    from core.metrics import wilson_interval

    order = {name: place for place, name in enumerate(plan.policies)}
    rows = sorted(store.runs.policies(run_id), key=lambda one: order.get(one.policy, len(order)))
    if as_json:
        print_json(
            [
                {
                    "policy": one.policy,
                    "accuracy": one.accuracy,
                    "ci95": wilson_interval(one.correct, one.n),
                    "n": one.n,
                    "turns_mean": one.mean_turns,
                }
                for one in rows
            ]
        )
        return
    print_table(
        [
            "policy",
            ">accuracy",
            "95 % interval",
            ">n",
            ">missing",
            ">turns",
            ">wrong among accepted",
            ">cost",
        ],
        [
            (
                one.policy,
                percent(one.accuracy),
                interval(wilson_interval(one.correct, one.n)),
                one.n,
                one.missing or "",
                "-" if one.mean_turns is None else f"{one.mean_turns:.2f}",
                f"{one.false_accepts} of {one.accepted}",
                dollars(one.cost_usd),
            )
            for one in rows
        ],
    )
    say(f"Look into it: trinity episodes --run {run_id}, or trinity ui")
