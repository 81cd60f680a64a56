"""The transport: stepping and playing through a replay by button and by key, at the pace of the text."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

SPEEDS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)

#: Keys and what they do, as a help sheet lists them.
Keys = tuple[tuple[str, str], ...]

_PLAYING, _SPEED, _DUE, _LATELY = "replay_playing", "replay_speed", "replay_due", "replay_lately"

#: So long a browser may still report where playing was, in seconds.
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
    """How long a turn stays while playing, in seconds: 0.6 s plus reading time, between 0.6 s and 6 s,
    by speed."""
    return min(6.0, max(0.6, 0.6 + characters / 900)) / speed


def playing(what: str) -> bool:
    """Is this episode, or this pair, playing?"""
    return st.session_state.get(_PLAYING) == what


def stop() -> None:
    """Stop playing; every step by hand does."""
    st.session_state[_PLAYING] = None


def speed() -> float:
    """The reader's speed, 1 unless chosen."""
    return float(st.session_state.get(_SPEED) or 1.0)


def by_hand(go: Callable[[int], None]) -> Callable[[int], None]:
    """A step that a reader takes: it stops the playing."""

    def step(to: int) -> None:
        stop()
        go(to)

    return step


def moved(go: Callable[[int], None]) -> Callable[[int], None]:
    """A step that a widget with a value (a slider) reports. Where playing itself was a moment ago is none: a browser
    that has not yet heard of the newest step sends the one before, and that must neither stop the playing nor take it
    back."""

    def step(to: int) -> None:
        since = time.monotonic() - _STALE_S
        if all(place != to or at < since for place, at in st.session_state.get(_LATELY, ())):
            by_hand(go)(to)

    return step


def steps(cursor: int, total: int, go: Callable[[int], None], keys: Keys) -> None:
    """Back, next and the sheet of keys as buttons with words, in the row that the caller has opened."""
    for words, key, shortcut, to in (
        ("Back", "step_back", "K", cursor - 1),
        ("Next", "step_next", "J", cursor + 1),
    ):
        st.button(
            words,
            key=key,
            shortcut=shortcut,
            type="tertiary",
            disabled=not 0 <= to < total,
            on_click=by_hand(go),
            args=(to,),
        )
    help_button(keys)


def turn_field(cursor: int, total: int, go: Callable[[int], None]) -> None:
    """Straight to a turn by its number, where the strip shows only those around."""
    st.session_state["go_to"] = cursor + 1
    st.number_input(
        "Go to turn",
        1,
        total,
        key="go_to",
        label_visibility="collapsed",
        width=130,
        help=f"Any turn from 1 to {total:,}",
        on_change=lambda: moved(go)(int(st.session_state["go_to"]) - 1),
    )


def help_button(keys: Keys) -> None:
    """The button, key H, that shows a page's keys."""
    if st.button("Keys", key="help", icon=":material/keyboard:", shortcut="H", type="tertiary"):
        _help(keys)


@st.dialog("Keys", on_dismiss="rerun")
def _help(keys: Keys) -> None:
    st.markdown("\n".join(["| Key | |", "|:--|:--|", *(f"| **{key}** | {what} |" for key, what in keys)]))
    st.caption("Keys rest while you type in a field.")
    st.toggle(
        "Plain turn strip, without the component",
        key="plain_strip_choice",
        value=bool(st.session_state.get("plain_strip", False)),
        on_change=_choose_plain,
    )


def _choose_plain() -> None:
    st.session_state["plain_strip"] = st.session_state["plain_strip_choice"]


def _play(what: str, cursor: int, total: int, go: Callable[[int], None]) -> None:
    """Play; from the start when at the end. Like `stop` it says what shall be, not what shall change: a click that
    comes in twice, once with the playing's own rerun, must not undo itself."""
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
) -> None:
    """The bar at the foot of the page. `go(index)` moves the cursor over the `noun`s of `what`, an episode, a pair
    or an evolution; `cursor` is 0-based. `where` says where it is, when not `Turn 1 of 5`."""
    step = by_hand(go)
    first, last = cursor <= 0, cursor >= total - 1
    with (
        st.bottom,
        st.container(
            horizontal=True,
            horizontal_alignment="center",
            vertical_alignment="center",
            gap="small",
            key="tools_transport",
        ),
    ):
        _step_button(f"First {noun.lower()}", "go_first", ":material/first_page:", "Home", step, 0, first)
        _step_button(
            f"Previous {noun.lower()}", "go_back", ":material/chevron_left:", "Left", step, cursor - 1, first
        )
        st.button(
            "Pause" if playing(what) else "Play",
            key="go_play",
            icon=":material/pause:" if playing(what) else ":material/play_arrow:",
            shortcut="Space",
            type="primary",
            on_click=stop if playing(what) else _play,
            args=() if playing(what) else (what, cursor, total, go),
            disabled=total < 2,
        )
        _step_button(
            f"Next {noun.lower()}", "go_next", ":material/chevron_right:", "Right", step, cursor + 1, last
        )
        _step_button(f"Last {noun.lower()}", "go_last", ":material/last_page:", "End", step, total - 1, last)
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
        st.caption(where or f"{noun} {cursor + 1} of {total}")


def _step_button(
    words: str, key: str, icon: str, shortcut: str, step: Callable[[int], None], to: int, disabled: bool
) -> None:
    """An icon with its words in the tooltip, so that the whole bar fits a phone."""
    st.button(
        "", key=key, icon=icon, shortcut=shortcut, help=words, on_click=step, args=(to,), disabled=disabled
    )


def tick(what: str, cursor: int, total: int, characters: int, go: Callable[[int], None]) -> None:
    """While playing: wait out this turn's dwell in a small fragment of its own, then go on and run the
    page again."""
    if not playing(what):
        return
    wait = dwell_s(characters, speed())
    now = time.monotonic()
    lately = [one for one in st.session_state.get(_LATELY, ()) if one[1] > now - 2 * _STALE_S]
    st.session_state[_LATELY] = [*(one for one in lately if one[0] != cursor), (cursor, now)]
    due = st.session_state.get(_DUE)
    if due is None or due[0] != cursor:
        st.session_state[_DUE] = (cursor, time.monotonic() + wait)

    def advance() -> None:
        due = st.session_state.get(_DUE)
        if not playing(what) or due is None or due[0] != cursor or time.monotonic() < due[1] - 0.05:
            return
        st.session_state.pop(_DUE, None)
        if cursor >= total - 1:
            stop()
        else:
            go(cursor + 1)
        st.rerun()

    st.fragment(advance, run_every=wait, key="replay_tick")()
