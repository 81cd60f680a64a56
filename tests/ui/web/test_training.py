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
from storage.rows.summaries import RunStatus, RunSummary, UpdateSummary
from storage.store import Store
from tests.builders.stores import begin_run, new_store
from tests.builders.trainings import PLAN, record_training
from tests.ui.pages import assert_literal, opened, press, shown, waiting
from ui.runs import wiring
from ui.runs.plans import plan_of, to_config
from ui.runs.settings.learning import TrainingPlan, plan_from
from ui.web.evolution import training_panels as figures
from ui.web.evolution.course import Training, read_course
from ui.web.evolution.figures import FREE, line_figure
from ui.web.evolution.training_panels import PANELS, _readable

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


def trained(store: Store, run: RunSummary) -> Training:
    """A training as its page reads it."""
    found = read_course(store, run)
    assert isinstance(found, Training)
    return found


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
    assert "**Iteration 4 is the best validated**: 40.0 % (22 to 61) of 20 held-apart tasks." in text
    assert "**92** episodes in **15 s**, 6 a second" in text
    assert (
        f"**{100 * (1 + 2 + 3 + 4) + 3 * 50:,}** tokens of the pool, **160** written by the planner" in text
    )
    assert "**25.0 %** of replies from cache" in text
    assert "$1.00 so far" in text.replace("\\", "")
    assert "iteration **4** of 4" in text
    assert "4 questions with 4 rollouts each" in text
    low, high = wilson_interval(8, 20)
    assert f"validated **40.0 %** of 20 ({100 * low:.1f} % to {100 * high:.1f} %)" in text


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
    run = trained(kept, kept.runs.get("rtrain"))
    assert not run.forced, "some plans of it could not be read"
    assert [name for name, _, _ in _readable(run)] == ["readable"]
    forced = [
        IterationStats(index=index, rollouts=PlanStatistics(n=16, right=0.5, readable=1.0), free=share)
        for index, share in enumerate((0.95, math.nan, 0.0))
    ]
    begin_run(kept, "rforced", "train", to_config(PLAN), "forced")
    for one in forced:
        kept.learning.add(UpdateSummary("rforced", one.index, 16, 1.0, stats=one.to_json()))
    kept.runs.finish("rforced", RunStatus.FINISHED)
    seen = trained(kept, kept.runs.get("rforced"))
    assert seen.forced
    lines = {name: values for name, _, values in _readable(seen)}
    assert list(lines) == ["forced by the grammar", FREE]
    assert lines[FREE] == (0.95, None, 0.0)
    figure = line_figure(seen, tuple(_readable(seen)), "gen", 2, as_shares=True)
    assert figure.data[1].connectgaps
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


# Figures


def test_the_figures_are_valid_and_their_shares_add_up(kept: Store) -> None:
    record_training(kept)
    record_training(kept, "rother", plan=replace(PLAN, name="<b>other"), done=2)
    one, two = (trained(kept, kept.runs.get(run)) for run in ("rtrain", "rother"))
    drawn = [
        *(
            figures.progress_figure(one, axis, 3, second)
            for axis in ("gen", "time")
            for second in (None, two)
        ),
        line_figure(one, (("a", "solid", one.of_rollouts("readable")),), "episodes", 0, as_shares=True),
        figures.topologies_figure(one, "", "gen", 2, "#000000"),
        figures.models_figure(one, "math", 0, "gen", 2, "#000000"),
        figures.subtasks_figure(one, "", 1, "time", 2, "#000000"),
        figures.faults_figure(one, "gen", 2),
    ]
    for figure in drawn:
        go.Figure(figure.to_dict())  # validates
        for foreign in ("<b>bob", "<i>solve", "<b>other"):
            assert foreign not in str(figure.to_dict())
    for figure in drawn[-4:-1]:
        assert np.sum([trace.y for trace in figure.data], axis=0) == pytest.approx(1)
    progress = drawn[0].data
    assert list(progress[0].y) == [None, 1 / 16, 2 / 16, 3 / 16, 4 / 16]
    validation = progress[2]
    assert list(validation.x) == [0, 2, 4]
    low, high = wilson_interval(4, 20)
    assert validation.error_y.array[0] == pytest.approx(high - 0.2)
    assert validation.error_y.arrayminus[0] == pytest.approx(0.2 - low)


def test_rarer_first_words_are_one_area() -> None:
    words = {(0, f"w{number}"): share for number, share in enumerate((0.5, 0.2, *[0.03] * 10))}
    stats = IterationStats(index=1, rollouts=PlanStatistics(n=100, subtasks=words))
    one = Training("r1", None, (UpdateSummary("r1", 1, 100, 1.0, stats=stats.to_json()),))
    drawn = figures.subtasks_figure(one, "", 0, "gen", 0, "#000000").data
    assert [trace.name for trace in drawn][:2] == ["w0", "w1"]
    assert len(drawn) == figures.MOST_WORDS + 1
    assert (drawn[-1].name, list(drawn[-1].y)) == ("others", [pytest.approx(0.12)])
