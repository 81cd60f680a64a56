"""Which turn of an episode mattered, in words: luck at the start, and the turn that turns the ending round."""

from __future__ import annotations

from collections.abc import Sequence

from ui.presentation.changes import change_words
from ui.runs.forks.results import ForkSide, TurnOutcome, decisive, luck


def luck_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool) -> str:
    """Whether the recorded ending was luck, by what the unchanged first turn comes to; plain text, empty before that
    is known."""
    first = outcomes[0].unchanged if outcomes else None
    if first is None or first.share is None:
        return ""
    return f"Unchanged from turn {outcomes[0].turn + 1} it ends right {_of(first)}: {luck(first, recorded_right)}."


def decisive_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool, other: str = "runner-up") -> str:
    """The decisive turn, where each was changed to its `other`; plain text, empty before anything is known."""
    if any(one.unchanged.share is None or one.other.share is None for one in outcomes) or not outcomes:
        return ""
    found = decisive(outcomes, recorded_right=recorded_right)
    if found is None:
        turned = "wrong" if recorded_right else "right"
        return f"At no turn would {_ARTICLES[other]} {other} have turned it {turned} more often than not."
    how = "would have saved it" if not recorded_right else "would have lost it"
    return (
        f"Turn {found.turn + 1} is decisive: {change_words(found.change)} {how}; it ends right {_of(found.other)}, "
        f"unchanged {_of(found.unchanged)}."
    )


_ARTICLES = {"runner-up": "the", "right reply": "a"}


def _of(side: ForkSide) -> str:
    return f"{side.right} of {side.n}"
