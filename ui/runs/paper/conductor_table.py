"""The Conductor's table: a trained planner beside what it has to be better than, on the same tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.analysis import published
from core.conduct.planners import FIXED
from ui.runs.paper.table import Table, TableRow

#: What makes a training differ from that of `trinity train` by default: fields of its LearnConfig.
TRAINED: Mapping[str, Mapping[str, Any]] = {"default": {}, "full-pool": {"subset_share": 0.0}}

#: What the frozen workflows are, in a few words.
_FIXED_WORDS = {
    "single": "one model that solves",
    "chain": "plan, solve, check",
    "solvers": "three that solve and one that merges",
    "debate": "debate of two rounds, then a merge",
    "automix": "solve, check, and a second try where the check rejects (as AutoMix)",
    "critic": "plan, criticise, plan again, solve",
}

CONDUCTOR_TABLE = Table(
    "conductor",
    "Conductor",
    "The Conductor: a trained planner of whole workflows beside random, frozen and one-model ones, and the coordinator",
    (
        TableRow("trained:default", "trained planner", "Conductor"),
        TableRow("trained:default", "likeliest workflow each time (argmax)", played="argmax"),
        TableRow("warm-up:default", "the same before reinforcement: form alone"),
        TableRow("random-workflow", "random workflows"),
        *(TableRow(f"workflow:{name}", f"frozen: {_FIXED_WORDS[name]}") for name in FIXED),
        TableRow("same-model:default", "the trained planner's workflows, one model for all steps"),
        TableRow("single:1", "best single model (chosen on validation tasks)"),
        TableRow("router", "learned single-turn router", "RouterDC"),
        TableRow("mixture", "Mixture-of-Agents", "MoA"),
        TableRow("evolved:default", "coordinator (TRINITY), three times the budget"),
        TableRow("trained:default", "trained planner, one model left out", played="without 1 model"),
        TableRow("trained:default", "trained planner, two models left out", played="without 2 models"),
        TableRow("trained:full-pool", "trained without subsets of the pool"),
        TableRow(
            "trained:full-pool", "trained without subsets, one model left out", played="without 1 model"
        ),
        TableRow(
            "trained:full-pool", "trained without subsets, two models left out", played="without 2 models"
        ),
    ),
    published.CONDUCTOR,
    note="Planner and coordinator have three times the budget of the other learners, the choice of its questions "
    "included, and at most five calls a question. The team of a frozen workflow, and the one model for all steps, are "
    "those that did best on 80 validation tasks. Models are left out at random for each task. The published averages "
    "are of one controlled comparison over another pool; the Conductor's own figures there: LiveCodeBench 83.9 (best "
    "single model 82.9), GPQA-Diamond 87.5 (84.8), AIME25 93.3, MMLU 94.1, with about 3 calls a question.",
)
