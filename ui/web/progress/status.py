"""What the workers are doing, what a queued run waits for, and why an episode is not finished, in words."""

from __future__ import annotations

import time

import streamlit as st

from core.episode import Episode, Status
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.theme import END_WORDS, STALLED, STATUS_MARKS, label, one_line
from ui.runs import wiring
from ui.runs.lease import alive
from ui.runs.plans import address_of, kind_of
from ui.runs.queue import is_stalled, starts_workers
from ui.web.kit import state


def workers_words(waiting: int) -> str:
    """How many workers there are, and what to do when there is none and some runs wait."""
    most, live_ones = wiring.settings().workers, len(alive())
    if not most and not live_ones and waiting:
        return "No worker is there, and the app starts none: start one with `trinity worker`."
    if not live_ones and not most:
        return "No worker is there."
    if not live_ones:
        return f"No worker is busy. Up to {most} runs are played at a time."
    return f"{live_ones} worker{'s' if live_ones > 1 else ''} at work; the app starts up to {most}."


def waiting_words(store: Store, run: RunSummary) -> str:
    line = [one.id for one in store.runs.waiting()]
    before = line.index(run.id) if run.id in line else 0
    workers = alive()
    if not workers:
        starts = "a worker is being started" if starts_workers() else "start one with `trinity worker`"
        return f"Waiting for a worker: {starts} …"
    ahead = f"{before} run{'s' if before > 1 else ''} before it" if before else "it is the next"
    busy = f"{len(workers)} worker{' is' if len(workers) == 1 else 's are'} at work"
    return f"Waiting for a worker: {busy}, {ahead} …"


def unfinished_words(store: Store, episode: Episode) -> None:
    """Why an episode is not finished, and how it goes on."""
    run = store.runs.get(episode.run_id)
    kind = kind_of(run)
    icon = STATUS_MARKS[episode.status].icon
    if episode.status is Status.RUNNING and is_stalled(run, time.time()):
        icon = STALLED.icon
        sentence = (
            "This episode has stalled: the process that plays it gives no sign of life. Every turn it had finished "
            "is here."
        )
    elif episode.status is Status.RUNNING:
        sentence = (
            "This episode is still being played; new turns appear by themselves and the page stays here."
        )
    elif episode.status is Status.MISSING:
        sentence = (
            "This episode ended by a failure of the infrastructure, not of a model: it counts neither as "
            f"right nor as wrong. {label(episode.error or '', 400)}"
        )
    else:
        why = "the process that played it died"
        if episode.end_reason:
            why = END_WORDS[episode.end_reason]
        elif run.error:
            why = one_line(run.error, 300).rstrip(".")
        sentence = f"This episode was interrupted: {why}. Every turn it had finished is here."
        command = "" if kind.resumes else kind.command
        if command and run.status is RunStatus.INTERRUPTED:
            sentence += f" To go on after the last one: `{command}` {label(run.id)}"
    st.info(sentence, icon=icon)
    if kind.resumes:
        words = f"Its run on the {kind.page.capitalize()} page"
        state.page_link(kind.page, words, icon=kind.icon, **address_of(run))
