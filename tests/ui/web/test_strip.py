"""The turn strip and the keys in a real browser: clicks, focus, deep links, hostile text, no request out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browsing import PATIENCE_S, serving, settled
from tests.builders.recorded import recorded_store
from tests.ui.conftest import HEALTH, STREAMLIT


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app served on loopback over a recorded store."""
    folder = tmp_path_factory.mktemp("strip")
    recorded_store(folder / "trinity.db").close()
    with serving(STREAMLIT, folder, folder / "trinity.db") as served:
        yield served


@pytest.fixture(scope="module")
def context(chromium: Browser, address: str) -> Iterator[BrowserContext]:
    """One window, kept open by a tab that shows next to nothing, so that scripts are fetched and compiled once."""
    opened = chromium.new_context(viewport={"width": 1280, "height": 900}, base_url=address)
    opened.set_default_timeout(PATIENCE_S * 1000)
    opened.new_page().goto(HEALTH)
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A fresh page; an error in its scripts fails the test."""
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert not errors


def go(page: Page, url: str) -> None:
    """Open a replay and wait for its strip."""
    page.goto(url)
    page.locator(".strip button").first.wait_for()
    settled(page)


def query(page: Page) -> dict[str, str]:
    """The address bar's parameters."""
    return {name: values[0] for name, values in parse_qs(urlparse(page.url).query).items()}


def expect(page: Page, **wanted: str) -> None:
    """The address bar comes to hold these parameters, and the strip's cursor stands there."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        held = query(page)
        if all(held.get(name) == value for name, value in wanted.items()):
            break
        page.wait_for_timeout(20)
    assert {name: query(page).get(name) for name in wanted} == wanted
    if "t" in wanted:  # the address can hold the turn already while the page still draws another
        column = int(wanted["t"]) - 1
        page.locator(f'.strip [aria-current="step"][data-column="{column}"]').first.wait_for()
    settled(page)
    assert {name: query(page).get(name) for name in wanted} == wanted


def press(page: Page, key: str, **wanted: str) -> None:
    """Press a key and expect an address."""
    page.keyboard.press(key)
    expect(page, **wanted)


def test_the_panels_the_analysis_the_basket_and_the_way_back(page: Page, address: str) -> None:
    go(page, f"{address}/replay?ep=e-right&t=2")
    page.locator(".strip button").nth(1).focus()
    for key, panel in (("2", "why"), ("3", "other"), ("4", "without"), ("5", "near")):
        press(page, key, panel=panel, t="2")
    page.keyboard.press("1")
    page.wait_for_url(lambda url: "panel=" not in url)
    press(page, "z", zen="1")
    page.get_by_text("How sure was the coordinator?").wait_for(state="hidden")
    page.keyboard.press("z")
    page.wait_for_url(lambda url: "zen=" not in url)
    page.keyboard.press("x")
    page.get_by_text("In the basket: 1").wait_for()
    page.locator(".st-key-jump button").first.click()
    field = page.get_by_placeholder("Find in the replies")
    field.fill("answer 36")  # keys rest in a field
    field.press("Enter")
    expect(page, find="answer 36", t="2")
    assert page.locator(".strip .mark", has_text="»").count() == 1
    page.get_by_role("heading", level=3).click()  # out of the menu
    field.wait_for(state="hidden")
    for _ in range(3):  # a click that comes in twice must not undo itself
        page.keyboard.press("Space")
        page.get_by_role("button", name="Pause").wait_for()
        page.keyboard.press("Home")
        page.get_by_role("button", name="Play").wait_for()
        expect(page, t="1")
    page.keyboard.press("Escape")
    page.wait_for_url("**/episodes**")


def test_a_click_and_the_keys_with_the_strip_focused(page: Page, address: str) -> None:
    go(page, f"{address}/replay?ep=e-right&t=1")
    cells = page.locator(".strip button")
    cells.nth(1).click()
    expect(page, t="2")
    press(page, "j", t="3")
    press(page, "ArrowRight", t="4")
    press(page, "ArrowLeft", t="3")
    cells.nth(4).focus()
    press(page, "Enter", t="5")
    cells.nth(0).focus()
    press(page, " ", t="1")  # Space presses the focused cell and does not start playing
    page.wait_for_timeout(1500)
    assert query(page)["t"] == "1"


def test_keys_while_another_control_has_the_focus(page: Page, address: str) -> None:
    go(page, f"{address}/replay?ep=e-right&t=1")
    page.locator(".st-key-more button").first.click()
    page.get_by_role("radio", name="2×").click()
    settled(page)
    press(page, "j", t="2")
    press(page, "End", t="5")


def test_steps_are_announced(page: Page, address: str) -> None:
    go(page, f"{address}/replay?ep=e-right&t=2")
    live = page.locator('.strip [aria-live="polite"]')
    assert live.text_content() == "Turn 2 of 5, Worker, beta, answer 36 is wrong"
    press(page, "j", t="3")
    assert (live.text_content() or "").startswith("Turn 3 of 5, Verifier, ")


def test_back_in_the_browser_returns_to_the_turn_before(page: Page, address: str) -> None:
    go(page, f"{address}/replay?ep=e-right&t=2")
    press(page, "j", t="3")
    page.go_back()
    expect(page, t="2")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", ["/replay?ep=e-right&t=3", "/pair?a=e-right&b=e-wrong"])
def test_nothing_is_wider_than_the_screen(page: Page, address: str, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    go(page, address + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_the_turn_stands_on_the_first_screen(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, f"{address}/replay?ep=e-right&t=3")
    said = page.get_by_text("Turn 3 of 5 · ").first
    box = said.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 600
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".st-key-jump button").first.click()  # what stands beyond the edge can be reached
    page.get_by_role("button", name="Next in the same role").click()
    expect(page, t="5")
