"""Which turn of an episode mattered, in words: luck at the start, and the turn that turns the ending round."""

from __future__ import annotations

from collections.abc import Sequence

from ui.presentation.steps import change_words
from ui.runs.forks.results import ForkSide, TurnOutcome, decisive, luck


def luck_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool) -> str:
    """Whether the recorded ending was luck, by what the unchanged first turn comes to; plain text, empty before that
    is known."""
    first = outcomes[0].unchanged if outcomes else None
    if first is None or first.share is None:
        return ""
    from_turn = f"Replayed unchanged from turn {outcomes[0].turn + 1}"
    return f"{from_turn} it was right {_times(first)}: {luck(first, recorded_right)}."


def decisive_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool, other: str = "runner-up") -> str:
    """The decisive turn, where each was changed to its `other`; plain text, empty before anything is known."""
    if any(one.unchanged.share is None or one.other.share is None for one in outcomes) or not outcomes:
        return ""
    found = decisive(outcomes, recorded_right=recorded_right)
    if found is None:
        return _none_decisive(outcomes, recorded_right, other)
    return f"Turn {found.turn + 1} decided it: {_effect(found)}."


def _none_decisive(outcomes: Sequence[TurnOutcome], recorded_right: bool, other: str) -> str:
    """Where no turn turns the ending round: what the change gained most, if it did anywhere."""

    def gained(one: TurnOutcome) -> float:
        more = (one.other.share or 0.0) - (one.unchanged.share or 0.0)
        return -more if recorded_right else more

    best, turned = max(outcomes, key=gained), "wrong" if recorded_right else "right"
    if gained(best) <= 0:
        return (
            f"No single turn decided it: {_ARTICLES[other]} {other} made it {turned} more often at no turn."
        )
    return f"No single turn decided it. The largest effect is at turn {best.turn + 1}: {_effect(best)}."


_ARTICLES = {"runner-up": "the", "right reply": "a"}


def _effect(one: TurnOutcome) -> str:
    return f"{change_words(one.change)}, it was right {_times(one.other)}, unchanged {_times(one.unchanged)}"


def _times(side: ForkSide) -> str:
    """`1 time in 5`."""
    return f"{side.right} time{'' if side.right == 1 else 's'} in {side.n}"
