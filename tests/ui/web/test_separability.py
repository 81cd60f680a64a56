"""The Separability page and command: figures of the run beside the paper's, and every point leads to its turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Page
from streamlit.testing.v1 import AppTest

from core.analysis import curvature
from core.analysis import separability as measures
from core.analysis.curvature import block_separability
from core.analysis.separability import (
    Accuracy,
    Projection,
    Score,
    Synthetic,
    accuracy,
    separability_index,
    within_families,
)
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from storage.analysis.hidden_states import read_choices, read_states
from storage.recorder import record
from storage.store import Store
from tests.browsing import settled
from tests.builders.checkpoints import checkpoint as tiny_checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, grade, pool, tasks
from tests.builders.sample_store import PLAYED, checkpoint
from tests.builders.stores import new_store
from tests.ui.conftest import Served
from tests.ui.pages import assert_literal, opened, shown
from ui.cli import main
from ui.presentation.runs import run_name
from ui.presentation.theme import model_colour
from ui.web.separability.figures import MOST_CLASSES, class_styles, cloud, readings, synthetic_figure
from ui.web.views import separability
from ui.web.views.separability import ours, rows, theirs


@pytest.fixture(scope="module")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """30 tasks of three families by a checkpoint's policy, one task by another, and chance in a newer run."""
    store = new_store(tmp_path_factory.mktemp("states") / "trinity.db")
    made = tiny_checkpoint(MODELS, generation=7)
    for run in ("r1", "r2"):
        store.runs.create(run, "run", {})
    store.checkpoints.add(made.id, made.to_config(), made.to_bytes(), run_id="r1", generation=7)
    list(record(store, events(births("r1", tasks(30), made.id), HashPolicy(made.id))))
    list(record(store, events(births("r1", tasks(2), "few", first=50), HashPolicy("few"))))
    chance = births("r2", tasks(4), "random", first=80)
    list(record(store, drive_many(chance, RandomPolicy(MODELS), pool(), grade)))
    yield store
    store.close()


@pytest.fixture
def played(_played: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same, and pages and commands open it."""
    monkeypatch.setenv("TRINITY_STORE", _played.url)
    return _played


def first_policy(store: Store) -> str:
    """The checkpoint of the played store."""
    return store.checkpoints.list()[0].id


def test_it_opens_on_the_last_generation_of_the_newest_run_with_states(samples: Store) -> None:
    page = opened("separability")
    assert page.selectbox(key="stated_run").value == PLAYED
    assert page.selectbox(key="stated_policy").value == checkpoint(30).id
    assert page.selectbox(key="stated_policy").options == [f"gen {born}" for born in (30, 8, 0)] + [
        "random model and role"
    ]  # here played by a head
    total = read_states(samples, PLAYED, checkpoint(30).id).total
    assert f"{total} turns of 22 tasks" in shown(page)
    assert not page.info


def test_the_run_and_the_paper_have_a_table_each_and_the_numbers_are_those_measured(played: Store) -> None:
    policy = first_policy(played)
    page = opened("separability")
    found = accuracy(read_states(played, "r1", policy).points, "task", "hidden")
    assert found is not None
    run, paper = page.table[0].value, page.table[1].value
    own = run.loc["Task family, hidden states"]
    assert (
        own["Linear SVM"] == f"{100 * found.linear.mean:.1f}\xa0±\xa0{100 * (found.linear.std or 0):.1f}\xa0%"
    )
    assert own["Chance"] == "33.3 %"
    assert list(run.index) == list(paper.index)
    assert list(paper["RBF SVM"]) == ["100.0\xa0%", "95.5\xa0%", "77.6\xa0±\xa02.0\xa0%", "78.3\xa0%"]
    assert "frontier models" in shown(page)
    assert "All turns of a task stay in one fold" in shown(page)
    within = page.table[2].value
    measured = within_families(read_states(played, "r1", policy).points, "hidden")
    assert list(within.index) == [family for family, one in measured.items() if one is not None]
    assert "LCB 84.4 %" in shown(page)


def test_rare_classes_are_named_and_a_single_class_is_one_sentence(samples: Store) -> None:
    # 22 tasks of nine families: no family has five.
    page = opened("separability", projection="lda")
    assert shown(page).count("Fewer than two classes of task family") == 3
    few = opened("separability", policy=checkpoint(8).id, turns="first")
    assert "left out, with fewer than 5 tasks" in shown(few)
    assert list(page.table[0].value.index) == ["Chosen model, hidden states", "Chosen model, logits"]
    assert "with shuffled labels" in shown(page)


def test_turns_policy_and_projection_stand_in_the_address(samples: Store) -> None:
    page = opened("separability", policy=checkpoint(8).id, turns="first", projection="tsne")
    assert page.selectbox(key="stated_policy").value == checkpoint(8).id
    assert "22 turns of 22 tasks" in shown(page)
    assert "Perplexity 7" in shown(page)
    page.selectbox(key="stated_policy").select(checkpoint(0).id).run()
    assert page.query_params["policy"] == checkpoint(0).id
    page.button_group(key="projection").set_value("pca").run()
    assert "projection" not in page.query_params
    assert not page.exception


@pytest.mark.parametrize(("name", "value"), [("run", "rgone"), ("policy", "cgone")])
def test_what_is_not_there_is_told_and_something_stands_in(samples: Store, name: str, value: str) -> None:
    page = opened("separability", **{name: value})
    assert len(page.info) == 1
    assert value in page.info[0].value
    assert page.selectbox(key="stated_policy").value == checkpoint(30).id
    assert not page.error


def test_a_run_of_chance_is_not_offered(played: Store) -> None:
    page = opened("separability", run="r2", policy="random")
    assert page.selectbox(key="stated_run").options == [run_name(played.runs.get("r1"))]
    assert page.selectbox(key="stated_policy").options[0] == "gen 7"
    assert [one.value.split()[1] for one in page.info] == ["r2", "random"]


def test_unknown_words_in_the_address_are_the_defaults(samples: Store) -> None:
    page = opened("separability", turns="third", projection="<b>")
    assert "directions in which the points vary most" in shown(page)


def test_too_few_points_are_one_sentence(played: Store) -> None:
    page = opened("separability", policy="few", turns="first")
    assert "Only 2 turns here have a hidden state" in shown(page)
    assert not page.table


def test_chance_alone_leaves_no_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path / "trinity.db")
    store.runs.create("r2", "run", {})
    list(record(store, drive_many(births("r2", tasks(4), "random"), RandomPolicy(MODELS), pool(), grade)))
    store.close()
    monkeypatch.setenv("TRINITY_STORE", store.url)
    page = opened("separability")
    assert "No run here has hidden states" in shown(page)
    assert not page.selectbox


def test_made_up_states_show_how_index_and_accuracy_go_together(
    played: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study() -> list[Synthetic]:
        return [Synthetic(0.0, 0.01, 0.3), Synthetic(1.0, 0.5, 1.0)]

    monkeypatch.setattr(measures, "synthetic_study", study)
    page = opened("separability")
    assert "Index in this run" not in shown(page)
    page.session_state["synthetic"] = True
    page.run()
    index = separability_index(read_states(played, "r1", first_policy(played)).points, "model", "hidden")
    assert f"chosen model in hidden states {index:.3f}" in shown(page)
    figure = synthetic_figure([Synthetic(0.0, 0.01, 0.3)], None)
    assert not figure.layout.shapes


def test_the_curvature_stands_beside_shuffled_rewards_and_says_when_it_is_chance(
    played: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = read_choices(played, "r1", first_policy(played))
    assert choices is not None
    assert block_separability(choices) is None  # 30 episodes
    monkeypatch.setattr(curvature, "FEWEST_EPISODES", 20)
    found = block_separability(choices)
    assert found is not None
    page = opened("separability", run="r1", policy=first_policy(played))
    page.session_state["curvature"] = True
    page.run()
    assert any("too few to tell" in one.value for one in page.info) == (not found.found)
    assert f"{found.by_chance.row:.2f}" in str(page.table[-1].value)


def test_choices_are_read_whole_and_as_they_were_drawn(samples: Store) -> None:
    found = read_choices(samples, PLAYED, checkpoint(30).id)
    assert found is not None
    episodes = [one for one in samples.episodes.of_run(PLAYED) if one.policy == checkpoint(30).id]
    assert len(found.rewards) == len(episodes)
    assert found.rewards.sum() == sum(bool(one.correct) for one in episodes)
    assert np.bincount(found.episodes).sum() == sum(one.turns for one in episodes)
    assert found.model_probs.sum(axis=1) == pytest.approx(1)
    assert found.role_probs.sum(axis=1) == pytest.approx(1)


def test_the_table_of_turns_leads_to_each(samples: Store) -> None:
    found = read_states(samples, PLAYED, checkpoint(30).id)
    table = rows(found)
    assert list(table["turn"]) == [f"/replay?ep={one.episode_id}&t={one.index + 1}" for one in found.turns]
    assert list(table["model"]) == list(found.points.models)


def clicking(selected: list[dict[str, object]]) -> None:
    """A script in which a chart of the first sample checkpoint was clicked."""
    from storage.analysis.hidden_states import read_states
    from tests.builders.sample_store import PLAYED, checkpoint
    from ui.web.kit.state import store
    from ui.web.views import separability

    separability.clicked(read_states(store(), PLAYED, checkpoint(30).id), "hidden.model", selected)


def test_a_clicked_point_shows_its_turn(samples: Store) -> None:
    turn = read_states(samples, PLAYED, checkpoint(30).id).turns[5]
    nothing = AppTest.from_function(clicking, kwargs={"selected": []}).run(timeout=60)
    assert not nothing.query_params
    clicked = AppTest.from_function(clicking, kwargs={"selected": [{"customdata": 5, "x": 0.0}]})
    assert clicked.run(timeout=60).query_params["into"] == f"hidden.model:{turn.episode_id}:{turn.index + 1}"
    page = opened("separability", run=PLAYED, policy=checkpoint(30).id, into="hidden.model:gone:1")
    assert "The turn of this link is not among these points." in [one.value for one in page.caption]


def test_hostile_words_are_only_words(samples: Store) -> None:
    assert_literal(opened("separability", projection="pca"))
    found = read_states(samples, PLAYED, checkpoint(30).id)
    assert not any("<img" in one or "\u202e" in one for one in separability._hovers(found))


def test_clouds_hold_every_point_once_under_its_class() -> None:
    xy = np.arange(12, dtype=float).reshape(6, 2)
    labels = ["b", "a", "b", "<i>c</i>", "a", "b"]
    figure = cloud(Projection(xy, ("x", "y")), labels, class_styles(labels), list("123456"))
    assert go.Figure(figure.to_dict())  # valid
    assert {trace.name: tuple(trace.customdata) for trace in figure.data} == {
        "&lt;i&gt;c&lt;/i&gt; (1)": (3,),
        "a (2)": (1, 4),
        "b (3)": (0, 2, 5),
    }
    assert [tuple(trace.x) for trace in figure.data if trace.name == "a (2)"] == [(2.0, 8.0)]


def test_models_keep_their_slot_colour_and_small_classes_share_one() -> None:
    drawn = class_styles(["pip", "jack", "pip"], ("atlas", "jack", "pip"))
    assert drawn["pip"].colour == model_colour("pip", ("atlas", "jack", "pip"))
    assert drawn["pip"] == class_styles(["atlas", "pip"], ("atlas", "jack", "pip"))["pip"]
    many = [f"f{i:02d}" for i in range(30) for _ in range(30 - i)]
    shared = class_styles(many)
    assert len({look.name for look in shared.values()}) == MOST_CLASSES + 1
    assert shared["f29"].name == "all others"
    assert len({(look.colour, look.symbol) for look in shared.values()}) == MOST_CLASSES + 1


def test_the_figure_says_whose_each_number_is() -> None:
    measured = [Accuracy("task", "hidden", Score(0.9, 0.1), Score(0.8, 0.1), 0.2, 0.125, 8, 100)]
    figure = readings(measured)
    assert go.Figure(figure.to_dict())
    assert [trace.name for trace in figure.data] == [
        "majority class, this run",
        "linear SVM, this run",
        "RBF SVM, this run",
        "linear SVM, paper",
        "RBF SVM, paper",
    ]
    assert [trace.x[0] for trace in figure.data] == [0.2, 0.9, 0.8, 1.0, 1.0]
    assert ours(measured).iloc[0]["Majority class"] == "20.0 %"
    assert theirs(measured).iloc[0]["Chance"] == "25.0 %"


def test_a_point_is_clicked_in_a_browser(tab: Page, served: Served) -> None:
    states = read_states(served.store, PLAYED, checkpoint(8).id)
    tab.goto(f"/separability?policy={checkpoint(8).id}")
    tab.locator(".js-plotly-plot .scatterlayer .point").first.wait_for()
    settled(tab)
    point = tab.locator(".js-plotly-plot .scatterlayer .point").first.bounding_box()
    assert point is not None
    tab.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    tab.wait_for_url("**into=*")
    here = tab.url
    tab.get_by_role("link", name="Open turn").click()
    tab.wait_for_url("**/replay?*")
    turns = [f"?ep={one.episode_id}&t={one.index + 1}" for one in states.turns]
    assert any(tab.url.endswith(turn) for turn in turns)
    settled(tab)
    tab.go_back()
    tab.wait_for_url(here)
    tab.get_by_role("link", name="Open turn").wait_for()
    tab.go_back()
    tab.wait_for_url(f"**/separability?policy={checkpoint(8).id}")


# The command


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """What `trinity separability` ends with and says."""
    capsys.readouterr()
    try:
        code = main(["separability", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_prints_what_the_page_shows(played: Store, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    policy = first_policy(played)
    assert (found["run"], found["policy"], found["turns"]) == ("r1", policy, "all")
    points = read_states(played, "r1", policy).points
    for result in found["results"]:
        measured = accuracy(points, result["target"], result["space"])
        assert measured is not None
        assert result["svm"]["rbf"]["mean"] == pytest.approx(measured.rbf.mean)
    assert found["results"][0]["paper"]["svm"]["linear"] == {"mean": 1.0, "std": None}
    assert [one["index"] for one in found["index"]] == [
        separability_index(points, one["target"], one["space"]) for one in found["index"]
    ]
    assert set(found["within_families"]) == set(points.families)
    code, table, _ = told(capsys, "r1", "--policy", policy)
    assert code == 0
    assert f"{100 * found['results'][0]['svm']['linear']['mean']:.1f} ±" in table
    assert "frontier models" in table
    assert "read off hidden states within one task family" in table
    assert found["points"] > json.loads(told(capsys, "--turns", "first", "--json")[1])["points"] == 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rgone"], "No hidden states are kept of a run 'rgone'; there are some of: r1."),
        (["r2"], "No hidden states are kept of a run 'r2'"),
        (["--policy", "random"], "No hidden states are kept of a policy 'random'"),
        (["--policy", "few", "--turns", "first"], "few in run r1 has 2 turns with a hidden state"),
    ],
)
def test_a_mistake_is_one_sentence(
    played: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    code, out, err = told(capsys, *arguments)
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1


def test_what_cannot_be_measured_is_a_dash(samples: Store, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys)
    assert code == 0
    first = next(line for line in out.splitlines() if line.startswith("task family"))
    assert first.split()[4:] == ["-"] * 6
    assert "Left out of task family, with fewer than 5 tasks:" in out


def test_an_empty_store_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "--store", str(tmp_path / "new.db"))
    assert code == 1
    assert "No run has hidden states" in err
