"""A block of foreign text, shown as text or rendered, and cut where it is long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

import streamlit as st

from ui.presentation.rendered import rendered
from ui.presentation.theme import plain
from ui.presentation.words import CUT, HARD_CUT, HARD_LINES, LINES, diff_markdown, word_diff
from ui.web.kit import state
from ui.web.kit.widgets import download, tool

#: No more of a reply is rendered: a page of formulas takes a browser far longer than one of text.
_MOST_RENDERED = 30_000
#: How replies are shown, as the address says it -> its words.
_LOOKS = {"text": "As text", "rendered": "Rendered"}


def text_block(body: str, *, key: str, empty: str = "Nothing was said.", look: str = "text") -> None:
    """Show foreign text as text or, with the `look` "rendered", with its Markdown and LaTeX drawn, in a frame of its
    own that says whose text it is. A long one is cut, with its size and a button that shows more."""
    if not body:
        st.caption(empty)
        return
    is_text = look != "rendered"
    short = beginning(body, CUT, LINES)
    long = beginning(body, HARD_CUT if is_text else _MOST_RENDERED, HARD_LINES)
    more = st.session_state.get(f"{key}_all", False)
    shown = long if more else short
    with st.container(key=f"words_{key}"):
        height: int | Literal["content"] = "content" if len(shown) == len(short) else 640
        if is_text:
            _as_text(shown, height)
        else:
            _as_meant(key, shown, height)
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


def diff_block(before: str, after: str, *, key: str, sides: tuple[str, str] = ("removed", "added")) -> None:
    """Show what changed from one foreign text to another, in the text itself; `sides` say what its two marks mean."""
    parts = word_diff(before, after)
    if not parts:
        st.caption("Both say nothing.")
        return
    marks = diff_markdown([("removed", sides[0]), ("both", " "), ("added", sides[1])])
    st.markdown(marks)
    with st.container(border=True, key=f"diff_{key}"):
        st.markdown(diff_markdown(parts))
    if max(len(before), len(after)) > CUT:
        st.caption(f"Compared up to {CUT:,} characters.")


def choose_look(key: str) -> str:
    """How replies are shown on a page without other views of a turn; the choice stands in the address."""
    return state.address_select("How replies are shown", _LOOKS, name="look", key=key)


def _as_text(shown: str, height: int | Literal["content"]) -> None:
    st.code(plain(shown), language=None, wrap_lines=True, height=height)


def _as_meant(key: str, shown: str, height: int | Literal["content"]) -> None:
    markdown = rendered(shown)
    if markdown is None:
        st.caption("Its lists or quotes are nested too deeply to be rendered: this is its text.")
        _as_text(shown, height)
        return
    with st.container(border=True, height=height, key=f"rendered_{key}"):
        st.caption(
            ":material/format_quote: The model's own words, rendered",
            help="Markdown and LaTeX are drawn. Links and images are shown as their address, HTML as text, and nothing "
            "is fetched. A formula that is too large, or uses commands that are not known, is shown as its source.",
        )
        st.markdown(markdown)


def beginning(body: str, characters: int, lines: int) -> str:
    """The start of a text, of at most so many characters and lines."""
    return "".join(body[:characters].splitlines(keepends=True)[:lines])


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> None:
    """A small table of cells in markdown. `align` has a letter for each column: l left, r right."""
    rules = [{"l": ":--", "r": "--:"}[side] for side in align]
    st.markdown("\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows)))
