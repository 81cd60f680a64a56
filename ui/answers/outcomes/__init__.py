"""What named models answered to a task set, as an outcome table has it: who knows what, and what could be won.

`subject` is what is asked about: a table, which way it is split, which of its tasks. `models` says what each knows and
whether the best of a domain is ahead by luck, `won` what simple rules and played policies come to, `together` what a
second model says beside a first, `questions` lists questions and shows one with all its replies and how often our
grades are the table's own.
"""

from __future__ import annotations

from ui.answers.outcomes.models import known, lead, taken
from ui.answers.outcomes.questions import grading, listed
from ui.answers.outcomes.together import agreement, alone, second
from ui.answers.outcomes.won import frontier, won
from ui.answers.pages import Analysis, Part

ANALYSIS = Analysis(
    (
        Part("models", "Models", (known, lead, taken)),
        Part("won", "What could be won", (won, frontier)),
        Part("together", "Second opinions", (second, agreement, alone)),
        Part("grading", "Grading", (grading,)),
        Part("questions", "Questions", (listed,), asked_for=True),
    ),
    everything=True,
)
