"""Where a run stands that reads transcripts again: what it is for, how far it is, how to begin, stop or resume it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import streamlit as st

from storage.opinions import Scope, progress
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import live, reencoding, state
from ui.glossary import define
from ui.live import is_stalled
from ui.policy_diff import Diff
from ui.reencoding import ReencodePlan
from ui.theme import badge, label
from ui.widgets import RUN_MARKS, STALLED, ago, worker_trouble

#: How often a run under way is looked at, in seconds.
REFRESH_S = 2.0


def is_pressing(store: Store, diff: Diff, scope: Scope) -> bool:
    """Whether reading again comes before all else: nothing can be judged without it, or it is under way."""
    run = reencoding.latest(store, [one.id for one in diff.checkpoints], scope)
    return not diff.turns or (run is not None and run.status in (RunStatus.QUEUED, RunStatus.RUNNING))


def show_reencoding(store: Store, diff: Diff, scope: Scope, names: Mapping[str, str]) -> None:
    """The newest run about these checkpoints and episodes, and the button that begins one; nothing where every turn
    can be judged and nothing is under way."""
    run = reencoding.latest(store, list(names), scope)
    stalled = run is not None and is_stalled(run, time.time())
    under_way = run is not None and run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not stalled
    readable = diff.readable()
    if not readable and not under_way:
        return
    with st.container(border=True):
        words = "More turns can be judged" if diff.turns else "The transcripts have to be read again first"
        st.markdown(f"**{words}**", help=define("Second opinion"))
        told = ", ".join(f"{n:,} turns by {label(names[one], 60)}" for one, n in readable.items())
        st.markdown(
            "A stored state cannot be used where a checkpoint changes its encoder (SVF), reads it otherwise, or where "
            "no state was kept. A process of its own then lets the checkpoint's encoder read the recorded transcript "
            f"again. No model of the pool is asked, nothing is paid.{f' To be read: {told}.' if told else ''}"
        )
        if run is not None and under_way:
            _watch(store, run)
            return
        if run is not None:
            _last(store, run, stalled)
        if run is None or run.status in (RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.FAILED):
            _begin_button(store, diff, scope)


def _begin_button(store: Store, diff: Diff, scope: Scope) -> None:
    plan = reencoding.plan_for(diff, scope, store.now())
    if plan is not None:
        st.button(
            f"Read {plan.turns:,} turns again",
            key="reencode",
            type="primary",
            icon=":material/menu_book:",
            on_click=state.guarded(_begin, state.refused),
            args=(store, plan),
        )


def _begin(store: Store, plan: ReencodePlan) -> None:
    """Queue the run and start its worker; a second click finds the first one's run."""
    run, fresh = reencoding.queue(store, plan)
    if fresh:
        live.start_worker(store, run)


def _last(store: Store, run: RunSummary, stalled: bool) -> None:
    """How the run before ended, and the way on from there."""
    plan = ReencodePlan.from_config(run.config)
    done = progress(store, run.id).done
    mark = STALLED if stalled else RUN_MARKS[run.status]
    st.caption(
        f"{badge(mark)} · {done:,} of {plan.turns:,} turns read · begun {ago(run.created, time.time())}"
    )
    worker_trouble(run, live.log_file(run.id), "reads", "All that was read is kept.", stalled=stalled)
    if stalled or run.status is RunStatus.INTERRUPTED:
        st.button(
            "Go on reading",
            key="reencode_resume",
            type="primary",
            icon=":material/restart_alt:",
            on_click=state.guarded(live.resume, state.refused),
            args=(store, run.id),
        )


def _watch(store: Store, run: RunSummary) -> None:
    """While it is under way: how far it is, on what device, and a way to stop it; the page again once it is over."""

    def look() -> None:
        store.runs.mark_interrupted()
        now = store.runs.get(run.id)
        if now.status not in (RunStatus.QUEUED, RunStatus.RUNNING) or is_stalled(now, time.time()):
            st.rerun()
        _progress(store, now)

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="reencode_watch")()


def _progress(store: Store, run: RunSummary) -> None:
    plan, read = ReencodePlan.from_config(run.config), progress(store, run.id)
    cancel = store.runs.control(run.id).cancel
    if run.status is RunStatus.QUEUED:
        said = live.waiting_words(store, run)
    elif not read.done:
        said = "The encoder is being loaded …"
    else:
        devices = label(", ".join(read.devices), 40)
        said = f"{read.done:,} of {plan.turns:,} turns read on {devices}{_left(run, plan, read.done)}"
    if cancel:
        said = "Stopping after the transcripts that are being read …"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(1.0, read.done / max(1, plan.turns)), text=said)
        st.button(
            "Stop",
            key="reencode_stop",
            icon=":material/stop_circle:",
            disabled=cancel,
            help="All that was read is kept, and it can be resumed.",
            on_click=state.guarded(store.runs.cancel, state.refused),
            args=(run.id,),
        )


def _left(run: RunSummary, plan: ReencodePlan, done: int) -> str:
    """About how long the rest takes, at the pace so far."""
    if run.started is None or done < 20 or done >= plan.turns:
        return " …"
    seconds = (time.time() - run.started) / done * (plan.turns - done)
    return f", about {seconds / 60:.0f} min left …" if seconds >= 90 else f", about {seconds:.0f} s left …"
