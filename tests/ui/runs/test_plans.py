"""Plans of runs: what is written can be read again, as can what earlier versions of this program wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from core.episode import Change, Role, Task
from core.errors import ConfigError, StoreError
from core.evolution.config import EvolveConfig
from storage.rows.summaries import REPRODUCTION_KEY, RunKind, RunStatus, RunSummary
from ui.runs.kinds import RUN_KINDS, about, address_of, kind_of
from ui.runs.plans import (
    RUN_PLAN,
    AttributionPlan,
    BatchPlan,
    Branch,
    EvolutionPlan,
    ForkPlan,
    LivePlan,
    ReproducePlan,
    RereadPlan,
    RunPlan,
    Suite,
    TrainingPlan,
    known_plan,
    plan_of,
    to_config,
)

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
    "reproduction": ReproducePlan(
        "evolved:trinity", "TRINITY", 1, "c1", "r9", Suite(), {"jack": (CYCLE, 0.5)}
    ),
}

#: As earlier versions wrote them, key by key.
OLD: dict[str, dict[str, Any]] = {
    # Before role cycles, ceilings, digests and the protocol were kept; `dialect` is no part of a plan any more.
    "run": {
        "policies": ["random"],
        "tasks": "pocket",
        "split": "test",
        "n": 3,
        "seed": 0,
        "turns": 5,
        "argmax": False,
        "pool": "pocket",
        "models": ["jack", "sage"],
        "dialect": "terse",
    },
    # Before repeats and temperatures.
    "live": {
        "task": {
            "id": "t",
            "question": "1 + 1?",
            "answer": "2",
            "grader": "number",
            "family": "own",
            "split": "live",
        },
        "policy": "random",
        "models": ["jack"],
        "pool": "pocket",
        "encoder": None,
        "left_out": [],
        "turns": 5,
        "seed": 0,
        "argmax": False,
        "step": False,
        "pace_s": 1.0,
        "max_cost_usd": None,
    },
    # Before the choice of a learner, of constant preferences and of what is barred.
    "evolve": {
        "tasks": "pocket",
        "n": 10,
        "validation": 5,
        "pool": "pocket",
        "encoder": "pocket",
        "max_cost_usd": None,
        "evolution": {"generations": 3, "population": 8, "tasks_per_candidate": 4},
        "name": "sample",
        "head": "linear",
        "svf": "",
        "models": ["jack", "sage"],
        "digest": "d",
    },
    "fork": {
        "change": {"kind": "stop", "value": ""},
        "branches": [
            {
                "parent": "e1",
                "turn": 1,
                "prefix": "p",
                "digest": "d",
                "n": 1,
                "baseline": 4,
                "certain": True,
                "reused": {},
                "left_out": [],
                "cycles": {"single:jack": ["worker"]},
            }
        ],
        "pool": "pocket",
        "pool_digest": "x",
        "models": ["jack"],
        "encoder": None,
        "max_cost_usd": None,
        "batch": "",
        "question": "1 + 1?",
        "skipped": 0,
    },
    "reencode": {
        "checkpoints": ["c1"],
        "where": {"family": "math"},
        "episode": None,
        "before": 12.5,
        "turns": 40,
        "compared": ["c0", "c1"],
        "encoder": None,
    },
    "reproduction": {
        REPRODUCTION_KEY: {
            "row": "single:1",
            "label": "jack alone",
            "seed": 0,
            "policy": "single:jack",
            "evolution": "",
            "suite": {"budget": 640, "n": 4, "task_seed": 1, "turns": 3, "validation": 9}
            | {"pool": "pocket", "encoder": "pocket", "tasks": "pocket", "held_out": "pocket/held-out"},
            "cycles": {"jack": [["thinker", "worker"], 0.75]},
        }
    },
}


def run_with(kind: str, config: Any) -> RunSummary:
    """A run as the store reads it."""
    stored = json.loads(json.dumps(config))
    told = "run" if kind == "reproduction" else kind
    return RunSummary(
        "r1",
        cast(RunKind, told),
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
    run = run_with(kind, to_config(plan))
    assert plan_of(run) == plan
    assert "kind" not in run.config
    expected = RUN_KINDS[kind]
    if kind == "run":  # it has several policies
        expected = replace(expected, page="checkpoints", resumes=True)
    assert kind_of(run) == expected
    assert (
        RUN_PLAN.validate_json(RUN_PLAN.dump_json(plan)) == plan
    )  # with its kind, as an endpoint is sent it


@pytest.mark.parametrize("kind", OLD)
def test_what_earlier_versions_wrote_is_read(kind: str) -> None:
    plan = plan_of(run_with(kind, OLD[kind]))
    assert plan.kind == kind
    kept = json.loads(json.dumps(to_config(plan)))
    before = {name: value for name, value in OLD[kind].items() if name not in ("dialect", "evolution")}
    assert _part_of(kept, before) == before


def test_an_evolution_from_before_the_constant_spread_goes_on_in_the_space_it_was_begun_in() -> None:
    plan = plan_of(run_with("evolve", OLD["evolve"]), EvolutionPlan)
    assert (plan.evolution.constant_spread, plan.evolution.learner) == (None, "sep-cma-es")
    assert plan_of(run_with("evolve", to_config(plan))) == plan


def test_a_training_from_before_the_anchors_is_shown_without_them() -> None:
    plan = TrainingPlan(tasks="pocket", n=8, validation=8, pool="pocket")
    config = json.loads(json.dumps(to_config(plan)))
    for name in ("anchor_models", "anchor_form", "subset_from"):
        del config["learning"][name]
    learning = plan_of(
        run_with("train", {**config, "learning": {**config["learning"], "entropy_bonus": 0.1}}), TrainingPlan
    ).learning
    assert (learning.anchor_models, learning.anchor_form, learning.subset_from) == (0.0, 0.0, 0.0)
    assert plan_of(run_with("train", to_config(plan)), TrainingPlan) == plan


def test_what_is_not_understood_is_one_sentence_and_breaks_no_list() -> None:
    newer = {**OLD["evolve"], "evolution": {"temperament": 1}}
    for kind, config in (
        ("evolve", newer),
        ("evolve", {"tasks": "pocket"}),
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
        plan_of(run_with("live", OLD["live"]), BatchPlan)
    with pytest.raises(ConfigError, match="generations of 0"):
        plan_of(run_with("evolve", {**OLD["evolve"], "evolution": {"generations": 0}}))
    assert known_plan(run_with("import", {})) is None


def test_every_run_says_what_it_is_about() -> None:
    told = {kind: about(run_with(kind, OLD[kind])) for kind in OLD}
    assert told == {
        "run": "pocket",
        "live": "1 + 1?",
        "evolve": "sample",
        "fork": "1 + 1?",
        "reencode": "",
        "reproduction": "jack alone, seed 0",
    }
    assert address_of(run_with("reencode", OLD["reencode"])) == {"c": "c0,c1", "family": "math"}
    why = run_with("attribute", to_config(PLANS["attribute"]))
    assert (about(why), address_of(why)) == ("1 + 1?", {"ep": "e1", "t": "4", "panel": "why"})


def _part_of(whole: Any, part: Any) -> Any:
    """Of nested values, what the other has as well: later versions add fields."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return {name: _part_of(whole[name], value) for name, value in part.items() if name in whole}
    if isinstance(whole, list) and isinstance(part, list) and len(whole) == len(part):
        return [_part_of(one, other) for one, other in zip(whole, part, strict=True)]
    return whole
