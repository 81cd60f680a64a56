"""Episodes: filters live in the address, pages by keyset, ticks lead to a peek and to a pair."""

from __future__ import annotations

import statistics
import time

import pytest
from playwright.sync_api import Page
from sqlalchemy import event
from streamlit.testing.v1 import AppTest

from storage.store import Store
from storage.summaries import EPISODE_FLAGS
from tests.browsing import settled
from tests.ui.conftest import Served
from tests.ui.pages import opened, opened_in, press, shown
from ui import state
from ui.facets import flag_word

pytestmark = pytest.mark.usefixtures("samples")


def listed(page: AppTest) -> int:
    return len(page.dataframe[0].value)


def test_a_page_holds_fifty_and_the_last_page_the_rest(samples: Store) -> None:
    total = samples.health().episodes
    page = opened("episodes")
    assert listed(page) == 50
    assert f"**{total}** episodes" in shown(page)
    seen = 50
    while not page.button(key="page_next").disabled:
        page.button(key="page_next").click().run()
        seen += listed(page)
    assert seen == total
    page.button(key="page_first").click().run()
    assert listed(page) == 50
    page.button(key="page_last").click().run()
    assert page.query_params["last"] == "1"
    assert page.button(key="page_next").disabled


def test_filters_come_from_the_address_and_go_back_to_it(samples: Store) -> None:
    page = opened("episodes", family="math", correct="right")
    found = listed(page)
    assert 0 < found < 50
    page.button(key="chip_correct").click().run()
    assert "correct" not in page.query_params
    assert page.query_params["family"] == "math"
    assert listed(page) > found
    page.text_input(key="search_text").set_value("zebra crossing").run()
    assert page.query_params["text"] == "zebra crossing"
    assert "No episode matches" in shown(page)
    page.button(key="clear_filters").click().run()
    assert not {"family", "text"} & set(page.query_params)
    assert listed(page) == 50


def test_back_from_a_replay_is_the_page_it_was_opened_from(samples: Store) -> None:
    page = opened("episodes", order="turns")
    press(page, "page_next")
    left = list(page.dataframe[0].value["question"])
    opened_in(page, "replay", ep=samples.episodes.page(limit=1).items[0].id)
    press(page, "back_to_list")
    assert list(page.dataframe[0].value["question"]) == left
    assert page.query_params["order"] == "turns"


def test_a_new_filter_starts_at_the_first_page() -> None:
    page = opened("episodes")
    page.button(key="page_next").click().run()
    assert "after" in page.query_params
    page.selectbox(key="list_order").select("turns").run()
    assert "after" not in page.query_params
    assert page.query_params["order"] == "turns"
    assert list(page.dataframe[0].value["n"]) == sorted(page.dataframe[0].value["n"], reverse=True)


def test_unusable_filters_in_a_link_are_ignored() -> None:
    page = opened("episodes", correct="perhaps", min_turns="many", order="sideways", after="nonsense" * 9)
    assert listed(page) == 50
    assert "cannot be shown" not in shown(page)


def test_ticks_become_a_basket_and_a_peek(samples: Store) -> None:
    def script() -> None:
        import streamlit as st

        from ui.episode_table import tick

        ids = ["e-1", "e-2", "e-3"]
        tick(ids, [1])
        st.text(str((st.session_state["ticked"], st.query_params.get("peek"))))
        tick(ids, [1, 2])
        st.text(str((st.session_state["ticked"], st.query_params.get("peek"))))
        tick(ids, [])
        st.text(str((st.session_state["ticked"], st.query_params.get("peek"))))

    told = [one.value for one in AppTest.from_function(script).run().text]
    assert told == ["(['e-2'], 'e-2')", "(['e-2', 'e-3'], 'e-3')", "([], None)"]


def test_two_ticked_rows_lead_to_the_pair(samples: Store) -> None:
    a, b = (one.id for one in samples.episodes.page(limit=2).items)
    page = opened("episodes")
    page.session_state["ticked"] = [a, b]
    page.run()
    page.button(key="compare_two").click().run()
    assert not page.exception
    assert (page.query_params["a"], page.query_params["b"]) == (a, b)


def test_a_peek_shows_the_question_and_steps_on(samples: Store) -> None:
    first, second = samples.episodes.page(limit=2).items
    page = opened("episodes", peek=first.id)
    assert first.id.replace("-", "\\-") in shown(page)
    page.button(key="peek_down").click().run()
    assert page.query_params["peek"] == second.id
    page.button(key="peek_close").click().run()
    assert "peek" not in page.query_params


def test_the_list_reads_no_turn_text(samples: Store) -> None:
    asked: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    page = opened("episodes", family="math")
    engine = state._opened(samples.url).engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        page.run()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert asked
    assert not [one for one in asked if "FROM text" in one or "body" in one]
    assert len(asked) <= 12


def test_the_list_is_quick(samples: Store) -> None:
    page = opened("episodes")
    times = []
    for _ in range(5):
        began = time.perf_counter()
        page.run()
        times.append(time.perf_counter() - began)
    assert statistics.median(times) < 2.0  # generous: the machine may be busy; the bench measures


@pytest.mark.parametrize("flag", EPISODE_FLAGS)
def test_every_flag_has_words(flag: str) -> None:
    assert flag_word(flag)


def test_a_link_restores_the_list_and_a_click_changes_it(tab: Page, served: Served) -> None:
    tab.goto("/episodes?family=math&correct=wrong")
    tab.locator(".st-key-chip_family button").first.wait_for()
    settled(tab)
    tab.locator(".st-key-chip_correct button").first.click()
    tab.wait_for_url(lambda url: "correct" not in url)
    assert "family=math" in tab.url
    tab.locator(".st-key-facet_correct").get_by_text("right").first.click()
    tab.wait_for_url(lambda url: "correct=right" in url)
    tab.get_by_placeholder("Search questions").fill("what")
    tab.get_by_placeholder("Search questions").press("Enter")
    tab.wait_for_url(lambda url: "text=what" in url)
    settled(tab)
    tab.reload()
    tab.locator(".st-key-chip_text button").first.wait_for()
    assert tab.get_by_placeholder("Search questions").input_value() == "what"
