"""Plans of runs: what is written can be read again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from core.episode import Change, Role, Task
from core.errors import StoreError
from core.evolution.config import EvolveConfig
from storage.rows.summaries import PURPOSES, RunKind, RunStatus, RunSummary
from ui.runs.plans import (
    RUN_KINDS,
    RUN_PLAN,
    AttributionPlan,
    Branch,
    ForkPlan,
    LivePlan,
    RereadPlan,
    RunPlan,
    about,
    address_of,
    kind_of,
    known_plan,
    plan_of,
    to_config,
)
from ui.runs.settings.batch import BatchPlan, ReproducedRow, Suite
from ui.runs.settings.learning import EvolutionPlan

CYCLE = (Role.WORKER, Role.VERIFIER)
BRANCH = Branch("e1", 2, "abc", "def", 8, 4, reused={"fork/3": "e9"}, cycles={"single:jack": CYCLE})
PLANS: dict[str, RunPlan] = {
    "run": BatchPlan(
        ("random", "single:jack"), "pocket", "test", 9, 0, 5, False, "pocket", cycles={"single:jack": CYCLE}
    ),
    "live": LivePlan(Task("t", "1 + 1?", "2"), "random", ("jack", "sage"), left_out=("sage",), repeats=3),
    "evolve": EvolutionPlan(
        "pocket", 10, 5, "pocket", "pocket", 2.5, EvolveConfig(seed=4), "mine", barred=("jack",)
    ),
    "fork": ForkPlan(Change("model", "sage"), (BRANCH,), "pocket", "d1", ("jack", "sage"), question="1 + 1?"),
    "reencode": RereadPlan(("c1",), {"family": "math"}, "e1", 12.5, 40, ("c0", "c1")),
    "attribute": AttributionPlan("e1", 3, ("c1", "c2"), "1 + 1?"),
    "reproduction": BatchPlan(
        ("c1",),
        "pocket",
        "test",
        9,
        1,
        5,
        False,
        "pocket",
        cycles={"single:jack": CYCLE},
        reproduction=ReproducedRow(
            "evolved:trinity", "TRINITY", Suite(), "r9", {"single:jack": 0.5}, ((20, 0.25),)
        ),
        kind="reproduction",
    ),
}


def run_with(kind: str, config: Any, name: str | None = None) -> RunSummary:
    """A run as the store reads it."""
    stored = json.loads(json.dumps(config))
    return RunSummary(
        "r1",
        cast(RunKind, kind),
        PURPOSES[cast(RunKind, kind)],
        name,
        RunStatus.FINISHED,
        stored,
        created=0.0,
        started=None,
        finished=None,
        heartbeat=None,
        owner=None,
        error=None,
        episodes=0,
        finished_episodes=0,
        correct=0,
        generations=0,
    )


@pytest.mark.parametrize("kind", PLANS)
def test_what_is_written_is_read_again(kind: str) -> None:
    plan = PLANS[kind]
    run = run_with(kind, to_config(plan), getattr(plan, "name", None))
    assert plan_of(run) == plan
    assert run.config.keys() & {"kind", "name"} == set()
    expected = RUN_KINDS[kind]
    if kind == "run":  # it has several policies
        expected = replace(expected, page="checkpoints", resumes=True)
    assert kind_of(run) == expected
    assert (
        RUN_PLAN.validate_json(RUN_PLAN.dump_json(plan)) == plan
    )  # with its kind, as an endpoint is sent it


def test_what_is_not_understood_is_one_sentence_and_breaks_no_list() -> None:
    evolve = to_config(PLANS["evolve"])
    for kind, config in (
        ("evolve", {**evolve, "evolution": {"temperament": 1}}),
        ("evolve", {"tasks": 5}),
        ("live", {}),
        ("fork", {"branches": 3}),
    ):
        run = run_with(kind, config)
        with pytest.raises(StoreError, match="not understood"):
            plan_of(run)
        assert known_plan(run) is None
        assert about(run) == ""
    assert address_of(run_with("reencode", {})) == {}
    with pytest.raises(StoreError, match="of another kind"):
        plan_of(run_with("live", to_config(PLANS["live"])), BatchPlan)
    with pytest.raises(StoreError, match="not understood"):
        plan_of(run_with("evolve", {**evolve, "evolution": {"generations": 0}}))


def test_every_run_says_what_it_is_about() -> None:
    runs = {
        kind: run_with(kind, to_config(plan), getattr(plan, "name", None)) for kind, plan in PLANS.items()
    }
    assert {kind: about(run) for kind, run in runs.items()} == {
        "run": "pocket",
        "live": "1 + 1?",
        "evolve": "mine",
        "fork": "1 + 1?",
        "reencode": "",
        "attribute": "1 + 1?",
        "reproduction": "TRINITY, seed 1",
    }
    assert address_of(runs["reencode"]) == {"c": "c0,c1", "family": "math", "ep": "e1"}
    why = runs["attribute"]
    assert (about(why), address_of(why)) == ("1 + 1?", {"ep": "e1", "t": "4", "panel": "why"})


def _part_of(whole: Any, part: Any) -> Any:
    """Of nested values, what the other has as well: later versions add fields."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return {name: _part_of(whole[name], value) for name, value in part.items() if name in whole}
    if isinstance(whole, list) and isinstance(part, list) and len(whole) == len(part):
        return [_part_of(one, other) for one, other in zip(whole, part, strict=True)]
    return whole
