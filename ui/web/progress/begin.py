"""Beginning a run: the button, what has to be done before it, and the way to the run's page."""

from __future__ import annotations

from typing import Any, NoReturn

import streamlit as st

from storage.store import Store
from ui.presentation.theme import label
from ui.runs import queue
from ui.runs.plans import RunPlan
from ui.web.kit import state
from ui.web.kit.buttons import button


def begin_button(words: str, key: str, icon: str, to_do: str, *, possible: bool = True, **look: Any) -> bool:
    """Whether it was clicked. It is disabled while something is `to_do` first, which is said below it, and while
    nothing is `possible`."""
    disabled = bool(to_do) or not possible
    clicked = button(words, key, icon=icon, type="primary", disabled=disabled, **look)
    if to_do:
        st.caption(label(to_do, 400))
    return clicked


def begin(page: str, store: Store, plan: RunPlan) -> NoReturn:
    """Put the plan into the queue and open the page of its run; a second click finds the first one's run."""
    state.go(page, run=queue.begin(store, plan, state.ticket()))
