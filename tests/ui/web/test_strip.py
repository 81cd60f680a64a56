"""The turn strip and the keys in a real browser: clicks, focus, deep links, hostile text, no request out."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browsing import arrive, parameters, settled, visit
from tests.ui.conftest import Served


@pytest.fixture
def tab(same_tab: Page) -> Page:
    """One tab for all tests of this file."""
    return same_tab


def go(tab: Page, url: str) -> None:
    """Open a replay and wait for its strip."""
    visit(tab, url)
    tab.locator(".strip button").first.wait_for()
    settled(tab)


def expect(tab: Page, **wanted: str) -> None:
    """The address bar comes to hold these parameters, and the strip's cursor stands there."""
    arrive(tab, **wanted)
    if "t" in wanted:  # the address can hold the turn already while the page still draws another
        column = int(wanted["t"]) - 1
        tab.locator(f'.strip [aria-current="step"][data-column="{column}"]').first.wait_for()
    settled(tab)
    assert parameters(tab).items() >= wanted.items()


def press(tab: Page, key: str, **wanted: str) -> None:
    """Press a key and expect an address."""
    tab.keyboard.press(key)
    expect(tab, **wanted)


def test_what_is_found_is_marked_and_playing_obeys_clicks_that_come_twice(
    tab: Page, recorded_app: Served
) -> None:
    go(tab, f"{recorded_app.address}/replay?ep=e-right&t=2")
    tab.locator(".st-key-jump button").first.click()
    field = tab.get_by_placeholder("Find in the replies")
    field.fill("answer 36")  # keys rest in a field
    field.press("Enter")
    expect(tab, find="answer 36", t="2")
    assert tab.locator(".strip .mark", has_text="»").count() == 1
    tab.get_by_role("heading", level=3).click()  # out of the menu
    field.wait_for(state="hidden")
    for _ in range(2):
        tab.keyboard.press("Space")
        tab.get_by_role("button", name="Pause").wait_for()
        tab.keyboard.press("Home")
        tab.get_by_role("button", name="Play").wait_for()
        expect(tab, t="1")


def test_a_click_and_the_keys_that_a_focused_cell_takes_for_itself(tab: Page, recorded_app: Served) -> None:
    go(tab, f"{recorded_app.address}/replay?ep=e-right&t=1")
    cells = tab.locator(".strip button")
    cells.nth(1).click()
    expect(tab, t="2")
    live = tab.locator('.strip [aria-live="polite"]')
    assert live.text_content() == "Turn 2 of 5, Worker, beta, answer 36 is wrong"
    cells.nth(4).focus()
    press(tab, "Enter", t="5")
    cells.nth(0).focus()
    press(tab, " ", t="1")  # Space presses the focused cell and does not start playing
    tab.wait_for_timeout(1500)
    assert parameters(tab)["t"] == "1"
    tab.locator(".st-key-more button").first.click()
    tab.get_by_role("radio", name="2×").click()  # another control has the focus now
    settled(tab)
    press(tab, "j", t="2")
    press(tab, "End", t="5")
    # Each step is announced, and taken back as one.
    assert (live.text_content() or "").startswith("Turn 5 of 5, Verifier, ")
    tab.go_back()
    expect(tab, t="2")


def test_nothing_is_wider_than_the_screen_and_on_a_phone_the_turn_stands_on_the_first(
    tab: Page, recorded_app: Served
) -> None:
    for path in ("/pair?a=e-right&b=e-wrong", "/replay?ep=e-right&t=3"):
        tab.set_viewport_size({"width": 1280, "height": 844})
        go(tab, recorded_app.address + path)
        for width in (1280, 390):
            tab.set_viewport_size({"width": width, "height": 844})
            settled(tab)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    said = tab.get_by_text("Turn 3 of 5 · ").first
    box = said.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 600
    tab.locator(".st-key-jump button").first.click()  # what stands beyond the edge can be reached
    tab.get_by_role("button", name="Next in the same role").click()
    expect(tab, t="5")
