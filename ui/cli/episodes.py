"""`trinity episodes`: list, read and delete recorded episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from core.errors import ConfigError
from core.play.session import visible_text
from ui.cli.console import counted, percent, print_json, print_table, printable, say, tell
from ui.cli.options import Filter, JsonOption, StoreOption, opened_store, with_options

if TYPE_CHECKING:
    from storage.rows.summaries import EpisodeSummary
    from storage.store import Store


#: Policies that are named to who asked for one that has not played.
_NAMED = 12

app = typer.Typer(
    invoke_without_command=True,
    help="List recorded episodes, newest first; --where, --run, --policy and --flag must all hold.\n\n"
    "[dim]$[/] trinity episodes --flag false_accept --limit 20\n\n"
    "[dim]$[/] trinity episodes --where 'correct == False and turns > 4 and "
    'any(turn.role == "verifier" and turn.verdict == "ACCEPT")\'\n\n'
    "[dim]$[/] trinity episodes show ep12ab",
)


@app.callback()
@with_options()
def episodes(
    *,
    context: typer.Context,
    store: StoreOption = None,
    filter: Filter,
    order: Annotated[
        str, typer.Option(help="newest, oldest, turns, tokens, cost, margin, entropy or latency.")
    ] = "newest",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Lines per page.")] = 20,
    after: Annotated[str | None, typer.Option(help="The 'next' that the previous page printed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List episodes when no other command is given."""
    if context.invoked_subcommand is not None:
        return
    from storage.filters.listing import decode_cursor
    from storage.rows.summaries import Order

    if order not in get_args(Order):
        raise ConfigError(f"--order cannot be '{order}': choose one of {', '.join(get_args(Order))}.")
    if after is not None and decode_cursor(after) is None:
        raise ConfigError("--after needs the value that the page before printed; leave it out for page one.")
    chosen = filter.chosen()
    with opened_store(store, mark_dead=True) as opened:
        page = opened.episodes.page(chosen, order=order, after=after, limit=limit)  # type: ignore[arg-type]
        if filter.policy and not page.total.n:
            _who_played(opened, filter.policy)
    if as_json:
        print_json({"episodes": list(page.items), "next": page.next})
        return
    from ui.presentation.words import not_alone

    print_table(
        ["id", "policy", "family", "question", "turns", "result", ">tokens"],
        [
            (one.id, one.policy + not_alone(one.flags), one.family, one.question[:50])
            + (one.strip, result(one), one.tokens_in + one.tokens_out)
            for one in page.items
        ],
    )
    tell(f"{len(page.items)} of {page.total}", style="dim")
    if page.next:
        tell(f"The next page: add --after {page.next}", style="dim")


def _who_played(store: Store, policy: str) -> None:
    """Say that no episode is of this policy, and which policies have some; nothing where it has."""
    from core.conduct.planners import CONDUCTOR
    from storage.analysis.standings import policies_with_episodes

    played = list(dict.fromkeys(one.policy for one in policies_with_episodes(store)))
    if policy in played:
        return
    if CONDUCTOR + policy in played:
        say(f"No policy '{policy}' has played; a planner plays as --policy {CONDUCTOR}{policy}.")
    elif played:
        named = ", ".join(played[:_NAMED]) + (", ..." if len(played) > _NAMED else "")
        say(f"No policy '{policy}' has played. These have: {named}.")


def result(one: EpisodeSummary) -> str:
    """How an episode ended, in a word."""
    return one.status.value if one.correct is None else "right" if one.correct else "wrong"


@app.command()
def show(
    episode: Annotated[str, typer.Argument(help="The episode's id.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one episode turn by turn: the model and role that were chosen, with what probability, and the reply.
    --json prints it as JSON Lines files hold it, where a turn's `index` counts from 0.

    [dim]$[/] trinity episodes show ep12ab
    """
    from ui.presentation.words import judged_words, recorded_words

    with opened_store(store, mark_dead=True) as opened:
        found = opened.episodes.get(episode)
        outlines = opened.episodes.outline(episode)
    if as_json:
        print_json(found)
        return
    tell(f"{printable(found.task.question)}\n", style="bold")
    for turn in found.turns:
        decision = turn.decision
        sure = ""
        if decision.model_probs and decision.model in found.models:
            sure = f" ({percent(decision.model_probs[found.models.index(decision.model)])})"
        verdict = f" {turn.verdict}" if turn.verdict else ""
        tell(f"{turn.index + 1}. {decision.role} {printable(decision.model)}{sure}{verdict}", style="cyan")
        for line in visible_text(turn.reply).splitlines():
            tell(f"   {printable(line)}")
        if words := recorded_words(outlines[turn.index]):
            tell(f"   [{printable(words)}]", style="dim")
        for said in found.judgements:
            if said.index == turn.index:
                tell(f"   [{printable(judged_words(said))}]", style="dim")
                for line in visible_text(said.reply).splitlines():
                    tell(f"   | {printable(line)}", style="dim")
    ending = found.end_reason or found.status
    outcome = {True: "right", False: "wrong", None: "not graded"}[found.correct]
    answer = printable(found.answer)
    tell(f"\nEnded: {ending}. Answer: {answer} ({outcome}); expected {printable(found.task.answer)}.")


@app.command()
def delete(
    episodes: Annotated[list[str] | None, typer.Argument(help="Ids of episodes to delete.")] = None,
    run: Annotated[str | None, typer.Option(help="Delete this whole run instead.")] = None,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete episodes, or a run with its episodes, checkpoints and generations. This cannot be undone.

    [dim]$[/] trinity episodes delete ep12ab ep12ac

    [dim]$[/] trinity episodes delete --run rp12 --yes
    """
    from ui.runs.lease import is_dead

    if bool(episodes) == bool(run):
        raise ConfigError("Name episodes to delete, or one run with --run.")
    with opened_store(store, mark_dead=True) as opened:
        if run:
            found = opened.runs.get(run)
            counts = {
                "episode": found.episodes,
                "checkpoint": len(opened.checkpoints.list(run)),
                "generation": found.generations,
            }
            what = f"run {run} with its {counted(counts) or 'settings'}"
        else:
            what = counted({"episode": len(episodes or ())})
            for episode in episodes or ():
                opened.episodes.summary(episode)
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True, err=True)
        if run:
            opened.runs.delete(run, dead=found.owner if is_dead(found.owner) else None)
        else:
            opened.episodes.delete(episodes or ())
    say(f"Deleted {what}.")
