"""A pool of models that write in this process, slowly: what is chosen for it, what it is told of, what it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from core.evolution.cycles import CYCLES
from core.play.policies import PLAN_WORK_CHECK
from core.pocket.local import LocalPool
from core.pool.spec import digest_of_specs
from core.pool_file import load_specs
from core.tokens.shelf import Shelved, put
from storage.analysis.costs import CallMeans, PoolMeans
from tests.builders.encoder import tiny_qwen3
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.batch import CHOOSING_TASKS, RememberedCycles, complete_plan, with_choosing
from ui.runs.expectation import Part, longest
from ui.runs.settings.batch import BatchPlan


@pytest.fixture
def pool_file(tmp_path: Path) -> Path:
    tiny_qwen3(tmp_path / "tiny", max_position_embeddings=4096)
    file = tmp_path / "slow.toml"
    entries = (f'[[model]]\nname = "{name}"\nlocal = "tiny"\nmax_tokens = 4\n' for name in ("one", "two"))
    file.write_text("".join(entries))
    return file


def test_cycles_of_slow_models_are_chosen_only_where_somebody_asks_for_it(
    pool_file: Path, world: Sums
) -> None:
    asked = BatchPlan(policies=("round-robin", "single:one"), n=4, pool=str(pool_file))
    with world.kept() as store:
        plan = complete_plan(store, asked)
    pool = wiring.resolve_pool(plan.pool)
    left, why = with_choosing(plan, pool)
    assert (left.choosing, left.undecided, left.choosing_tasks()) == (0, (), [])
    assert (
        f"takes {2 * len(CYCLES) * CHOOSING_TASKS:,} episodes, and one and two write in this process" in why
    )
    assert "trinity run --validate 40 chooses them all the same" in why
    chosen, why = with_choosing(plan, pool, 3)
    assert (len(chosen.choosing_tasks()), chosen.undecided, why) == (3, plan.policies, "")
    drawn = replace(plan, policies=("random",))
    assert with_choosing(drawn, pool) == (drawn, ""), "nobody of it follows a cycle"


def test_a_run_of_slow_models_says_what_to_expect(pool_file: Path, world: Sums) -> None:
    run = ("--policy", "single:one", "--pool", pool_file, "--n", 2, "--turns", 2)
    first = world.run(*run)
    assert "Role cycles stay plan, work, check" in first.err
    assert "Nothing is recorded of these models yet: with --pilot" in first.err
    again = world.run(*run)
    assert "To expect: about 4 calls, $0.00 and under a minute, by 4 recorded replies" in again.err


def test_models_of_this_process_wait_for_each_other(pool_file: Path) -> None:
    specs = load_specs(pool_file)
    means = PoolMeans({spec.name: CallMeans(9, 100.0, 4.0, 0.0, 3.0) for spec in specs}, 2.0)
    assert longest([Part("", {"one": 10, "two": 20}, 0.0)], specs, means) == (90.0, "")


def test_another_model_under_the_same_name_is_another_pool(pool_file: Path) -> None:
    before = load_specs(pool_file)
    assert digest_of_specs(load_specs(pool_file)) == digest_of_specs(before)
    folder = pool_file.parent / "tiny"
    (folder / "model.safetensors").unlink()
    tiny_qwen3(folder, seed=1, max_position_embeddings=4096)
    after = load_specs(pool_file)
    assert [one.model for one in after] == [one.model for one in before]
    assert digest_of_specs(after) != digest_of_specs(before)
    plan = BatchPlan(policies=("single:one",), pool=str(pool_file), models=("one", "two"))
    first, second = (RememberedCycles(plan, LocalPool(specs)) for specs in (before, after))
    first.add({"single:one": PLAN_WORK_CHECK})
    assert (first.get(), second.get()) == ({"single:one": PLAN_WORK_CHECK}, {})


def test_a_model_that_was_added_has_the_digest_of_the_shelf(pool_file: Path, tmp_path: Path) -> None:
    def write(draft: Path) -> Shelved:
        shutil.copytree(pool_file.parent / "tiny", draft, dirs_exist_ok=True)
        return Shelved("tiny", "here", "as it was added")

    put(tmp_path / "data", "tiny", write)
    assert {one.weights for one in load_specs(pool_file, tmp_path / "data")} == {"as it was added"}
