"""Verifier & cost: which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs."""

from __future__ import annotations

from ui.answers import costs, roles, verdicts
from ui.answers.pages import Analysis, Part

ANALYSIS = Analysis(
    (
        Part("verdicts", "Verdicts", verdicts.QUESTIONS),
        Part("cost", "Cost", costs.QUESTIONS),
        Part("budget", "Turn budget", (costs.budget,)),
        Part("roles", "Roles kept", roles.QUESTIONS),
    ),
    verdicts.behind,
)
