"""Where an evolution stands: facts about it, how far it is, and what is shown before its first generation."""

from __future__ import annotations

import time
from functools import partial

from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.theme import label
from ui.presentation.words import ago
from ui.web.evolution.lineage import Lineage, read_lineage
from ui.web.kit import state
from ui.web.kit.buttons import button
from ui.web.kit.widgets import nothing_here
from ui.web.progress.panel import Reached, RunTexts, is_under_way, standing

TEXTS = RunTexts(
    process="evolves",
    stored="Every finished generation is kept, and every reply that was paid for.",
    stop="Stop",
    stop_help="Stops between two waves of calls. All that was paid for is kept, and it can be resumed.",
    stopping="Stopping at the next safe moment: between two waves of calls …",
)


def headline(store: Store, run: RunSummary, lineage: Lineage) -> None:
    """What it is, how far it came, why it stopped, and how to go on with it or remove it."""
    done = lineage.indices[-1] if lineage.indices else 0
    of = f" of {lineage.planned}" if lineage.planned else ""
    grey = [label(lineage.learner_words, 30)]
    if plan := lineage.plan:
        svf = f" with SVF {label(plan.svf, 20)}" if plan.svf else ""
        grey.append(f"tasks {label(plan.tasks, 40)}")
        grey.append(f"{label(plan.head, 20)} head{svf}")
        grey.append(f"seed {plan.evolution.seed}")
    grey.append(f"begun {ago(run.created, time.time())}")
    facts = [f"generation **{done}**{of}", *(f":gray[{one}]" for one in grey)]
    go_on = "Resume" if run.generations else "Start again"
    standing(store, run, TEXTS, facts, go_on=go_on)
    removable(store, run, "Nothing was evolved; this frees its name.")


def removable(store: Store, run: RunSummary, help: str) -> None:
    """The button that removes a run of which nothing came."""
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.generations:
        button("Remove it", "remove", partial(_remove, store, run.id), icon="delete", help=help)


def _remove(store: Store, run_id: str) -> None:
    store.runs.delete(run_id)
    state.replace_params({})


def reached(store: Store, run: RunSummary) -> Reached:
    """How many generations are played, and how long the others take by the pace of the last five."""
    lineage = read_lineage(store, run)
    done, planned = (lineage.indices[-1] if lineage.indices else -1), lineage.planned or 1
    if done < 0:
        words = lineage.plan.survey_words if lineage.plan else "The encoder is loaded"
        return Reached(0, planned, f"{words}; then the start is validated")
    if done >= planned:
        return Reached(done, planned, "The last generation is kept; the controls are played")
    words = f"Generation {done + 1} of {planned} is being played"
    if done < 2:
        return Reached(done, planned, words)
    last = lineage.generations[-min(5, done + 1) :]
    pace_s = (last[-1].wall_s - last[0].wall_s) / max(1, last[-1].index - last[0].index)
    return Reached(done, planned, words, pace_s * (planned - done))


def before_the_first(run: RunSummary, noun: str = "generation") -> None:
    """The page of a run that has no generation, or no iteration."""
    if is_under_way(run):
        nothing_here(f"The first {noun} will appear here by itself.", ":material/hourglass_top:")
    else:
        did = "evolved" if noun == "generation" else "learned"
        nothing_here(f"It ended before its first {noun}: nothing was {did}.")


def duration(seconds: float) -> str:
    """How long something took, coarsely: `40 s`, `3.2 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
