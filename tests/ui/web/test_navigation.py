"""Ways through the app in a real browser: lists that are carried along, Back, Esc, the drawer, unknown
addresses, the palette."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.sync_api import Locator, Page, Position, Response

from storage.filters.episode_filter import EpisodeFilter
from tests import browsing
from tests.browsing import arrive, at, is_at, settled, still, visit
from tests.builders.sample_store import checkpoint
from tests.ui.conftest import Served
from tests.ui.web.test_clicks import click_highest
from ui.web.pickers.palette import PALETTE

PHONE = {"width": 390, "height": 844}
#: A key from which nothing comes for so many milliseconds was lost.
LOST_MS = 20_000


@pytest.fixture
def tab(same_tab: Page) -> Page:
    """One tab for all tests of this file."""
    return same_tab


def test_the_drawer_is_closed_when_a_page_is_chosen_and_an_unknown_address_is_said_to_be_none(
    tab: Page, served: Served
) -> None:
    tab.set_viewport_size(PHONE)  # type: ignore[arg-type]
    tab.goto("/home")  # its address, though it has none in links
    tab.get_by_text("Why did the coordinator do that?").wait_for()
    settled(tab)
    assert not tab.get_by_role("dialog").count()
    drawer = tab.get_by_test_id("stSidebar")
    tab.get_by_test_id("stExpandSidebarButton").click()
    drawer.get_by_role("link", name="Glossary").click()
    tab.wait_for_url("**/glossary")
    closed = tab.locator('[data-testid="stSidebar"][data-collapsed="true"]')
    closed.wait_for(state="attached")
    assert in_sight(tab, tab.get_by_role("heading", name="Glossary").first)
    tab.get_by_test_id("stExpandSidebarButton").click()
    tab.locator('[data-testid="stSidebar"][data-collapsed="false"]').wait_for()
    tab.goto("/nosuchpage")
    closed.wait_for(state="attached")  # whatever is loaded anew
    tab.get_by_text("There is no page /nosuchpage").wait_for()
    settled(tab)
    assert not tab.get_by_role("dialog").count()
    tab.get_by_test_id("stMain").get_by_role("link", name="Home").click()
    tab.get_by_text("Why did the coordinator do that?").wait_for()
    assert not tab.get_by_text("There is no page").count()


def test_a_row_of_a_filtered_list_carries_the_list_along(tab: Page, served: Served) -> None:
    listed = [one.id for one in served.store.episodes.page(EpisodeFilter(correct="wrong"), limit=50).items]
    everything = [one.id for one in served.store.episodes.page(EpisodeFilter(), limit=50).items]
    # From one row to the next the whole list would go elsewhere.
    at_hand = next(i for i, one in enumerate(listed) if listed[i + 1] != after(everything, one))
    one, following = listed[at_hand : at_hand + 2]
    missing: list[str] = []

    def answered(answer: Response) -> None:
        if answer.status >= 400:
            missing.append(answer.url)

    tab.on("response", answered)
    at(tab, "/episodes?correct=wrong")
    table = tab.get_by_test_id("stDataFrame")
    link: Position = {"x": 58, "y": 52 + 35 * at_hand}  # in its row; it opens once the pointer is over it
    table.hover(position=link)
    tab.wait_for_timeout(500)
    table.click(position=link)  # in this tab, as every link
    arrive(tab, "/replay", ep=one)
    still(tab)
    tab.go_back()
    arrive(tab, "/episodes", correct="wrong")
    still(tab)
    tab.go_forward()
    arrive(tab, "/replay", ep=one)
    press(tab, "n", "/replay", ep=following)
    tab.reload()
    press(tab, "p", "/replay", ep=one)
    left = tab.url
    press(tab, "Escape", "/episodes", correct="wrong")
    tab.locator(".st-key-chip_correct").wait_for()
    still(tab)
    tab.go_back()
    tab.wait_for_url(left)
    arrive(tab, "/replay", ep=one)
    tab.locator(".strip button").first.wait_for()
    # Streamlit's script looks for its server below the page's own address first, unless it is told.
    tab.remove_listener("response", answered)
    assert missing == [], "what a page asks for"


def test_one_back_returns_to_the_page_as_it_was_left(tab: Page, served: Served) -> None:
    # By a click in the strip of a peek, by a button: each is one step. So are the key of the button back to the list,
    # above, a click in a chart, in test_clicks.py, and a click on a number of a table, in the first of the ten checks.
    one = served.store.episodes.page(EpisodeFilter(correct="wrong", min_turns=3)).items[0].id
    at(tab, f"/episodes?correct=wrong&peek={one}")
    lefts = [tab.url]
    tab.locator(".strip button").last.click()
    arrive(tab, "/replay", ep=one)
    still(tab)
    lefts.append(tab.url)
    tab.locator(".st-key-fork_here button").first.click()
    arrive(tab, "/forks")
    for left in reversed(lefts):
        tab.go_back()
        tab.wait_for_url(left)
        settled(tab)
        assert tab.url == left


def test_what_the_app_does_by_itself_is_no_step_back_and_esc_in_a_field_leaves_the_field(
    tab: Page, served: Served
) -> None:
    one = served.store.episodes.page(EpisodeFilter(min_turns=3)).items[0]
    begin = str(one.turns - 2)
    at(tab, f"/replay?ep={one.id}&t={begin}")
    steps: int = tab.evaluate("history.length")
    tab.keyboard.press(" ")  # plays to the last turn, over the one before it
    arrive(tab, "/replay", t=str(one.turns))
    assert tab.evaluate("history.length") == steps + 1
    tab.go_back()
    arrive(tab, "/replay", t=begin)
    tab.locator(".st-key-jump button").first.click()
    field = tab.locator(".st-key-find input")
    field.click()
    field.press_sequentially("the")
    tab.keyboard.press("Enter")
    arrive(tab, "/replay", find="the")
    tab.keyboard.press("Escape")
    field.wait_for(state="hidden")  # the menu is shut
    arrive(tab, "/replay", find="the", t=begin)  # nor does what had played to its end go on from there
    tab.get_by_test_id("stTooltipIcon").first.hover()
    help_text = tab.get_by_test_id("stTooltipContent")
    help_text.wait_for()
    tab.keyboard.press("Escape")
    help_text.wait_for(state="hidden")
    arrive(tab, "/replay", find="the", t=begin)
    press(tab, "Escape", "/episodes")


def test_filters_leave_no_empty_bar_behind(tab: Page, served: Served) -> None:
    at(tab, "/episodes")
    bar = tab.get_by_test_id("stSidebar")
    bar.get_by_text("Filters").wait_for()
    tab.get_by_text("More", exact=True).first.click()
    tab.get_by_text("Data", exact=True).first.click()
    arrive(tab, "/data")
    bar.wait_for(state="hidden")
    tab.go_back()
    arrive(tab, "/episodes")
    bar.get_by_text("Filters").wait_for()


def test_what_a_click_on_a_chart_lists_comes_into_sight(tab: Page, served: Served) -> None:
    wide = {"width": 1280, "height": 720}
    for size, chart, listed in (
        (wide, "verifier_false_accept", "accepted_wrong"),
        (PHONE, "verifier_false_revise", "revised_right"),
    ):
        tab.set_viewport_size(size)  # type: ignore[arg-type]
        if size == PHONE:
            visit(tab, "/glossary")  # nothing stays chosen on the page that was left
        at(tab, "/verifier")
        drawn = tab.locator(f".st-key-{chart} .js-plotly-plot").first
        drawn.scroll_into_view_if_needed()
        click_highest(drawn)
        tab.wait_for_url(f"**into={listed}*")
        tab.locator(".st-key-into_close").first.wait_for()
        opened = tab.locator(".st-key-behind")
        opened.wait_for()
        settled(tab)
        tab.wait_for_timeout(500)
        assert in_sight(tab, opened, at_least=200), (size, chart)


def test_a_key_and_a_name_lead_there_from_any_page(tab: Page, served: Served) -> None:
    listed = served.store.episodes.page(EpisodeFilter(), limit=50).items
    at(tab, f"/replay?ep={listed[0].id}&t=1")
    open_palette(tab)
    tab.keyboard.type("verif")  # one key of the page after the other, which all rest in a field
    tab.keyboard.press("Enter")
    arrive(tab, "/verifier")
    go_to(tab, "gen 30")
    arrive(tab, "/episodes", policy=checkpoint(30).id)
    go_to(tab, listed[-1].id)
    arrive(tab, "/replay", ep=listed[-1].id)
    open_palette(tab)
    tab.keyboard.insert_text("no such words anywhere")
    tab.get_by_role("option", name="Go to, or search for: no such words anywhere").wait_for()
    assert not tab.get_by_text("Add: ").count()
    tab.keyboard.press("Enter")
    tab.get_by_text("No page, checkpoint, run or episode is called").wait_for()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")  # shuts the palette and does not leave the replay
    tab.get_by_role("dialog").wait_for(state="detached")
    arrive(tab, "/replay", ep=listed[-1].id)
    words = listed[3].question[:24].rsplit(" ", 1)[0]
    go_to(tab, words)
    link = tab.get_by_role("dialog").get_by_role("link").first
    link.click()
    arrive(tab, "/replay")
    settled(tab)
    assert words.split()[0] in tab.get_by_role("main").inner_text()


def go_to(tab: Page, typed: str) -> None:
    """Open the palette, enter this at once, and press Enter."""
    open_palette(tab)
    tab.keyboard.insert_text(typed)  # each key would have the places that it may mean drawn anew
    tab.keyboard.press("Enter")


def open_palette(tab: Page) -> None:
    """Open the palette, which listens to what is typed."""
    settled(tab)
    tab.locator(f".st-key-{PALETTE} button").first.wait_for()
    tab.keyboard.press("g")
    field = tab.locator(".st-key-palette_choice input")
    field.wait_for()
    tab.wait_for_function("() => document.activeElement?.closest('.st-key-palette_choice')")
    settled(tab)


def press(tab: Page, key: str, path: str, **wanted: str) -> None:
    """A key of the page that leads there. The page may ask its server for something else just then, and lose the key:
    it is pressed again where nothing came of it for a long time."""
    for _ in range(3):
        still(tab)
        browsing.press(tab, key)
        for _ in range(LOST_MS // 100):
            if is_at(tab, path, **wanted):
                break
            tab.wait_for_timeout(100)
        else:
            continue
        break
    arrive(tab, path, **wanted)


def after(ids: list[str], one: str) -> str | None:
    """What comes after one of a list."""
    return dict(pairwise(ids)).get(one)


def in_sight(tab: Page, what: Locator, at_least: int = 1) -> bool:
    """Whether so many pixels of its height lie within the window."""
    box, size = what.bounding_box(), tab.viewport_size
    assert box
    assert size
    seen = min(box["y"] + box["height"], size["height"]) - max(box["y"], 0)
    return box["x"] >= 0 and seen >= min(at_least, box["height"])
