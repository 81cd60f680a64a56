"""Charts in a real browser: a click on what is drawn leads to the episodes and turns behind it, and Back leads back.

The decision chart changes in place, fits a phone, speaks and is saved."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, Page

from core.episode import Task
from storage.analysis.hidden_states import read_states
from storage.filters.episode_filter import EpisodeFilter
from tests.browsing import parameters, settled, visit
from tests.builders.sample_store import MODELS, PLAYED, checkpoint
from tests.ui.conftest import Served
from ui.presentation.odds import options
from ui.runs.plans import LivePlan, to_config
from ui.web.turns.recording import open_recording

MARKS = ".scatterlayer .point, .barlayer .point path"


@pytest.fixture
def tab(same_tab: Page) -> Page:
    """One tab for all tests of this file."""
    return same_tab


def test_what_is_clicked_leads_to_what_is_behind_it(tab: Page, served: Served) -> None:
    store = served.store
    # Verdicts are in test_navigation.py. Cost: the episodes of the policy that was clicked.
    click_first(at(tab, "/verifier?part=cost", "verifier_cost"))
    tab.wait_for_url("**/episodes?*")
    asked = parameters(tab)
    assert asked["policy"]
    found = store.episodes.page(EpisodeFilter.from_query(asked)).total
    assert found.n > 0
    tab.get_by_text(f"{found} episode").first.wait_for()
    # Lengths: episodes of one policy that took so many turns.
    both = f"/checkpoints?c={checkpoint(8).id},{checkpoint(30).id}&part=course"
    lengths = at(tab, both, "checkpoints_lengths")
    left = tab.url
    click_highest(lengths)
    tab.wait_for_url("**/episodes?*")
    asked = parameters(tab)
    assert asked["min_turns"] == asked["max_turns"]
    found = store.episodes.page(EpisodeFilter.from_query(asked)).total
    assert found.n > 0
    tab.get_by_text(f"{found} episode").first.wait_for()
    settled(tab)
    tab.go_back()
    tab.wait_for_url(left)
    # A replay's timeline: the turn that was clicked, in the same episode.
    long = store.episodes.page(EpisodeFilter(run=PLAYED, policy=checkpoint(30).id, min_turns=3)).items[0]
    click_first(at(tab, f"/replay?ep={long.id}&t=3", "doubt"))
    tab.wait_for_url(f"**/replay?ep={long.id}&t=1")
    tab.go_back()
    tab.wait_for_url(f"**/replay?ep={long.id}&t=3")


def test_a_point_and_a_cell_are_clicked_and_their_turns_open(tab: Page, served: Served) -> None:
    states = read_states(served.store, PLAYED, checkpoint(8).id)
    visit(tab, f"/separability?policy={checkpoint(8).id}")
    point = tab.locator(".st-key-separability_clouds .scatterlayer .point").first
    point.wait_for()
    settled(tab)
    point.scroll_into_view_if_needed()
    click(tab, point)
    tab.wait_for_url("**into=*")
    here = tab.url
    tab.get_by_role("link", name="Open turn").click()
    tab.wait_for_url("**/replay?ep=*")
    turns = [f"?ep={one.episode_id}&t={one.index + 1}" for one in states.turns]
    assert any(tab.url.endswith(turn) for turn in turns)
    settled(tab)
    tab.go_back()
    tab.wait_for_url(here)
    tab.get_by_role("link", name="Open turn").wait_for()
    tab.go_back()
    tab.wait_for_url(f"**/separability?policy={checkpoint(8).id}")
    visit(tab, "/routing")
    plot = tab.locator(".st-key-routing_who .nsewdrag").first
    plot.wait_for()
    box = plot.bounding_box()
    assert box
    # The Worker row, the first model: the middle of the second row of three.
    tab.mouse.click(box["x"] + box["width"] / len(MODELS) / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url("**into=worker*")
    tab.get_by_text("Turns behind it").wait_for()
    tab.get_by_role("link", name=f"Episodes with Worker on {MODELS[0]}").first.wait_for()


def test_a_link_from_a_page_to_itself_is_an_address(tab: Page, served: Served) -> None:
    visit(tab, "/forks")
    asked = served.store.episodes.page(EpisodeFilter(flag="false_accept"))
    tab.locator("[data-testid=stPageLink]", has_text=asked.items[0].question[:30]).first.click()
    tab.wait_for_url(f"**/forks?ep={asked.items[0].id}&t={asked.items[0].turns}")
    tab.get_by_text("What if this turn had gone otherwise?").wait_for()
    settled(tab)
    tab.go_back()
    tab.get_by_text("Begin with a turn that went wrong").wait_for()
    assert not parameters(tab)


def test_a_run_of_the_queue_is_opened_by_a_click(tab: Page, served: Served) -> None:
    plan = LivePlan(Task("mine", "Is this run opened?", "yes"), "random", ("ada", "bob"))
    served.store.runs.create("rclicked", "live", to_config(plan))
    served.store.runs.finish("rclicked")
    try:
        visit(tab, "/live")
        tab.get_by_test_id("stMain").get_by_text("Is this run opened?").first.click()
        tab.wait_for_url("**/live?run=rclicked")
        tab.get_by_role("heading", name="Is this run opened?").wait_for()
        tab.get_by_text("All runs").first.wait_for()
    finally:
        served.store.runs.delete("rclicked")


@pytest.mark.parametrize("view", ["replay", "evolution"])
def test_space_plays_after_a_click_on_a_control_of_the_transport(
    tab: Page, served: Served, view: str
) -> None:
    long = served.store.episodes.page(EpisodeFilter(run=PLAYED, min_turns=4)).items[0]
    visit(tab, f"/replay?ep={long.id}" if view == "replay" else "/evolution?gen=0")
    bar = tab.locator(".st-key-tools_transport")
    if view == "replay":
        bar.locator(".st-key-more button").first.click()
    tab.get_by_text("0.5×").click()
    settled(tab)
    if view == "replay":
        tab.keyboard.press("Escape")  # shuts the menu
        tab.get_by_text("0.5×").wait_for(state="hidden")
    tab.keyboard.press("Space")
    bar.get_by_role("button", name="Pause").wait_for()
    tab.keyboard.press("Space")
    bar.get_by_role("button", name="Play").wait_for()
    bar.locator(".st-key-go_next button").first.click()
    settled(tab)
    tab.keyboard.press("Space")
    bar.get_by_role("button", name="Pause").wait_for()


def test_the_tools_of_a_table_cover_no_button(tab: Page, served: Served) -> None:
    visit(tab, "/episodes")
    tab.get_by_test_id("stDataFrame").hover()
    tools = tab.get_by_test_id("stElementToolbar").bounding_box()
    assert tools is not None
    for key in ("page_first", "page_previous", "page_next", "page_last", "ways_on"):
        box = tab.locator(f".st-key-{key}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= tools["y"] or box["x"] + box["width"] <= tools["x"], key


def test_a_step_changes_the_decision_chart_where_it_stands_and_it_fits_a_phone(
    tab: Page, served: Served
) -> None:
    page = served.store.episodes.page(EpisodeFilter(min_turns=3), limit=200)
    episode = next(one.id for one in page.items if one.checkpoint_id)
    visit(tab, f"/replay?ep={episode}&t=1")
    tab.locator(".decision svg.odds text").first.wait_for()
    settled(tab)
    chart = tab.locator(".decision svg.odds")
    chart.evaluate("node => { node.dataset.kept = 'yes'; }")
    tab.keyboard.press("j")
    tab.get_by_text("Turn 2 of").first.wait_for()
    settled(tab)
    assert chart.get_attribute("data-kept") == "yes"
    recording = open_recording(served.store, episode)
    decision = recording.decision(1)
    assert decision is not None
    said = chart.get_attribute("aria-label") or ""
    for option in (one for side in options(decision, recording.models) for one in side):
        assert f"{option.name} {option.words}{' ' + option.note if option.note else ''}." in said
        assert any(
            text.startswith(option.words) for text in tab.locator(".decision text").all_text_contents()
        )
    assert tab.locator(".decision title", has_text=f"logit {decision.model_logits[0]:+.4f}").count() == 1
    tab.locator(".decision").hover()
    with tab.expect_download() as saving:
        tab.get_by_role("button", name="Save as SVG").click()
    assert saving.value.suggested_filename == "trinity-decision-chart.svg"
    drawing = ElementTree.fromstring(Path(saving.value.path()).read_bytes())
    texts = ["".join(node.itertext()) for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == tab.locator(".decision text").all_text_contents(), "its camera saves what it shows"
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_function(
            """() => {
              const [box] = [...document.querySelectorAll('.st-key-decision_chart *')]
                .filter(node => node.shadowRoot).map(node => node.shadowRoot.querySelector('svg.odds'));
              const frame = box.getBoundingClientRect();
              return Math.abs(frame.width - box.parentElement.clientWidth) <= 1 &&
                [...box.querySelectorAll('text')].every(text => {
                  const words = text.getBoundingClientRect();
                  return words.left >= frame.left - 1 && words.right <= frame.right + 12;
                });
            }"""
        )


def at(tab: Page, address: str, chart: str) -> Locator:
    """The chart of a page that is opened there."""
    visit(tab, address)
    found = tab.locator(f".st-key-{chart} .js-plotly-plot").first
    found.scroll_into_view_if_needed()
    return found


def click_first(chart: Locator) -> None:
    """Click the first mark that is drawn."""
    click(chart.page, chart.locator(MARKS).first)


def click_highest(chart: Locator) -> None:
    """Click the mark nearest to the top: the largest of a chart of shares."""
    chart.locator(MARKS).first.wait_for()
    marks = chart.locator(MARKS).all()
    click(chart.page, min(marks, key=lambda mark: (mark.bounding_box() or {"y": 1e9})["y"]))


def click(tab: Page, mark: Locator) -> None:
    """Click the middle of a mark."""
    mark.wait_for()
    box = mark.bounding_box()
    assert box
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
