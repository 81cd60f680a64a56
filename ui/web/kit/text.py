"""A block of foreign text, shown as text and cut where it is long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

import streamlit as st

from ui.presentation.theme import plain
from ui.presentation.words import CUT, HARD_CUT, HARD_LINES, LINES
from ui.web.kit.buttons import tool
from ui.web.kit.widgets import download


def text_block(body: str, *, key: str, empty: str = "Nothing was said.") -> None:
    """Show foreign text as text. A long one is cut, with its size and a button that shows more."""
    if not body:
        st.caption(empty)
        return
    short, long = beginning(body, CUT, LINES), beginning(body, HARD_CUT, HARD_LINES)
    more = st.session_state.get(f"{key}_all", False)
    shown = long if more else short
    height: int | Literal["content"] = "content" if len(shown) == len(short) else 640
    st.code(plain(shown), language=None, wrap_lines=True, height=height)
    if len(shown) == len(body):
        return
    if not more:
        words = f"Show {'all' if len(long) == len(body) else 'more of'} {len(body):,} characters"
        tool(words, f"{key}_more", partial(st.session_state.update, {f"{key}_all": True}))
        return
    st.caption(f"The first {len(shown):,} of {len(body):,} characters.")
    words = f"Save all {len(body):,} characters as a text file"
    data = partial(body.encode, "utf-8", "replace")
    download(words, data, "text.txt", "text/plain", key=f"{key}_save", type="tertiary")


def beginning(body: str, characters: int, lines: int) -> str:
    """The start of a text, of at most so many characters and lines."""
    return "".join(body[:characters].splitlines(keepends=True)[:lines])


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> None:
    """A small table of cells in markdown. `align` has a letter for each column: l left, r right."""
    rules = [{"l": ":--", "r": "--:"}[side] for side in align]
    st.markdown("\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows)))
