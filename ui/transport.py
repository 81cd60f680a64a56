"""The transport: stepping and playing through a replay by button and by key, at the pace of the text."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

SPEEDS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)

#: Every key of the replay, as its help sheet lists them.
KEYS: tuple[tuple[str, str], ...] = (
    ("J  or  →", "next turn"),
    ("K  or  ←", "previous turn"),
    ("Home / End", "first / last turn"),
    ("Space", "play or pause"),
    ("B", "next blunder: a right answer lost or a wrong one accepted"),
    ("V", "next Verifier turn"),
    ("M", "next low-margin turn"),
    ("S", "next turn of the same model"),
    ("O", "next turn in the same role"),
    ("N / P", "next / previous episode of the list you came from"),
    ("H", "this help"),
)

_PLAYING, _SPEED, _DUE = "replay_playing", "replay_speed", "replay_due"


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


def _play_or_pause(what: str, cursor: int, total: int, go: Callable[[int], None]) -> None:
    st.session_state[_PLAYING] = None if playing(what) else what
    st.session_state.pop(_DUE, None)
    if playing(what) and cursor >= total - 1:
        go(0)


def transport(what: str, cursor: int, total: int, go: Callable[[int], None], noun: str = "Turn") -> None:
    """The bar at the foot of the page. `go(index)` moves the cursor over the `noun`s of `what`, an episode or
    a pair; `cursor` is 0-based."""

    def step(to: int) -> None:
        stop()
        go(max(0, min(total - 1, to)))

    first, last = cursor <= 0, cursor >= total - 1
    with (
        st.bottom,
        st.container(
            horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="small"
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
            on_click=_play_or_pause,
            args=(what, cursor, total, go),
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
        st.caption(f"{noun} {cursor + 1} of {total}")


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
