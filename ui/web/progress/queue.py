"""The queue of runs: what waits, who plays what, what has stalled, what is done; and taking a waiting one out."""

from __future__ import annotations

import time
from functools import partial

import streamlit as st

from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.theme import WARN_COLOUR, Mark, badge, correct_mark, label
from ui.presentation.words import ago
from ui.runs.lease import process_words
from ui.runs.plans import LivePlan, about, address_of, kind_of, known_plan
from ui.runs.queue import has_died
from ui.web.kit import state
from ui.web.kit.buttons import tool
from ui.web.kit.widgets import nothing_here, run_mark
from ui.web.progress import status

#: How often the queue is read again, in seconds.
REFRESH_S = 2.0
#: At most so many runs that are over are listed, and so many that are under way.
MOST_DONE, MOST_OPEN = 8, 30
PAUSED = Mark("‖", ":material/pause_circle:", "waiting for you", "orange", WARN_COLOUR)


def queue_panel(store: Store) -> None:
    """The queue, read again while one looks at it."""
    st.fragment(state.guarded(lambda: _queue(store)), run_every=REFRESH_S, key="live_queue")()


def _queue(store: Store) -> None:
    now = time.time()
    waiting = store.runs.waiting()
    playing = store.runs.list(status=RunStatus.RUNNING, limit=MOST_OPEN)
    under_way = (RunStatus.QUEUED, RunStatus.RUNNING)
    over = [run for run in store.runs.list(kind="live", limit=MOST_OPEN) if run.status not in under_way]
    st.subheader("Runs", help="Each is played by a worker process; those that wait are taken in order.")
    st.caption(status.workers_words(len(waiting)))
    if not (waiting or playing or over):
        nothing_here("None yet. The first one will be listed here.")
        return
    for run in playing:
        _row(store, run, now)
    for place, run in enumerate(waiting[:MOST_OPEN], 1):
        _row(store, run, now, place)
    if len(waiting) > MOST_OPEN:
        st.caption(f"… and {len(waiting) - MOST_OPEN} more that wait")
    if over and (waiting or playing):
        st.markdown("**Over**")
    for run in over[:MOST_DONE]:
        _row(store, run, now)


def _row(store: Store, run: RunSummary, now: float, place: int | None = None) -> None:
    title = f":blue[{label(about(run, 240), 64) or label(run.id)}]"
    with st.container(border=True, gap=None):
        # A link: a button within this fragment would run the fragment alone, and the page would stay as it was.
        state.page_link(kind_of(run).page, title, **address_of(run))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(" · ".join(_facts(store, run, now, place)), width="stretch")
            if place is not None:
                cancel, help = partial(store.runs.cancel, run.id), "Cancel this run before it begins"
                tool("Take out", f"cancel_{run.id}", cancel, icon="close", help=help)


def _facts(store: Store, run: RunSummary, now: float, place: int | None) -> list[str]:
    died = has_died(run, now)
    mark = run_mark(run, stalled=died)
    if run.status is RunStatus.RUNNING and not died and store.runs.control(run.id).paused:
        mark = PAUSED
    parts = [badge(mark)]
    if run.kind != "live":
        parts.append(kind_of(run).words)
    if place is not None:
        parts.append(f"number {place} in line")
    elif run.status is RunStatus.RUNNING and not died:
        parts.append(f"by {label(process_words(run.owner), 40)}")
    plan = known_plan(run)
    if isinstance(plan, LivePlan):
        judged = bool(plan.task.answer)
        if plan.repeats > 1:
            right = f", {run.correct} right" if judged else ""
            parts.append(f"{run.finished_episodes} of {plan.repeats} played{right}")
        elif run.finished_episodes and judged:
            parts.append(badge(correct_mark(bool(run.correct))))
    return [*parts, ago(run.created, now)]
