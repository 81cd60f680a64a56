"""An evolution's defaults: equal budgets for all learners, and departures from the paper that are told rightly."""

from typing import get_args

import pytest

from core.evolution.config import DEFAULT_BUDGET, DEPARTURES, EvolveConfig, LearnerName, shape_of


@pytest.mark.parametrize("learner", get_args(LearnerName))
@pytest.mark.parametrize("budget", [DEFAULT_BUDGET, 30_720, 15_360])
def test_every_learner_plays_the_same_budget(learner: str, budget: int) -> None:
    shape = shape_of(learner, budget)
    assert shape["generations"] * shape["population"] * shape["tasks_per_candidate"] == budget


def test_the_default_is_the_shape_of_its_learner_and_departures_tell_it() -> None:
    config, shape = EvolveConfig(), shape_of("sep-cma-es")
    assert {name: getattr(config, name) for name in shape} == shape
    told = " ".join(DEPARTURES)
    assert f"{config.population} candidates play {config.tasks_per_candidate} tasks" in told
    assert f"logits spread by {config.logit_spread:g};" in told
    assert f"plays {DEFAULT_BUDGET:,} episodes" in told
    assert config.rotate_every == config.validate_every == 10
    assert "used again for ten generations" in told
    assert "validated every 10 generations" in told
