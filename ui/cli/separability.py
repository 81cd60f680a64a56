"""`trinity separability`: how well the task and the chosen model can be read off hidden states and logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import StoreError
from ui.cli.console import percent, print_json, print_table, tell
from ui.cli.options import JsonOption, StoreOption, opened_store

if TYPE_CHECKING:
    from core.analysis.curvature import BlockSeparability
    from core.analysis.separability import Accuracy, Discriminant, Score, Space, Target
    from storage.analysis.hidden_states import HiddenStates, PolicyWithStates


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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the task family and the chosen model off a checkpoint's hidden states and logits.

    Linear and RBF SVMs in cross-validation, all turns of a task in one fold, beside the majority class and
    the paper's figures; the Fisher ratio of the classes in their discriminant plane; and how far the reward's
    curvature is from one block per logit.

    [dim]$[/] trinity separability

    [dim]$[/] trinity separability rp12 --policy cabc123 --turns first --json
    """
    from core.analysis.curvature import block_separability
    from core.analysis.separability import (
        FEWEST_POINTS,
        PUBLISHED_WITHIN,
        SPACES,
        TARGETS,
        accuracy,
        discriminate,
        separability_index,
        within_families,
    )
    from storage.analysis.hidden_states import policies_with_states, read_choices, read_states

    with opened_store(store) as opened:
        chosen = choose(policies_with_states(opened), run, policy)
        states = read_states(opened, chosen.run_id, chosen.policy, first_only=turns is Turns.FIRST)
        choices = read_choices(opened, chosen.run_id, chosen.policy)
    points = states.points
    if len(points) < FEWEST_POINTS:
        raise StoreError(
            f"{chosen.policy} in run {chosen.run_id} has {len(points)} turns with a hidden state: fewer than "
            f"{FEWEST_POINTS} tell nothing."
        )
    found = [
        (target, space, accuracy(points, target, space), discriminate(points, target, space))
        for target in TARGETS
        for space in SPACES
    ]
    indices = [(target, space, separability_index(points, target, space)) for target, space, *_ in found]
    within = within_families(points, "hidden")
    blocks = None if choices is None else block_separability(choices)
    if as_json:
        print_json(
            {
                **_as_json(chosen, states, turns, found),
                "index": [
                    {"target": target, "space": space, "index": index} for target, space, index in indices
                ],
                "within_families": within,
                "paper_within": PUBLISHED_WITHIN,
                "blocks": blocks and {**asdict(blocks), "curvature": blocks.curvature.tolist()},
            }
        )
        return
    _print(chosen, states, found)
    _print_within(within, indices)
    _print_blocks(blocks)


Found = tuple["Target", "Space", "Accuracy | None", "Discriminant | None"]


def choose(offered: Sequence[PolicyWithStates], run: str | None, policy: str | None) -> PolicyWithStates:
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


def _as_json(
    chosen: PolicyWithStates, states: HiddenStates, turns: Turns, found: Sequence[Found]
) -> dict[str, object]:
    from core.analysis.separability import PUBLISHED_ACCURACY, PUBLISHED_FISHER, classes

    points = states.points
    return {
        "run": chosen.run_id,
        "policy": chosen.policy,
        "generation": chosen.generation,
        "turns": turns.value,
        "points": len(points),
        "points_of": states.total,
        "tasks": len(set(points.tasks)),
        "results": [
            {
                "target": target,
                "space": space,
                "classes": classes(points, target).frequent,
                "left_out": classes(points, target).rare,
                "svm": measured,
                "fisher": plane and {"ratio": plane.fisher, "shuffled": plane.shuffled},
                "paper": {"svm": PUBLISHED_ACCURACY[target, space], "fisher": PUBLISHED_FISHER[space]},
            }
            for target, space, measured, plane in found
        ],
    }


def _print(chosen: PolicyWithStates, states: HiddenStates, found: Sequence[Found]) -> None:
    from core.analysis.separability import (
        FOLDS,
        PUBLISHED_ACCURACY,
        PUBLISHED_FISHER,
        SHUFFLES,
        SPACE_WORDS,
        TARGET_WORDS,
        classes,
    )

    points = states.points
    drawn = "" if len(points) == states.total else f" (of {states.total:,})"
    whose = (
        chosen.policy if chosen.generation is None else f"generation {chosen.generation} ({chosen.policy})"
    )
    accuracies, published, ratios = [], [], []
    for target, space, measured, plane in found:
        what, paper = (TARGET_WORDS[target], SPACE_WORDS[space]), PUBLISHED_ACCURACY[target, space]
        accuracies.append((*what, *_accuracies(measured)))
        figures = _score(paper.linear), _score(paper.rbf), percent(paper.chance)
        published.append((*what, *figures, f"{PUBLISHED_FISHER[space]:.2f}"))
        planes = ("-", "-") if plane is None else (f"{plane.fisher:.2f}", f"{plane.shuffled:.2f}")
        ratios.append((*what, *planes))
    # Lines, not titles of tables, which are wrapped at the width of their table.
    tasks = f"{len(set(points.tasks)):,} tasks"
    tell(f"Run {chosen.run_id}, {whose}: {len(points):,} turns{drawn} of {tasks}", "bold")
    columns = ["read", "from", ">linear SVM", ">RBF SVM"]
    print_table([*columns, ">majority", ">chance", ">classes", ">turns"], accuracies)
    tell("\nThe paper (arXiv 2512.04695): frontier models, other tasks", "bold")
    print_table([*columns, ">chance", ">Fisher"], published)
    shuffles = f"the mean of {SHUFFLES} with shuffled labels"
    tell(f"\nThis run: Fisher ratio in the plane of the two discriminants, and {shuffles}", "bold")
    print_table(["apart", "in", ">Fisher", ">shuffled"], ratios)
    tell(f"\n{FOLDS} folds, all turns of a task in one; ± is the standard deviation over the folds.")
    for target, words in TARGET_WORDS.items():
        if rare := classes(points, target).rare:
            tell(f"Left out of {words}, with fewer than {FOLDS} tasks: {', '.join(rare)}.")


def _print_within(
    within: Mapping[str, Accuracy | None], indices: Sequence[tuple[Target, Space, float | None]]
) -> None:
    from core.analysis.separability import PUBLISHED_WITHIN, SPACE_WORDS, TARGET_WORDS

    tell("\nThe chosen model, read off hidden states within one task family", "bold")
    columns = ["family", ">linear SVM", ">RBF SVM", ">majority", ">chance", ">classes", ">turns"]
    print_table(columns, [(family, *_accuracies(measured)) for family, measured in within.items()])
    papers = ", ".join(f"{name} {percent(share)}" for name, share in PUBLISHED_WITHIN.items())
    tell(f"The paper, linear SVM within one benchmark: {papers}.")
    tell("\nSeparability index: the share of the variance that lies between classes", "bold")
    rows = [
        (TARGET_WORDS[target], SPACE_WORDS[space], "-" if index is None else f"{index:.3f}")
        for target, space, index in indices
    ]
    print_table(["apart", "in", ">index"], rows)


def _print_blocks(blocks: BlockSeparability | None) -> None:
    from core.analysis.curvature import FEWEST_EPISODES

    tell("\nThe reward's curvature: how far it is from one block per logit (0: block-diagonal)", "bold")
    if blocks is None:
        tell(
            f"It takes at least {FEWEST_EPISODES} whole episodes with drawn choices, some solved and some not."
        )
        return
    measures = (("spectral norm", "spectral"), ("largest block", "largest"), ("sum over a row", "row"))
    print_table(
        ["outside over inside", ">this run", ">shuffled rewards"],
        [
            (words, f"{getattr(blocks.coupling, name):.2f}", f"{getattr(blocks.by_chance, name):.2f}")
            for words, name in measures
        ],
    )
    tell(
        f"Over {blocks.episodes:,} episodes, {percent(blocks.outside)} of the squared curvature lies outside, noise "
        "left out."
        if blocks.outside is not None
        else f"{blocks.episodes:,} episodes are too few to tell it from chance."
    )


def _accuracies(measured: Accuracy | None) -> tuple[object, ...]:
    if measured is None:
        return ("-",) * 6
    return (
        _score(measured.linear),
        _score(measured.rbf),
        percent(measured.majority),
        percent(measured.chance),
        measured.classes,
        measured.n,
    )


def _score(score: Score) -> str:
    return percent(score.mean) if score.std is None else f"{100 * score.mean:.1f} ± {100 * score.std:.1f} %"
