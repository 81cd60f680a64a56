"""Small pieces that several pages show the same way: names, times, strips and accuracy figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from core.deciders import changes
from core.metrics import wilson_interval
from storage.filters import EpisodeFilter
from storage.retention import last_removed
from storage.store import Store
from storage.summaries import CheckpointSummary, EpisodeSummary, PolicySummary, RunStatus, RunSummary
from ui.estimates import Estimate, estimates_figure
from ui.reproduction import KEY as REPRODUCTION
from ui.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    REVISE,
    WARN_COLOUR,
    Mark,
    badge,
    correct_mark,
    label,
    one_line,
    strip_legend,
)

#: What the policies that need no checkpoint do, in a few words.
POLICY_WORDS = {
    "random": "random model and role",
    "random-model": "random model, fixed roles",
    "round-robin": "all models in turn",
}

#: Where a run stands.
RUN_MARKS: dict[RunStatus, Mark] = {
    RunStatus.QUEUED: Mark("…", ":material/hourglass_top:", "waiting", "blue", FIRST_COLOUR),
    RunStatus.RUNNING: Mark("▶", ":material/play_circle:", "playing", "blue", FIRST_COLOUR),
    RunStatus.FINISHED: Mark("■", ":material/task_alt:", "finished", "green", "#0B8A56"),
    RunStatus.INTERRUPTED: Mark("‖", ":material/pause_circle:", "interrupted", "orange", WARN_COLOUR),
    RunStatus.CANCELLED: Mark("✕", ":material/cancel:", "cancelled", "gray", "#8894A5"),
    RunStatus.FAILED: Mark("!", ":material/error:", "failed", "red", "#C2410C"),
}
#: What a run is whose process is gone or silent.
STALLED = Mark("!", ":material/heart_broken:", "stalled", "red", "#C2410C")


def who(policy: str, generation: int | None = None) -> str:
    """A policy as a reader knows it, plain text: `generation 30 (csv47tl0o65)`, `jack alone`."""
    if generation is not None:
        return f"generation {generation} ({policy})"
    if policy.startswith("single:"):
        return f"{one_line(policy.removeprefix('single:'), 40)} alone"
    return POLICY_WORDS.get(policy, one_line(policy, 40))


def deciders(
    policy: str,
    generation: int | None,
    meta: Mapping[str, str],
    born: Callable[[], Mapping[str, int | None]] = dict,
) -> str:
    """Who decided an episode, plain text, with whoever came in later: `jack alone, from turn 3 on random`. `born` gives
    the generations of checkpoints, and is asked only when there was somebody else."""
    later = changes(meta)
    known = {policy: generation, **(born() if later else {})}
    names = {turn: who(name, known.get(name)) for turn, name in ({0: policy} | later).items()}
    return ", ".join(f"from turn {turn + 1} on {name}" if turn else name for turn, name in names.items())


def run_words(run: RunSummary) -> str:
    """What a run is about, plain text: the row of a table it is, its name, or its tasks."""
    row = run.config.get(REPRODUCTION)
    if row:
        return f"{row['label']}, seed {row['seed']}"
    return one_line(str(run.config.get("name") or run.config.get("tasks", "")), 60)


def generations(checkpoints: Sequence[CheckpointSummary]) -> dict[str, int | None]:
    """Checkpoint id -> generation."""
    return {one.id: one.generation for one in checkpoints}


def ago(at: float, now: float) -> str:
    """How long ago, coarsely: `just now`, `5 min ago`, `3 days ago`."""
    seconds = max(0.0, now - at)
    for size, word in ((86400.0, "day"), (3600.0, "hour"), (60.0, "min")):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n} {word}{'s' if n > 1 and word != 'min' else ''} ago"
    return "just now"


def strip_text(strip: str) -> str:
    """A stored turn strip with the marks of this app: ✓ accept, ↻ revise."""
    return strip.replace("✗", REVISE.glyph)


def strip_key(listed: Iterable[EpisodeSummary]) -> str:
    """How the turn strips of these episodes are read, as markdown; which letter is which model, where they share one
    pool."""
    pools = {one.models for one in listed if one.models}
    return strip_legend(pools.pop() if len(pools) == 1 else ())


def outcome(summary: EpisodeSummary) -> str:
    """Right, wrong or not judged, as Streamlit markdown."""
    return badge(correct_mark(summary.correct))


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy's accuracy: `correct` of `n` finished episodes. `ends` is its 95 % interval when that is not
    Wilson's, as where tasks were played more than once."""

    name: str
    correct: int
    n: int
    colour: str = FIRST_COLOUR
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, summary: PolicySummary) -> Standing:
        """From a run's policy summary; checkpoints stand out, the rest is grey."""
        colour = NEUTRAL_COLOUR if summary.generation is None else FIRST_COLOUR
        return cls(who(summary.policy, summary.generation), summary.correct, summary.n, colour)


def standings_figure(standings: Sequence[Standing]) -> go.Figure:
    """Accuracy of each policy with its 95 % interval, one line each, first on top."""
    found = []
    for one in standings:
        if one.n:
            low, high = one.ends or wilson_interval(one.correct, one.n)
            told = f"{one.correct:,} of {one.n:,} right"
            found.append(Estimate(one.name, one.correct / one.n, low, high, told, colour=one.colour))
    return estimates_figure(found)


def is_dark() -> bool:
    """Whether the reader's page is dark."""
    return st.context.theme.type == "dark"


def ink() -> str:
    """The colour of numbers drawn on a chart's tinted cells."""
    return "#E4E9F0" if is_dark() else "#111827"


def episode_line(summary: EpisodeSummary, name: str) -> str:
    """One episode as a line of markdown under its link: outcome, strip, policy."""
    return f"{outcome(summary)} · {label(strip_text(summary.strip)) or '–'} · :gray[{label(name, 60)}]"


def worker_trouble(run: RunSummary, log: Path, doing: str, kept: str, *, stalled: bool) -> None:
    """What went wrong with a run's process: its sentence, its silence, and where it wrote what it said last."""
    if run.error:
        st.error(label(run.error, 400), icon=":material/error:")
    if stalled:
        said = f"The process that {doing} has gone silent. {kept}"
        if run.status is RunStatus.QUEUED:
            said = "No worker has come to take this run: start one with `trinity worker`, or try again here."
        st.warning(said, icon=":material/heart_broken:")
    if (stalled or run.error) and log.exists() and log.stat().st_size:
        st.caption(f"What the process said last is in {label(str(log), 400)}")


def nothing_here(sentence: str, icon: str = ":material/inbox:") -> None:
    """The empty state: what is missing, said once; the caller adds the action that fills it."""
    st.markdown(f":gray[{icon} {sentence}]")


def states_removed(store: Store, where: EpisodeFilter | Sequence[str]) -> str:
    """A sentence, after a space, that says when hidden states of these episodes were removed; empty: never. Asked for
    where some are missing."""
    day = last_removed(store, "states", where)
    return f" Some hidden states were removed, last on {label(day, 20)}." if day else ""
