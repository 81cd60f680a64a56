"""What is chosen by options, a file or a form, and the plans that follow: the same as ever, to the digest."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from core.evolution.config import EvolveConfig
from core.planner.config import PUBLISHED, LearnConfig
from core.settings import read_settings
from ui.runs.plans import RUN_PLAN
from ui.runs.settings.batch import Suite
from ui.runs.settings.learning import EvolutionPlan, LearningPlan, TrainingPlan, plan_from, preset_values

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
    config = RUN_PLAN.dump_python(plan, mode="json", exclude={"kind"})
    assert digest_of(config["evolution" if kind is EvolutionPlan else "learning"]) == of_config
    assert digest_of(config) == of_plan


def test_what_is_hashed_of_settings_stays_as_it_is() -> None:
    assert digest_of(LearnConfig().to_json()) == "e357690379f346d0"
    assert digest_of(PUBLISHED.to_json()) == "3dcd73d510153319"
    assert Suite().digest == "aa3934c370569664"


def test_what_nobody_chose_is_the_default_of_the_learning_itself() -> None:
    assert plan_from(EvolutionPlan, {}, SETTINGS).evolution == EvolveConfig()
    assert plan_from(TrainingPlan, {}, SETTINGS).learning == LearnConfig()
