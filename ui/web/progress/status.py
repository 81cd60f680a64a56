"""What the workers are doing and what a queued run waits for, in words."""

from __future__ import annotations

from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.runs import wiring
from ui.runs.queue import starts_workers
from ui.runs.slots import alive


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
