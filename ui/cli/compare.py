"""`trinity compare`: up to eight policies against a baseline over the tasks they share, with paired statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.analysis.comparison import Comparison
    from storage.analysis.standings import Figures, PolicySide, Setting
    from storage.store import Store


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]", help="Each a policy, a run, or RUN/POLICY. The first is the baseline."
        ),
    ],
    run: Annotated[str | None, typer.Option(help="Look for all policies in this run only.")] = None,
    list_flips: Annotated[
        bool, typer.Option("--flips", help="List the tasks that only one of two solved.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare policies with a baseline over the tasks both finished: accuracies, flips, difference, p.

    The difference is theirs minus the baseline's with its paired interval of 95 % over tasks. p is McNemar's, exact;
    where tasks were played more than once it is that of sign flips by task. Forks and live plays never count.

    [dim]$[/] trinity compare single:jack cabc123 --run rp12

    [dim]$[/] trinity compare single:jack random cabc123 cdef456

    [dim]$[/] trinity compare rp12/random rp34/random
    """
    from storage.analysis.standings import figures
    from ui.presentation.comparison import corrected_threshold

    with opened_store(store) as opened:
        settings = _sides(opened, policies, run)
        sides = list(settings)
        found, spent = _compared(opened, sides), figures(opened, sides)
        if as_json:
            comparisons = [_entry(sides[0], side, one, settings) for side, one in found.items()]
            threshold = corrected_threshold(len(comparisons))
            costs = [_spent(one) for one in spent]
            print_json({"comparisons": comparisons, "p_below": threshold, "policies": costs})
            return
        _print(sides[0], found, settings)
        _print_spent(spent)
        if any(_has_reused(opened, side) for side in sides):
            tell(
                "Replies of earlier runs were reused here: where policies asked the same, they share their luck. The "
                "comparison by task allows for that; two accuracies side by side are not independent."
            )
        if list_flips:
            for side in found:
                _print_flips(opened, sides[0], side)


def _has_reused(store: Store, side: PolicySide) -> bool:
    """Whether a reply that another run had got stands in any of its episodes."""
    from storage.filters.episode_filter import EpisodeFilter

    where = EpisodeFilter(policy=side.policy, run=side.run, flag="reused")
    return store.episodes.page(where, limit=1).total.n > 0


def _sides(store: Store, names: list[str], run: str | None) -> dict[PolicySide, Setting]:
    """What the arguments name, in order, with what each was played under. ConfigError or StoreError when they cannot be
    compared."""
    from storage.analysis.standings import find_side, policies_with_episodes, setting_under
    from ui.presentation.comparison import MOST_SIDES

    if not 2 <= len(names) <= MOST_SIDES:
        raise ConfigError(f"Name two to {MOST_SIDES} policies, the baseline first; these are {len(names)}.")
    if run is not None:
        store.runs.get(run)
    played = policies_with_episodes(store)
    sides: dict[PolicySide, str] = {}
    for name in names:
        found = find_side(played, name, run)
        if len(found) > 1:
            raise ConfigError(
                f"'{name}' was played under {len(found)} settings, which are not to be averaged: name "
                f"{' or '.join(side.token for side in found)}."
            )
        if found[0] in sides:
            raise ConfigError(
                f"'{sides[found[0]]}' and '{name}' are the same: name two policies, or one policy in two runs as "
                "RUN/POLICY."
            )
        sides[found[0]] = name
    return {side: setting_under(played, side) for side in sides}


def _compared(store: Store, sides: list[PolicySide]) -> dict[PolicySide, Comparison]:
    """Each of the others against the first. ConfigError when one of them shares no task with it."""
    from core.analysis.comparison import compare as statistics
    from storage.analysis.pairs import matched_tasks

    base, *others = sides
    found = {}
    for side, families in zip(others, matched_tasks(store, base, others), strict=True):
        shared = [one for family in families.values() for one in family]
        if not shared:
            raise ConfigError(
                f"'{base.token}' and '{side.token}' have no finished task in common, so there is nothing to compare."
            )
        found[side] = statistics(shared, key=f"{base.token}/{side.token}")
    return found


def _entry(
    base: PolicySide, side: PolicySide, one: Comparison, settings: Mapping[PolicySide, Setting]
) -> dict[str, Any]:
    """One comparison as JSON tells it."""
    return {
        "n": one.n,
        "a": _accuracy(base, one.accuracy_a, one.ci95_a, one.episodes_a, settings[base]),
        "b": _accuracy(side, one.accuracy_b, one.ci95_b, one.episodes_b, settings[side]),
        "flips": {
            "both_right": one.both,
            "only_a": one.a_only,
            "only_b": one.b_only,
            "both_wrong": one.neither,
        },
        "difference": one.difference.difference,
        "difference_ci95": (one.difference.low, one.difference.high),
        "p": one.p,
        "test": "mcnemar_exact" if one.exact else "sign_flips_by_task",
    }


def _accuracy(
    side: PolicySide, share: float | None, ci95: tuple[float, float], episodes: int, setting: Setting
) -> dict[str, Any]:
    return {
        "policy": side.policy,
        "run": side.run,
        "setting": setting,
        "accuracy": share,
        "ci95": ci95,
        "episodes": episodes,
    }


def _print(
    base: PolicySide, found: dict[PolicySide, Comparison], settings: Mapping[PolicySide, Setting]
) -> None:
    """One line per policy, with what it was played under where that differs, then each comparison in a sentence."""
    from ui.presentation.comparison import p_words, points, threshold_words, verdict
    from ui.presentation.words import setting_words

    differ = len(set(settings.values())) > 1
    under = {
        side: side.policy
        if one.is_recorded and not differ
        else f"{side.policy}, {setting_words(one, list(settings.values()))}"
        for side, one in settings.items()
    }
    print_table(
        ["", "policy", "run", ">tasks", ">accuracy", "95 % interval", ">A there", ">won", ">lost", ">minus A"]
        + ["95 % interval", ">p"],
        [
            ("A", under[base], base.run or "any", *[""] * 9),
            *(
                (
                    letter,
                    under[side],
                    side.run or "any",
                    one.n,
                    percent(one.accuracy_b),
                    interval(one.ci95_b),
                    percent(one.accuracy_a),
                    one.b_only,
                    one.a_only,
                    f"{100 * one.difference.difference:+.1f} points",
                    points((one.difference.low, one.difference.high)),
                    p_words(one.p),
                )
                for letter, (side, one) in zip("BCDEFGH", found.items(), strict=False)
            ),
        ],
    )
    if differ:
        tell(
            "These were not played under the same setting: a difference may come from it and not from the policy."
        )
    tell()
    for letter, one in zip("BCDEFGH", found.values(), strict=False):
        tell(verdict(one, b=letter, among=len(found)))
    if words := threshold_words(len(found)):
        tell(words)
    if any(one.repeats for one in found.values()):
        tell("Tasks were played more than once: their episodes count together, p is of sign flips by task.")


def _spent(one: Figures) -> dict[str, Any]:
    """What a policy took over all its own finished episodes; None: nothing solved, or a price is unknown."""
    total = one.summary
    priced = total.correct and total.cost_usd is not None
    return {
        "policy": one.side.policy,
        "run": one.side.run,
        "episodes": total.n,
        "tokens_per_solved": total.tokens / total.correct if total.correct else None,
        "cost_usd_per_solved": (total.cost_usd or 0.0) / total.correct if priced else None,
    }


def _print_spent(spent: Sequence[Figures]) -> None:
    from ui.presentation.words import per_solved

    parts = [
        f"{letter} {one.summary.tokens / one.summary.correct:,.0f} tokens "
        f"({per_solved(one.summary.cost_usd, one.summary.correct)})"
        for letter, one in zip("ABCDEFGH", spent, strict=False)
        if one.summary.correct
    ]
    if parts:
        tell(f"A solved problem took, over all their own episodes: {', '.join(parts)}.")


def _print_flips(store: Store, base: PolicySide, side: PolicySide) -> None:
    from storage.analysis.pairs import read_shared_tasks

    rows = []
    for cell, winner in (("only_a", base), ("only_b", side)):
        for one in read_shared_tasks(store, base, side, (base, side), cell=cell, limit=1_000_000):
            shown = [outcome.episode if outcome else "" for outcome in one.outcomes]
            rows.append((winner.token, one.task_id, one.question[:60], *shown))
    if rows:
        tell()
        print_table(
            ["solved by", "task", "question", f"episode of {base.token}", f"episode of {side.token}"], rows
        )
