"""`trinity routing` and `trinity verifier`: who does what, whose verdicts to trust, what a solved problem costs."""

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


def verifier(
    where: WhereOption = None,
    run: RunOption = None,
    policy: PolicyOption = None,
    flag: FlagOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which verifier accepts wrong answers, and what a solved problem costs.

    A rate is of the wrong (right) answers that a verifier judged readably, with a 95 % interval in which the
    turns of one task count together.

    [dim]$[/] trinity verifier --run rp12
    """
    from storage.analysis.costs import policy_costs
    from storage.analysis.verdicts import ledgers, turn_groups, turn_rates
    from ui.presentation.words import per_solved

    chosen = narrowed(where, run, policy, flag)
    with opened_store(store) as opened:
        books = ledgers(turn_groups(opened, chosen), turn_rates(opened, chosen))
        costs = policy_costs(opened, chosen)
    _refuse_nothing(sum(one.n for one in costs))
    if as_json:
        print_json(
            {
                "verifiers": [
                    {
                        "model": one.model,
                        "false_accept": _share(one.false_accept),
                        "false_revise": _share(one.false_revise),
                        "self_verified": one.self_verified,
                        **{what.value: n for what, n in one.counts.items()},
                    }
                    for one in books
                ],
                "policies": [
                    {
                        "policy": one.policy,
                        "setting": one.setting,
                        "accuracy": _share(one.accuracy),
                        "cost_usd": one.cost_usd,
                        "cost_usd_per_solved": one.per_solved(one.cost_usd),
                        "tokens_per_solved": one.per_solved(one.tokens),
                        "false_accept": _share(one.false_accept),
                    }
                    for one in costs
                ],
            }
        )
        return
    print_table(
        ["verifier", ">wrong answers accepted", "95 %", ">of", ">right answers sent back", "95 %", ">of"],
        [(one.model, *_cells(one.false_accept), *_cells(one.false_revise)) for one in books],
    )
    tell()
    print_table(
        ["policy", ">solved", ">of", ">cost per solved", ">tokens per solved", ">wrong among accepted"],
        [
            (
                one.token,
                percent(one.accuracy.value),
                one.n,
                per_solved(one.cost_usd, one.right),
                "-" if not one.right else f"{one.tokens / one.right:,.0f}",
                percent(one.false_accept.value),
            )
            for one in costs
        ],
    )


def _refuse_nothing(episodes: int) -> None:
    if not episodes:
        raise ConfigError(
            "No finished episode matches: leave a filter out, or list what there is by trinity episodes."
        )


def _share(one: ClusteredShare) -> dict[str, object]:
    return {"k": one.k, "n": one.n, "share": one.value, "ci95": one.ci95 if one.n else None}


def _cells(one: ClusteredShare) -> tuple[str, str, int]:
    return percent(one.value), interval(one.ci95) if one.n else "-", one.n
