"""Where an evolution stands: its headline, what went wrong, how far it is, and how to stop, resume or remove it."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st

from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import live, state
from ui.glossary import define
from ui.lineage import Lineage, read_lineage
from ui.live import is_stalled
from ui.resuming import resumable
from ui.theme import badge, label
from ui.widgets import RUN_MARKS, STALLED, ago, nothing_here, worker_trouble

#: How often an evolution under way is looked at, in seconds.
REFRESH_S = 2.0
_RUNNING = replace(RUN_MARKS[RunStatus.RUNNING], word="evolving")


def headline(store: Store, run: RunSummary, lineage: Lineage, stalled: bool) -> None:
    """What it is, how far it came, why it stopped, and the way on from there."""
    mark = STALLED if stalled else _RUNNING if run.status is RunStatus.RUNNING else RUN_MARKS[run.status]
    done = lineage.indices[-1] if lineage.indices else 0
    of = f" of {lineage.planned}" if lineage.planned else ""
    parts = [
        f"**{badge(mark)}**",
        f"generation **{done}**{of}",
        f":gray[{label(lineage.learner_words, 30)}]",
        f":gray[tasks {label(str(run.config.get('tasks', '–')), 40)}]",
        f":gray[{label(str(run.config.get('head', 'linear')), 20)} head{_svf_words(run)}]",
        f":gray[seed {label(str(lineage.evolution.get('seed', '–')), 20)}]",
        f":gray[begun {ago(run.created, time.time())}]",
    ]
    st.markdown(" · ".join(parts))
    if lineage.steps:
        said = "; ".join(
            f"{'singular values' if block == 'svf' else label(block, 20)}: {step:.3g}, which spreads the logits by "
            f"{spread:.3g}"
            for block, (step, spread) in lineage.steps.items()
        )
        st.caption(f"First step size of the {said}.", help=define("Sigma"))
    kept = "Every finished generation is kept, and every reply that was paid for."
    worker_trouble(run, live.log_file(run.id), "evolves", kept, stalled=stalled)
    if stalled or run.status is RunStatus.INTERRUPTED:
        resumable(store, run, "Go on after the last generation" if run.generations else "Start it again")
    elif run.status in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.generations:
        st.button(
            "Remove it",
            key="remove",
            icon=":material/delete:",
            help="Nothing was evolved; this frees its name.",
            on_click=state.guarded(_remove, state.refused),
            args=(store, run.id),
        )


def _svf_words(run: RunSummary) -> str:
    svf = str(run.config.get("svf") or "")
    return f" with SVF {label(svf, 20)}" if svf else ""


def _remove(store: Store, run_id: str) -> None:
    store.runs.delete(run_id)
    state.replace_params({})


def watch(store: Store, run: RunSummary) -> None:
    """While it is under way: how far it is, a way to stop it, and the page again when there is more."""
    shown = _pulse(run)

    def look() -> None:
        store.runs.mark_interrupted()
        now = store.runs.get(run.id)
        if _pulse(now) != shown:
            st.rerun()
        _progress(store, now)

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="evolution_watch")()


def _pulse(run: RunSummary) -> tuple[object, ...]:
    """What changes when an evolution moves."""
    return run.status, run.generations, is_stalled(run, time.time())


def _progress(store: Store, run: RunSummary) -> None:
    lineage = read_lineage(store, run)
    done, planned = (lineage.indices[-1] if lineage.indices else -1), lineage.planned or 1
    if run.status is RunStatus.QUEUED:
        said = live.waiting_words(store, run)
    elif done < 0:
        said = "The encoder is loaded and the start is validated …"
    else:
        said = f"Generation {done + 1} of {planned} is being played{_remaining(lineage, done, planned)}"
        if done >= planned:
            said = "The last generation is kept; the controls are played …"
    control = store.runs.control(run.id)
    if control.cancel:
        said = "Stopping at the next safe moment: between two waves of calls …"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(min(1.0, max(0, done) / planned), text=said)
        st.button(
            "Stop",
            key="stop",
            icon=":material/stop_circle:",
            disabled=control.cancel or run.status is not RunStatus.RUNNING,
            help="Stops between two waves of calls. All that was paid for is kept, and it can be resumed.",
            on_click=state.guarded(store.runs.cancel, state.refused),
            args=(run.id,),
        )


def _remaining(lineage: Lineage, done: int, planned: int) -> str:
    """About how long the rest takes, from the last generations."""
    if done < 2:
        return " …"
    last = lineage.generations[-min(5, done + 1) :]
    seconds = (last[-1].wall_s - last[0].wall_s) / max(1, last[-1].index - last[0].index) * (planned - done)
    return f", about {seconds / 60:.0f} min left …" if seconds >= 90 else f", about {seconds:.0f} s left …"


def before_the_first(run: RunSummary, stalled: bool) -> None:
    """The page of an evolution that has no generation."""
    if run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not stalled:
        nothing_here("The first generation will appear here by itself.", ":material/hourglass_top:")
    else:
        nothing_here("It ended before its first generation: nothing was evolved.")
