"""Where one run stands, on every page that starts runs: how far it is, why it stopped, and how to pause it, stop it or
go on with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.theme import badge, label
from ui.presentation.words import dollars
from ui.runs.lease import mark_dead
from ui.runs.play import PAUSED_AT_CLOSE, PAUSED_FOR_ANOTHER
from ui.runs.queue import has_died, is_stalled, log_file
from ui.web.kit import state
from ui.web.kit.buttons import button
from ui.web.kit.widgets import run_mark
from ui.web.progress.queue import PAUSED
from ui.web.progress.resume import resumable
from ui.web.progress.status import waiting_words

#: How often a run under way is read again, in seconds.
REFRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class RunTexts:
    """How a page speaks of its runs: what the `process` does, what is `stored` whatever becomes of it, the `stop`
    button and the words while it stops; `pause` is empty where a run cannot be paused."""

    process: str
    stored: str = "Every finished turn is kept."
    stop: str = "Cancel"
    stop_help: str = "End the run now; finished turns are kept"
    stopping: str = "Cancelling as soon as possible …"
    pause: str = ""
    pause_help: str | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a run is: `done` of `planned` units of its work, this in `words` (markdown), and about how many seconds
    the rest takes, None where that is unknown."""

    done: int
    planned: int
    words: str
    remaining_s: float | None = None


def is_under_way(run: RunSummary) -> bool:
    """Whether a run is queued or running, and not stalled."""
    return run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not is_stalled(run, time.time())


def standing(
    store: Store,
    run: RunSummary,
    texts: RunTexts,
    facts: Sequence[str],
    *,
    go_on: str,
    between_turns: bool = True,
    last_sign: str = "",
) -> None:
    """The run's state with `facts` about it (markdown), why it stopped, and the button `go_on` where it can go on.
    `between_turns`: a pause is in effect; `last_sign`: what its process did before it went silent."""
    died = has_died(run, time.time())
    mark = run_mark(run, stalled=died)
    if run.status is RunStatus.RUNNING and not died and between_turns and store.runs.control(run.id).paused:
        mark = PAUSED
    if unread_usd := store.runs.unread_usd(run.id):
        facts = [*facts, f":gray[{label(dollars(unread_usd))} of it for answers that could not be read]"]
    st.markdown(" · ".join([f"**{badge(mark)}**", *facts]))
    _trouble(run, texts, last_sign, died=died)
    if died or run.status is RunStatus.INTERRUPTED:
        resumable(store, run, go_on)


def _trouble(run: RunSummary, texts: RunTexts, last_sign: str, *, died: bool) -> None:
    if run.error in (PAUSED_FOR_ANOTHER, PAUSED_AT_CLOSE):
        st.info(run.error, icon=":material/pause_circle:")
    elif run.error:
        st.error(label(run.error, 400), icon=":material/error:")
    if died:
        silence = (
            f"The process that {texts.process} has gone silent. {last_sign}".strip() + f" {texts.stored}"
        )
        if run.status is RunStatus.QUEUED:
            silence = (
                "No worker has come to take this run: start one with `trinity worker`, or try again here."
            )
        st.warning(silence, icon=":material/heart_broken:")
    log = log_file(run.id)
    if (died or run.error) and log.exists() and log.stat().st_size:
        st.caption(f"The last output of its process is in {label(str(log), 400)}")


def watch(
    store: Store, run: RunSummary, texts: RunTexts, reached: Callable[[Store, RunSummary], Reached]
) -> None:
    """The bar and the buttons of a run under way, read again every `REFRESH_S`; when the run has more to show than
    that, the page runs again."""
    shown = _pulse(run)

    def look() -> None:
        mark_dead(store)
        now = store.runs.get(run.id)
        if _pulse(now) != shown:
            st.rerun()
        with st.container(horizontal=True, vertical_alignment="center"):
            bar(store, now, texts, reached(store, now))
            if texts.pause:
                pause_button(store, now, texts)
            stop_button(store, now, texts)

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="run_watch")()


def _pulse(run: RunSummary) -> tuple[object, ...]:
    """What changes when a run has more to show than its bar."""
    return run.status, run.generations, run.finished_episodes, is_stalled(run, time.time())


def bar(store: Store, run: RunSummary, texts: RunTexts, reached: Reached) -> None:
    """How far a run is, or what it waits for."""
    if store.runs.control(run.id).cancel:
        words = texts.stopping
    elif run.status is RunStatus.QUEUED:
        words = waiting_words(store, run)
    else:
        words = f"{reached.words}{_remaining(reached.remaining_s)} …"
    st.progress(min(1.0, max(0, reached.done) / max(1, reached.planned)), text=words)


def _remaining(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def pause_button(store: Store, run: RunSummary, texts: RunTexts) -> None:
    paused = store.runs.control(run.id).paused
    if paused:
        go_on, help = partial(store.runs.unpause, run.id), "Play to the end without waiting"
        button("Play on", "pause", go_on, icon="play_arrow", help=help)
    else:
        button(texts.pause, "pause", partial(store.runs.pause, run.id), icon="pause", help=texts.pause_help)


def stop_button(store: Store, run: RunSummary, texts: RunTexts) -> None:
    """Stops a run, or takes it out of the queue; pressed once it is disabled."""
    queued = run.status is RunStatus.QUEUED
    help = "Take it out of the queue; nothing was played" if queued else texts.stop_help
    stop, pressed = partial(store.runs.cancel, run.id), store.runs.control(run.id).cancel
    button(texts.stop, "stop", stop, icon="stop_circle", disabled=pressed, help=help)
