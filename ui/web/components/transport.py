"""Where a reader is among turns, and how they move: the strip with a cell per turn, and the transport, which steps
and plays by button and by key, at the pace of the text.

The strip is a Streamlit component (version 2, no frame, its own shadow root). State goes down as data, a click comes
up as a trigger. `plain=True` draws a control of Streamlit's own instead, for readers and tests without JavaScript.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.presentation.course import Lane, StripCell
from ui.web.components import component, key_focus
from ui.web.kit import state
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import tool

SPEEDS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)

#: Keys and what they do, as a help sheet lists them.
Keys = tuple[tuple[str, str], ...]

_PLAYING, _SPEED, _DUE, _RECENT = "replay_playing", "replay_speed", "replay_due", "replay_recent"

#: For so many seconds a browser may still report a step of the playing itself.
_STALE_S = 2.5


def keys_of(noun: str, *own: tuple[str, str]) -> Keys:
    """Every key of a page that steps through `noun`s: those of the transport and the page's own."""
    return (
        ("J  or  →", f"next {noun}"),
        ("K  or  ←", f"previous {noun}"),
        ("Home / End", f"first / last {noun}"),
        ("Space", "play or pause"),
        *own,
        ("H", "this help"),
    )


def dwell_s(characters: int, speed: float) -> float:
    """How long a turn stays while playing, in seconds: 0.6 s plus reading time, 6 s at most, by speed."""
    return min(6.0, 0.6 + characters / 900) / speed


def playing(what: str) -> bool:
    """Whether this episode, or this pair, is playing."""
    return st.session_state.get(_PLAYING) == what


def stop() -> None:
    """Stop playing; every step by hand does."""
    st.session_state[_PLAYING] = None


def by_hand(go: Callable[[int], None]) -> Callable[[int], None]:
    """A step that a reader takes: it stops the playing."""

    def step(to: int) -> None:
        stop()
        go(to)

    return step


def from_widget(go: Callable[[int], None]) -> Callable[[int], None]:
    """A step that a widget with a value reports, such as a slider. A place where playing itself was a moment ago does
    not count: a browser that has not yet heard of the newest step sends the one before, and that must neither stop the
    playing nor take it back."""

    def step(to: int) -> None:
        since = time.monotonic() - _STALE_S
        if all(place != to or at < since for place, at in st.session_state.get(_RECENT, ())):
            by_hand(go)(to)

    return step


def step_buttons(cursor: int, total: int, go: Callable[[int], None], keys: Keys) -> None:
    """Back, next and the sheet of keys as buttons with words, in the row that the caller has opened."""
    step_keys(cursor, total, go)
    help_button(keys)


def step_keys(cursor: int, total: int, go: Callable[[int], None]) -> None:
    """Back and next, keys K and J."""
    for words, key, shortcut, to in (
        ("Back", "step_back", "K", cursor - 1),
        ("Next", "step_next", "J", cursor + 1),
    ):
        tool(words, key, partial(by_hand(go), to), shortcut=shortcut, disabled=not 0 <= to < total)


def turn_field(cursor: int, total: int, go: Callable[[int], None]) -> None:
    """A field that goes to a turn by its number, for episodes whose strip shows only a part of the turns."""
    st.session_state["go_to"] = cursor + 1

    def entered() -> None:
        if (number := state.entered("go_to")) is not None:
            from_widget(go)(int(number) - 1)

    st.number_input(
        "Go to turn",
        1,
        total,
        key="go_to",
        label_visibility="collapsed",
        width=130,
        help=f"Any turn from 1 to {total:,}",
        on_change=entered,
    )


def help_button(keys: Keys, key: str = "help", shortcut: str | None = "H") -> None:
    """The button that shows a page's keys; a second one of a page has a `key` of its own and no `shortcut`."""
    if tool("Keys", key, icon="keyboard", shortcut=shortcut):
        _help(keys)


@st.dialog("Keys", on_dismiss="rerun")
def _help(keys: Keys) -> None:
    key_table(keys)
    st.caption("Keys do nothing while you type in a field.")
    plain_strip_toggle("plain_strip_choice")


def key_table(keys: Keys) -> None:
    markdown_table(("Key", ""), [(f"**{key}**", what) for key, what in keys], "ll")


def plain_strip_toggle(key: str, help: str | None = None) -> None:
    """Whether turn strips are drawn plainly in this tab, as a switch."""
    st.toggle(
        "Simple turn strip",
        key=key,
        value=bool(st.session_state.get("plain_strip", False)),
        help=help,
        on_change=lambda: st.session_state.update(plain_strip=bool(state.entered(key))),
    )


def _play(what: str, cursor: int, total: int, go: Callable[[int], None]) -> None:
    """Play; from the start when at the end. Like `stop` it sets a state and does not toggle one: a click that arrives
    twice, once with the playing's own rerun, must not undo itself."""
    if playing(what):
        return
    st.session_state[_PLAYING] = what
    st.session_state.pop(_DUE, None)
    if cursor >= total - 1:
        go(0)


def transport(
    what: str,
    cursor: int,
    total: int,
    go: Callable[[int], None],
    noun: str = "Turn",
    where: str | None = None,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """The bar at the foot of the page. `go(index)` moves the cursor over the `noun`s of `what`, an episode, a pair
    or an evolution; `cursor` is 0-based. `where` says the place where that is not `Turn 1 of 5`. `before` and `after`
    draw what else stands in the bar; a page with an `after` draws `speed_choice` in it."""
    step = by_hand(go)
    first, last = cursor <= 0, cursor >= total - 1
    with bar():
        if before is not None:
            before()
        for words, key, icon, shortcut, to, disabled in (
            # At the first turn too a reader can stop the playing by going there.
            ("First", "go_first", "first_page", "Home", 0, first and not playing(what)),
            ("Previous", "go_back", "chevron_left", "Left", cursor - 1, first),
            ("Next", "go_next", "chevron_right", "Right", cursor + 1, last),
            ("Last", "go_last", "last_page", "End", total - 1, last),
        ):
            if words == "Next":
                play = partial(_play, what, cursor, total, go)
                name, sign, act = ("Pause", "pause", stop) if playing(what) else ("Play", "play_arrow", play)
                tool(name, "go_play", act, icon=sign, type="primary", shortcut="Space", disabled=total < 2)
            # An icon with its words in the tooltip, so that the whole bar fits a phone.
            look = {"type": "secondary", "shortcut": shortcut, "help": f"{words} {noun.lower()}"}
            tool("", key, partial(step, to), icon=icon, disabled=disabled, **look)
        if after is None:
            speed_choice()
        st.caption(where or f"{noun} {cursor + 1} of {total}", width="content")
        if after is not None:
            after()


def bar() -> DeltaGenerator:
    """The row at the foot of the page, which stays in sight."""
    key_focus("tools_transport")
    return st.bottom.container(
        horizontal=True,
        horizontal_alignment="center",
        vertical_alignment="center",
        gap="small",
        key="tools_transport",
    )


def speed_choice() -> None:
    """How fast turns are played."""
    st.segmented_control(
        "Speed",
        SPEEDS,
        key=_SPEED,
        default=1.0,
        required=True,
        format_func=lambda value: f"{value:g}×",
        label_visibility="collapsed",
        persist_state="session",
    )


def autoplay(what: str, cursor: int, total: int, characters: int, go: Callable[[int], None]) -> None:
    """While playing: wait out this turn's dwell in a small fragment of its own, then go on and run the page again."""
    if not playing(what):
        return
    wait = dwell_s(characters, float(st.session_state.get(_SPEED) or 1.0))
    now = time.monotonic()
    recent = [one for one in st.session_state.get(_RECENT, ()) if one[1] > now - 2 * _STALE_S]
    st.session_state[_RECENT] = [*(one for one in recent if one[0] != cursor), (cursor, now)]
    due = st.session_state.get(_DUE)
    if due is None or due[0] != cursor:
        st.session_state[_DUE] = (cursor, time.monotonic() + wait)

    def advance() -> None:
        due = st.session_state.get(_DUE)
        if not playing(what) or due is None or due[0] != cursor or time.monotonic() < due[1] - 0.05:
            return
        st.session_state.pop(_DUE, None)
        if cursor < total - 1:
            go(cursor + 1)
        if cursor >= total - 2:  # it has come to the last: who goes back from there is not taken on again
            stop()
        st.rerun()

    st.fragment(advance, run_every=wait, key="replay_tick")()


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
