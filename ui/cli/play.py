"""Playing a run in this process, as every command does: what plays, a pilot, the price, progress, how it goes on."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from core.fields import Setting
from core.settings import LOCAL_ENGINE, Settings
from ui.cli.console import percent, progress, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from core.coordinator.encoder import Encoder
    from core.episode import Task
    from core.pool.spec import ModelSpec
    from storage.shelves.replies import SharedReplies
    from storage.store import Store
    from ui.cli.options import Given
    from ui.runs.batch import BatchParts
    from ui.runs.evolution import EvolutionParts
    from ui.runs.expectation import Expectation
    from ui.runs.plans import ForkPlan, Preparation
    from ui.runs.play import Ready
    from ui.runs.settings.batch import BatchPlan
    from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
    from ui.runs.spending import Price, Reckoned
    from ui.runs.training import TrainingParts

P = TypeVar("P", "BatchPlan", "EvolutionPlan", "TrainingPlan", "ForkPlan")
R = TypeVar("R", "BatchParts", "EvolutionParts", "TrainingParts")


def with_ceiling(plan: P, settings: Settings, given: Given) -> P:
    """A stored plan; a ceiling, a device and an engine that are set now replace the stored ones. `given`: the options
    of the command, by which a run on a cluster goes on without one."""
    changed: dict[str, Any] = {}
    if settings.max_cost_usd is not None:
        changed["max_cost_usd"] = settings.max_cost_usd
    if (device := settings.computing.device) != "auto" and hasattr(plan, "computing"):
        changed["computing"] = replace(plan.computing, device=device)
    if settings.engine != LOCAL_ENGINE or given.get("engine"):
        changed["engine"] = settings.engine
    return replace(plan, **changed)


def tell_what_plays(pool: str, specs: Sequence[ModelSpec], encoder: Encoder | None = None) -> None:
    """Say which models are asked and where they are, what reads the transcripts, and of a pool file that is not
    used."""
    from pathlib import Path
    from urllib.parse import urlsplit

    from core.pool.spec import judge_of, slots_of
    from core.settings import POCKET_POOL

    hosts = dict.fromkeys(urlsplit(spec.base_url).netloc for spec in specs if spec.provider == "openai")
    recorded = any(one.provider == "recorded" for one in specs)
    places = [
        *(["in this process"] if any(one.provider in ("pocket", "local") for one in specs) else []),
        *(["recorded models"] if recorded else []),
        *hosts,
    ]
    names = ", ".join(spec.name for spec in slots_of(specs))
    judge = judge_of(specs)
    rates = (
        f" {judge.name} takes no turns: it rates the answers to tasks that a model judges." if judge else ""
    )
    say(f"Pool {pool}: {names} ({', '.join(places) or 'scripted'}).{rates}")
    if pool == POCKET_POOL and Path("pool.toml").is_file():
        say(
            "The pool.toml in this folder is not used: give --pool pool.toml, or set TRINITY_POOL, to play with it."
        )
    if recorded:
        say(
            "No model is called and nothing is paid: each turn is a reply that its model once gave to the bare "
            "question, at the cost that the table says."
        )
    if encoder is not None:
        tell_encoder(encoder)


def tell_encoder(encoder: Encoder) -> None:
    """Say what reads the transcripts."""
    millions = sum(weight.numel() for weight in encoder.model.parameters()) / 1e6
    say(
        f"Encoder {encoder.identity.name}: {millions:,.1f} million numbers, {encoder.dtype}, on the "
        f"{encoder.device.upper()}, window {encoder.tokens.max_tokens:,} tokens."
    )


def tell_what_is_cut(
    store: Store, encoder: Encoder, specs: Sequence[ModelSpec], tasks: Sequence[Task] = ()
) -> None:
    """Say how many transcripts the encoder's window would cut: recorded ones, else of these tasks. Pocket models alone
    always fit their encoder."""
    from core.play.session import RECORDED_CHARACTERS
    from core.settings import POCKET_POOL
    from storage.analysis.costs import window_cut

    if all(spec.provider == POCKET_POOL for spec in specs):
        return
    found = window_cut(store, encoder.tokens, specs, tasks)
    share, window = percent(found.share), f"window of {encoder.tokens.max_tokens:,} tokens"
    if not found.n:
        say(f"What the encoder's {window} would cut is not known yet: nothing is recorded of these models.")
    elif found.recorded:
        loud = "Warning: " if found.cut else ""
        say(
            f"{loud}The encoder's {window} would cut {share} of {found.n:,} recorded transcripts of these models."
        )
    elif found.cut:
        say(
            f"Warning: the encoder's {window} is too short for {share} of the questions alone, before any reply is "
            "added."
        )
    elif all(spec.provider == "recorded" for spec in specs):
        say(
            f"All questions fit the encoder's {window}. Of a recorded reply it reads the answer and the last "
            f"{RECORDED_CHARACTERS} characters."
        )
    else:
        say(
            f"All questions fit the encoder's {window}. How long the replies are is not known yet, as nothing is "
            "recorded of these models."
        )


def tell_what_came_back(reckoned: Reckoned, shelf: SharedReplies | None = None) -> None:
    """Say of how many replies the cost is a bound, because their servers gave no counts of tokens, what answers cost
    that could not be read, and what calls could cost that came to nothing; of a shelf of earlier replies how many
    were reused, what that saved, and what it means for comparisons."""
    from ui.presentation.words import dollars

    if n := reckoned.at_bound:
        say(
            f"{n} {'reply' if n == 1 else 'replies'} came without counts of tokens: each is charged as the most that "
            "its call could cost."
        )
    if n := reckoned.unread:
        say(
            f"{n} {'call' if n == 1 else 'calls'} had answers that could not be read or broke off. They cost "
            f"{dollars(reckoned.unread_usd)}, those without counts of tokens charged as the most that they could cost."
        )
    if usd := reckoned.lost_usd:
        say(
            f"{dollars(usd)} is counted for calls that came to nothing, as the most that they could cost: their "
            "servers may bill them."
        )
    if shelf is None:
        return
    if not shelf.reused:
        say(
            f"No reply was reused: of the {len(shelf):,} that earlier runs left, none was to one of these calls."
        )
        return
    many = "1 reply was" if shelf.reused == 1 else f"{shelf.reused:,} replies were"
    say(
        f"{many} reused from earlier runs, which saved {dollars(shelf.saved_usd)}. Runs that share replies share their "
        "luck: they are paired, not independent."
    )


def agree(
    price: Price,
    expected: Expectation | None = None,
    *,
    pilot: Price | None = None,
    agreed: bool = False,
    may_ask: bool = True,
) -> None:
    """For models that cost money: say the most this can cost and what to expect, and ask for a yes unless there is a
    ceiling or an earlier yes. `pilot` is of that price what is played first. BudgetError when nobody can be asked."""
    from ui.presentation.words import dollars
    from ui.runs.spending import agree_to_cost

    ask = may_ask and sys.stdin.isatty() and not agreed
    if sentence := agree_to_cost(price, may_ask=ask, agreed=agreed):
        say(sentence)
        if expected is not None:
            say(expected.sentence())
        elif pilot is not None:
            say(
                f"Of this a pilot comes first, to know what to expect: up to {pilot.most.calls:,} calls, at most "
                f"{dollars(pilot.most.cost_usd)}."
            )
        elif price.most.calls:
            say(_NOTHING_RECORDED)
        if ask and price.ceiling_usd is None:
            typer.confirm("Start?" if pilot is None else "Start the pilot?", abort=True, err=True)


_NOTHING_RECORDED = (
    "Nothing is recorded of these models yet: with --pilot, trinity run, evolve and train first play ten episodes to "
    "know what to expect."
)

PILOT = Setting(
    option="--pilot",
    help="First play ten episodes of the evolve split below the same ceiling, to estimate cost and time. Skipped where "
    "replies of these models are recorded.",
)


def play_pilot(store: Store, parts: R) -> R:
    """Play the pilot of a run that is ready, as a run of its own; the parts with what it left of their ceiling. Where
    something is recorded of their models, nothing is played. Exit 1 when the pilot did not come to its end."""
    from ui.presentation.words import dollars
    from ui.runs.batch import complete_plan, prepare
    from ui.runs.expectation import expectation, pilot_of
    from ui.runs.spending import Price, price

    plan, specs = parts.plan, parts.pool.specs
    if (known := expectation(store, plan, specs)) is not None:
        say(f"No pilot is played: {known.recorded:,} replies of these models are recorded already.")
        return parts
    pilot = prepare(store, complete_plan(store, pilot_of(plan, specs)))
    whole, first = price(store, plan, specs), price(store, pilot.plan, specs)
    agree(Price(whole.most + first.most, specs, whole.ceiling_usd), pilot=first)
    n = len(pilot.tasks) * len(pilot.policies)
    again = "The same command goes on without another pilot."
    run = follow(store, pilot, "pilot episodes", n, again=again).finished()
    spent = store.runs.spent_usd(run)
    left = None if plan.max_cost_usd is None else max(0.0, plan.max_cost_usd - spent)
    below = "" if left is None else f", which leaves {dollars(left)} below the ceiling"
    say(f"The pilot played {n} episodes for {dollars(spent)}{below}: run {run}.")
    if not whole.is_paid and (expected := expectation(store, plan, specs)) is not None:
        say(expected.sentence())  # of models that cost money it is said with the price
    return replace(parts, plan=replace(plan, max_cost_usd=left))


@dataclass
class Played:
    """A run that was played; `complete` where it came to its end."""

    run: str
    complete: bool = False

    def finished(self) -> str:
        """The run's id; exit code 1 where it did not come to its end."""
        if not self.complete:
            raise typer.Exit(1)
        return self.run


def play_out(
    store: Store,
    ready: Any,
    resume: str | None,
    what: str,
    total: int,
    shows: Callable[[Any], Mapping[str, Any]] | None = None,
    **line: Any,
) -> Played:
    """`follow` a run whose price is agreed to first; then say what was not billed as usual and what was reused."""
    from ui.runs.expectation import expectation, reading_time
    from ui.runs.spending import paid_models, price

    specs = ready.pool.specs
    if resume is None:
        for encoder, n in Counter(ready.readers).items():
            if (time := reading_time(store, ready.plan, specs, encoder, n)) is not None:
                say(time.sentence())
    if paid_models(specs):  # else there is nothing to agree to
        agree(
            price(store, ready.plan, specs), expectation(store, ready.plan, specs), agreed=resume is not None
        )
    elif resume is None and any(spec.provider == "local" for spec in specs):  # free, but slow
        expected = expectation(store, ready.plan, specs)
        say(expected.sentence() if expected else _NOTHING_RECORDED)
    played = follow(store, ready, what, total, shows, resume, **line)
    for encoder in dict.fromkeys(ready.readers):  # forks load theirs when they are asked for
        if encoder.keeps_states and encoder.states_given:
            say(
                f"In all, the encoder {encoder.identity.name} gave {encoder.states_given:,} hidden states in "
                f"{encoder.seconds:,.0f} seconds, by as much reading as {encoder.forwards:,.0f} whole transcripts take."
            )
    tell_what_came_back(ready.reckoned, ready.shelf)
    return played


def preparation_note(told: Preparation) -> str:
    """How far a preparation is, beside a bar; empty once it is over. One that is about to begin is said as well."""
    if not told.done:
        say(f"First: {told.words}; what is found is kept for later runs.")
    return told.words if told.done < told.of else ""


def show_preparations(steps: Iterable[Preparation]) -> None:
    """Go through with preparations that belong to no run, with a bar."""
    with progress() as bar:
        line = None
        for told in steps:
            line = bar.add_task("matrices", total=told.of, note="") if line is None else line
            bar.update(line, completed=told.done, note=preparation_note(told))


class _EngineLine:
    """What the engine of a plan does, for the line of a bar, asked now and then; empty where it has no helpers."""

    def __init__(self, plan: object) -> None:
        from ui.runs.plans import engine_of

        self._engine, self._words, self._asked = engine_of(plan), "", 0.0

    def words(self) -> str:
        """Such as: Ray on this machine: 2 helpers on 1 machine, 8 calls under way."""
        from ui.presentation.runs import engine_state_words, lost_words
        from ui.runs import wiring

        if self._engine != LOCAL_ENGINE and time.monotonic() - self._asked > TOLD_S:
            self._asked = time.monotonic()
            state = wiring.processes(self._engine).state()
            self._words = engine_state_words(self._engine, state)
            if state is not None and state.lost:
                self._words += f". {lost_words(state.lost)}"
        return self._words


#: How often the bar says what the engine does, in seconds.
TOLD_S = 2.0


def follow(
    store: Store,
    ready: Ready,
    what: str,
    total: int,
    shows: Callable[[Any], Mapping[str, Any]] | None = None,
    resume: str | None = None,
    *,
    again: str = "",
    bar: Progress | None = None,
    **line: Any,
) -> Played:
    """Play a new run of this plan, or `resume`, beside a line of a bar (None: one of its own) that counts `what`:
    `shows` says how each event moves it. A run without its end says how to go on, or `again` instead; by Ctrl-C the
    exit code is 130."""
    from core.episode import EpisodeFinished
    from ui.runs.lease import owner, take_over
    from ui.runs.plans import RUN_KINDS, Preparation
    from ui.runs.play import play
    from ui.runs.queue import Ticket, enqueue

    run = resume or enqueue(store, ready.plan, Ticket(), owner=owner())[0]
    take_over(store, run)
    say(f"Run {run}")
    engine = _EngineLine(ready.plan)
    if joined := engine.words():
        say(f"{joined}.")
    command = RUN_KINDS[ready.plan.kind].resume_command(run)
    go_on = again or (f"Go on with: {command}" if command else "The same command goes on.")
    try:
        with closing(play(store, run, ready)) as events, nullcontext(bar) if bar else progress() as shown:
            task = shown.add_task(what, total=total, **{"note": "", **line})
            for event in events:
                if isinstance(event, Preparation):
                    moves: Mapping[str, Any] = {"note": preparation_note(event)}
                else:
                    moves = shows(event) if shows else {"advance": isinstance(event, EpisodeFinished)}
                if (told := engine.words()) and not moves.get("note"):
                    moves = {**moves, "note": told}
                shown.update(task, **moves)
            if bar:
                bar.remove_task(task)
    except KeyboardInterrupt:
        say(f"Interrupted; everything so far is kept. {go_on}")
        raise typer.Exit(130) from None
    ended = store.runs.get(run)
    if ended.status == "finished":
        return Played(run, complete=True)
    if ended.error:
        say(ended.error)
    say(f"{'Stopped' if ended.error else 'It was asked to stop'}; everything so far is kept. {go_on}")
    return Played(run)
