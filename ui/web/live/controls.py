"""What a person asks of a live run under way: wait, go on, end it."""

from __future__ import annotations

import streamlit as st

from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.web.components import key_focus
from ui.web.kit import state
from ui.web.progress.panel import RunTexts, pause_button, stop_button
from ui.web.turns.recording import Recording

TEXTS = RunTexts(
    process="plays this run",
    pause="Wait after this turn",
    pause_help="You then see the choice proposed for the next turn and can accept it, decide it yourself or switch to "
    "another coordinator",
)


def between_turns(recording: Recording | None) -> bool:
    """Whether no turn of the episode is under way."""
    return recording is not None and all(outline.stage == "finished" for outline in recording.outlines)


def run_controls(store: Store, run: RunSummary, *, can_wait: bool) -> None:
    """Cancel, wait, go on. A run of workflows cannot wait: its steps are under way side by side."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_live"):
        key_focus("tools_live")
        if can_wait:
            pause_button(store, run, TEXTS)
        stop_button(store, run, TEXTS)
        _follow_toggle()


def _follow_toggle() -> None:
    st.session_state["follow"] = state.param("t") is None and state.param("ep") is None
    st.toggle(
        "Follow",
        key="follow",
        help="Keep the newest turn in view. Off: the page stays at the turn you are reading.",
        on_change=_set_follow,
    )


def _set_follow() -> None:
    if st.session_state["follow"]:
        follow()
    else:
        episode, cursor = st.session_state.get("live_cursor", (None, 0))
        state.set_params(ep=episode, t=cursor + 1)


def follow() -> None:
    """Show the newest turn from here on."""
    state.set_params(ep=None, t=None)
