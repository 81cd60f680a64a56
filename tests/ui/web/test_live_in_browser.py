"""Live in a browser: a run that outlives its tab, and a turn that waits for a person's choice."""

from __future__ import annotations

from playwright.sync_api import Page

from core.ids import episode_id
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.browsing import settled, visit
from tests.ui.conftest import Served
from tests.ui.pages import until


def _choose_random(tab: Page) -> None:
    visit(tab, "/live")
    tab.locator(".st-key-play button").wait_for()
    settled(tab)
    tab.locator(".st-key-policy_choice input").fill("random model and role")
    tab.keyboard.press("Enter")
    settled(tab)


def _is_over(store: Store, run: str) -> bool:
    return store.runs.get(run).status not in (RunStatus.QUEUED, RunStatus.RUNNING)


def test_the_grid_follows_what_is_picked_and_a_run_outlives_its_browser(tab: Page, served: Served) -> None:
    _choose_random(tab)
    tab.get_by_text("Step by step").first.click()
    settled(tab)
    tab.locator(".st-key-play button").click()
    tab.get_by_text("Turn 1 of at most 5 waits for you …").wait_for()
    chart = tab.locator(".st-key-next_chart")
    cells, full = chart.locator("rect.open"), chart.locator("rect.open[aria-pressed=true]")
    cells.first.wait_for()
    own = full.get_attribute("aria-label")
    assert chart.locator("tspan", has_text="proposed").count() == 2
    assert not chart.locator("tspan", has_text="chosen").count()
    picked = chart.locator("rect.open[aria-pressed=false]").last
    name = picked.get_attribute("aria-label") or ""
    picked.click()
    chart.locator(f"rect.open[aria-pressed=true][aria-label='{name}']").wait_for()
    assert chart.locator("tspan", has_text="yours").count()
    for width in (1100, 1280):  # a chart that is drawn anew is drawn of what it was given last
        tab.set_viewport_size({"width": width, "height": 900})
        settled(tab)
        assert full.get_attribute("aria-label") == name
    tab.locator(".st-key-give_back button").first.click()
    chart.locator(f"rect.open[aria-pressed=true][aria-label='{own}']").wait_for()
    run = tab.url.split("run=")[1]
    # Another coordinator takes over, kept by its id; Enter then does not swap once more.
    settled(tab)
    tab.get_by_text("Another coordinator from here on").click()
    settled(tab)
    tab.locator(".st-key-put_in_charge button").first.click()
    until(lambda: served.store.runs.decider(episode_id(run, 0), 0) != "random")
    swapped = served.store.runs.decider(episode_id(run, 0), 0)
    assert served.store.checkpoints.has(swapped)
    settled(tab)
    tab.keyboard.press("Enter")
    settled(tab)
    assert served.store.runs.decider(episode_id(run, 0), 0) == swapped
    served.store.runs.cancel(run)  # unless the turn was its last
    until(lambda: _is_over(served.store, run))
    served.store.runs.delete(run)  # no other test shall come upon it
    # The next one is left to itself.
    _choose_random(tab)
    tab.get_by_text("Watch it").first.click()
    settled(tab)
    tab.locator(".st-key-play button").click()
    tab.wait_for_url("**/live?run=*")
    alone = tab.url.split("run=")[1]
    tab.close()
    until(lambda: _is_over(served.store, alone))
    ended = served.store.runs.get(alone)
    assert (ended.status, ended.error) == (RunStatus.FINISHED, None)
    assert served.store.episodes.outline(episode_id(alone, 0))
