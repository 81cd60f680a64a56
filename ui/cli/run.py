"""`trinity run`: the same tasks under each policy, recorded, with accuracy and its interval."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import ConfigError
from core.fields import MOST_TASKS
from core.settings import DOORS
from ui.cli.console import interval, making_ready, percent, print_json, print_table, printable, say
from ui.cli.options import (
    Given,
    JsonOption,
    StoreOption,
    opened_store,
    option,
    refuse_with_resume,
    with_options,
)
from ui.cli.play import PILOT, play_out, play_pilot, tell_what_is_cut, tell_what_plays, with_ceiling
from ui.cli.replies import tell_lapses
from ui.runs.policy_kinds import POLICIES
from ui.runs.settings.batch import BatchPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.pool.spec import ModelSpec
    from storage.store import Store


@with_options(BatchPlan)
def run(
    context: typer.Context,
    given: Given,
    validate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=MOST_TASKS,
            help="Validation tasks that choose the role cycles. Left out: 40, or 0 where models cost money or write in "
            "this process; 0 means plan, work, check.",
        ),
    ] = None,
    pilot: Annotated[bool, option(PILOT)] = False,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Resume an interrupted run.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play tasks under one or more policies, record every turn, print accuracies with 95 % Wilson intervals.

    Single models, random-model and round-robin follow the cycle of roles that did best on validation tasks.
    An estimate of the cost is shown before models that cost money are asked. Ctrl-C keeps every committed turn.
    --resume plays episodes that are missing because a model could not be asked; until then the exit code is 1.

    A task file has one object per line: {"question": ..., "answer": ..., "grader": ...}; 'trinity tasks --help' says
    which graders there are, for programs and for functions of your own too.

    [dim]$[/] trinity run --policy single:jack --policy random --tasks pocket --n 100

    [dim]$[/] trinity run --policy cabc123 --seed 1 --task-seed 0

    [dim]$[/] trinity run --policy cabc123 --tasks my.jsonl --pool pool.toml --max-cost 2

    [dim]$[/] trinity run --policy random --pool pool.toml --max-cost 2 --engine ray=10.0.0.5:6379

    [dim]$[/] trinity run --resume rp12ab
    """
    from ui.runs import wiring
    from ui.runs.batch import complete_plan
    from ui.runs.grading import name_task_file
    from ui.runs.plans import plan_of
    from ui.runs.settings.learning import plan_from

    doors = {key: given.get(key) for key in DOORS}
    settings = wiring.settings(store=store, **doors)
    with opened_store(settings.store) as opened:
        if resume is not None:
            refuse_with_resume(context, "resume", "store", "device", "engine", "max_cost_usd", "as_json")
            plan = with_ceiling(plan_of(opened.runs.get(resume), BatchPlan), settings, given)
        elif given.get("policies"):
            plan = plan_from(BatchPlan, given, settings)
            name_task_file(opened, plan.tasks)
            with making_ready():
                plan = complete_plan(opened, plan)
        else:
            raise ConfigError("Name at least one policy, for example: trinity run --policy random --n 20")
        wiring.join_ahead(plan.engine)
        _play(opened, plan, resume, validate, as_json, pilot=pilot, encoder_given=given.get("encoder"))


run.__doc__ = f"""{run.__doc__}
    What --policy may name besides checkpoints and planners:

{"".join(f"    - {one.form}: {one.words}{chr(10)}" for one in POLICIES.values())}"""


def _play(
    store: Store,
    plan: BatchPlan,
    resume: str | None,
    validate: int | None,
    as_json: bool,
    *,
    pilot: bool,
    encoder_given: str | None,
) -> None:
    """Play what the plan still lacks, after choosing role cycles on validation tasks, and print accuracies."""
    from core.episode import EpisodeFinished, Status
    from core.evolution.cycles import CYCLES
    from ui.presentation.comparison import tells_seen
    from ui.runs.batch import CyclesChosen, CyclesTried, PolicyTaught, prepare, with_choosing
    from ui.runs.plans import plan_of
    from ui.runs.settings.batch import BatchPlan
    from ui.runs.spending import lesson_episodes

    with making_ready():
        parts = prepare(store, plan)
    if resume is None:
        chosen, why = with_choosing(plan, parts.pool, validate)
        if why:
            say(why)
        parts = replace(parts, plan=chosen)
    encoders = (getattr(policy, "encoder", None) for policy in parts.policies)
    encoder = next((one for one in encoders if one is not None), None)
    tell_what_plays(plan.pool, parts.pool.specs, encoder)
    if encoder is not None:
        tell_what_is_cut(store, encoder, parts.pool.specs, parts.tasks)
    elif encoder_given and not any(one.reads for one in plan.pupils):
        say(f"None of these policies reads with an encoder, so --encoder {encoder_given} is not used.")
    for note in filter(tells_seen, parts.notes):
        say(f"Warning: {note}")
    for name, cycle in parts.plan.cycles.items():
        say(f"{name} plays {', '.join(cycle)}")
    if undecided := parts.plan.undecided:
        tried = len(undecided) * len(CYCLES) * parts.plan.choosing
        say(
            f"First every cycle of roles is tried on {parts.plan.choosing} validation tasks for "
            f"{', '.join(undecided)}: {tried:,} episodes."
        )
    if learning := lesson_episodes(parts.plan):
        say(f"What has to be chosen or taught before it plays takes {learning:,} episodes first.")
    if pilot:
        parts = play_pilot(store, parts)
    right = over = 0

    def shows(event: object) -> dict[str, Any]:
        nonlocal right, over
        match event:
            case CyclesTried(n, of) if n < of:
                return {"note": f"choosing role cycles on validation tasks, {n} of {of}"}
            case CyclesChosen():
                for name, cycle in event.cycles.items():
                    say(f"{name} plays {', '.join(cycle)}")
            case PolicyTaught(name, policy, told):
                say(told or f"{name} is ready" + ("." if name == policy else f": {policy}."))
            case EpisodeFinished(episode):
                over += episode.status is Status.FINISHED
                right += bool(episode.correct)
                return {"advance": 1, "note": f"{printable(episode.policy)}, {right} of {over} right"}
        return {}

    total = len(parts.tasks) * len(parts.policies)
    played = play_out(store, parts, resume, "episodes", total, shows)
    _report(store, played.run, plan_of(store.runs.get(played.run), BatchPlan), as_json, parts.pool.specs)
    played.finished()


def _report(store: Store, run_id: str, plan: BatchPlan, as_json: bool, specs: Sequence[ModelSpec]) -> None:
    """Accuracies per policy, in the order they were asked for."""
    from core.analysis.metrics import wilson_interval
    from core.episode import Status
    from core.play.judging import PASS_MARK
    from storage.analysis.standings import PolicySide, calls, judged
    from storage.analysis.verdicts import turn_groups
    from storage.filters.episode_filter import EpisodeFilter
    from ui.presentation.words import dollars

    order = {name: place for place, name in enumerate(plan.policies)}
    rows = sorted(store.runs.policies(run_id), key=lambda one: order.get(one.policy, len(order)))
    each = len(plan.load_tasks())
    over = (Status.FINISHED, Status.MISSING)
    cut = Counter(one.policy for one in store.episodes.of_run(run_id) if one.status not in over)
    planned = each * len(plan.policies)
    unbegun = planned - cut.total() - sum(one.n + one.missing for one in rows)
    asked = calls(store, [PolicySide(one.policy, run_id) for one in rows])
    rated = judged(store, run_id)
    recorded = any(spec.provider == "recorded" for spec in specs)
    if as_json:
        print_json(
            [
                {
                    "policy": one.policy,
                    "accuracy": None if one.policy in cut else one.accuracy,
                    "ci95": None if one.policy in cut else wilson_interval(one.correct, one.n),
                    "n": one.n,
                    "turns_mean": one.mean_turns,
                    "missing": one.missing,
                    "calls_mean": made.calls_each,
                    "tokens_mean": made.tokens_each,
                    "cost_usd_mean": one.cost_usd / one.n if one.cost_usd is not None and one.n else None,
                    **(
                        {
                            "rating_mean": said.rating,
                            "judge_calls": said.calls,
                            "judge_cost_usd": said.cost_usd,
                        }
                        if (said := rated.get(one.policy))
                        else {}
                    ),
                }
                for one, made in zip(rows, asked, strict=True)
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
            ">calls",
            ">tokens",
            ">wrong among accepted",
            ">recorded cost" if recorded else ">cost",
        ],
        [
            (
                one.policy,
                # Of those that ended early because they were short, no share can be told.
                "cut short" if one.policy in cut else percent(one.accuracy),
                f"{one.correct} right"
                if one.policy in cut
                else interval(wilson_interval(one.correct, one.n)),
                one.n,
                one.missing or "",
                "-" if one.mean_turns is None else f"{one.mean_turns:.2f}",
                "-" if made.calls_each is None else f"{made.calls_each:.2f}",
                "-" if made.tokens_each is None else f"{made.tokens_each:,.0f}",
                f"{one.false_accepts} of {one.accepted}" if one.accepted else "-",
                "-" if recorded and one.cost_usd is None else dollars(one.cost_usd),
            )
            for one, made in zip(rows, asked, strict=True)
        ],
    )
    if rated:
        means = (f"{name} {one.rating:.2f}" for name, one in rated.items() if one.rating is not None)
        costs = [one.cost_usd for one in rated.values()]
        paid = dollars(None if None in costs else sum(cost or 0.0 for cost in costs))
        say(
            f"The judge's mean rating of final answers, of 10: {', '.join(means) or 'none'}; {PASS_MARK:g} or more "
            f"counts as right. It was asked {sum(one.calls for one in rated.values()):,} times for {paid}, apart from "
            "the costs above."
        )
    if recorded and (missing := sum(one.missing for one in rows)):
        say(
            f"{missing} of {planned} episodes are missing, as models that they need have no recorded reply to their "
            "task: each accuracy is over the tasks that its policy could play, and trinity compare goes by the shared "
            "ones."
        )
    if cut:
        say(
            f"{cut.total()} of {planned} episodes were cut. Those that ended are the shorter ones, so no accuracy is "
            "given for their policies: resume the run to play the rest."
        )
    if unbegun:
        say(f"{unbegun} of {planned} episodes were never begun: resume the run to play them.")
    tell_lapses(turn_groups(store, EpisodeFilter(run=run_id)), specs, run_id)
    say(f"Look into it: trinity episodes --run {run_id}, or trinity ui")
