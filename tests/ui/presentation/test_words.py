"""How policies and runs are named beside each other."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from storage.rows.summaries import CheckpointSummary
from tests.builders.stores import new_store
from ui.presentation.runs import run_name, run_names
from ui.presentation.words import distinct, generations, policy_name


def of_run(run: str | None, generation: int, name: str = "") -> CheckpointSummary:
    """A checkpoint of an evolution."""
    return CheckpointSummary(name or f"c{run}{generation}", run, generation, "head", "", 0.0, {}, 0)


def test_one_evolution_names_its_generations_by_number_alone() -> None:
    names = generations([of_run("r1", 0), of_run("r1", 30)], {"r1": "mine"})
    assert [policy_name(one, names.get(one)) for one in ("cr10", "cr130", "random")] == [
        "start",
        "gen 30",
        "random model and role",
    ]


def test_with_two_evolutions_each_generation_says_whose_it_is() -> None:
    names = generations([of_run("r1", 2), of_run("r2", 120)], {"r1": "mine", "r2": "sample"})
    assert policy_name("cr12", names["cr12"]) == "gen 2 of mine"
    assert policy_name("cr2120", names["cr2120"]) == "gen 120 of sample"


def test_what_began_an_evolution_says_who_taught_it() -> None:
    taught = [
        replace(of_run(run, 0), kind=kind)
        for run, kind in (("r1", "labels"), ("r2", "cloned"), ("r3", "cloned"))
    ]
    names = generations([*taught, of_run("r4", 0), of_run("r2", 9)], {"r2": "mine"}, {"r2": "probe"})
    called = {policy: policy_name(policy, generation) for policy, generation in names.items()}
    assert called == {
        "cr10": "start of r1 (taught by labels)",
        "cr20": "start of mine (taught by probe)",
        "cr30": "start of r3 (taught by a policy)",
        "cr40": "start of r4",
        "cr29": "gen 9 of mine",
    }
    alone = generations([taught[1], of_run("r2", 10)], {"r2": "mine"}, {"r2": "probe"})
    assert [policy_name(one, age) for one, age in alone.items()] == ["start (taught by probe)", "gen 10"]


def test_evolutions_of_one_name_or_of_none_are_told_apart_by_their_run() -> None:
    checkpoints = [of_run("r1", 2), of_run("r2", 2), of_run("r3", 2)]
    names = generations(checkpoints, {"r1": "mine", "r2": "mine"})
    assert sorted(map(str, names.values())) == ["2 of r1", "2 of r2", "2 of r3"]


def test_what_would_still_be_called_alike_has_its_id_beside_it() -> None:
    names = generations([of_run("r1", 2, "ca"), of_run("r1", 2, "cb"), of_run("r1", 3, "cc")], {})
    assert names == {"ca": "2 (ca)", "cb": "2 (cb)", "cc": 3}
    lost = generations([of_run(None, 2, "ca"), of_run("r1", 2, "cb")], {"r1": "mine"})
    assert lost == {"ca": "2", "cb": "2 of mine"}


def test_planners_are_told_apart_as_generations_are() -> None:
    trained = [replace(of_run(run, 60, f"p{run}"), kind="trained") for run in ("t1", "t2")]
    names = generations([of_run("r1", 60), *trained], {"t1": "first", "t2": "second", "r1": "mine"})
    assert policy_name("conductor:pt1", names["conductor:pt1"]) == "Conductor, iteration 60 of first"
    assert names["cr160"] == 60, "the only evolution"


def test_a_list_never_calls_two_of_its_values_alike() -> None:
    assert distinct({"a": "x", "b": "x", "c": "y"}) == {"a": "x (a)", "b": "x (b)", "c": "y"}


def test_runs_are_called_by_what_they_play_and_their_day(tmp_path: Path) -> None:
    times = iter([1.7e9, 1.7e9 + 3600, 1.7e9 + 86_400, *[1.7e9] * 9])
    store = new_store(tmp_path / "trinity.db", now=lambda: next(times))
    store.runs.create("ra", "run", {"tasks": "pocket/all", "split": "test"})
    store.runs.create("rb", "run", {"tasks": "pocket", "split": "test"})
    store.runs.create("rc", "run", {"tasks": "/home/me/sums.jsonl", "split": "test"})
    store.runs.create("rd", "evolve", {"tasks": "pocket"}, name="mine", purpose="sample")
    store.runs.create("re", "live", {"task": {"question": "1 + 1?"}})
    store.runs.create("rf", "run", {})
    names = run_names(store, ["ra", "rb", "rc", "rd", "re", "rf", "gone"])
    day = f"{time.localtime(1.7e9).tm_mday} Nov"
    first, second = (time.strftime("%H:%M", time.localtime(at)) for at in (1.7e9, 1.7e9 + 3600))
    assert names == {
        "ra": f"pocket test, {day} {first}",
        "rb": f"pocket test, {day} {second}",
        "rc": f"sums.jsonl, {time.localtime(1.7e9 + 86_400).tm_mday} Nov",
        "rd": f"evolution mine (sample), {day}",
        "re": f"live play of 1 + 1?, {day}",
        "rf": f"run, {day}",
        "gone": "gone",
    }
    assert run_name(store.runs.get("ra")) == f"pocket test, {day}"
