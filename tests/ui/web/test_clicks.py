"""Charts in a real browser: a click on what is drawn leads to the episodes and turns behind it, and Back leads back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page

from core.episode import Task
from storage.filters.episode_filter import EpisodeFilter
from tests.browsing import parameters, settled, visit
from tests.builders.sample_store import PLAYED, checkpoint
from tests.ui.conftest import Served
from ui.runs.plans import LivePlan, to_config

MARKS = ".scatterlayer .point, .barlayer .point path"


def test_what_is_clicked_leads_to_what_is_behind_it(same_tab: Page, served: Served) -> None:
    tab = same_tab
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


def test_a_link_from_a_page_to_itself_is_an_address(same_tab: Page, served: Served) -> None:
    tab = same_tab
    visit(tab, "/forks")
    asked = served.store.episodes.page(EpisodeFilter(flag="false_accept"))
    tab.locator("[data-testid=stPageLink]", has_text=asked.items[0].question[:30]).first.click()
    tab.wait_for_url(f"**/forks?ep={asked.items[0].id}&t={asked.items[0].turns}")
    tab.get_by_text("What if this turn had gone otherwise?").wait_for()
    settled(tab)
    tab.go_back()
    tab.get_by_text("Begin with a turn that went wrong").wait_for()
    assert not parameters(tab)


def test_a_run_of_the_queue_is_opened_by_a_click(same_tab: Page, served: Served) -> None:
    tab = same_tab
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
    same_tab: Page, served: Served, view: str
) -> None:
    tab = same_tab
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


def test_the_tools_of_a_table_cover_no_button(same_tab: Page, served: Served) -> None:
    tab = same_tab
    visit(tab, "/episodes")
    tab.get_by_test_id("stDataFrame").hover()
    tools = tab.get_by_test_id("stElementToolbar").bounding_box()
    assert tools is not None
    for key in ("page_first", "page_previous", "page_next", "page_last", "ways_on"):
        box = tab.locator(f".st-key-{key}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= tools["y"] or box["x"] + box["width"] <= tools["x"], key


def at(tab: Page, address: str, chart: str) -> Locator:
    """The chart of a page that is opened there."""
    visit(tab, address)
    found = tab.locator(f".st-key-{chart} .js-plotly-plot").first
    found.scroll_into_view_if_needed()
    return found


def click_first(chart: Locator) -> None:
    """Click the first mark that is drawn."""
    click(chart, chart.locator(MARKS).first)


def click_highest(chart: Locator) -> None:
    """Click the mark nearest to the top: the largest of a chart of shares."""
    chart.locator(MARKS).first.wait_for()
    marks = chart.locator(MARKS).all()
    click(chart, min(marks, key=lambda mark: (mark.bounding_box() or {"y": 1e9})["y"]))


def click(chart: Locator, mark: Locator) -> None:
    """Click the middle of a mark."""
    mark.wait_for()
    box = mark.bounding_box()
    assert box
    chart.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
