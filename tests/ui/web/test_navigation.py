"""Ways through the app in a real browser: lists that are carried along, Back, Esc, the drawer, unknown addresses."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, Position

from storage.filters.episode_filter import EpisodeFilter
from tests import browsing
from tests.browsing import arrive, at, is_at, settled, still, visit
from tests.ui.conftest import Served
from tests.ui.web.test_clicks import click_highest

PHONE = {"width": 390, "height": 844}
#: A key from which nothing comes for so many milliseconds was lost.
LOST_MS = 20_000


def test_a_row_of_a_filtered_list_carries_the_list_along(same_tab: Page, served: Served) -> None:
    tab = same_tab
    listed = [one.id for one in served.store.episodes.page(EpisodeFilter(correct="wrong"), limit=50).items]
    everything = [one.id for one in served.store.episodes.page(EpisodeFilter(), limit=50).items]
    assert listed[:3] != everything[:3]
    at(tab, "/episodes?correct=wrong")
    table = tab.get_by_test_id("stDataFrame")
    link: Position = {"x": 58, "y": 52}  # in the first row; it opens once the pointer is over it
    table.hover(position=link)
    tab.wait_for_timeout(500)
    table.click(position=link)  # in this tab, as every link
    replay = tab
    arrive(replay, "/replay", ep=listed[0])
    still(replay)
    replay.go_back()
    arrive(replay, "/episodes", correct="wrong")
    still(replay)
    replay.go_forward()
    arrive(replay, "/replay", ep=listed[0])
    still(replay)
    for episode in listed[1:3]:
        press(replay, "n", "/replay", ep=episode)
    replay.reload()
    press(replay, "p", "/replay", ep=listed[1])
    left = replay.url
    press(replay, "Escape", "/episodes", correct="wrong")
    replay.locator(".st-key-chip_correct").wait_for()
    still(replay)
    replay.go_back()
    replay.wait_for_url(left)
    arrive(replay, "/replay", ep=listed[1])
    replay.locator(".strip button").first.wait_for()


def test_one_back_returns_to_the_page_as_it_was_left(same_tab: Page, served: Served) -> None:
    # By a button, by a click in the strip of a peek: each is one step. So are the key of the button back to the list,
    # above, and a click in a chart, in test_clicks.py.
    tab = same_tab
    one = served.store.episodes.page(EpisodeFilter(correct="wrong", min_turns=3)).items[0].id
    for address, button, there in (
        (f"/replay?ep={one}&t=3", ".st-key-fork_here button", "/forks"),
        (f"/episodes?correct=wrong&peek={one}", ".strip button", "/replay"),
    ):
        at(tab, address)
        left = tab.url
        tab.locator(button).first.click()
        arrive(tab, there)
        tab.go_back()
        tab.wait_for_url(left)
        settled(tab)
        assert tab.url == left


def test_what_the_app_does_by_itself_is_no_step_back(same_tab: Page, served: Served) -> None:
    tab = same_tab
    one = served.store.episodes.page(EpisodeFilter(min_turns=3)).items[0]
    begin = str(one.turns - 2)
    at(tab, f"/replay?ep={one.id}&t={begin}")
    steps: int = tab.evaluate("history.length")
    tab.keyboard.press(" ")  # plays to the last turn, over the one before it
    arrive(tab, "/replay", t=str(one.turns))
    assert tab.evaluate("history.length") == steps + 1
    tab.go_back()
    arrive(tab, "/replay", t=begin)


def test_esc_in_a_field_leaves_the_field_and_not_the_page(same_tab: Page, served: Served) -> None:
    tab = same_tab
    one = served.store.episodes.page(EpisodeFilter(min_turns=3)).items[0]
    at(tab, f"/replay?ep={one.id}&t=1")
    tab.locator(".st-key-jump button").first.click()
    field = tab.locator(".st-key-find input")
    field.click()
    field.press_sequentially("the")
    tab.keyboard.press("Enter")
    arrive(tab, "/replay", find="the")
    tab.keyboard.press("Escape")
    field.wait_for(state="hidden")  # the menu is shut
    arrive(tab, "/replay", find="the")
    press(tab, "Escape", "/episodes")


def test_the_drawer_is_closed_when_a_page_is_chosen(same_tab: Page, served: Served) -> None:
    tab = same_tab
    tab.set_viewport_size(PHONE)  # type: ignore[arg-type]
    at(tab, "/")
    drawer = tab.get_by_test_id("stSidebar")
    tab.get_by_test_id("stExpandSidebarButton").click()
    drawer.get_by_role("link", name="Glossary").click()
    tab.wait_for_url("**/glossary")
    closed = tab.locator('[data-testid="stSidebar"][data-collapsed="true"]')
    closed.wait_for(state="attached")
    assert in_sight(tab, tab.get_by_role("heading", name="Glossary").first)
    tab.get_by_test_id("stExpandSidebarButton").click()
    tab.locator('[data-testid="stSidebar"][data-collapsed="false"]').wait_for()
    tab.reload()
    closed.wait_for(state="attached")


def test_filters_leave_no_empty_bar_behind(same_tab: Page, served: Served) -> None:
    tab = same_tab
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


def test_an_unknown_address_is_said_to_be_none(same_tab: Page, served: Served) -> None:
    tab = same_tab
    tab.goto("/nosuchpage")
    tab.get_by_text("There is no page /nosuchpage").wait_for()
    settled(tab)
    assert not tab.get_by_role("dialog").count()
    tab.get_by_test_id("stMain").get_by_role("link", name="Home").click()
    tab.get_by_text("Why did the coordinator do that?").wait_for()
    assert not tab.get_by_text("There is no page").count()
    tab.goto("/home")
    tab.get_by_text("Why did the coordinator do that?").wait_for()
    settled(tab)
    assert not tab.get_by_role("dialog").count()


def test_what_a_click_on_a_chart_lists_comes_into_sight(same_tab: Page, served: Served) -> None:
    tab = same_tab
    wide = {"width": 1280, "height": 720}
    for size, chart, listed in (
        (wide, "verifier_false_accept", "accepted_wrong"),
        (PHONE, "verifier_false_revise", "revised_right"),
    ):
        tab.set_viewport_size(size)  # type: ignore[arg-type]
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


def test_back_takes_what_was_opened_on_a_page_away_again(same_tab: Page, served: Served) -> None:
    tab = same_tab
    at(tab, "/checkpoints")
    before = tab.url
    tab.locator(".st-key-choose_cell").get_by_text("won by B").click()
    tab.wait_for_url("**cell=only_b*")
    settled(tab)
    tab.go_back()
    tab.wait_for_url(before)


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


def in_sight(tab: Page, what: Locator, at_least: int = 1) -> bool:
    """Whether so many pixels of its height lie within the window."""
    box, size = what.bounding_box(), tab.viewport_size
    assert box
    assert size
    seen = min(box["y"] + box["height"], size["height"]) - max(box["y"], 0)
    return box["x"] >= 0 and seen >= min(at_least, box["height"])


def test_nothing_that_a_page_asks_for_is_missing(tab: Page, served: Served) -> None:
    # Streamlit's script looks for its server below the page's own address first, unless it is told.
    episode = served.store.episodes.page(limit=1).items[0].id
    missing: list[str] = []
    tab.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
    tab.goto(f"/replay?ep={episode}")
    still(tab)
    at(tab, "/episodes?correct=wrong")  # what only a list needs is fetched now
    assert missing == []
