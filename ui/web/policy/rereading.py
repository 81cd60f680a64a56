"""Reading transcripts again: what it is for, how far a run of it is, and how to begin one."""

from __future__ import annotations

import time
from collections.abc import Mapping

import streamlit as st

from storage.analysis.policy_diff import PolicyDiff
from storage.analysis.second_opinions import EpisodeScope, rereading_progress
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import ago
from ui.runs import queue, reading
from ui.runs.plans import RereadPlan, plan_of
from ui.runs.queue import Ticket
from ui.web.kit.buttons import button
from ui.web.progress.panel import Reached, RunTexts, is_under_way, standing, watch

TEXTS = RunTexts(
    process="reads",
    stored="All that was read is kept.",
    stop="Stop",
    stop_help="All that was read is kept, and it can be resumed.",
    stopping="Stopping after the transcripts that are being read …",
)


def is_pressing(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> bool:
    """Whether reading again comes before all else: nothing can be judged without it, or it is under way."""
    run = reading.latest_reading(store, [one.id for one in diff.checkpoints], scope)
    return not diff.turns or (run is not None and run.status in (RunStatus.QUEUED, RunStatus.RUNNING))


def show_reencoding(store: Store, diff: PolicyDiff, scope: EpisodeScope, names: Mapping[str, str]) -> None:
    """The newest run about these checkpoints and episodes, and the button that begins one; nothing where every turn
    can be judged and nothing is under way."""
    run = reading.latest_reading(store, list(names), scope)
    under_way = run is not None and is_under_way(run)
    if not diff.readable() and not under_way:
        return
    with st.container(border=True):
        words = "More turns can be judged" if diff.turns else "The transcripts have to be read again first"
        st.markdown(f"**{words}**", help=define("Second opinion"))
        why = label(reading.reading_words(diff, names), 800)
        st.markdown(
            "A stored state cannot be used where a checkpoint changes its encoder (SVF), reads it otherwise, or where "
            "no state was kept. A background process then lets the checkpoint's encoder read the recorded transcript "
            f"again. No model of the pool is asked, nothing is paid. {why}"
        )
        if run is not None and under_way:
            watch(store, run, TEXTS, _reached)
            return
        if run is not None:
            _last(store, run)
        if run is None or run.status in (RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.FAILED):
            _begin_button(store, diff, scope)


def _begin_button(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> None:
    plan = reading.plan_for(diff, scope, store.now())
    if plan is not None:
        button(
            f"Read {plan.turns:,} turns again",
            "reencode",
            lambda: queue.begin(store, plan, Ticket.new()),  # a second click finds the first one's run
            icon="menu_book",
            type="primary",
        )


def _last(store: Store, run: RunSummary) -> None:
    """How the run before ended, and how to go on with it."""
    plan = plan_of(run, RereadPlan)
    facts = [
        f"{rereading_progress(store, run.id).done:,} of {plan.turns:,} turns read",
        f"begun {ago(run.created, time.time())}",
    ]
    standing(store, run, TEXTS, [f":gray[{one}]" for one in facts], go_on="Resume")


def _reached(store: Store, run: RunSummary) -> Reached:
    """How many turns are read, on what device, and how long the others take at the pace so far."""
    plan, read = plan_of(run, RereadPlan), rereading_progress(store, run.id)
    if not read.done:
        return Reached(0, plan.turns, "The encoder is being loaded")
    words = f"{read.done:,} of {plan.turns:,} turns read on {label(', '.join(read.devices), 40)}"
    if run.started is None or read.done < 20 or read.done >= plan.turns:
        return Reached(read.done, plan.turns, words)
    pace_s = (time.time() - run.started) / read.done
    return Reached(read.done, plan.turns, words, pace_s * (plan.turns - read.done))
