"""Plans of runs: what is written can be read again; and the plans that follow from options, a file or a form, the same
as ever, to the digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from core.changes import Change
from core.episode import Role, Task
from core.errors import StoreError
from core.evolution.config import EvolveConfig
from core.planner.config import PUBLISHED, LearnConfig
from core.settings import read_settings
from storage.rows.summaries import PURPOSES, RunKind, RunStatus, RunSummary
from ui.presentation.runs import about
from ui.runs.plans import (
    RUN_KINDS,
    RUN_PLAN,
    AttributionPlan,
    Branch,
    ForkPlan,
    LivePlan,
    RereadPlan,
    RunPlan,
    address_of,
    kind_of,
    known_plan,
    plan_of,
    to_config,
)
from ui.runs.settings.batch import BatchPlan, ReproducedRow, Suite
from ui.runs.settings.learning import EvolutionPlan, LearningPlan, TrainingPlan, plan_from, preset_values

CYCLE = (Role.WORKER, Role.VERIFIER)
BRANCH = Branch("e1", 2, "abc", "def", 8, 4, reused={"fork/3": "e9"}, cycles={"single:jack": CYCLE})
PLANS: dict[str, RunPlan] = {
    "run": BatchPlan(
        ("random", "single:jack"), "pocket", "test", 9, 0, 5, False, "pocket", cycles={"single:jack": CYCLE}
    ),
    "live": LivePlan(Task("t", "1 + 1?", "2"), "random", ("jack", "sage"), left_out=("sage",), repeats=3),
    "evolve": EvolutionPlan(
        "pocket",
        10,
        5,
        "pocket",
        "pocket",
        2.5,
        EvolveConfig(seed=4, label_questions=9, teacher="random"),
        "mine",
        barred=("jack",),
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
    of_kind = cast(RunKind, kind)
    unknown: dict[str, Any] = dict.fromkeys(("started", "finished", "heartbeat", "owner", "error"))
    counts: dict[str, Any] = dict.fromkeys(("episodes", "finished_episodes", "correct", "generations"), 0)
    return RunSummary(
        "r1", of_kind, PURPOSES[of_kind], name, RunStatus.FINISHED, stored, created=0.0, **unknown, **counts
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
    for kind, config, subject in (
        ("evolve", {**evolve, "evolution": {"temperament": 1}}, "pocket"),
        ("evolve", {"tasks": 5}, ""),
        ("live", {}, ""),
        ("fork", {"branches": 3}, ""),
        ("serve", {"tiers": 5}, ""),
    ):
        run = run_with(kind, config)
        with pytest.raises(StoreError, match="not understood"):
            plan_of(run)
        assert known_plan(run) is None
        assert about(run) == subject
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


SETTINGS = read_settings({}, {}, Path("nowhere"))


def digest_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("kind", "values", "of_config", "of_plan"),
    [
        (EvolutionPlan, {}, "885302bf0bf67fdc", "1f09db75118b64c7"),
        (EvolutionPlan, preset_values(EvolutionPlan, "paper"), "e6bace2010b2676d", "feda56cea4007258"),
        (EvolutionPlan, {"learner": "pycma"}, "6587789342dc49d1", "e1a3616b3cae7017"),
        (EvolutionPlan, {"learner": "reinforce"}, "cc9fada9dcc5e09f", "0d9eb5a68fd88ee4"),
        (EvolutionPlan, {"learner": "random-search"}, "0ca5e58faddd9ea3", "a39af1b3c6ac207a"),
        (
            EvolutionPlan,
            {"constant_spread": "plain", "seed": 3, "adaptive": True, "population": "auto"},
            "664089e97acd20e6",
            "6fc5b69622ae2716",
        ),
        (TrainingPlan, {}, "e357690379f346d0", "479efcf2f4a7e6ee"),
        (TrainingPlan, preset_values(TrainingPlan, "published"), "3dcd73d510153319", "2b6201bf8f6d22e3"),
        (TrainingPlan, {"n": 64, "seed": 7}, "5509f89917d5f1a1", "5d93a38f7b153408"),
    ],
)
def test_a_plan_is_what_it_ever_was(
    kind: type[LearningPlan], values: dict[str, Any], of_config: str, of_plan: str
) -> None:
    plan = plan_from(kind, values, SETTINGS)  # type: ignore[type-var]
    config = to_config(plan) | {"name": plan.name}
    computing = config.pop("computing", None)  # asked for since a device can be chosen
    assert computing == (None if kind is TrainingPlan else {"device": "auto", "dtype": None})
    assert config.pop("sketches", None) is None  # chosen once an encoder is there
    assert digest_of(config["evolution" if kind is EvolutionPlan else "learning"]) == of_config
    assert digest_of(config) == of_plan


def test_what_is_hashed_of_settings_stays_as_it_is() -> None:
    assert digest_of(asdict(LearnConfig())) == "e357690379f346d0"
    assert digest_of(asdict(PUBLISHED)) == "3dcd73d510153319"
    assert Suite().digest == "aa3934c370569664"


def test_what_nobody_chose_is_the_default_of_the_learning_itself() -> None:
    assert plan_from(EvolutionPlan, {}, SETTINGS).evolution == EvolveConfig()
    assert plan_from(TrainingPlan, {}, SETTINGS).learning == LearnConfig()


@pytest.mark.parametrize(
    ("pool", "values", "spread"),
    [
        ("pocket", {}, 0.0),
        ("outcomes:exam", {}, 6.0),
        ("pool.toml", {}, 6.0),
        ("pool.toml", {"learner": "random-search"}, 6.0),
        ("pool.toml", {"logit_spread": 1.0}, 1.0),
        ("pool.toml", {"constant_spread": 0.0}, 0.0),
        ("pool.toml", {"constant_spread": "plain"}, None),
        ("pool.toml", preset_values(EvolutionPlan, "paper"), None),
        ("pocket", {"constant_spread": 6.0}, 6.0),
    ],
)
def test_preferences_that_no_transcript_changes_spread_as_the_pool_needs_it(
    pool: str, values: dict[str, Any], spread: float | None
) -> None:
    plan = plan_from(EvolutionPlan, values, replace(SETTINGS, pool=pool, encoder="tiny"))
    assert plan.evolution.constant_spread == spread
    kept = to_config(plan)
    assert kept["evolution"]["constant_spread"] == spread  # the number itself, so that resuming needs no rule
