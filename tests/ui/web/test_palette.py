"""The palette: from every page one key leads to any page, checkpoint, run or episode."""

from __future__ import annotations

from playwright.sync_api import Page

from storage.filters.episode_filter import EpisodeFilter
from tests.browsing import arrive, at, settled
from tests.builders.sample_store import checkpoint
from tests.ui.conftest import Served
from ui.web.pickers.palette import PALETTE, Place, called

PLACES: dict[str, Place] = {
    "page policy": ("Policy diff", "policy", {}),
    "run r2": ("Run r2: batch run, verified", "episodes", {"run": "r2"}),
    "page verifier": ("Verifier & cost", "verifier", {}),
    "checkpoint c1": ("Checkpoint gen 4 (c1)", "episodes", {"policy": "c1"}),
    "checkpoint c2": ("Checkpoint gen 40 (c2)", "episodes", {"policy": "c2"}),
    "run r1": ("Run r1: evolution, gen 4 and on", "evolution", {"run": "r1"}),
    "episode e1": ("Episode e1: Which gen 40 policy is best? · right", "replay", {"ep": "e1"}),
}


def test_what_was_typed_names_places_by_whole_words() -> None:
    def keys(typed: str) -> list[str]:
        return [key for key, place in PLACES.items() if place in called(typed, PLACES)]

    assert keys("policy DIFF") == ["page policy"]
    assert keys("gen 40") == ["checkpoint c2"], "an episode's question is no name"
    assert keys("e1") == ["episode e1"]
    assert keys("nothing (of [this") == []
    assert keys("enera") == [], "a word's middle is no beginning"
    assert keys(" ") == keys("") == []


def test_enter_takes_the_first_which_is_a_page_where_one_begins_so() -> None:
    def first(typed: str) -> list[str]:
        return [place[0] for place in called(typed, PLACES)]

    assert first("gen 4") == [
        "Checkpoint gen 4 (c1)",
        "Run r1: evolution, gen 4 and on",
        "Checkpoint gen 40 (c2)",
    ]
    assert first("pol") == first("DIF") == ["Policy diff"]
    assert first("verif") == ["Verifier & cost", "Run r2: batch run, verified"]
    assert first("r2")[0] == "Run r2: batch run, verified"


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
