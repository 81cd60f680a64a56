"""`trinity tune`: what is worth serving is measured, told with its figures, and written as a tier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.analysis.metrics import PairedDifference
from tests.core.outcomes.tables import Answered, small_table
from tests.ui.sums import Sums
from ui.cli.tune import Candidate, choose
from ui.endpoint.tiers import read_endpoint

SINGLE = Candidate("single:big", 1, 100, 80, 0.003, 1.0)


def other(policy: str, right: int, cost: float, low: float) -> Candidate:
    difference = PairedDifference(right / 100 - 0.8, low, 0.2, 100)
    return Candidate(policy, 5, 100, right, cost, 2.0, difference)


@pytest.mark.parametrize(
    ("others", "policy", "said"),
    [
        (
            [other("c1", 90, 0.01, 0.02), other("c2", 88, 0.001, -0.01)],
            "c1",
            "solves more than the best single",
        ),
        ([other("c1", 86, 0.01, -0.02), other("c2", 80, 0.002, -0.1)], "c2", "costs 33.3 % less"),
        (
            [other("c1", 86, 0.0021, -0.02), other("c2", 79, 0.001, -0.1)],
            "single:big",
            "+6.0 points [-2.0, +20.0]",
        ),
        ([other("c1", 70, 0.001, -0.2)], "single:big", "The single model is the better choice"),
        ([], "single:big", "Nothing but single models was tried"),
    ],
)
def test_a_single_model_is_chosen_unless_another_is_shown_to_be_worth_it(
    others: list[Candidate], policy: str, said: str
) -> None:
    chosen, why = choose(SINGLE, others)
    assert chosen.policy == policy
    assert said in why
    free = [replace(one, cost_usd=None) for one in others]
    assert choose(replace(SINGLE, cost_usd=None), free)[0].policy in (policy, "single:big")


@pytest.mark.process
def test_from_a_pool_to_a_tier_in_one_command(world: Sums, tmp_path: Path) -> None:
    world.add_tasks("validation", 30)
    world.add_tasks("evolve", 30, 100)
    world.price(1.0)
    pool = world.folder / "pool.toml"
    first, second = pool.read_text().split("[[model]]")[1:]
    pool.write_text(f"[[model]]{first}[[model]]{second.replace('= 1.0', '= 0.1')}")  # the guesser is cheaper
    file = tmp_path / "tiers.toml"
    command = [
        "tune",
        "--pool",
        pool,
        "--tasks",
        world.tasks,
        "--validation",
        30,
        "--max-cost",
        5,
        "--episodes",
        0,
    ]
    told = world.done(*command, "--write", file, "--json").json
    assert told["chosen"] == "single:adder"
    assert "The single model is the better choice" in told["why"]
    by_policy = {one["policy"]: one for one in told["candidates"]}
    assert {*by_policy} == {"single:adder", "single:guesser", "cascade:guesser+adder+adder"}
    assert (by_policy["single:adder"]["right"], by_policy["single:guesser"]["right"]) == (30, 15)
    assert by_policy["single:guesser"]["cost_usd"] == pytest.approx(
        by_policy["single:adder"]["cost_usd"] / 10
    )
    tiers = {tier.name: tier for tier in read_endpoint(file, tmp_path).tier}
    assert (tiers["trinity"].policy, tiers["trinity"].turns) == ("single:adder", 1)
    assert f"# {told['why']}" in file.read_text()

    asked = len(world.server.requests)
    assert "exists already" in world.refused(*command, "--write", file)
    again = world.done(*command, "--write", tmp_path / "again.toml", "--json").json
    assert len(world.server.requests) == asked  # what was measured is not paid for twice
    assert again["candidates"] == told["candidates"]


@pytest.mark.process
def test_one_ceiling_is_over_all_that_is_played(world: Sums, tmp_path: Path) -> None:
    world.add_tasks("validation", 30)
    world.price(1.0)
    pool = world.folder / "pool.toml"
    first, second = pool.read_text().split("[[model]]")[1:]
    pool.write_text(f"[[model]]{first}[[model]]{second.replace('= 1.0', '= 0.1')}")
    command = ["tune", "--pool", pool, "--tasks", world.tasks, "--validation", 30, "--episodes", 0]
    world.done(*command, "--max-cost", 5, "--write", tmp_path / "a.toml")
    with world.kept() as store:
        together, alone = (store.runs.spent_usd(run.id) for run in store.runs.list("run"))
        for run in store.runs.list("run"):
            store.runs.delete(run.id)
    ceiling = alone + 0.02  # a call may cost almost as much as that, by its bound
    result = world.trinity(*command, "--max-cost", ceiling, "--write", tmp_path / "b.toml")
    assert together < 0.02 or result.code == 1
    with world.kept() as store:
        assert sum(store.runs.spent_usd(run.id) for run in store.runs.list("run")) <= ceiling
        [last, _] = store.runs.list("run")
        assert last.config["max_cost_usd"] <= 0.02 + 1e-9  # what the runs before it left


def test_what_cannot_be_tuned_is_one_sentence(world: Sums, tmp_path: Path) -> None:
    assert "either --tasks FILE, or --outcomes NAME" in world.refused("tune")
    assert "either --tasks FILE, or --outcomes NAME" in world.refused(
        "tune", "--tasks", "x", "--outcomes", "y"
    )
    assert "nothing" in world.refused("tune", "--outcomes", "nothing", "--write", tmp_path / "a.toml")


@pytest.mark.process
def test_a_coordinator_is_evolved_as_far_as_the_ceiling_allows(evolving: Sums, tmp_path: Path) -> None:
    world = evolving
    world.add_tasks("validation", 20, 200)
    world.price(100.0)
    command = ["tune", "--pool", world.folder / "pool.toml", "--tasks", world.tasks, "--validation", 24]
    result = world.done(*command, "--max-cost", 1, "--write", tmp_path / "a.toml")
    assert "too few to evolve a coordinator" in result.out + result.err
    (world.folder / "pool.toml").write_text(
        (world.folder / "pool.toml").read_text().replace("= 100.0", "= 0.0")
    )
    told = world.done(
        *command, "--episodes", 1000, "--turns", 3, "--write", tmp_path / "b.toml", "--json"
    ).json
    [coordinator] = [one for one in told["candidates"] if one["policy"].startswith("c") and one["turns"] == 3]
    assert coordinator["difference"]["n"] == 24


@pytest.mark.process
def test_on_an_outcome_table_a_head_is_taught_by_who_solved_each_question(
    world: Sums, tmp_path: Path
) -> None:
    """Ann knows law and nothing else, bob knows the rest: who reads the question beats both, and is what is served."""
    law = [place % 2 == 0 for place in range(240)]
    answers: dict[str, list[Answered]] = {
        "ann": ["A" if one else "B" for one in law],
        "bob": ["C" if one else "A" for one in law],
    }
    small_table(world.folder / "trinity-inspector", answers)
    pool = world.folder / "served.toml"
    pool.write_text(
        "".join(f'[[model]]\nname = "{name}"\nbase_url = "{world.server.url}"\n' for name in answers)
    )
    command = ["tune", "--pool", pool, "--outcomes", "small", "--validation", 30, "--episodes", 0]
    said = world.done(*command, "--write", tmp_path / "a.toml", "--json")
    assert "No head is taught by who solved each question. Name the language model" in said.err
    assert said.json["chosen"].startswith("single:")

    file = tmp_path / "b.toml"
    told = world.done(*command, "--encoder", "pocket", "--write", file, "--json").json
    both = [one for one in told["candidates"] if not one["policy"].startswith("single:")]
    assert len(both) == 2
    [taught] = [one for one in both if one["policy"] == told["chosen"]]
    assert (taught["turns"], taught["right"]) == (1, taught["n"])
    assert taught["difference"]["low"] > 0
    [tier, _] = read_endpoint(file, tmp_path).tier
    assert (tier.policy, tier.turns, tier.argmax) == (taught["policy"], 1, True)
    with world.kept() as store:
        assert {store.checkpoints.load(one["policy"]).kind for one in both} == {"labels", "cloned"}
        played = len(store.runs.list("run"))
    again = world.done(*command, "--encoder", "pocket", "--write", tmp_path / "c.toml", "--json").json
    assert again["candidates"] == told["candidates"]
    with world.kept() as store:
        assert len(store.runs.list("run")) == played  # nothing was read or played twice
