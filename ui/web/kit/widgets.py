"""Small pieces that several pages share: buttons, links, downloads, marks of runs and episodes, accuracy figures, the
empty state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.analysis.metrics import wilson_interval
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import EpisodeSummary, PolicySummary, RunStatus, RunSummary
from storage.store import Store
from storage.upkeep.retention import last_removed
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    RUN_MARKS,
    STALLED,
    Mark,
    badge,
    correct_mark,
    label,
)
from ui.presentation.words import Generations, policy_name, strip_text
from ui.runs.plans import kind_of
from ui.web.kit import state
from ui.web.kit.figures import Estimate, estimates_figure


def run_mark(run: RunSummary, *, stalled: bool) -> Mark:
    """Where a run stands, in the words of its kind."""
    if stalled:
        return STALLED
    mark = RUN_MARKS[run.status]
    return replace(mark, word=kind_of(run).doing) if run.status is RunStatus.RUNNING else mark


def outcome_badge(summary: EpisodeSummary) -> str:
    """Right, wrong or not judged, as Streamlit markdown."""
    return badge(correct_mark(summary.correct))


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy's accuracy: `correct` of `n` finished episodes."""

    name: str
    correct: int
    n: int
    colour: str = FIRST_COLOUR

    @classmethod
    def of(cls, summary: PolicySummary, names: Generations) -> Standing:
        """From a run's policy summary; checkpoints stand out, the rest is grey."""
        colour = NEUTRAL_COLOUR if summary.generation is None else FIRST_COLOUR
        return cls(policy_name(summary.policy, names.get(summary.policy)), summary.correct, summary.n, colour)


def standings_figure(standings: Sequence[Standing]) -> go.Figure:
    """Accuracy of each policy with its 95 % interval, one line each, the best on top."""
    found = []
    for one in standings:
        if one.n:
            low, high = wilson_interval(one.correct, one.n)
            detail = f"{one.correct:,} of {one.n:,} right"
            found.append(Estimate(one.name, one.correct / one.n, low, high, detail, colour=one.colour))
    return estimates_figure(sorted(found, key=lambda one: -one.value), "answered right, with 95 % interval")


def ink() -> str:
    """The colour of numbers drawn on a chart's tinted cells."""
    return "#E4E9F0" if st.context.theme.type == "dark" else "#111827"


#: A line of an episode holds so many turns.
MOST_TURNS = 8


def episode_line(summary: EpisodeSummary, name: str) -> str:
    """One episode as a line of markdown under its link: outcome, strip, policy."""
    strip = label(strip_text(summary.strip, MOST_TURNS)) or "–"
    return f"{outcome_badge(summary)} · {strip} · :gray[{label(name, 60)}]"


def nothing_here(sentence: str, icon: str = ":material/inbox:") -> None:
    """The empty state: what is missing, said once; the caller adds the action that fills it."""
    st.markdown(f":gray[{icon} {sentence}]")


def popover(words: str, key: str, draw: Callable[[], object], *, icon: str = "", **look: Any) -> None:
    """A popover whose contents are read and drawn only while it is open. `icon` is the name of a Material symbol,
    `look` further arguments of the popover."""
    symbol = f":material/{icon}:" if icon else None
    look = {"type": "tertiary"} | look
    with st.popover(words, icon=symbol, on_change="rerun", key=key, **look) as opened:
        if opened.open:
            draw()


def download(words: str, data: Any, file_name: str, mime: str, *, key: str, **look: Any) -> None:
    """A button that saves `data`, or what it makes when it is clicked, as a file; the page stays as it is. `look`:
    further arguments of the button."""
    look = {"icon": ":material/download:"} | look
    st.download_button(words, data, file_name, mime, key=key, on_click="ignore", **look)


def states_removed(store: Store, where: EpisodeFilter | Sequence[str]) -> str:
    """A sentence, after a space, that says when hidden states of these episodes were removed; empty: never. Asked for
    where some are missing."""
    day = last_removed(store, "states", where)
    return f" Some hidden states were removed, last on {label(day, 20)}." if day else ""


def button(
    words: str, key: str, act: Callable[[], object] | None = None, *, icon: str = "", **look: Any
) -> bool:
    """A button. A click calls `act`; where a user's mistake prevents that, why is said in passing. `icon` is the name
    of a Material symbol, `look` further arguments of the button. Returns whether it was clicked."""
    symbol = f":material/{icon}:" if icon else None
    return st.button(words, key=key, on_click=act and state.click(act), icon=symbol, **look)


def tool(words: str, key: str, act: Callable[[], object] | None = None, **look: Any) -> bool:
    """A button without a frame, unless `look` says otherwise."""
    return button(words, key, act, **({"type": "tertiary"} | look))


def replay_link(words: str, episode: str, turn: int | None = None) -> None:
    """A link to an episode's replay, at a turn (from 1) where one is given; `words` are markdown."""
    state.page_link("replay", words, icon=":material/smart_display:", ep=episode, t=turn)
