"""`trinity policy`: what several checkpoints would choose at the same recorded turns, without asking a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.console import (
    JsonOption,
    StoreOption,
    interval,
    opened_store,
    percent,
    print_json,
    print_table,
    progress,
    tell,
)
from ui.cli.filters import FlagOption, RunOption, WhereOption, filter_of
from ui.cli.play import playing

if TYPE_CHECKING:
    from core.analysis.agreement import Agreement, FirstDifferences, Picks
    from storage.analysis.policy_diff import PolicyDiff
    from storage.analysis.second_opinions import EpisodeScope
    from storage.store import Store
    from ui.presentation.policy_diff import AgreementRate


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
    store: StoreOption = None,
    as_json: JsonOption = False,
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
    from ui.presentation.words import generations_of, policy_name

    chosen = filter_of(where, run, recorded_by, flag)
    with opened_store(store) as opened:
        if view:
            chosen = filter_of_address(chosen.to_query(), opened.views.get(view))
        if episode:
            opened.episodes.summary(episode)
        scope = EpisodeScope(for_totals(chosen), episode)
        diff = read_diff(opened, scope, checkpoints, by_draw=by_draw)
        if reencode and diff.readable():
            _reencode(opened, diff, scope)
            diff = read_diff(opened, scope, checkpoints, by_draw=by_draw)
        ages = generations_of(opened)
        names = {one: policy_name(one, ages.get(one)) for one in checkpoints}
    if as_json:
        print_json(_as_json(diff, names))
    else:
        _print(diff, names)


def _reencode(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> None:
    """Read again in this process, as a run that a page can see and resume."""
    from ui.runs import reading

    plan = reading.plan_for(diff, scope, store.now())
    assert plan is not None
    with playing(store, reading.RereadParts(plan)) as played, progress() as bar:
        task = bar.add_task("turns read", total=plan.turns, note="")
        for n in played.events:
            bar.advance(task, n)
    if not played.complete:
        raise typer.Exit(1)


def _as_json(diff: PolicyDiff, names: dict[str, str]) -> dict[str, Any]:
    from storage.analysis.policy_diff import HAS_LOGITS
    from ui.presentation.policy_diff import agreement_rates

    others = zip(agreement_rates(diff, names), diff.agreements, diff.partings, diff.picks[1:], strict=True)
    return {
        "baseline": diff.checkpoints[0].id,
        "teacher_forced": True,
        "choices": "recorded draw" if diff.by_draw else "likeliest",
        "turns": {
            "used": len(diff.turns),
            "skipped": {reason.value: n for reason, n in diff.skipped().items()},
            "to_read_again": diff.readable(),
        },
        "episodes": {"read": len(diff.judged.episodes), "matching": diff.judged.matching},
        "tolerance": diff.tolerance,
        "logits": {
            one.checkpoint.id: {
                **{source.value: int((one.having(source) & diff.used).sum()) for source in HAS_LOGITS},
                "stored_states_beside_recorded": one.head_proof,
                "read_again_beside_recorded": one.reread_proof,
            }
            for one in diff.judgements
        },
        "others": [_other(diff, *one) for one in others],
    }


def _other(
    diff: PolicyDiff, share: AgreementRate, found: Agreement, parted: FirstDifferences, picks: Picks
) -> dict[str, Any]:
    """One of the checkpoints set against the baseline."""
    from core.analysis.agreement import confusion, divergence_by_turn
    from ui.presentation.policy_diff import agreement_rates_by_family, pair_name

    models, counts = diff.checkpoints[0].models, confusion(diff.picks[0], picks, found.called)
    return {
        "checkpoint": share.key,
        **_figures(share),
        "first_disagreement": {"episodes": dict(_first(parted)), "uncertain": int((~parted.sure).sum())},
        "kl_by_turn": [
            {"turn": one.index + 1, "n": one.n, "mean": one.mean, "infinite": one.infinite}
            for one in divergence_by_turn(found)
        ],
        "families": {one.key: _figures(one) for one in agreement_rates_by_family(diff, found)},
        "picks": [
            {"a": pair_name(a, models), "b": pair_name(b, models), "turns": int(counts[a, b])}
            for a, b in zip(*(part.tolist() for part in counts.nonzero()), strict=True)
        ],
    }


def _first(parted: FirstDifferences) -> list[tuple[str, int]]:
    """In how many episodes two checkpoints first differ at each turn, or never, which comes last."""
    from core.analysis.agreement import NEVER

    counts = Counter(parted.turns.tolist())
    never = [("never", counts.pop(NEVER))] if NEVER in counts else []
    return [(str(turn + 1), n) for turn, n in sorted(counts.items())] + never


def _figures(share: AgreementRate) -> dict[str, Any]:
    return {
        "agreement": share.rate,
        "ci95": share.interval,
        "turns": share.n,
        "too_close_to_call": share.close,
    }


def _print(diff: PolicyDiff, names: dict[str, str]) -> None:
    from ui.presentation.policy_diff import agreement_rates, agreement_rates_by_family, trust_lines

    if diff.turns:
        tell(f"A is {names[diff.checkpoints[0].id]}; {len(diff.turns):,} recorded turns", "bold")
        print_table(
            ["compared with A", ">agreement", "95 % interval", ">turns", ">too close to call"],
            [_row(one) for one in agreement_rates(diff, names)],
        )
    for one, found, parted in zip(agreement_rates(diff, names), diff.agreements, diff.partings, strict=True):
        if not one.n:
            continue
        tell(f"\n{one.name}: first turn at which it would choose otherwise", "bold")
        print_table(["turn", ">episodes"], _first(parted))
        tell(f"\n{one.name}: by family", "bold")
        print_table(
            ["family", ">agreement", "95 % interval", ">turns", ">too close to call"],
            [_row(family) for family in agreement_rates_by_family(diff, found)],
        )
    tell()
    for line in trust_lines(diff, names):
        tell(line)
    tell(
        "Teacher-forced: after the first disagreement the other would have seen another transcript.",
        style="dim",
    )
    if more := sum(diff.readable().values()):
        tell(f"{more:,} turns more can be judged when they are read again: add --reencode.", style="dim")


def _row(one: AgreementRate) -> tuple[object, ...]:
    return one.name, percent(one.rate), interval(one.interval), f"{one.n:,}", f"{one.close:,}"
