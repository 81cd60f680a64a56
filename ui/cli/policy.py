"""`trinity policy`: what several checkpoints would choose at the same recorded turns, without asking a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.analysis import ChoiceOption, HtmlOption, choices_of, give
from ui.cli.options import Filter, FlagOption, JsonOption, RunOption, StoreOption, WhereOption, opened_store
from ui.cli.play import follow

if TYPE_CHECKING:
    from storage.analysis.policy_diff import PolicyDiff
    from storage.analysis.second_opinions import EpisodeScope
    from storage.store import Store


def policy(
    checkpoints: Annotated[
        list[str],
        typer.Argument(metavar="CHECKPOINT CHECKPOINT ...", help="Two to eight, the baseline first."),
    ],
    where: WhereOption = None,
    run: RunOption = None,
    recorded_by: Annotated[
        str | None, typer.Option("--policy", help="Only episodes that this policy played.")
    ] = None,
    flag: FlagOption = None,
    view: Annotated[str | None, typer.Option(metavar="ID", help="Only the episodes of a saved view.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="ID", help="This episode alone.")] = None,
    by_draw: Annotated[
        bool,
        typer.Option(
            "--by-draw", help="Choose by the numbers that drew the recorded choice, not the likeliest."
        ),
    ] = False,
    reencode: Annotated[
        bool,
        typer.Option(
            "--reencode",
            help="First let encoders read again what stored states cannot tell, as SVF needs it.",
        ),
    ] = False,
    choose: ChoiceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Say how often checkpoints would choose as the first one does, at turns that were recorded.

    Stored hidden states go through each head: no model is asked. A choice that the rounding of a state could turn is
    too close to call and counts neither way. Every checkpoint is shown the transcript as it was recorded.

    [dim]$[/] trinity policy cabc123 cdef456 --where 'family == "math"'

    [dim]$[/] trinity policy cabc123 csvf789 --reencode --json
    """
    from storage.analysis.policy_diff import read_diff
    from storage.analysis.second_opinions import EpisodeScope
    from storage.filters.episode_filter import filter_of_address, for_totals
    from ui.answers.asked import memory
    from ui.answers.policy import asked_of_checkpoints
    from ui.presentation.words import generations_of, policy_name

    chosen = Filter(where, run, recorded_by, flag).chosen()
    with opened_store(store) as opened:
        if view:
            chosen = filter_of_address(chosen.to_query(), opened.views.get(view))
        if episode:
            opened.episodes.summary(episode)
        scope = EpisodeScope(for_totals(chosen), episode)
        if reencode:
            diff = read_diff(opened, scope, checkpoints, by_draw=by_draw)
            if diff.readable():
                _reencode(opened, diff, scope)
        ages = generations_of(opened)
        names = {one: policy_name(one, ages.get(one)) for one in checkpoints}
        choices = choices_of(choose) | ({"by": "draw"} if by_draw else {})
        asked = asked_of_checkpoints(opened, scope, names, choices=choices, remember=memory())
        give("policy", asked, None, as_json, html)


def _reencode(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> None:
    """Read again in this process, as a run that a page can see and resume."""
    from ui.runs import reading

    plan = reading.plan_for(diff, scope, store.now())
    assert plan is not None
    ready = reading.RereadParts(plan)
    follow(store, ready, "turns read", plan.turns, lambda n: {"advance": n}).finished()
