"""The queue of runs: what waits, who plays what, what has stalled, what is done; and taking a waiting one out."""

from __future__ import annotations

import time
from collections.abc import Mapping

import streamlit as st

from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import live, state
from ui.lease import place_of
from ui.live import has_died
from ui.reencoding import ReencodePlan
from ui.theme import WARN_COLOUR, Mark, badge, label, one_line
from ui.widgets import RUN_MARKS, STALLED, ago, nothing_here, run_words

#: How often the queue is read again, in seconds.
REFRESH_S = 2.0
#: At most so many runs that are over are listed, and so many that are under way.
MOST_DONE, MOST_OPEN = 8, 30
PAUSED = Mark("‖", ":material/pause_circle:", "waiting for you", "orange", WARN_COLOUR)
_KINDS = {
    "live": "",
    "evolve": "evolution",
    "fork": "forks",
    "reencode": "reading again",
    "run": "trinity run",
}


def queue_panel(store: Store) -> None:
    """The queue, read again while one looks at it."""
    st.fragment(state.guarded(lambda: _queue(store)), run_every=REFRESH_S, key="live_queue")()


def _queue(store: Store) -> None:
    now = time.time()
    waiting = store.runs.waiting()
    playing = store.runs.list(status=RunStatus.RUNNING, limit=MOST_OPEN)
    over = [run for run in store.runs.list(kind="live", limit=MOST_OPEN) if not _is_open(run)]
    st.subheader("Runs", help="Each is played by a worker process; those that wait are taken in order.")
    st.caption(live.workers_words(len(waiting)))
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


def _is_open(run: RunSummary) -> bool:
    return run.status in (RunStatus.QUEUED, RunStatus.RUNNING)


def _row(store: Store, run: RunSummary, now: float, place: int | None = None) -> None:
    """One run: what it is, where it stands, who plays it, and a way out for one that waits."""
    with st.container(border=True, gap=None):
        _title(run)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(" · ".join(_told(store, run, now, place)), width="stretch")
            if place is not None:
                st.button(
                    "Take out",
                    key=f"cancel_{run.id}",
                    icon=":material/close:",
                    type="tertiary",
                    help="Cancel this run before it begins",
                    on_click=state.guarded(store.runs.cancel, state.refused),
                    args=(run.id,),
                )


def _title(run: RunSummary) -> None:
    """What a run is about, leading to the page that shows it."""
    words = f":blue[{label(about(run), 64) or label(run.id)}]"
    if run.kind == "live":
        st.button(
            words,
            key=f"open_{run.id}",
            type="tertiary",
            on_click=state.set_params,
            kwargs={"run": run.id, "ep": None, "t": None},
        )
    elif run.kind == "reencode":
        state.page_link("policy", words, **ReencodePlan.from_config(run.config).address())
    else:
        page = {"evolve": "evolution", "fork": "forks"}.get(run.kind, "episodes")
        state.page_link(page, words, run=run.id)


def _told(store: Store, run: RunSummary, now: float, place: int | None) -> list[str]:
    died = has_died(run, now)
    mark = STALLED if died else RUN_MARKS[run.status]
    if run.status is RunStatus.RUNNING and not died and store.runs.control(run.id).paused:
        mark = PAUSED
    told = [badge(mark)]
    if _KINDS.get(run.kind):
        told.append(_KINDS[run.kind])
    if place is not None:
        told.append(f"number {place} in line")
    elif run.status is RunStatus.RUNNING and not died:
        told.append(f"by {label(place_of(run.owner), 40)}")
    plays = int(run.config.get("repeats", 1)) if run.kind == "live" else 1
    if plays > 1:
        told.append(f"{run.finished_episodes} of {plays} played, {run.correct} right")
    elif run.kind == "live" and run.finished_episodes:
        told.append(":green[● right]" if run.correct else ":red[✕ wrong]")
    return [*told, ago(run.created, now)]


def about(run: RunSummary) -> str:
    """What a run is about, plain text on one line: its question, else its name or tasks."""
    task = run.config.get("task")
    if isinstance(task, Mapping):
        return one_line(str(task.get("question", "")), 240)
    if run.kind == "fork":
        return one_line(str(run.config.get("question", "")), 240)
    return run_words(run)
