"""`trinity train`: a Conductor's planner, a language model that writes workflows, trained on tasks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.planner.config import PUBLISHED_MODEL
from ui.cli.console import percent, print_json, say, tell
from ui.cli.learning import How, best_of, learn, tell_best
from ui.cli.options import Given, JsonOption, with_options
from ui.cli.play import piloted, play_out, tell_what_plays
from ui.runs.settings.learning import TrainingPlan

if TYPE_CHECKING:
    from core.planner.learn import Iteration
    from core.pocket.training import TrainingProgress
    from storage.store import Store


@with_options(TrainingPlan)
def train(
    *,
    context: typer.Context,
    given: Given,
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Where all other settings begin: default, or published (for {PUBLISHED_MODEL}).",
        ),
    ] = "default",
    how: How,
    as_json: JsonOption = False,
) -> None:
    """Train a Conductor: a language model that writes whole workflows, by reinforcement on real episodes (GRPO).

    A new pocket planner first learns the form of workflows, not which are good. Then each iteration writes workflows
    for some questions, plays them, and makes those likelier that did better than others of their question. Tasks come
    from the evolve split and are never seen in tests. Needs the extra: pip install 'trinity-inspector\\[conductor]'.

    [dim]$[/] trinity train --name mine

    [dim]$[/] trinity train --name mine --resume

    [dim]$[/] trinity train --preset published --planner ./Qwen2.5-7B --pool pool.toml --tasks my.jsonl --max-cost 200

    A file can set rewards, rates, losses, sampling, and every option. This writes one that has all keys with their
    defaults:

    [dim]$[/] trinity train --write-config mine.toml
    """

    def play(opened: Store, plan: TrainingPlan, known: str | None, chosen: Given) -> None:
        _report(opened, _play(opened, plan, known, pilot=how.pilot), as_json)

    learn(TrainingPlan, given, play, preset, how)


def _play(store: Store, plan: TrainingPlan, known: str | None, *, pilot: bool) -> str:
    """Begin the training, or go on with the `known` run; the run's id once it is over."""
    from core.planner.learn import Iteration
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

    def shows(event: Iteration | TrainingProgress) -> dict[str, Any]:
        if isinstance(event, Iteration):
            say(describe(event))
            return {"completed": event.index, "note": ""}
        return {"note": f"warm-up {event.step} of {event.steps}"}  # the supervised training before it

    done = max(0, store.runs.get(known).generations - 1) if known else 0
    line = {"completed": done, "note": "warm-up"}
    return play_out(store, parts, known, "iterations", parts.updates, shows, **line).finished()


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
    best = best_of(stored, "iteration")
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
    tell_best(best, "iteration")
    say(f"{took['episodes']:,} episodes in {took['seconds']:,.0f} seconds.")
    policy = f"conductor:{last.checkpoint_id}"
    say(f"Play it: trinity run --policy {policy} --policy conductor:random --policy random --n 200")
