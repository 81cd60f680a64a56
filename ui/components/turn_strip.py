"""The turn strip: one cell per turn, a cursor, and a click that says where to go.

A Streamlit component (version 2, no frame, its own shadow root). State goes down as data, a click comes
up as a trigger. `plain=True` draws the same with Streamlit's own control, for readers and tests without
JavaScript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import streamlit as st

from ui.components import component
from ui.transport import moved

Tone = Literal["good", "bad", "warn", "info", "quiet"]
Shape = Literal["circle", "square", "triangle"]

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


@dataclass(frozen=True, slots=True)
class CellMark:
    """A glyph with its word; the word is always there, in the cell or in its tooltip."""

    glyph: str
    word: str
    tone: Tone = "quiet"


@dataclass(frozen=True, slots=True)
class Cell:
    """One turn as it is drawn. `entropy` is the share of its maximum (0 to 1); `label` says everything
    in words."""

    letter: str
    shape: Shape
    colour: str
    ink: str
    model: str
    answer: CellMark
    label: str
    verdict: CellMark | None = None
    marks: tuple[CellMark, ...] = ()
    entropy: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One episode's cells; None is a gap left by an alignment. `name` is short, such as "A"."""

    cells: tuple[Cell | None, ...]
    name: str = ""


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

    def went() -> None:
        column = st.session_state[key].go
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
        on_go_change=went,
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
    """The same choice as a segmented control; its value follows the cursor, which stays the one owner."""
    widget = f"{key}_plain"
    st.session_state[widget] = cursor if cursor in shown else None

    def went() -> None:
        column = st.session_state[widget]
        if column is not None:
            moved(on_go)(column)

    def words(column: int) -> str:
        cells = [lane.cells[column] if column < len(lane.cells) else None for lane in lanes]
        return " / ".join(_token(cell) for cell in cells)

    st.segmented_control(name, shown, format_func=words, key=widget, on_change=went)


def _token(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    verdict = f" {cell.verdict.glyph}" if cell.verdict else ""
    return f"{cell.letter}{verdict} {cell.answer.glyph}"
