"""Doors to encoders: what a checkpoint says that plays on another recipe, and who reads, on every form."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from core.checkpoint import Checkpoint
from core.episode import Change
from core.settings import Computing
from storage.store import Store
from tests.ui.pages import opened, plainly
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.batch import complete_plan
from ui.runs.forks.planning import plan_forks
from ui.runs.plans import ForkPlan, LivePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import play_claimed
from ui.web.kit.cache import pool_specs

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_workers")]
HALF = Computing("cpu", "bfloat16")


@pytest.fixture
def reading(store: Store, tiny_encoder: Path) -> Checkpoint:
    """A checkpoint of the world's pool that was made on a tiny encoder, in float32 on the CPU."""
    encoder = wiring.loaded_encoder(str(tiny_encoder))
    begun = Checkpoint.begin(("adder", "guesser"), encoder.identity, **asdict(encoder.recipe))
    made = begun.with_vector(np.random.default_rng(0).normal(0, 0.3, len(begun.vector)))
    wiring.keep_checkpoint(store, made)
    return made


def played(store: Store, plan: LivePlan | BatchPlan | ForkPlan) -> str:
    run, _ = enqueue(store, plan, Ticket())
    assert play_claimed(store, run) == 0, store.runs.get(run).error
    return run


def test_on_another_recipe_every_run_says_how_far_its_decisions_agree(
    world: Sums, store: Store, plan: LivePlan, reading: Checkpoint
) -> None:
    own = replace(plan, policy=reading.id, computing=Computing("cpu", "float32"))
    first = played(store, own)
    assert store.runs.get(first).notes == "", "on its own recipe there is nothing to say"
    run = played(store, replace(own, computing=HALF))
    [sentence] = store.runs.get(run).notes.splitlines()
    made = (
        f"Checkpoint {reading.id} was made in float32 on the CPU and plays here in bfloat16 on the CPU: of "
    )
    assert sentence.startswith(made)
    assert "recorded decisions" in sentence
    for name in (run, first):
        assert (sentence in plainly(opened("live", run=name))) == (name == run)
    [parent] = store.episodes.of_run(first)
    pool, specs = plan.pool, pool_specs(plan.pool)
    forks = plan_forks(
        store, [(parent.id, 0)], Change("temperature", "1"), n=1, baseline=1, pool=pool, specs=specs
    )
    batch = complete_plan(store, BatchPlan((reading.id,), world.tasks, n=2, pool=pool, computing=HALF))
    for other, page in ((replace(forks, computing=HALF), "forks"), (batch, "checkpoints")):
        run = played(store, other)
        assert store.runs.get(run).notes == sentence
        assert page == "checkpoints" or sentence in plainly(opened(page, run=run))
