"""`trinity routing`: who does what."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from core.errors import ConfigError
from ui.cli.console import (
    JsonOption,
    StoreOption,
    interval,
    opened_store,
    percent,
    print_json,
    print_table,
    tell,
)
from ui.cli.narrowing import FlagOption, PolicyOption, RunOption, WhereOption, narrowed

if TYPE_CHECKING:
    from core.analysis.metrics import ClusteredShare
    from storage.analysis.workflows import WorkflowUse


def routing(
    where: WhereOption = None,
    run: RunOption = None,
    policy: PolicyOption = None,
    flag: FlagOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who is called in which role, and how the episodes with such a turn end; and what workflows are like.

    [dim]$[/] trinity routing --policy cabc123
    """
    from storage.analysis.routing import Traffic, traffic_of
    from storage.analysis.workflows import workflow_use

    chosen = narrowed(where, run, policy, flag)
    with opened_store(store) as opened:
        found = Traffic.over(traffic_of(opened, chosen).values())
        workflows = workflow_use(opened, chosen)
    _refuse_nothing(found.episodes)
    first = found.first()
    if as_json:
        moves = [
            {
                "model": move.model,
                "role": move.role.value,
                "turns": n,
                "share": found.share(move),
                "episodes": found.seen[move],
                "right": found.solved[move],
                "opens": first[move],
            }
            for move, n in found.turns.most_common()
        ]
        print_json(
            {
                "episodes": found.episodes,
                "right": found.right,
                "turns": found.total,
                "moves": moves,
                "workflows": {name: _workflows(use) for name, use in workflows.items()},
            }
        )
        return
    print_table(
        ["model", "role", ">turns", ">share", ">right", ">opens"],
        [
            (
                move.model,
                move.role.value,
                n,
                percent(found.share(move)),
                percent(found.solved[move] / found.seen[move]),
                percent(first[move] / found.episodes),
            )
            for move, n in found.turns.most_common()
        ],
        title=f"{found.episodes} finished episodes, {found.total} turns, {percent(found.right / found.episodes)} right",
    )
    if workflows:
        tell()
        print_table(
            ["workflows of", ">solved", "95 %", ">of", ">steps", ">plans read", "shapes"],
            [
                (
                    name,
                    *_cells(use.right),
                    "-" if use.steps_mean is None else f"{use.steps_mean:.1f}",
                    percent(use.readable),
                    ", ".join(f"{shape} {share.n}" for shape, share in sorted(use.topologies.items())),
                )
                for name, use in workflows.items()
            ],
        )


def _workflows(use: WorkflowUse) -> dict[str, object]:
    """Ready for JSON; steps are counted from 1."""
    return {
        "right": _share(use.right),
        "workflows": use.workflows,
        "steps": {str(n): count for n, count in sorted(use.lengths.items())},
        "models": [
            {"step": place + 1, "model": model, "n": n, "share": use.share(place, model)}
            for (place, model), n in sorted(use.models.items())
        ],
        "topologies": {shape.value: _share(share) for shape, share in sorted(use.topologies.items())},
        "access": [
            {"step": place + 1, "read": share.k, "of": share.n, "share": share.value}
            for place, share in use.access.items()
        ],
        "plans": use.plans,
        "plans_failed": use.failed,
        "plans_unreadable": {fault.value: n for fault, n in use.faults.most_common()},
        "later_rounds": {outcome.value: asdict(rounds) for outcome, rounds in use.rounds.items()},
    }


def _refuse_nothing(episodes: int) -> None:
    if not episodes:
        raise ConfigError(
            "No finished episode matches: leave a filter out, or list what there is by trinity episodes."
        )


def _share(one: ClusteredShare) -> dict[str, object]:
    return {"k": one.k, "n": one.n, "share": one.value, "ci95": one.ci95 if one.n else None}


def _cells(one: ClusteredShare) -> tuple[str, str, int]:
    return percent(one.value), interval(one.ci95) if one.n else "-", one.n
