"""Trainings on the Evolution page: beside evolutions, iteration by iteration, begun, stopped and resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from core.analysis.metrics import wilson_interval
from core.planner.statistics import IterationStats, PlanStatistics
from core.pocket import MODELS as POCKET
from storage.rows.summaries import RunStatus, UpdateSummary
from storage.store import Store
from tests.builders.stores import begin_run, new_store
from tests.builders.trainings import PLAN, record_training
from tests.ui.pages import assert_literal, opened, press, shown, waiting
from tests.ui.web.evolutions import asked_of_learned
from ui.answers.asked import Asked
from ui.answers.blocks import Areas, Block, Code, Drawn, Table, Trend
from ui.answers.evolution import ANALYSIS
from ui.answers.learning import FREE, rollouts
from ui.answers.training import MOST_WORDS, measures, steps
from ui.runs import wiring
from ui.runs.plans import plan_of, to_config
from ui.runs.settings.learning import TrainingPlan, plan_from
from ui.web.analysis.draw import figure_of

pytestmark = pytest.mark.integration


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store that the app opens."""
    store = new_store(tmp_path / "trinity.db")
    monkeypatch.setenv("TRINITY_STORE", store.url)
    monkeypatch.setenv("TRINITY_WORKERS", "0")
    yield store
    store.close()


def said(page: AppTest) -> str:
    return shown(page).replace("\\", "")


def metrics(page: AppTest) -> dict[str, str]:
    return {one.label: one.value for one in page.metric}


PANELS = ["progress", "workflows", "plans", "kept"]


def drawn(asked: Asked) -> dict[str, Drawn]:
    """Every block of every answer, by the keys of both."""
    there = [part for part in ANALYSIS.parts if part.there(asked)]
    found = [one for part in there for one in part.answers(asked)]
    blocks: list[tuple[str, Block]] = [(one.key, block) for one in found for block in one.blocks]
    return {f"{key} {block.key}": block for key, block in blocks if not isinstance(block, str)}


def lines_of(block: object) -> dict[str, list[float | None]]:
    """The values of a trend's lines."""
    assert isinstance(block, Trend)
    return {one.name: [point.estimate.value for point in one.points] for one in block.traces}


def test_a_training_stands_in_the_list_with_evolutions_and_the_newest_is_shown(kept: Store) -> None:
    begin_run(kept, "revolve", "evolve", {})
    kept.runs.finish("revolve")
    record_training(kept)
    page = opened("evolution")
    assert page.title[0].value == "Training"
    options = page.selectbox(key="evolution_run").options
    assert options[0] == "mine · Conductor · iteration 4 · finished"
    assert "revolve" in options[1]
    assert page.selectbox(key="evolution_with").options == ["nothing"], "an evolution is drawn otherwise"
    press(page, "newest_other")
    assert page.title[0].value == "Evolution"
    assert page.query_params["run"] in ("revolve", ["revolve"])
    assert page.button(key="newest_other").label == "Newest training"


def test_what_came_of_it_and_what_it_took(kept: Store) -> None:
    record_training(kept)
    text = said(opened("evolution"))
    assert "Iteration 4 is the best validated: 40.0 % (22 to 61) of 20 held-apart tasks." in text
    assert "92 episodes in 15 s, with validation, 6 a second" in text
    assert f"{100 * (1 + 2 + 3 + 4) + 3 * 50:,} tokens of the pool, 160 written by the planner" in text
    assert "25.0 % of replies from cache" in text
    assert "$1.00 so far" in text.replace("\\", "")
    assert "iteration **4** of 4" in text
    assert "4 questions with 4 rollouts each" in text
    assert (
        "25.0 % of 16 rollouts right; 75.0 % readable, mean reward 0.62; validated 40.0 % (22 to 61) of 20."
        in text
    )


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("gen", ["0", "3"])
def test_every_panel_opens_at_every_iteration_and_takes_names_literally(
    kept: Store, panel: str, gen: str
) -> None:
    record_training(kept)
    record_training(kept, "rother", plan=replace(PLAN, name="<b>other"), done=1)
    page = opened("evolution", run="rtrain", panel=panel, gen=gen, **{"with": "rother"})
    assert_literal(page)
    assert page.select_slider(key="generation").value == int(gen)
    assert f"**Iteration {gen}**" in said(page)


def test_who_does_a_step_for_which_family_stands_beside_the_start(kept: Store) -> None:
    record_training(kept)
    text = said(opened("evolution", panel="workflows", gen="4"))
    assert "**The start: who does step 1, by family of tasks?**" in text
    assert "**Iteration 4: who does step 1, by family of tasks?**" in text
    alone = said(opened("evolution", panel="workflows", gen="0"))
    assert alone.count("by family of tasks?**") == 1


def test_kept_planners_lead_to_their_episodes_and_to_what_can_be_typed(kept: Store) -> None:
    ids = record_training(kept)
    page = opened("evolution", panel="kept", gen="3")
    table = page.dataframe[0].value
    assert list(table["id"]) == [ids[0], ids[2], ids[4]]
    assert table["validated"][2].startswith("40.0 % (")
    assert "episodes" not in table, "none of them has played"
    assert f"trinity checkpoints export {ids[2]} ./conductor-2" in page.code[-1].value, (
        "the last one before it"
    )
    assert f"--policy conductor:{ids[2]}" in page.code[-1].value


def test_readable_plans_are_told_to_be_forced_and_what_was_written_freely(kept: Store) -> None:
    record_training(kept)
    readable = measures(asked_of_learned(kept, "rtrain")).blocks[0]
    assert list(lines_of(readable)) == ["readable"], "some plans of it could not be read"
    forced = [
        IterationStats(index=index, rollouts=PlanStatistics(n=16, right=0.5, readable=1.0), free=share)
        for index, share in enumerate((0.95, math.nan, 0.0))
    ]
    begin_run(kept, "rforced", "train", to_config(PLAN), "forced")
    for one in forced:
        kept.learning.add(UpdateSummary("rforced", one.index, 16, 1.0, stats=one.to_json()))
    kept.runs.finish("rforced", RunStatus.FINISHED)
    readable = measures(asked_of_learned(kept, "rforced")).blocks[0]
    assert lines_of(readable) == {"forced by the grammar": [1.0, 1.0, 1.0], FREE: [0.95, 0.0]}
    assert "100.0 % readable (forced by the grammar)" in said(opened("evolution", run="rforced", gen="1"))


def test_unreadable_plans_are_told_by_their_reason(kept: Store) -> None:
    record_training(kept)
    page = opened("evolution", panel="plans", gen="4")
    table = page.dataframe[0].value
    assert list(table["reason"]) == ["one of its three lists is missing"]
    assert list(table["share"]) == [25.0]
    record_training(kept, "rfine", done=0, plan=replace(PLAN, name="fine"))
    assert "Every plan of every rollout could be read: the grammar allows no others." in said(
        opened("evolution", run="rfine", panel="plans")
    )


# Under way, stopped, failed


def test_one_that_stands_still_is_resumed_with_a_click(kept: Store) -> None:
    record_training(kept, done=2, status=RunStatus.INTERRUPTED, error="The computer slept.")
    page = opened("evolution")
    assert "The computer slept." in said(page)
    assert "iteration **2** of 4" in said(page)
    press(page, "resume")
    assert waiting(kept) == ["rtrain"]
    assert kept.runs.get("rtrain").status is RunStatus.QUEUED


def test_one_that_waits_says_what_for_and_can_be_stopped(kept: Store) -> None:
    kept.runs.create("rwaits", "train", to_config(PLAN), name=PLAN.name, status=RunStatus.QUEUED)
    page = opened("evolution")
    assert "The first iteration will appear here by itself." in said(page)
    press(page, "stop")
    assert kept.runs.get("rwaits").status is RunStatus.CANCELLED


def test_one_of_which_nothing_came_can_be_removed(kept: Store) -> None:
    record_training(kept, done=-1, status=RunStatus.FAILED, error="The pool has no such model.")
    page = opened("evolution")
    assert "It ended before its first iteration: nothing was learned." in said(page)
    press(page, "remove")
    assert kept.runs.list() == []


def test_what_was_recorded_by_something_else_is_shown_all_the_same(kept: Store) -> None:
    begin_run(kept, "rforeign", "train", {"kind": "unknown"})
    kept.runs.finish("rforeign")
    assert "rforeign · Conductor · not begun" in opened("evolution").selectbox(key="evolution_run").options[0]


# Beginning one


def form(**numbers: int) -> AppTest:
    page = opened("evolution", panel="train")
    for key, value in numbers.items():
        page.number_input(key=key).set_value(value)
    page.run()
    assert not page.exception
    return page


def test_page_and_command_line_begin_the_same_training(kept: Store) -> None:
    small = {"tr_iterations": 3, "tr_questions": 2, "tr_rollouts": 4, "tr_seed": 7, "tr_n": 64}
    page = form(**small, tr_validation=10, tr_validate_every=1, tr_save_every=1, tr_warm_up_steps=40)
    page.text_input(key="tr_name").set_value("small").run()
    assert (
        "At most 960 episodes for choosing questions, 24 episodes for rollouts, 40 episodes for validation."
        in (said(page))
    )
    press(page, "begin")
    (run,) = waiting(kept)
    assert page.query_params["run"] in (run, [run])
    asked = {
        "iterations": 3,
        "questions": 2,
        "rollouts": 4,
        "seed": 7,
        "n": 64,
        "validation": 10,
        "validate_every": 1,
        "save_every": 1,
        "warm_up_steps": 40,
        "name": "small",
    }
    chosen = plan_from(TrainingPlan, asked, wiring.settings())
    begun = plan_of(kept.runs.get(run), TrainingPlan)
    assert replace(begun, models=(), digest="") == chosen
    assert begun.digest
    assert "waiting" in said(page)


def test_numbers_that_do_not_fit_are_refused_before_anything_begins(kept: Store) -> None:
    page = form(tr_questions=1, tr_rollouts=3)
    assert "3 rollouts cannot be parted into 4 updates" in said(page)
    assert page.button(key="begin").disabled


def test_a_stored_planner_of_the_same_pool_can_learn_on(kept: Store) -> None:
    assert opened("evolution", panel="train").selectbox(key="tr_planner").options == ["a new pocket planner"]
    record_training(kept)
    assert len(opened("evolution", panel="train").selectbox(key="tr_planner").options) == 1, "of another pool"
    ids = record_training(kept, "rpocket", plan=replace(PLAN, name="pocket"), models=POCKET)
    page = opened("evolution", panel="train")
    options = page.selectbox(key="tr_planner").options
    assert "Conductor, iteration 4 of pocket" in options
    page.selectbox(key="tr_planner").select(ids[4]).run()
    assert "tr_warm_up_steps" not in [one.key for one in page.number_input]
    press(page, "begin")
    assert plan_of(kept.runs.get(waiting(kept)[0]), TrainingPlan).planner == ids[4]


# What the answers hold


@pytest.mark.parametrize(
    ("update", "choices"), [(3, {}), (0, {"x": "time"}), (2, {"family": "math", "step": "2"})]
)
def test_every_picture_is_one_that_plotly_takes_and_shares_add_up(
    kept: Store, update: int, choices: dict[str, str]
) -> None:
    record_training(kept)
    record_training(kept, "rother", plan=replace(PLAN, name="<b>other"), done=2)
    blocks = drawn(asked_of_learned(kept, "rtrain", update, "rother", **choices))
    stacked = {key: block for key, block in blocks.items() if isinstance(block, Areas)}
    assert list(stacked) == ["shapes areas", "steps models", "steps subtasks"]
    for areas in stacked.values():
        assert np.sum([one.shares for one in areas.areas], axis=0) == pytest.approx(1)
    for block in blocks.values():
        if not isinstance(block, Table | Code):
            figure = figure_of(block).to_dict()
            go.Figure(figure)  # validates
            assert not [one for one in ("<b>bob", "<i>solve", "<b>other") if one in str(figure)]


def test_right_rollouts_and_validations_with_their_intervals(kept: Store) -> None:
    record_training(kept)
    trend = rollouts(asked_of_learned(kept, "rtrain")).blocks[0]
    assert lines_of(trend)["right rollouts"] == [1 / 16, 2 / 16, 3 / 16, 4 / 16]
    assert isinstance(trend, Trend)
    validation = trend.traces[2].points
    assert [one.x for one in validation] == [0, 2, 4]
    assert validation[0].estimate.ci95 == wilson_interval(4, 20)


def test_rarer_first_words_are_one_area(kept: Store) -> None:
    words = {(0, f"w{number}"): share for number, share in enumerate((0.5, 0.2, *[0.03] * 10))}
    stats = IterationStats(index=1, rollouts=PlanStatistics(n=100, subtasks=words))
    begin_run(kept, "r1", "train", {})
    kept.learning.add(UpdateSummary("r1", 1, 100, 1.0, stats=stats.to_json()))
    subtasks = steps(asked_of_learned(kept, "r1")).blocks[1]
    assert isinstance(subtasks, Areas)
    assert [one.name for one in subtasks.areas][:2] == ["w0", "w1"]
    assert len(subtasks.areas) == MOST_WORDS + 1
    assert subtasks.areas[-1].name == "others"
    assert list(subtasks.areas[-1].shares) == pytest.approx([0.12])
