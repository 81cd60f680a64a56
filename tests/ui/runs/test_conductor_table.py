"""The Conductor's table over a tiny world: planners that are trained for it, and rivals at their best."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.conduct.planners import FIXED
from core.pool.cache import CachedPool
from core.tasks.sets import load_tasks
from storage.store import open_store
from tests.core.planner.tiny import MODELS, tiny_planner, tiny_pool
from ui.runs import wiring
from ui.runs.lease import owner
from ui.runs.paper.reproduction import Reproduction, episodes_at_most, possible
from ui.runs.paper.tables import TABLES, TRAINED, TableRow, outcomes, read_rows, suites
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import Suite
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
from ui.runs.training import TrainingParts

pytestmark = pytest.mark.integration
TABLE = TABLES["conductor"]
TRAINED_ROW = TABLE.rows[0]


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reproduction]:
    monkeypatch.setattr(wiring, "data_folder", lambda: tmp_path / "data")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    lines = [
        json.dumps({"id": f"t{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n), "grader": "number"})
        for n in range(40)
    ]  # fmt: skip
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    store = open_store(tmp_path / "store.db")
    file = str(tmp_path / "tasks.jsonl")
    suite = Suite(budget=160, n=6, validation=4, tasks=file, held_out=file)
    yield Reproduction(store, suite, CachedPool(tiny_pool()))
    store.close()
    torch.set_num_threads(threads)


def train(game: Reproduction, row: TableRow) -> str:
    plan = game.learning_plan(row, 0)
    assert isinstance(plan, TrainingPlan)
    tasks = load_tasks(plan.tasks, "evolve", plan.n, 0, at_most=True)
    validation = load_tasks(plan.tasks, "validation", plan.validation, 0, at_most=True)
    parts = TrainingParts(
        plan, game.metered, tasks, game.grade, validation, tiny_planner().frozen(most_steps=2)
    )
    run = enqueue(game.store, plan, Ticket(), owner=owner())[0]
    kept = [
        one.index for one in play(game.store, run, parts) if hasattr(one, "index")
    ]  # beside how far it is
    assert kept == [0, 1]
    return run


def measure(game: Reproduction, row: TableRow) -> None:
    parts, _ = game.ready(row, 0)
    deque(play(game.store, enqueue(game.store, parts.plan, Ticket(), owner=owner())[0], parts), maxlen=0)


@pytest.mark.parametrize(("pool", "spread"), [("pocket", 0.0), ("pool.toml", 6.0)])
def test_a_rows_evolution_has_the_settings_that_evolutions_over_its_pool_have(
    game: Reproduction, pool: str, spread: float
) -> None:
    suited = Reproduction(game.store, replace(game.suite, pool=pool), game.metered)
    for how, expected in {"trinity": spread, "low-rank-plain": None, "paper": None}.items():
        plan = suited.learning_plan(TableRow(f"evolved:{how}", ""), 0)
        assert isinstance(plan, EvolutionPlan)
        assert plan.evolution.constant_spread == expected


def test_a_training_has_three_budgets_with_the_choice_of_its_questions(game: Reproduction) -> None:
    suite = Suite()
    plan = Reproduction(game.store, suite, game.metered).learning_plan(TRAINED_ROW, 7)
    assert isinstance(plan, TrainingPlan)
    played = plan.learning.iterations * plan.learning.questions * plan.learning.rollouts
    chosen = (plan.n or 0) * (len(MODELS) + plan.learning.probes)
    assert 0.98 * 3 * suite.budget < played + chosen <= 3 * suite.budget
    assert plan.learning.seed == 7
    assert episodes_at_most([TRAINED_ROW], suite, 7) > 3 * suite.budget
    other = game.learning_plan(TableRow("trained:full-pool", ""), 0)
    assert isinstance(other, TrainingPlan)
    assert other.learning.subset_share == TRAINED["full-pool"]["subset_share"] == 0.0
    same = {
        game.learning_plan(row, 0)
        for row in TABLE.rows
        if row.how.endswith(":default") and "evolved" not in row.how
    }
    assert len(same) == 1, "warm-up, one-model and masked rows are of the same training"


def test_every_row_is_measured_beside_the_trained_planner(game: Reproduction) -> None:
    rows = possible(TABLE.rows, len(MODELS), game.suite)
    played = [
        row
        for row in rows
        if row.how.partition(":")[0] not in ("evolved", "router", "mixture") and "full-pool" not in row.how
    ]
    run = train(game, TRAINED_ROW)
    for row in played:
        measure(game, row)
    assert not game.missing([(0, row) for row in played])
    [(_, runs)] = suites(game.store)
    kept = read_rows(game.store, runs, {row.key for row in played})
    found = {one.row: one for one in outcomes(TABLE, kept)}
    assert set(found) == {row.key for row in played}
    # Ann alone is right: every workflow that may choose its models on validation tasks ends with her.
    for name in (row.how.removeprefix("workflow:") for row in played if row.how.startswith("workflow:")):
        assert name in FIXED
        [one] = found[f"workflow:{name}"].kept
        assert one.policy.startswith(f"conductor:fixed:{name}:")
        assert found[f"workflow:{name}"].value.mean == 1.0, one.policy
    [one] = found["same-model:default"].kept
    assert one.policy.startswith("conductor:same-model:ann:")
    assert found["random-workflow"].value.mean < 1.0
    last = game.store.checkpoints.list(run, planners=True)[-1]
    assert found["trained:default without 1 model"].kept[0].policy.startswith("without:1:conductor:")
    assert found["trained:default"].kept[0].policy in {
        f"conductor:{one.id}" for one in game.store.checkpoints.list(run, planners=True)
    }
    assert last.generation == 1
    assert TABLE.difference(found["trained:default"]) is None
    assert TABLE.difference(found["workflow:chain"]) is not None
    assert (found["trained:default"].curves or {})[0], "how it learned is there"
    without = game.store.episodes.of_run(found["trained:default without 1 model"].kept[0].run_id)
    for summary in without:
        episode = game.store.episodes.get(summary.id)
        [left_out] = episode.left_out
        assert left_out not in {turn.decision.model for turn in episode.turns}
