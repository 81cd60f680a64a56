"""Playing a run in this process, as every command does: the price first, then a new run or one to go on with."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from core.settings import Settings
from ui.cli.console import percent, say

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder
    from core.episode import Task
    from core.pool.spec import ModelSpec
    from storage.shelves.shared_replies import SharedReplies
    from storage.store import Store
    from ui.runs.expectation import Expectation
    from ui.runs.plans import ForkPlan
    from ui.runs.play import Ready
    from ui.runs.settings.batch import BatchPlan
    from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
    from ui.runs.spending import Price, Reckoned

P = TypeVar("P", "BatchPlan", "EvolutionPlan", "TrainingPlan", "ForkPlan")


def with_ceiling(plan: P, settings: Settings) -> P:
    """A stored plan; a ceiling given now replaces the stored one."""
    return plan if settings.max_cost_usd is None else replace(plan, max_cost_usd=settings.max_cost_usd)


def tell_what_plays(pool: str, specs: Sequence[ModelSpec], encoder: Encoder | None = None) -> None:
    """Say which models are asked and where they are, what reads the transcripts, and of a pool file that is not
    used."""
    from pathlib import Path
    from urllib.parse import urlsplit

    from core.settings import POCKET_POOL

    hosts = dict.fromkeys(urlsplit(spec.base_url).netloc for spec in specs if spec.provider == "openai")
    places = [*(["in this process"] if any(one.provider == "pocket" for one in specs) else []), *hosts]
    names = ", ".join(spec.name for spec in specs)
    say(f"Pool {pool}: {names} ({', '.join(places) or 'scripted'}).")
    if pool == POCKET_POOL and Path("pool.toml").is_file():
        say(
            "The pool.toml in this folder is not used: give --pool pool.toml, or set TRINITY_POOL, to play with it."
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
    from core.settings import POCKET_POOL
    from storage.analysis.window import window_cut

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
    else:
        say(
            f"All questions fit the encoder's {window}. How long the replies are is not known yet, as nothing is "
            "recorded of these models."
        )


def tell_what_was_reckoned(reckoned: Reckoned) -> None:
    """Say of how many replies the cost is a bound, because their servers gave no counts of tokens, and what answers
    cost that could not be read."""
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


def tell_what_was_reused(shelf: SharedReplies | None) -> None:
    """Say how many replies came from earlier runs, what that saved, and what it means for comparisons."""
    from ui.presentation.words import dollars

    if shelf is None:
        return
    if not shelf.reused:
        say(
            f"No reply was reused: of the {len(shelf):,} that earlier runs left, none was to one of these calls."
        )
        return
    n = "1 reply was" if shelf.reused == 1 else f"{shelf.reused:,} replies were"
    say(
        f"{n} reused from earlier runs, which saved {dollars(shelf.saved_usd)}. Runs that share replies share their "
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
            say(
                "Nothing is recorded of these models yet: with --pilot, trinity run, evolve and train first play ten "
                "episodes to know what to expect."
            )
        if ask and price.ceiling_usd is None:
            typer.confirm("Start?" if pilot is None else "Start the pilot?", abort=True, err=True)


@dataclass
class Played:
    """A run that is being played; `complete` once it came to its end."""

    run: str
    events: Iterator[Any]
    complete: bool = False


@contextmanager
def playing(store: Store, ready: Ready, resume: str | None = None, again: str = "") -> Iterator[Played]:
    """A new run of this plan, or `resume`, whose events the block consumes. Left early or without its end, it says how
    to go on, or `again` instead; by Ctrl-C the exit code is 130."""
    from ui.runs.lease import owner, take_over
    from ui.runs.plans import RUN_KINDS
    from ui.runs.play import play
    from ui.runs.queue import Ticket, enqueue

    run = resume or enqueue(store, ready.plan, Ticket.new(), owner=owner())[0]
    take_over(store, run)
    say(f"Run {run}")
    command = RUN_KINDS[ready.plan.kind].resume_command(run)
    go_on = again or (f"Go on with: {command}" if command else "The same command goes on.")
    try:
        with closing(play(store, run, ready)) as events:
            played = Played(run, events)
            yield played
    except KeyboardInterrupt:
        say(f"Interrupted; everything so far is kept. {go_on}")
        raise typer.Exit(130) from None
    ended = store.runs.get(run)
    played.complete = ended.status == "finished"
    if not played.complete:
        if ended.error:
            say(ended.error)
        why = "Stopped" if ended.error else "It was asked to stop"
        say(f"{why}; everything so far is kept. {go_on}")
