"""Tables that are given row by row or column by column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig


def column_table(
    columns: Mapping[str, tuple[str | ColumnConfig, Sequence[Any]]], *, key: str, **more: Any
) -> None:
    """A table of columns by name, each with its heading (words or a column configuration) and its values. `more` as in
    `row_table`."""
    values = {name: column for name, (_, column) in columns.items()}
    rows = max(len(column) for column in values.values())
    _show(values, rows, {name: heading for name, (heading, _) in columns.items()}, key=key, **more)


def row_table(
    headings: Mapping[str, str | ColumnConfig], rows: Iterable[Sequence[Any]], *, key: str, **more: Any
) -> None:
    """A table of rows, each with a value for every heading (name -> words or a column configuration), in their order.
    One of `at_most` rows or more scrolls within `height` pixels; the rest of `more` goes to `st.dataframe`."""
    frame = pd.DataFrame(list(rows), columns=list(headings))
    _show(frame, len(frame), headings, key=key, **more)


def _show(
    data: Any,
    rows: int,
    headings: Mapping[str, str | ColumnConfig],
    *,
    key: str,
    at_most: int = 9,
    height: int = 320,
    **more: Any,
) -> None:
    st.dataframe(
        data,
        key=key,
        hide_index=True,
        height="content" if rows < at_most else height,
        column_config=dict(headings),
        **more,
    )


def text(title: str, **look: Any) -> ColumnConfig:
    """A column of words."""
    return st.column_config.TextColumn(title, **look)


def number(title: str, format: str | None = None, **look: Any) -> ColumnConfig:
    """A column of numbers."""
    return st.column_config.NumberColumn(title, format=format, **look)


def link(title: str, words: str, **look: Any) -> ColumnConfig:
    """A column of addresses, each shown as a link with these words, or the part of it that a pattern in them finds."""
    return st.column_config.LinkColumn(title, display_text=words, **look)
