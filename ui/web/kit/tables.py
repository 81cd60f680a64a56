"""Tables that are given row by row or column by column."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

#: What a printf-like format says of the number of decimal places.
_PLACES = re.compile(r"%[+]?\.(\d)f")
#: How high a row is, and the frame around all, in pixels.
ROW_PX, _FRAME_PX = 31, 3


def column_table(
    columns: Mapping[str, tuple[str | ColumnConfig, Sequence[Any]]], *, key: str, **more: Any
) -> None:
    """A table of columns by name, each with its heading (words or a column configuration) and its values. `more` as in
    `row_table`."""
    frame = pd.DataFrame({name: column for name, (_, column) in columns.items()})
    _show(frame, {name: heading for name, (heading, _) in columns.items()}, key=key, **more)


def row_table(
    headings: Mapping[str, str | ColumnConfig], rows: Iterable[Sequence[Any]], *, key: str, **more: Any
) -> None:
    """A table of rows, each with a value for every heading (name -> words or a column configuration), in their order.
    A column that says the same in every row is left out, unless `all_columns` or its name is in `kept`; of fewer than
    `few` rows only one that says nothing. A table of `at_most` rows or more scrolls within `height` pixels; the rest of
    `more` goes to `st.dataframe`."""
    _show(pd.DataFrame(list(rows), columns=list(headings)), headings, key=key, **more)


def _show(
    frame: pd.DataFrame,
    headings: Mapping[str, str | ColumnConfig],
    *,
    key: str,
    all_columns: bool = False,
    kept: Collection[str] = (),
    few: int = 0,
    at_most: int = 9,
    height: int = 320,
    row_height: int = ROW_PX,
    **more: Any,
) -> None:
    frame = _rounded(frame, headings)
    st.dataframe(
        frame if all_columns else frame[_telling(frame, headings, kept, few)],
        key=key,
        hide_index=True,
        # A number, not "content": so much room is there before the table itself is drawn.
        height=height_of(len(frame), row_height) if len(frame) < at_most else height,
        row_height=row_height,
        column_config=dict(headings),
        **more,
    )


def _rounded(frame: pd.DataFrame, headings: Mapping[str, str | ColumnConfig]) -> pd.DataFrame:
    """Numbers that stand between two of their format's places, moved by a hair to the one that all our words round to:
    the browser would round 56.25 up, Python's formats round it down."""
    frame = frame.copy()
    for name in frame.columns:
        heading: Any = headings[name]
        if isinstance(heading, str):
            continue
        if found := _PLACES.search(str(heading["type_config"].get("format"))):
            places = int(found[1])
            frame[name] = [
                math.nextafter(one, round(one, places)) if isinstance(one, float) else one
                for one in frame[name]
            ]
    return frame


def height_of(rows: int, row_height: int = ROW_PX) -> int:
    """How high a table of so many rows and its heading is, in pixels."""
    return (rows + 1) * row_height + _FRAME_PX


def _telling(
    frame: pd.DataFrame, headings: Mapping[str, str | ColumnConfig], kept: Collection[str], few: int
) -> list[str]:
    """The columns that tell rows apart: the first, those that are `kept`, and of several rows those with more than one
    value, of fewer than `few` those with any. A link leads somewhere also where all rows lead to one place."""
    told = []
    for i, name in enumerate(frame.columns):
        heading: Any = headings[name]
        values = frame[name].astype(object).where(frame[name].notna(), "")
        leads = not isinstance(heading, str) and heading["type_config"]["type"] == "link"
        says_something = bool((values != "").any())
        tells = says_something if len(frame) < few else len(frame) < 2 or values.nunique() > 1
        if not i or name in kept or tells or (leads and says_something):
            told.append(name)
    return told


def text(title: str, **look: Any) -> ColumnConfig:
    """A column of words."""
    return st.column_config.TextColumn(title, **look)


def number(title: str, format: str | None = None, **look: Any) -> ColumnConfig:
    """A column of numbers."""
    return st.column_config.NumberColumn(title, format=format, **look)


def link(title: str, words: str, **look: Any) -> ColumnConfig:
    """A column of addresses, each shown as a link with these words, or the part of it that a pattern in them finds."""
    return st.column_config.LinkColumn(title, display_text=words, **look)
