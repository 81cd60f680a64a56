"""`trinity compare`: two policies over the tasks they share, with paired statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.console import JsonOption, StoreOption, interval, percent, print_json, print_table, tell

if TYPE_CHECKING:
    from storage.store import Store


def compare(
    a: Annotated[str, typer.Argument(help="A policy, a run, or RUN/POLICY.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    run: Annotated[str | None, typer.Option(help="Look for both policies in this run only.")] = None,
    list_flips: Annotated[
        bool, typer.Option("--flips", help="List the tasks that only one of them solved.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two policies over the tasks both finished: accuracies, flips, difference, exact McNemar p.

    The difference is B minus A with a paired bootstrap interval of 95 %.

    [dim]$[/] trinity compare single:jack cabc123 --run rp12

    [dim]$[/] trinity compare rp12/random rp34/random
    """
    from core.comparison import compare_counts
    from core.errors import ConfigError
    from storage.store import open_store
    from ui import wiring

    opened = open_store(wiring.settings(store=store).store)
    policy_a, run_a = side(opened, a, run)
    policy_b, run_b = side(opened, b, run)
    if (policy_a, run_a) == (policy_b, run_b):
        raise ConfigError(
            f"'{a}' and '{b}' are the same: name two policies, or one policy in two runs as RUN/POLICY."
        )
    counts = opened.episodes.flip_counts(policy_a, policy_b, run=run_a, run_b=run_b)
    flips = [
        (kind, flip)
        for kind in ("only_a", "only_b")
        for flip in (
            opened.episodes.flips(policy_a, policy_b, run=run_a, run_b=run_b, kind=kind, limit=counts.n)
            if list_flips
            else ()
        )
    ]
    opened.close()
    key = f"{run_a}/{policy_a}/{run_b}/{policy_b}"
    result = compare_counts(counts.both_right, counts.only_a, counts.only_b, counts.both_wrong, key=key)
    if result.n == 0:
        raise ConfigError(f"'{a}' and '{b}' have no finished task in common, so there is nothing to compare.")
    difference = result.difference
    if as_json:
        print_json(
            {
                "n": result.n,
                "a": {"policy": policy_a, "run": run_a, "accuracy": result.accuracy_a, "ci95": result.ci95_a},
                "b": {"policy": policy_b, "run": run_b, "accuracy": result.accuracy_b, "ci95": result.ci95_b},
                "flips": {
                    "both_right": result.both,
                    "only_a": result.a_only,
                    "only_b": result.b_only,
                    "both_wrong": result.neither,
                },
                "difference": difference.difference,
                "difference_ci95": (difference.low, difference.high),
                "mcnemar_p": result.p,
            }
        )
        return
    print_table(
        ["", "policy", "run", ">accuracy", "95 % interval"],
        [
            ("A", policy_a, run_a or "any", percent(result.accuracy_a), interval(result.ci95_a)),
            ("B", policy_b, run_b or "any", percent(result.accuracy_b), interval(result.ci95_b)),
        ],
        title=f"{result.n} shared tasks",
    )
    tell()
    print_table(
        ["", ">B right", ">B wrong"],
        [("A right", result.both, result.a_only), ("A wrong", result.b_only, result.neither)],
    )
    ends = f"{100 * difference.low:+.1f} to {100 * difference.high:+.1f}"
    points = f"{100 * difference.difference:+.1f} points (95 % {ends})"
    tell(f"\nB minus A: {points}; exact McNemar p = {result.p:.3g}")
    if flips:
        tell()
        print_table(
            ["solved by", "task", "question", "episode of A", "episode of B"],
            [
                ("A" if kind == "only_a" else "B", f.task_id, f.question[:60], f.a_episode, f.b_episode)
                for kind, f in flips
            ],
        )


def side(store: Store, name: str, run: str | None) -> tuple[str, str | None]:
    """(policy, run or None for any) of one side. StoreError or ConfigError when it is nothing known."""
    from core.errors import ConfigError
    from storage.filters import EpisodeFilter

    if run is not None:
        store.runs.get(run)
    if is_run(store, name):
        policies = [one.policy for one in store.runs.policies(name)]
        if len(policies) != 1:
            listed = ", ".join(policies) or "none yet"
            raise ConfigError(
                f"Run {name} has {len(policies)} policies ({listed}): name one as {name}/POLICY."
            )
        return policies[0], name
    head, slash, rest = name.partition("/")
    policy, where = (rest, head) if slash and is_run(store, head) else (name, run)
    known = {one.value for one in store.episodes.facets(EpisodeFilter(run=where)).policy}
    if policy not in known:
        listed = ", ".join(sorted(known)) or "nothing yet"
        place = f"Run {where}" if where else "The store"
        raise ConfigError(f"{place} has no run or policy '{policy}'; it has episodes of: {listed}.")
    return policy, where


def is_run(store: Store, name: str) -> bool:
    """Whether the store has a run of this id."""
    from core.errors import StoreError

    try:
        store.runs.get(name)
    except StoreError:
        return False
    return True
