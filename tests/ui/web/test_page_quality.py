"""Every page holds still while it loads, and every text on it can be read: measured in a browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page

from tests.ui.conftest import Served
from tests.ui.page_quality import PHONE, SHIFT, WIDE, addresses, arrive, contrast, load, measure, window


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(("size", "come"), [(WIDE, load), (PHONE, arrive)], ids=["wide", "phone"])
def test_every_page_holds_still_and_can_be_read(
    chromium: Browser, served: Served, size: tuple[int, int], come: Callable[[Page, str], float]
) -> None:
    """In a wide window each page is loaded, on a phone it is come to from the one before."""
    page = window(chromium, "light", size)
    try:
        load(page, served.address)  # the scripts are fetched once
        found = []
        for name, path in addresses(served.store).items():
            # A text has the same colours on a phone.
            how = {"theme": "light", "size": size, "come": come}
            one = measure(page, name, served.address + path, texts=size is WIDE, **how)  # type: ignore[arg-type]
            # What a busy machine draws in pieces moves once; what always moves is a fault of the page.
            again = (
                measure(page, name, served.address + path, texts=False, **how)  # type: ignore[arg-type]
                for _ in range(2)
            )
            shifts = (one, *again) if one.shift >= SHIFT else (one,)
            found.append(replace(one, shift=min(each.shift for each in shifts)))
    finally:
        page.context.close()
    assert {one.page: one.covered for one in found if one.covered} == {}
    assert {one.page: one.faint for one in found if one.faint} == {}
    assert {one.page: (one.shift, one.moved[:3]) for one in found if one.shift >= SHIFT} == {}
