"""Checkpoints and `trinity compare`: up to eight policies on the tasks that they share, with A as the baseline."""

from __future__ import annotations

from ui.answers import comparison, costs, course
from ui.answers.pages import Analysis, Part

ANALYSIS = Analysis(
    (
        Part("result", "Result", comparison.QUESTIONS),
        Part(
            "course",
            "How they differ",
            (costs.cost, course.routing, course.lengths, course.entropies, costs.budget, course.config),
        ),
    )
)
