"""Take a turn along: its link, its numbers as JSON, the whole episode as a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import streamlit as st

from ui import state
from ui.panels import CUT, turn_json
from ui.recording import Recording
from ui.theme import plain


def share(recording: Recording, index: int) -> None:
    """Link and JSON to copy, and the episode as a file, in a popover that reads nothing while it is shut."""
    with st.popover(
        "Share", icon=":material/share:", type="tertiary", on_change="rerun", key="share"
    ) as popover:
        if not popover.open:
            return
        st.caption("Link to this turn, as it is shown now")
        st.code(state.here(), language=None)
        st.caption("This turn as JSON")
        body = turn_json(recording.outlines[index], recording.text(index), recording.decision(index))
        if len(body) <= CUT:
            st.code(plain(body), language=None, wrap_lines=True, height=180)
        else:
            st.download_button(
                f"Save {len(body):,} characters",
                data=body,
                file_name=f"{recording.episode.id}-turn-{index + 1}.json",
                mime="application/json",
                on_click="ignore",
                key="save_turn",
            )
        st.download_button(
            "Save the whole episode as JSON",
            data=lambda: episode_json(recording),
            file_name=f"{recording.episode.id}.json",
            mime="application/json",
            on_click="ignore",
            icon=":material/download:",
            key="save_episode",
        )


def episode_json(recording: Recording) -> str:
    """The episode with all its finished turns as JSON; hidden states in hex."""
    return json.dumps(asdict(recording.store.episodes.get(recording.episode.id)), default=_readable, indent=1)


def _readable(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
