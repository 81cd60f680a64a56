"""`trinity separability`: how well the task and the chosen model can be read off hidden states and logits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import StoreError
from ui.cli.analysis import ChoiceOption, HtmlOption, PartOption, choices_of, give
from ui.cli.options import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from storage.analysis.hidden_states import PolicyWithStates


class Turns(StrEnum):
    """Which turns of an episode."""

    FIRST = "first"
    ALL = "all"


def separability(
    run: Annotated[
        str | None,
        typer.Argument(help="A run; the newest with hidden states if left out.", show_default=False),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="A checkpoint that played in it; else its last generation.", show_default=False
        ),
    ] = None,
    turns: Annotated[
        Turns, typer.Option(help="The first turn of every episode, or all of them.")
    ] = Turns.ALL,
    part: PartOption = None,
    choose: ChoiceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Read the task family and the chosen model off a checkpoint's hidden states and logits.

    Linear and RBF SVMs in cross-validation, all turns of a task in one fold, beside the majority class and
    the paper's figures; the Fisher ratio of the classes in their discriminant plane; and how far the reward's
    curvature is from one block per logit. The turns and made-up states come with --part turns, --part made_up.

    [dim]$[/] trinity separability

    [dim]$[/] trinity separability rp12 --policy cabc123 --turns first --json
    """
    from storage.analysis.hidden_states import policies_with_states
    from ui.answers.asked import memory
    from ui.answers.separability import asked_of_states, too_few
    from ui.presentation.words import generations_of, policy_name

    with opened_store(store) as opened:
        chosen = chosen_policy(policies_with_states(opened), run, policy)
        name = policy_name(chosen.policy, generations_of(opened).get(chosen.policy))
        choices = choices_of(choose) | ({"turns": turns.value} if turns is Turns.FIRST else {})
        asked = asked_of_states(
            opened, chosen, f"{name} in run {chosen.run_id}", choices=choices, remember=memory()
        )
        if few := too_few(asked):
            raise StoreError(few)
        give("separability", asked, part, as_json, html)


def chosen_policy(
    offered: Sequence[PolicyWithStates], run: str | None, policy: str | None
) -> PolicyWithStates:
    """The run and policy that are meant, else the newest run's last generation. StoreError when there is none."""
    if not offered:
        raise StoreError("No run has hidden states: only a checkpoint leaves them, so let one play first.")
    of_run = [one for one in offered if run in (None, one.run_id)]
    if not of_run:
        listed = ", ".join(dict.fromkeys(one.run_id for one in offered))
        raise StoreError(f"No hidden states are kept of a run '{run}'; there are some of: {listed}.")
    fitting = [one for one in of_run if policy in (None, one.policy)]
    if not fitting:
        listed = ", ".join(dict.fromkeys(one.policy for one in of_run))
        raise StoreError(f"No hidden states are kept of a policy '{policy}'; there are some of: {listed}.")
    return fitting[0]
