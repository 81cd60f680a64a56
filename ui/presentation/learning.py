"""What a coordinator learned, in a sentence made from a learning curve."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.analysis.learning import LearningCurve, Spell
from core.analysis.metrics import Mean
from ui.presentation.theme import percent
from ui.presentation.words import share_words

#: What the sentences mean by it; `FIRST` is the number of the first generation.
DEFINITION = (
    "“From about generation N”: from there to the last, the 95 % interval of the change since generation {FIRST} at "
    "the same turns leaves out zero, in at least 19 of 20 generations and never on the other side. “In most cases”: "
    "from there on the interval lies above 50 %. Bands are 95 % intervals, clustered by task."
)


class Habit(StrEnum):
    """Something that a coordinator may learn to do, or to leave."""

    VERIFIES = "verifies"  # the Verifier, where an answer stands unjudged
    VERIFIES_NOTHING = "verifies_nothing"  # the Verifier, where there is nothing to judge
    THINKER_FIRST = "thinker_first"
    BEST_MODEL = "best_model"


@dataclass(frozen=True, slots=True)
class HabitWords:
    """What a habit is called, when it can show, and what is then done."""

    name: str
    when: str
    does: str


HABITS: dict[Habit, HabitWords] = {
    Habit.VERIFIES: HabitWords(
        "Verifier, when there is an answer to check",
        "when there is an answer to check, ",
        "uses the Verifier",
    ),
    Habit.VERIFIES_NOTHING: HabitWords(
        "Verifier, when there is none", "when there is no answer to check, ", "calls the Verifier"
    ),
    Habit.THINKER_FIRST: HabitWords("Thinker in the first turn", "", "begins with a Thinker"),
    Habit.BEST_MODEL: HabitWords(
        "The family's best model", "when there is no answer to check, ", "chooses the family's best model"
    ),
}


def learned_words(habit: Habit, curve: LearningCurve) -> str:
    """Since when a habit is there, in one or two sentences, plain text; that it never is, where that is so."""
    words, first, last = HABITS[habit], curve.generations[0], curve.generations[-1]
    if first == last:
        return f"Only generation {first} is kept: nothing can be told yet."
    if not curve.means[-1].has_interval:
        return "All of these turns are of one task: nothing can be told beyond it."
    start, end = curve.means[0], curve.means[-1]
    figures = f"{mean_words(end)} at generation {last}, {percent(start.mean)} at generation {first}"
    now, before = curve.lasting, curve.passing
    if now is None and before is None:
        claim = f"no generation {words.does} more or less often than at first, beyond chance"
    elif now is None:
        claim = f"the last generation {words.does} neither more nor less often than at first, beyond chance"
    elif now.side > 0:
        claim = f"it {words.does} {_more(curve, now)}"
    elif before is None:
        claim = f"it never {words.does} more often than at first, and less from about generation {now.first}"
    else:
        claim = f"it {words.does} less often than at first from about generation {now.first}"
    whole = f"{words.when}{claim}: {figures}.{_passed(curve, before)}"
    return whole[0].upper() + whole[1:]


def mean_words(mean: Mean) -> str:
    """`44.0 % (39 to 49)`; without an interval the mean alone."""
    if not mean.has_interval:
        return percent(mean.mean)
    return share_words(mean.mean, (mean.low, mean.high))


def _more(curve: LearningCurve, now: Spell) -> str:
    mostly = curve.mostly_since()
    if mostly is None:
        return f"more often than at first from about generation {now.first}"
    if mostly <= now.first:
        return f"in most cases, and more often than at first from about generation {now.first}"
    return (
        f"more often than at first from about generation {now.first}, in most cases from generation {mostly}"
    )


def _passed(curve: LearningCurve, before: Spell | None) -> str:
    """What it did for a while and no longer does."""
    if before is None:
        return ""
    where, mean = curve.extreme(before)
    more, to = ("more", "up") if before.side > 0 else ("less", "down")
    if before.first == before.last:
        return f" In generation {where} it did so {more} often ({percent(mean.mean)})."
    return (
        f" From generation {before.first} to {before.last} it did so {more} often, {to} to {percent(mean.mean)} at "
        f"generation {where}."
    )
