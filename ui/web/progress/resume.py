"""Going on with a run that stands still: its spend ceiling, and the button."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.errors import TrinityError
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.theme import label
from ui.presentation.words import dollars
from ui.runs import queue
from ui.runs.lease import is_dead, mark_dead
from ui.runs.plans import PooledPlan, known_plan
from ui.runs.spending import paid_models
from ui.web.kit.buttons import tool
from ui.web.kit.cache import pool_specs

_CEILING = "resume_ceiling"


def resumable(store: Store, run: RunSummary, words: str) -> None:
    """The button, named `words`, and the run's spend ceiling where its pool has to be paid. No reply that is stored
    is asked or paid for again."""
    plan = known_plan(run)
    ceiling = plan.max_cost_usd if isinstance(plan, PooledPlan) else None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if isinstance(plan, PooledPlan) and _is_paid(plan):
            st.number_input(
                "Spend at most in all, USD",
                min_value=0.0,
                value=ceiling,
                step=0.1,
                key=_CEILING,
                help=f"{label(dollars(store.runs.spent_usd(run.id)))} of it is spent already.",
                width=220,
            )
        act = partial(_resume, store, run, ceiling)
        help = "Another worker takes it; no reply that is stored is asked or paid for again"
        tool(words, "resume", act, icon="restart_alt", type="primary", help=help)


def _is_paid(plan: PooledPlan) -> bool:
    try:
        return bool(paid_models(pool_specs(plan.pool)))
    except TrinityError:
        return False  # the worker will say what is wrong with the pool


def _resume(store: Store, run: RunSummary, before: float | None) -> None:
    mark_dead(store)
    ceiling = st.session_state.get(_CEILING, before)
    if ceiling != before:
        store.runs.allow(run.id, ceiling, dead=run.owner if is_dead(run.owner) else None)
    queue.resume(store, run.id)
