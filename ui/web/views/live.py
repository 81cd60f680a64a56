"""Live: play a problem now. A worker process plays it; this page steers and reads along."""

from __future__ import annotations

import streamlit as st

from ui.runs.queue import stand_by
from ui.web.components.transport import Keys
from ui.web.kit import state
from ui.web.live.form import live_form
from ui.web.live.run import run_page
from ui.web.pickers.checkpoints import play_link
from ui.web.progress import queue_panel

KEYS: Keys = (
    ("Enter", "play the turn that waits for you, as it is proposed or as you decided it"),
    ("T / W / V", "let a Thinker, a Worker or a Verifier take it instead"),
    ("1 to 9", "let this model of the pool take it instead"),
)


def show() -> None:
    """Render the form and the queue, or the run that the address names."""
    store = state.store()
    stand_by.keep(store)
    if run := state.param("run"):
        run_page(store, run)
        return
    st.title("Play a problem live")
    st.caption(
        "A run goes on in the background: you can close this tab. Every turn is stored, and the run is found here "
        "again."
    )
    play_link("Or play two policies on many tasks, and compare them", [])
    left, right = st.columns([3, 2], gap="large")
    with left:
        live_form(store)
    with right:
        queue_panel(store)


if __name__ == "__main__":
    state.run(show)
