"""What a live run's page shows before the first turn: what has to happen until then, and which step it is at."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.runs import queue
from ui.runs.lease import alive
from ui.web.live.controls import TEXTS
from ui.web.progress.panel import stop_button, waiting_words
from ui.web.turns.decision import undecided_panel

#: What happens between the button and the first decision, in order.
STEPS = (
    "The run is written down",
    "A background worker starts",
    "The worker loads the coordinator and the models",
    "The coordinator reads the question and decides the first turn",
)
#: The same where whole workflows are written.
_PLANNED = (
    *STEPS[:2],
    "The worker loads the planner and the models",
    "The planner reads the question and writes the workflow",
)
_FIRST = (
    "The first start takes longest, often ten seconds: libraries, coordinator and models are read from disk. "
    "Later runs begin at once: a worker is kept ready while the app is open."
)


def before_the_first_turn(
    store: Store, run: RunSummary, models: tuple[str, ...], now: float, *, begun: bool, workflows: bool
) -> None:
    """The steps to the first decision, or to the workflow, and the place where it will stand. `begun`: the episode is
    under way."""
    at = 3 if begun else 2 if run.status is RunStatus.RUNNING else 1
    left, right = st.columns([3, 2], gap="medium")
    with left:
        with st.container(border=True, gap="small"):
            _steps(store, run, _PLANNED if workflows else STEPS, at, now)
        if at == 1:
            stop_button(store, run, TEXTS)
    with right, st.container(border=True):
        if workflows:
            st.markdown("**Then, step by step**")
            st.caption(
                "Here stands the workflow: who is asked what, and who may read whom. Steps whose inputs are there are "
                "asked at the same time, and their replies appear as they come."
            )
        elif begun:
            undecided_panel(models, key="live_undecided")
        else:
            st.markdown("**Then, turn by turn**")
            st.caption(
                "The coordinator chooses a model and a role, and here you see how sure it was. The model replies, its "
                "words appear as they come, until a Verifier accepts an answer or the turns are spent."
            )


def _steps(store: Store, run: RunSummary, steps: Sequence[str], at: int, now: float) -> None:
    for place, words in enumerate(steps):
        if place < at:
            st.markdown(f":green[:material/check:] :gray[{words}]")
        elif place > at:
            st.markdown(f":gray[:material/radio_button_unchecked: {words}]")
        else:
            doing = waiting_words(store, run) if at == 1 and _in_line() else f"{words} …"
            since = run.created if at == 1 or run.started is None else run.started
            st.markdown(f":material/hourglass_top: **{doing}** :gray[{max(0.0, now - since):.0f} s]")
    if at < 3:
        st.caption(_FIRST)


def _in_line() -> bool:
    """Whether a run that is queued waits for anything but the start of its own worker."""
    return bool(alive()) or not queue.starts_workers()
