"""`trinity fork`: one turn of a recorded episode with one thing changed, beside the unchanged baseline."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from core.errors import ConfigError
from core.fields import build_settings, validate_settings
from core.settings import DOORS
from core.texts import read_text
from ui.cli.analysis import tell_answers
from ui.cli.console import making_ready, print_json, say
from ui.cli.options import (
    Filter,
    FlagOption,
    Given,
    JsonOption,
    RunOption,
    StoreOption,
    WhereOption,
    given_by,
    opened_store,
    refuse_beside,
    refuse_with_resume,
    with_options,
)
from ui.cli.play import play_out, tell_what_is_cut, tell_what_plays, with_ceiling
from ui.runs.settings.forks import ForkSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.changes import Change, ChangeKind
    from core.settings import Settings
    from storage.store import Store
    from ui.runs.forks.results import Results
    from ui.runs.plans import ForkPlan


@with_options(ForkSettings)
def fork(
    context: typer.Context,
    *,
    episode: Annotated[str | None, typer.Argument(help="The episode's id.", show_default=False)] = None,
    turn: Annotated[int | None, typer.Option(help="Which turn, counted from 1.", min=1)] = None,
    where: WhereOption = None,
    flag: FlagOption = None,
    run: RunOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="With a filter: which turn, false_accept, answer_broke, first, last or verifier. Else that of --flag."
        ),
    ] = None,
    most: Annotated[int, typer.Option(help="With a filter: the newest so many.", min=1, max=200)] = 20,
    given: Given,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Resume an interrupted run.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change exactly one thing at one turn of an episode, and see whether it matters.

    The turns before it are kept. First the baseline is played: the same turn, decided as it was, and what follows. Then
    come the forks, each with the seed of its baseline. The recorded episode is never altered. Where you name no change,
    the runner-up is played: the likeliest other choice at that turn.

    [dim]$[/] trinity fork ep12ab-00003 --turn 3 --see 40

    [dim]$[/] trinity fork ep12ab-00003 --turn 3 --model sage

    [dim]$[/] trinity fork ep12ab-00003 --turn 4 --verdict REVISE --n 16 --baseline 16

    Of a workflow's step, --subtask and --access can be changed too. That step and every step that reads it, directly or
    through others, are asked again; the other steps keep their replies.

    [dim]$[/] trinity fork ep12ab-00007 --turn 3 --access 1,2

    [dim]$[/] trinity fork ep12ab-00003 --every-turn --n 5

    [dim]$[/] trinity fork ep12ab-00003 --every-turn --right-replies --n 5

    [dim]$[/] trinity fork ep12ab-00003 --luck

    With --where, --flag or --run the same change is made in every episode found, at the turn that --at names.

    [dim]$[/] trinity fork --flag false_accept --where 'run == "rp12"' --model sage --n 4 --baseline 4
    """
    from ui.runs import wiring
    from ui.runs.forks.planning import find_turns
    from ui.runs.plans import ForkPlan, plan_of

    asked = build_settings(ForkSettings, validate_settings(ForkSettings, given))
    if asked.see is not None:
        if given.keys() & {"n", "baseline"}:
            raise ConfigError("--see says how many are played: leave out --n and --baseline.")
        asked = replace(asked, n=_pairs(asked.see), baseline=_pairs(asked.see))
    doors = {key: given.get(key) for key in DOORS}
    settings = wiring.settings(store=store, **doors)
    with opened_store(settings.store) as opened:
        if resume is not None:
            refuse_with_resume(context, "resume", "store", "device", "engine", "max_cost_usd", "as_json")
            plan = with_ceiling(plan_of(opened.runs.get(resume), ForkPlan), settings, given)
        else:
            picks, batch = [(episode or "", (turn or 1) - 1)], ""
            if not asked.luck and not asked.every_turn:
                query = Filter(where, run, None, flag).chosen().to_query()
                if query and (episode, turn) == (None, None):
                    batch = urlencode(query | ({"at": at} if at else {}))
                    picks = find_turns(opened, batch, most)
                elif not asked.right_replies and (query or None in (episode, turn)):
                    raise ConfigError(
                        "Name an episode and a turn, for example: trinity fork EPISODE --turn 3 --model M; "
                        "or many by --where, --flag or --run, and --at."
                    )
            plan = _plan(context, opened, asked, settings, picks, batch)
            plan = replace(plan, max_cost_usd=settings.max_cost_usd, computing=settings.computing)
            plan = replace(plan, engine=settings.engine)
        wiring.join_ahead(plan.engine)
        _play(opened, plan, resume, as_json)


#: What goes together with --luck, whose pool is the one that the episode was played with, and with --every-turn.
_WITH_LUCK = ("episode", "luck", "encoder", "device", "dtype", "engine", "max_cost_usd", "store", "as_json")
_WITH_EVERY_TURN = (
    *("episode", "every_turn", "right_replies", "n", "see"),
    *("pool", "encoder", "device", "dtype", "engine", "max_cost_usd", "store", "as_json"),
)


def _plan(
    context: typer.Context,
    store: Store,
    asked: ForkSettings,
    settings: Settings,
    picks: Sequence[tuple[str, int]],
    batch: str,
) -> ForkPlan:
    """The plan that changes one thing at each of these turns, or that of --luck or --every-turn for a whole episode; by
    the pool that is named, else by the episode's own."""
    from ui.runs import wiring
    from ui.runs.forks.planning import plan_every_turn, plan_forks, plan_luck, pool_of, runner_up_change
    from ui.runs.settings import absolute_pool

    if asked.right_replies and not asked.every_turn and not asked.luck:
        raise ConfigError(
            "--right-replies goes with --every-turn: trinity fork EPISODE --every-turn --right-replies."
        )
    if asked.luck or asked.every_turn:
        option, allowed = ("--luck", _WITH_LUCK) if asked.luck else ("--every-turn", _WITH_EVERY_TURN)
        refuse_beside(context, option, *allowed)
        if not picks[0][0]:
            raise ConfigError(f"Name the episode: trinity fork EPISODE {option}.")
    if not picks:
        raise ConfigError("No episode has such a turn: there is nothing to fork.")
    episode, turn = picks[0]
    if asked.luck:
        return plan_luck(store, episode, encoder=settings.encoder)
    pool = absolute_pool(settings.pool)
    if not given_by(context, "pool"):
        pool = pool_of(store, store.episodes.get(episode), pool)
    how: dict[str, Any] = {
        "n": asked.n,
        "pool": pool,
        "specs": wiring.pool_specs(pool),
        "encoder": settings.encoder,
    }
    if asked.every_turn:
        return plan_every_turn(store, episode, right_replies=asked.right_replies, **how)
    change = _change(asked, None if batch else runner_up_change(store.episodes.get(episode), turn))
    return plan_forks(store, picks, change, baseline=asked.baseline, anew=asked.anew, batch=batch, **how)


def _play(store: Store, plan: ForkPlan, resume: str | None, as_json: bool) -> None:
    """Play what the plan still lacks, and say what came out."""
    from ui.runs.forks.planning import reach_words
    from ui.runs.forks.play import prepare

    with making_ready():
        parts = prepare(store, plan)
        encoder = parts.encoder(store)
    tell_what_plays(plan.pool, parts.pool.specs, encoder)
    if encoder is not None:
        tell_what_is_cut(store, encoder, parts.pool.specs, [one.task for one in parts.parents.values()])
    _say_plan(plan)
    if cannot := reach_words(plan, parts.parents, parts.pool.specs):
        say(cannot)
    played = play_out(store, parts, resume, "episodes", plan.to_play)
    _report(store, played.run, plan, as_json)
    played.finished()


def _pairs(points: int) -> int:
    """How many pairs show a difference of so many points; ConfigError where they are more than are played at a turn."""
    from core.analysis.power import difference_seen, pairs_to_see
    from ui.runs.settings.forks import MOST_CHILDREN

    pairs = pairs_to_see(points / 100)
    if pairs > MOST_CHILDREN:
        raise ConfigError(
            f"A difference of {points} points needs {pairs} pairs, and at most {MOST_CHILDREN} are played at a turn: "
            f"ask for {100 * difference_seen(MOST_CHILDREN):.0f} points or more."
        )
    return pairs


def _change(asked: ForkSettings, usual: Change | None) -> Change:
    """The one change that was asked for, the `usual` one where none was; ConfigError when it is none, or several."""
    from core.changes import Change

    values: dict[ChangeKind, str | None] = {
        "model": asked.model,
        "role": asked.role and asked.role.lower(),
        "subtask": asked.subtask,
        "access": None if asked.access is None else _turns(asked.access),
        "policy": asked.policy,
        "temperature": asked.temperature,
        "reply": asked.reply,
        "verdict": asked.verdict and asked.verdict.upper(),
        "stop": "" if asked.stop else None,
    }
    changes = [Change(kind, value) for kind, value in values.items() if value is not None]
    if not changes and usual is not None:
        return usual
    if len(changes) != 1:
        raise ConfigError(
            "Change exactly one thing: --model, --role, --policy, --temperature, --reply, --verdict or --stop; of a "
            "workflow's step --model, --subtask, --access or --reply."
        )
    change = changes[0]
    return replace(change, value=_read(change.value)) if change.kind == "reply" else change


def _turns(access: str) -> str:
    """An access list as changes are kept: each turn once, in order; empty for none. What is none stays as it is."""
    named = {one.strip() for one in access.split(",")}
    if named <= {"none", ""}:
        return ""
    return (
        ",".join(sorted(named, key=int)) if all(re.fullmatch("[0-9]{1,5}", one) for one in named) else access
    )


def _read(name: str) -> str:
    try:
        text = sys.stdin.read() if name == "-" else read_text(Path(name))
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"The reply cannot be read from {name}: give a text file, or - for stdin."
        ) from error
    return text.removeprefix("\ufeff").removesuffix("\n")


def _say_plan(plan: ForkPlan) -> None:
    """What is kept and what is played."""
    from ui.presentation.words import turns_words

    branch = plan.branches[0]
    if plan.asks_luck:
        from ui.runs.forks.results import RULE

        reused = f" {len(branch.reused)} plays stand in the store already." if branch.reused else ""
        say(f"{RULE}{reused}")
        return
    if plan.every_turn:
        in_store = sum(len(one.reused) for one in plan.branches)
        other = "a right reply" if plan.right_replies else "its runner-up"
        say(
            f"{len(plan.branches)} turns, from each {branch.baseline} times the unchanged choice and {branch.n} times "
            f"{other}; {plan.to_play} episodes to play, {in_store} stand in the store already."
        )
        return
    in_store = sum(len(one.reused) for one in plan.branches)
    reused = f"; {in_store} stand in the store already" if in_store else ""
    what = f"Kept: {branch.turn} turn{'' if branch.turn == 1 else 's'}, hash {branch.prefix[:12]}."
    if branch.anew:
        what = f"Asked again: {turns_words(branch.anew)}, hash of what is kept {branch.prefix[:12]}."
    if plan.batch:
        left_out = f" {plan.skipped} left out, where it changes nothing." if plan.skipped else ""
        what = f"{len(plan.branches)} episode{'s' * (len(plan.branches) > 1)}, a turn of each.{left_out} For each:"
    forks = f"{branch.n} fork{'s' * (branch.n > 1)}"
    say(f"{what} To play: {branch.baseline} of the unchanged baseline, then {forks}{reused}.")


def _report(store: Store, run_id: str, plan: ForkPlan, as_json: bool) -> None:
    """What the run came to, as its page shows it, or as JSON."""
    from ui.answers.forks import findings
    from ui.presentation.words import dollars
    from ui.runs.forks.results import read_results

    results = read_results(store, run_id, plan)
    if as_json:
        plain = _plain_luck if plan.asks_luck else _plain_turns if plan.every_turn else _plain
        print_json({"run": run_id, **plain(store, run_id, plan, results)})
        return
    tell_answers(findings(store, run_id, plan, results))
    say(f"Cost {dollars(results.spent_usd)}. Look into it: trinity episodes --run {run_id}, or trinity ui")


def _plain(store: Store, run_id: str, plan: ForkPlan, results: Results) -> dict[str, Any]:
    return {
        "change": plan.change,
        "parents": [
            {"episode": one.parent, "turn": one.turn + 1, "prefix": one.prefix} for one in plan.branches
        ],
        "parents_unchanged": results.parents_unchanged,
        "baseline": results.baseline.to_json(),
        "fork": results.fork.to_json(),
        "difference": results.difference,
        "verdict": results.verdict,
        "cost_usd": results.spent_usd,
    }


def _plain_luck(store: Store, run_id: str, plan: ForkPlan, results: Results) -> dict[str, Any]:
    from ui.runs.forks.results import read_luck

    found = read_luck(store, run_id, plan)
    return {
        "episode": plan.branches[0].parent,
        "recorded_right": found.recorded_right,
        "right": sum(found.plays),
        "n": len(found.plays),
        "ends_right_more_often": found.told.right if found.told else None,
        "verdict": found.sentence,
        "cost_usd": results.spent_usd,
    }


def _plain_turns(store: Store, run_id: str, plan: ForkPlan, results: Results) -> dict[str, Any]:
    from ui.runs.forks.results import by_turn, decisive

    right = store.episodes.get(plan.every_turn).correct is True
    outcomes = by_turn(plan, results)
    found = decisive(outcomes, recorded_right=right)
    return {
        "episode": plan.every_turn,
        "recorded_right": right,
        "decisive_turn": None if found is None else found.turn + 1,
        "turns": [
            {
                "turn": one.turn + 1,
                "change": one.change,
                "unchanged": one.unchanged.to_json(),
                "other": one.other.to_json(),
            }
            for one in outcomes
        ],
    }
