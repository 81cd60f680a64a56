"""Requests to the endpoint as they were served: how they ended and where their time went, what they cost beside the
best single model of their pool, and what each tier is worth.

`subject` is what is asked about: a time and a filter, and the lists behind numbers. `course` says how requests ended
and how long their parts took, `worth` what they cost and what tiers solve.
"""

from __future__ import annotations

from ui.answers.pages import Analysis, Part
from ui.answers.requests.course import ended, latency
from ui.answers.requests.subject import any_found
from ui.answers.requests.worth import cost, tiers

ANALYSIS = Analysis(
    (
        Part("course", "Requests and time", (ended, latency)),
        Part("worth", "Cost and worth", (cost, tiers), any_found),
    ),
    everything=True,
)
