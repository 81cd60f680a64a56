"""Does a pilot tell what a run will cost, below its ceiling, without touching a test task?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.own_models import MODELS
from tests.journeys.engineer import Engineer, engineer
from tests.ui.sums import Sums
from ui.runs.expectation import pilot_of
from ui.runs.plans import plan_of
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import TrainingPlan
from ui.runs.wiring import pool_specs

OWN = ("--pool", "pool.toml", "--tasks", "tasks.jsonl", "--pilot")
CEILING_USD = 5.0
#: Without algebra, for whose answers each command would start processes that compare them.
FAMILIES = ("shop", "science", "strings")
EVOLVE = (
    *("evolve", *OWN, "--max-cost", CEILING_USD),
    *("--no-controls", "--population", 6, "--turns", 3),
)
TWO_GENERATIONS = ("--generations", 2, "--replicates", 2, "--validation", 6, "--validate-every", 2)
ONE_GENERATION = ("--generations", 1, "--replicates", 1, "--validation", 2)
RUN = ("run", *OWN, "--max-cost", CEILING_USD, "--policy", "single:bootes", "--policy", "random")


@pytest.mark.process
@pytest.mark.parametrize("command", [RUN, (*EVOLVE, *TWO_GENERATIONS)], ids=["run", "evolve"])
def test_what_a_pilot_tells_is_within_a_factor_of_two(
    tmp_path: Path, tiny_encoder: Path, command: tuple[object, ...]
) -> None:
    with engineer(tmp_path, each=12, per_second=100, families=FAMILIES) as me:
        said = me.trinity(*command, "--encoder", tiny_encoder, "--json")
        assert said.code == 0, said.err
        pilot, run = runs_of(me)
        assert f": run {pilot}." in said.err
        before, spent = me.spent_usd(pilot), me.spent_usd(run)
        assert before + spent == pytest.approx(said.billed_usd, rel=0.05)  # episodes may share a reply
        assert said.expected_usd / 2 <= spent <= 2 * said.expected_usd
        assert before + spent <= said.bound_usd, "the first bound is of both"
        assert f"It stops before ${CEILING_USD:.2f} is exceeded." in said.err
        played = me.played(pilot)
        assert len(played) == 10
        assert {one.task.split for one in played} == {"evolve"}
        with me.store() as store:
            assert store.runs.get(run).config["max_cost_usd"] == pytest.approx(CEILING_USD - before)
        again = me.trinity("run", *OWN, "--max-cost", CEILING_USD, "--policy", "random", "--n", 1)
        assert "No pilot is played: " in again.err
        assert len(runs_of(me)) == 3


@pytest.mark.process
def test_a_pilot_asks_no_model_that_the_run_does_not_ask(tmp_path: Path, tiny_encoder: Path) -> None:
    with engineer(tmp_path, each=8, per_second=100, families=FAMILIES) as me:
        one = ("--max-cost", CEILING_USD, "--policy", "single:grus", "--n", 1)
        assert me.trinity("run", *OWN, *one).code == 0
        barred = tmp_path / "barred.toml"
        barred.write_text(f"barred = {[model.name for model in MODELS[:5]]}\n")
        assert {call.model for call in me.team.calls} == {"grus"}
        with me.store() as store:
            for run in runs_of(me):
                store.runs.delete(run)
        me.team.calls.clear()
        own = ("--config", barred, "--encoder", tiny_encoder)
        assert me.trinity(*EVOLVE, *ONE_GENERATION, *own).code == 0
        assert {call.model for call in me.team.calls} == {"fornax", "grus"}


def test_a_pilot_needs_a_ceiling_or_an_answer(world: Sums) -> None:
    world.price(10.0)
    world.add_tasks_to_evolve_on()
    tasks = ("--tasks", world.tasks)
    refused = world.trinity("run", *tasks, "--policy", "random", "--pilot")
    assert "set a ceiling with --max-cost" in refused.err
    assert not world.server.requests
    low = world.trinity("run", *tasks, "--policy", "random", "--pilot", "--max-cost", 0.001)
    assert low.code == 1
    assert "The same command goes on without another pilot" in low.err


def test_a_pilot_of_models_that_cost_nothing_tells_the_time(world: Sums) -> None:
    world.add_tasks_to_evolve_on()
    said = world.done("run", *world.test_tasks, "--policy", "conductor:random", "--pilot", "--n", 2)
    assert "The pilot played 10 episodes for " in said.err
    assert "To expect: about " in said.err
    with world.kept() as store:
        plan = TrainingPlan(world.tasks, None, 0, str(world.folder / "pool.toml"))
        pilots = [pilot_of(plan, pool_specs(plan.pool)), plan_of(store.runs.list()[1], BatchPlan)]
        assert {one.policies for one in pilots} == {("conductor:random",)}


def runs_of(me: Engineer) -> list[str]:
    """The runs in their order."""
    with me.store() as store:
        return [run.id for run in reversed(store.runs.list())]
