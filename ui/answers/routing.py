"""Routing: which model is called in which role, in which order, what that depends on, and whether it pays."""

from __future__ import annotations

from ui.answers import traffic, workflows, worth
from ui.answers.pages import Analysis, Part

ANALYSIS = Analysis(
    (
        Part("who", "Who does what", traffic.QUESTIONS),
        Part("order", "Who follows whom", (traffic.order,)),
        Part("tasks", "What it depends on", (traffic.depends,)),
        Part("pays", "Does it pay?", (worth.pays,)),
        Part("luck", "Where luck enters", (worth.luck,)),
        Part("without", "Without a model", (worth.without,)),
        Part("workflows", "Workflows", workflows.QUESTIONS, workflows.there),
    ),
    traffic.behind,
    apart=frozenset({"workflows"}),
)
