"""The way on for a run that stands still: what it may spend from here, and the button that goes on with it."""

from __future__ import annotations

import streamlit as st

from core.errors import TrinityError
from storage.store import Store
from storage.summaries import RunSummary
from ui import live, state
from ui.lease import is_dead
from ui.live_form import pool_specs
from ui.spending import dollars, paid_models
from ui.theme import label

_CEILING = "resume_ceiling"


def resumable(store: Store, run: RunSummary, words: str) -> None:
    """The button, named `words`, beside the run's spend ceiling where its pool has to be paid. No reply that is stored
    is asked or paid for again."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if _is_paid(run):
            st.number_input(
                "Spend at most in all, USD",
                min_value=0.0,
                value=run.config.get("max_cost_usd"),
                step=0.1,
                key=_CEILING,
                help=f"{label(dollars(store.runs.spent_usd(run.id)))} of it is spent already.",
                width=220,
            )
        st.button(
            words,
            key="resume",
            icon=":material/restart_alt:",
            type="primary",
            help="Another worker takes it; no reply that is stored is asked or paid for again",
            on_click=state.guarded(_resume, state.refused),
            args=(store, run),
        )


def _is_paid(run: RunSummary) -> bool:
    try:
        return bool(paid_models(pool_specs(str(run.config.get("pool", "")))))
    except TrinityError:
        return False  # the worker will say what is wrong with the pool


def _resume(store: Store, run: RunSummary) -> None:
    store.runs.mark_interrupted()
    ceiling = st.session_state.get(_CEILING, run.config.get("max_cost_usd"))
    if ceiling != run.config.get("max_cost_usd"):
        store.runs.allow(run.id, ceiling, dead=run.owner if is_dead(run.owner) else None)
    live.resume(store, run.id)
