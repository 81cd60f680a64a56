"""Every page holds still while it loads, and every text on it can be read: measured in a browser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from tests.browsing import watch
from tests.ui.conftest import Served
from tests.ui.page_quality import (
    COVERED,
    PHONE,
    SHIFT,
    WIDE,
    addresses,
    contrast,
    drawn,
    load,
    measure,
    window,
)

#: What shimmers or turns while a page is computed moves nothing, and is most of what a browser draws meanwhile.
STEADY = """
const steady = new CSSStyleSheet();
steady.replaceSync("[data-testid=stSkeleton], [data-testid=stSkeleton] *, [data-testid=stStatusWidget] * {"
  + " animation: none !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, steady];
"""


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


def test_every_page_holds_still_and_can_be_read(chromium: Browser, served: Served) -> None:
    """Each page is loaded once, in a wide window, within its own policy, and then one with figures is looked at as on a
    phone."""
    page = window(chromium, "light", WIDE)
    page.context.add_init_script(STEADY)
    trouble = watch(page)
    try:
        load(page, served.address)  # the scripts are fetched once
        found = []
        for name, path in addresses(served.store).items():
            one = measure(page, name, served.address + path, "light", WIDE)
            trouble += page.get_by_test_id("stException").all_inner_texts()
            trouble += page.get_by_text("This view cannot be shown").all_inner_texts()
            covered = one.covered
            if page.locator(".js-plotly-plot").count():  # nothing else has a tool bar
                page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
                drawn(page)
                covered = (*covered, *page.evaluate(COVERED))
            # What a busy machine draws in pieces moves once; what always moves is a fault of the page.
            again = (measure(page, name, served.address + path, "light", WIDE, texts=False) for _ in range(2))
            shifts = (one, *again) if one.shift >= SHIFT else (one,)
            found.append(replace(one, covered=covered, shift=min(each.shift for each in shifts)))
    finally:
        page.context.close()
    assert trouble == []
    assert {one.page: one.covered for one in found if one.covered} == {}
    assert {one.page: one.faint for one in found if one.faint} == {}
    assert {one.page: (one.shift, one.moved[:3]) for one in found if one.shift >= SHIFT} == {}
