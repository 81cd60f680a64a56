"""Tables: what is the same in every row is left out."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from streamlit.testing.v1 import AppTest

from ui.presentation.theme import percent

pytestmark = pytest.mark.integration


def test_a_column_that_tells_no_rows_apart_is_left_out() -> None:
    def page() -> None:
        from ui.web.kit.tables import link, number, row_table, text

        headings = {
            "name": text("Name"),
            "cost": text("Cost"),
            "n": number("Episodes"),
            "none": number("Lost"),
            "margin": number("Margin"),
            "open": link("Open", "List"),
        }
        rows = [("sage", "free", 3, None, None, "/episodes"), ("pip", "free", 4, None, 0.5, "/episodes")]
        row_table(headings, rows, key="two")
        row_table(headings, rows, key="all", all_columns=True)
        row_table(headings, rows[:1], key="one")
        row_table(headings, rows, key="kept", kept=("cost",))
        row_table(headings, rows, key="few", few=3)

    two, everything, one, kept, few = AppTest.from_function(page).run().dataframe
    assert list(two.value) == ["name", "n", "margin", "open"], "a link leads somewhere all the same"
    assert list(everything.value) == list(one.value) == ["name", "cost", "n", "none", "margin", "open"]
    assert list(kept.value) == ["name", "cost", "n", "margin", "open"]
    assert list(few.value) == ["name", "cost", "n", "margin", "open"], (
        "of few rows only what is empty is left out"
    )


def test_a_number_between_two_is_rounded_as_everywhere_else() -> None:
    def page() -> None:
        from ui.web.kit.tables import number, row_table, text

        headings = {"name": text("Name"), "right": number("Right", "%.1f %%"), "n": number("n", "localized")}
        row_table(headings, [("sage", 56.25, 3), ("pip", None, 4), ("jack", 18.75, 5)], key="rounded")

    table = AppTest.from_function(page).run().dataframe[0].value
    seen = [
        Decimal(one).quantize(Decimal("0.1"), ROUND_HALF_UP) for one in table["right"].dropna()
    ]  # by a browser
    assert [f"{one} %" for one in seen] == [percent(54 / 96), percent(18 / 96)]
