"""Play both on the same tasks: who, on what, what it costs, the run in the background, and its comparison."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from core.checkpoint import Checkpoint
from core.errors import ConfigError
from core.settings import data_folder
from core.tasks.adding import add_set
from storage.rows.engine import writing
from storage.rows.schema import checkpoint
from storage.rows.schema import run as run_table
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.builders.diffed import DIFFED, Diffed
from tests.builders.stores import mark_samples
from tests.core.tasks.published import write_set
from tests.ui.pages import opened, plainly, press, waiting
from tests.ui.sums import Sums
from ui.runs.plans import kind_of, plan_of
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan
from ui.runs.wiring import keep_checkpoint
from ui.runs.worker import play_claimed
from ui.web.checkpoints.form import check_encoders, command
from ui.web.pickers.checkpoints import own_and_shipped, playable

pytestmark = pytest.mark.integration
BOTH = "single:adder,single:guesser"


def form(world: Sums, **query: str) -> AppTest:
    """The form, with the world's task file named."""
    page = opened("checkpoints", panel="play", **{"c": BOTH, **query})
    page.selectbox(key="both_tasks").select("a file of my own (.jsonl)").run()
    page.text_input(key="both_file").set_value(world.tasks).run()
    assert not page.exception
    return page


def begun(world: Sums, store: Store, n: int = 6) -> tuple[AppTest, str]:
    page = form(world)
    page.number_input(key="both_n_file").set_value(n).run()
    press(page, "play_both")
    [run] = waiting(store)
    return page, run


def test_a_published_set_that_was_added_is_offered_by_its_name(
    world: Sums, store: Store, no_workers: None
) -> None:
    path = add_set("sums-gsm", [write_set("gsm8k", world.folder)], data_folder()).path
    page = opened("checkpoints", panel="play", c=BOTH)
    page.selectbox(key="both_tasks").select("sums-gsm").run()
    page.selectbox(key="both_split_file").select("evolve").run()
    press(page, "play_both")
    [run] = waiting(store)
    plan = plan_of(store.runs.get(run), BatchPlan)
    assert (plan.tasks, plan.split) == (str(path), "evolve")
    assert 0 < len(plan.load_tasks()) < 24


def test_the_run_is_the_one_that_trinity_run_makes(world: Sums, store: Store, no_workers: None) -> None:
    page, run = begun(world, store)
    plan = plan_of(store.runs.get(run), BatchPlan)
    assert (plan.policies, plan.n, plan.tasks) == (("single:adder", "single:guesser"), 6, world.tasks)
    [typed] = [one for one in shlex.split(command(plan)) if one.endswith(".jsonl")]
    assert typed == world.tasks
    done = world.trinity(*shlex.split(command(plan))[1:], "--json")
    assert done.code == 0, done.err
    other = next(one for one in store.runs.list(kind="run") if one.id != run)
    without = [
        replace(one, cycles={}, choosing=0, choice_usd=0.0) for one in (plan, plan_of(other, BatchPlan))
    ]
    assert without[0] == without[1], "but for the cycles, which a run that is over has chosen"
    assert page.query_params["run"] == run


def test_it_plays_in_the_background_and_then_compares_exactly_these(
    world: Sums, store: Store, no_workers: None
) -> None:
    world.run(
        "--policy", "single:adder", "--n", "3", "--turns", "2", "--validate", "0"
    )  # under another setting
    world.run("--policy", "random", "--n", "3")
    _, run = begun(world, store)
    address = {"run": run, "c": BOTH, "base": "single:adder", "b": "single:guesser"}
    waits = plainly(opened("checkpoints", **address))
    assert "The comparison stands here once all of it is played" in waits
    assert "Accuracy is the share" not in waits
    assert play_claimed(store, run) == 0
    page = opened("checkpoints", **address)
    assert page.multiselect(key="policies").value == ["single:adder", "single:guesser"]
    assert list(page.dataframe[0].value["name"]) == ["A · adder alone", "B · guesser alone"]
    assert "6 tasks of the test split" in plainly(page)
    assert "not played to its end" not in plainly(page)


def test_a_run_that_was_stopped_says_so_and_can_go_on(world: Sums, store: Store, no_workers: None) -> None:
    _, run = begun(world, store)
    store.runs.cancel(run)
    page = opened("checkpoints", run=run, c=BOTH)
    assert "fewer than two of its policies have finished episodes" in plainly(page)
    again = enqueue(store, plan_of(store.runs.get(run), BatchPlan), Ticket())[0]
    assert play_claimed(store, again) == 0
    with writing(store.engine) as connection:
        stopped = {"status": RunStatus.INTERRUPTED.value, "error": "The server was gone."}
        connection.execute(update(run_table).where(run_table.c.id == again).values(**stopped))
    page = opened("checkpoints", run=again, c=BOTH)
    assert "Below are the finished episodes alone" in plainly(page)
    assert page.button(key="resume").label == "Go on"
    store.episodes.delete([one.id for one in store.episodes.of_run(again, "single:guesser")])
    page = opened("checkpoints", run=again, c=BOTH)
    assert "fewer than two of its policies have finished episodes" in plainly(page)
    assert "Below are" not in plainly(page)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ("single:adder", ""),
        ("single:nobody,single:adder", "nobody alone cannot be played here"),
        ("cnobody,random", "cnobody cannot be played here: it is no checkpoint of this store"),
        ("r1:g3/2,random", ""),
    ],
)
def test_what_cannot_be_played_is_said(world: Sums, store: Store, chosen: str, says: str) -> None:
    page = opened("checkpoints", panel="play", c=chosen)
    assert len(page.multiselect(key="play_policies").value) >= 1
    assert says in plainly(page)


def test_tasks_and_their_number_stand_in_the_address(world: Sums, store: Store) -> None:
    page = form(world)
    page.number_input(key="both_n_file").set_value(7).run()
    again = opened("checkpoints", **{name: page.query_params[name] for name in page.query_params})
    assert again.text_input(key="both_file").value == world.tasks
    assert again.number_input(key="both_n_file").value == 7
    again.selectbox(key="both_tasks").select("pocket").run()
    assert (again.query_params["tasks"], again.query_params["n"]) == ("pocket", "7")
    assert (
        opened("checkpoints", panel="play", tasks="pocket/logic", n="5").number_input(key="both_n").value == 5
    )
    offered = page.multiselect(key="play_policies").options
    assert {"mixture", "cascade", "labels"} <= {*offered}, "a policy of one word is offered"


def test_bad_input_gets_a_sentence(world: Sums, store: Store, tmp_path: Path) -> None:
    page = form(world)
    page.text_input(key="both_file").set_value("/nowhere/tasks.jsonl").run()
    assert page.button(key="play_both").disabled
    assert "There is no task file /nowhere/tasks.jsonl: give its path." in plainly(page)
    bare = tmp_path / "bare.jsonl"
    bare.write_text(json.dumps({"question": "1 + 1?", "answer": "2", "grader": "number", "split": "evolve"}))
    page.text_input(key="both_file").set_value(str(bare)).run()
    assert "has no task in split 'test'" in plainly(page)
    page.text_input(key="both_file").set_value("").run()
    assert "Name the file of tasks first." in plainly(page)
    page.multiselect(key="play_policies").set_value(["random"]).run()
    page.multiselect(key="play_policies").set_value([]).run()
    assert not page.exception


def test_what_costs_money_says_how_much_and_wants_a_ceiling(
    world: Sums, store: Store, no_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(1.0)
    page = form(world)
    assert "These models cost money: up to" in plainly(page)
    assert "nothing is recorded of these models yet" in plainly(page)
    assert page.button(key="play_both").disabled
    page.number_input(key="both_max_cost").set_value(0.5).run()
    press(page, "play_both")
    [run] = waiting(store)
    plan = plan_of(store.runs.get(run), BatchPlan)
    assert (plan.max_cost_usd, plan.choosing) == (0.5, 0)


def test_without_a_name_ones_own_meets_the_shipped_one(samples: Store) -> None:
    checkpoints = samples.checkpoints.list()
    models = checkpoints[0].config["models"]
    baseline, own = own_and_shipped(samples, models)
    assert own in {one.id for one in checkpoints}
    assert baseline.startswith("single:"), "nothing here came with the program"
    assert own_and_shipped(samples, ["x", "y"]) == ["single:x"]


def test_a_shipped_one_is_the_baseline_where_there_is_one(diffed: Diffed) -> None:
    store, models = diffed.store, diffed.a.models
    with writing(store.engine) as connection:
        connection.execute(update(checkpoint).where(checkpoint.c.id == diffed.a.id).values(run_id=DIFFED))
    mark_samples(store, DIFFED)
    baseline, own = own_and_shipped(store, models, diffed.b.id)
    assert (baseline, own) == (diffed.a.id, diffed.b.id)
    assert own_and_shipped(store, models, diffed.a.id)[0].startswith("single:"), "never one of its own run"


def test_a_checkpoint_of_another_pool_says_what_it_chooses_among(diffed: Diffed) -> None:
    page = opened("checkpoints", panel="play", c=f"{diffed.stranger.id},{diffed.a.id}")
    assert page.multiselect(key="play_policies").value[-1] == diffed.a.id
    said = plainly(page)
    assert f"chooses among {', '.join(diffed.stranger.models)}; the pool at hand has" in said
    assert "One checkpoint of this store chooses among other models than the pocket pool has" in said


def test_two_encoders_cannot_be_the_one_that_is_set(diffed: Diffed) -> None:
    store = diffed.store
    other = Checkpoint.begin(diffed.a.models, replace(diffed.a.encoder, name="another", digest="d" * 64))
    keep_checkpoint(store, other)
    plan = BatchPlan((diffed.a.id, other.id), "pocket", "test", 4, 0, 5, False, "pocket")
    check_encoders(store, plan)  # each reads with its own
    with pytest.raises(ConfigError, match="cannot both be played with the one that is chosen, some/encoder"):
        check_encoders(store, replace(plan, encoder="some/encoder"))
    check_encoders(
        store, replace(plan, policies=(diffed.a.id, diffed.b.id, "random"), encoder="some/encoder")
    )


def test_a_cascade_that_has_played_is_offered_to_pools_with_its_models(world: Sums, store: Store) -> None:
    world.run("--policy", "cascade:adder+guesser", "--n", "2")
    assert "cascade:adder+guesser" in playable(store, ("adder", "guesser"))
    assert "cascade:adder+guesser" not in playable(store, ("adder", "another"))


def links_to_the_form(page: AppTest) -> list[dict[str, list[str]]]:
    """The addresses of the links to the form."""
    found = [parse_qs(one.proto.query_string) for one in page.get("page_link")]
    return [one for one in found if one.get("panel") == ["play"]]


def test_checkpoints_live_and_evolution_lead_there(evolved: str, store: Store, world: Sums) -> None:
    [alone] = links_to_the_form(opened("live"))
    assert "c" not in alone, "the form chooses"
    page = opened("evolution", run=evolved)
    generations = store.learning.updates(evolved)
    [best] = [one["c"][0] for one in links_to_the_form(page)]
    baseline, own = best.split(",")
    assert own in {one.checkpoint_id for one in generations}
    assert baseline in ("single:adder", "single:guesser"), "no shipped one chooses among these models"
    [first] = links_to_the_form(opened("checkpoints"))
    assert first["panel"] == ["play"]
    world.run("--policy", "single:adder", "--policy", "random", "--n", "3", "--validate", "0")
    [both] = links_to_the_form(opened("checkpoints", c="random,single:adder"))
    assert both["c"] == ["random,single:adder"]


def test_lists_of_runs_lead_to_the_comparison(world: Sums, store: Store, no_workers: None) -> None:
    _, run = begun(world, store)
    assert kind_of(store.runs.get(run)).page == "checkpoints"
    assert play_claimed(store, run) == 0
    page = opened("checkpoints", run=run)
    assert page.multiselect(key="policies").value == ["single:adder", "single:guesser"]
    assert page.selectbox(key="side_base").value == "single:adder"
