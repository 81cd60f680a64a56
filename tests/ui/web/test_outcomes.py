"""Does a click on the grid of an outcome table lead to its questions, and one on a question to all replies?"""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.ui.conftest import Served

#: How far down a row of a table is, in pixels, and where a row begins that a click hits.
ROW_PX, INTO_PX = 31, 150


def test_from_a_cell_to_its_questions_to_all_replies_and_back(served: Served, tab: Page) -> None:
    tab.goto(f"{served.address}/outcomes?table=small")
    known = tab.get_by_role("heading", name="What does each model know?")
    expect(known).to_be_visible()
    # The rows are models, the columns all, law and physics: the first row's second cell. Of the pictures of a page a
    # later one may be drawn before the first.
    cell = tab.locator("[class*=st-key-outcomes_known] .scatterlayer .text text").nth(1)
    cell.wait_for()
    place = cell.bounding_box()
    assert place is not None
    tab.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    listed = tab.get_by_role("heading", name="Which questions are these?")
    expect(listed).to_be_visible()
    expect(tab.get_by_text("Every question: 30 questions of law.")).to_be_visible()
    assert "domain=law" in tab.url
    table = tab.get_by_test_id("stDataFrame").first
    frame = table.bounding_box()
    assert frame is not None
    tab.mouse.click(frame["x"] + INTO_PX, frame["y"] + 1.5 * ROW_PX)
    opened = tab.get_by_role("heading", name="What did they say?")
    expect(opened).to_be_visible()
    expect(tab.get_by_text("bob thinks about it.")).to_be_visible()
    assert "task=small-" in tab.url
    tab.reload()
    expect(opened).to_be_visible()
    tab.go_back()
    expect(listed).to_be_visible()
    tab.go_back()
    expect(known).to_be_visible()
