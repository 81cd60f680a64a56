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
        return _none_decisive(outcomes, recorded_right, other)
    how = "would have saved it" if not recorded_right else "would have lost it"
    return (
        f"Turn {found.turn + 1} is decisive: {change_words(found.change)} {how}; it ends right {_of(found.other)}, "
        f"unchanged {_of(found.unchanged)}."
    )


def _none_decisive(outcomes: Sequence[TurnOutcome], recorded_right: bool, other: str) -> str:
    """Where no turn turns the ending round: what the change gained most, if it did anywhere."""

    def gained(one: TurnOutcome) -> float:
        more = (one.other.share or 0.0) - (one.unchanged.share or 0.0)
        return -more if recorded_right else more

    best, turned = max(outcomes, key=gained), "wrong" if recorded_right else "right"
    if gained(best) <= 0:
        return f"At no turn does it end {turned} more often with {_ARTICLES[other]} {other} than unchanged."
    return (
        f"No turn is decisive: at none does {_ARTICLES[other]} {other} make it end {turned} more often than not where "
        f"it does not do so unchanged. The greatest difference is at turn {best.turn + 1}: "
        f"{change_words(best.change)}, it ends right {_of(best.other)}, unchanged {_of(best.unchanged)}."
    )


_ARTICLES = {"runner-up": "the", "right reply": "a"}


def _of(side: ForkSide) -> str:
    return f"{side.right} of {side.n}"
