"""What the sentences about learning claim: since when, how much, what was lost again, and that nothing was learned."""

from __future__ import annotations

import numpy as np
import pytest

from core.analysis.learning import LearningCurve, learning_curve
from ui.presentation.learning import HABITS, Habit, learned_words


def curve(*levels: float, tasks: int = 30) -> LearningCurve:
    """Generations 0, 1, 2 ... with these means; from the second on tasks lie evenly around them."""
    around = np.linspace(-0.08, 0.08, tasks)[:, None] * (np.arange(len(levels)) > 0)
    found = learning_curve(range(len(levels)), np.array(levels) + around, np.arange(tasks))
    assert found is not None
    return found


#: Of the last generation's mean, as `curve` spreads tasks around it.
ENDS = {
    0.9: "90.0 % (88 to 92)",
    0.45: "45.0 % (43 to 47)",
    1 / 3: "33.3 % (32 to 35)",
    0.1: "10.0 % (8 to 12)",
}


@pytest.mark.parametrize(
    ("levels", "claims", "adds"),
    [
        (
            (1 / 3, 1 / 3, 0.45, 0.7, 0.9),
            "it uses the Verifier more often than at first from about generation 2, in most cases from generation 3",
            "",
        ),
        ((1 / 3, 0.4, 0.45), "it uses the Verifier more often than at first from about generation 1", ""),
        (
            (1 / 3, 0.8, 0.9),
            "it uses the Verifier in most cases, and more often than at first from about generation 1",
            "",
        ),
        (
            (1 / 3, 1 / 3, 1 / 3),
            "no generation uses the Verifier more or less often than at first, beyond chance",
            "",
        ),
        (
            (1 / 3, 1 / 3, 0.1),
            "it never uses the Verifier more often than at first, and less from about generation 2",
            "",
        ),
        (
            (1 / 3, 0.6, 0.9, 1 / 3, 0.1),
            "it uses the Verifier less often than at first from about generation 4",
            " From generation 1 to 2 it did so more often, up to 90.0 % at generation 2.",
        ),
        (
            (1 / 3, 0.1, 1 / 3),
            "the last generation uses the Verifier neither more nor less often than at first, beyond chance",
            " In generation 1 it did so less often (10.0 %).",
        ),
    ],
)
def test_a_sentence_says_what_the_curve_shows(levels: tuple[float, ...], claims: str, adds: str) -> None:
    found = learned_words(Habit.VERIFIES, curve(*levels))
    figures = f"{ENDS[levels[-1]]} at generation {len(levels) - 1}, 33.3 % at generation 0"
    assert found == f"When there is an answer to check, {claims}: {figures}.{adds}"


def test_one_generation_tells_nothing() -> None:
    found = learned_words(Habit.VERIFIES, curve(1 / 3))
    assert found == "Only generation 0 is kept: nothing can be told yet."


def test_turns_of_one_task_tell_nothing() -> None:
    words = learned_words(Habit.VERIFIES, curve(1 / 3, 0.9, tasks=1))
    assert words == "All of these turns are of one task: nothing can be told beyond it."


def test_every_habit_has_its_words() -> None:
    assert set(HABITS) == set(Habit)
    for habit in Habit:
        assert HABITS[habit].does in learned_words(habit, curve(1 / 3, 0.9))
