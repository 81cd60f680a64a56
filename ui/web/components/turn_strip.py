"""The turn strip: one cell per turn, a cursor, and a click that says where to go.

A Streamlit component (version 2, no frame, its own shadow root). State goes down as data, a click comes
up as a trigger. `plain=True` draws a control of Streamlit's own instead, for readers and tests without
JavaScript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import streamlit as st

from ui.presentation.course import Lane, StripCell
from ui.web.components import component
from ui.web.components.transport import from_widget
from ui.web.kit import state

#: Above this many columns the cells lose their words and keep shape, letter and marks.
COMPACT_ABOVE = 24
#: Above this many columns only those around the cursor are drawn.
WINDOW = 200

_HTML = """
<div class="strip">
  <div class="lanes" role="group"></div>
  <div class="said" role="status" aria-live="polite"></div>
</div>
"""


def turn_strip(
    lanes: Sequence[Lane],
    cursor: int,
    on_go: Callable[[int], None],
    *,
    key: str,
    name: str = "Turns",
    said: str = "",
    plain: bool = False,
) -> None:
    """Draw the lanes with the cursor on column `cursor` (0-based); a click calls `on_go(column)` before
    the rerun. `said` is announced to screen readers whenever it changes."""
    columns = max((len(lane.cells) for lane in lanes), default=0)
    shown = window(columns, cursor)
    if plain:
        _plain_strip(lanes, shown, cursor, on_go, key=key, name=name)
        return

    def clicked() -> None:
        column = state.reported(key, "go")
        if isinstance(column, int) and 0 <= column < columns:
            on_go(column)

    component("turn_strip", _HTML)(
        key=key,
        data={
            "lanes": [asdict(replace(lane, cells=lane.cells[shown.start : shown.stop])) for lane in lanes],
            "first": shown.start,
            "cursor": cursor,
            "name": name,
            "said": said,
            "compact": columns > COMPACT_ABOVE,
        },
        on_go_change=clicked,
    )
    if len(shown) < columns:
        st.caption(f"Turns {shown.start + 1:,} to {shown.stop:,} of {columns:,}.")


def window(columns: int, cursor: int) -> range:
    """The columns that are drawn: all, or WINDOW of them with the cursor in the middle. It moves in steps of a quarter,
    so that most steps leave it where it is."""
    if columns <= WINDOW:
        return range(columns)
    step = WINDOW // 4
    first = (max(0, min(cursor, columns - 1)) - WINDOW // 2) // step * step
    first = max(0, min(first, columns - WINDOW))
    return range(first, first + WINDOW)


def _plain_strip(
    lanes: Sequence[Lane], shown: range, cursor: int, on_go: Callable[[int], None], *, key: str, name: str
) -> None:
    """The strip as a segmented control; its value follows the cursor, which stays the only owner of the position."""
    widget = f"{key}_plain"
    st.session_state[widget] = cursor if cursor in shown else None

    def clicked() -> None:
        column = state.entered(widget)
        if column is not None:
            from_widget(on_go)(column)

    def words(column: int) -> str:
        cells = [lane.cells[column] if column < len(lane.cells) else None for lane in lanes]
        return " / ".join(_cell_words(cell) for cell in cells)

    st.segmented_control(name, shown, format_func=words, key=widget, on_change=clicked)


def _cell_words(cell: StripCell | None) -> str:
    if cell is None:
        return "–"
    verdict = f" {cell.verdict.glyph}" if cell.verdict else ""
    return f"{cell.letter}{verdict} {cell.answer.glyph}"
