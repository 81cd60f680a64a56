"""`trinity compare`: up to eight policies against a baseline over the tasks they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from ui.cli.analysis import ChoiceOption, HtmlOption, PartOption, choices_of, give
from ui.cli.console import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.analysis.standings import PolicyInRun, PolicySide


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]",
            help="Each a policy, a run, or RUN/POLICY. A is the baseline; flips, tasks and families are of B.",
        ),
    ],
    run: Annotated[str | None, typer.Option(help="Look for all policies in this run only.")] = None,
    part: PartOption = None,
    choose: ChoiceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Compare policies with a baseline over the tasks both finished: accuracies, flips, difference, p.

    The difference is theirs minus the baseline's with its paired interval of 95 % over tasks. p is McNemar's, exact;
    where tasks were played more than once it is that of sign flips by task. Forks and live plays never count.

    [dim]$[/] trinity compare single:jack cabc123 --run rp12

    [dim]$[/] trinity compare single:jack random cabc123 cdef456

    [dim]$[/] trinity compare rp12/random rp34/random --choose cell=only_b --choose page=all
    """
    from storage.analysis.standings import policies_with_episodes
    from ui.answers.asked import asked_of_policies, memory
    from ui.answers.policies import side_words
    from ui.presentation.words import generations_of

    with opened_store(store) as opened:
        if run is not None:
            opened.runs.get(run)
        played = policies_with_episodes(opened)
        sides = _sides(played, policies, run)
        say = side_words(played, generations_of(opened))
        asked = asked_of_policies(opened, sides, say, choices=choices_of(choose), remember=memory())
        give("checkpoints", asked, part, as_json, html)


def _sides(played: Sequence[PolicyInRun], names: Sequence[str], run: str | None) -> list[PolicySide]:
    """What the arguments name, in order. ConfigError or StoreError when they cannot be compared."""
    from storage.analysis.defaults import MOST_SIDES
    from storage.analysis.standings import find_side

    if not 2 <= len(names) <= MOST_SIDES:
        raise ConfigError(f"Name two to {MOST_SIDES} policies, the baseline first; these are {len(names)}.")
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
    return list(sides)
