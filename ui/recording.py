"""One recorded episode as pages read it: its head and outline at once, decisions and texts turn by turn."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from core.deciders import decider
from core.episode import Decision, Episode, Status
from storage.steps import read_decision, read_head
from storage.store import Store
from storage.summaries import EpisodeSummary, TurnOutline, TurnText


@dataclass(frozen=True, slots=True)
class Recording:
    """An episode without its turns, its summary, the outlines of its turns, and ways to read one turn."""

    store: Store
    summary: EpisodeSummary
    episode: Episode  # turns left out
    outlines: tuple[TurnOutline, ...]

    @property
    def running(self) -> bool:
        """Is it still being played?"""
        return self.episode.status is Status.RUNNING

    @property
    def models(self) -> tuple[str, ...]:
        """The pool slots in head order."""
        return self.episode.models

    def decided_by(self, index: int) -> str:
        """The policy that decided turn `index`."""
        return decider(self.episode.policy, self.episode.meta, index)

    def decision(self, index: int) -> Decision | None:
        """The decision of turn `index`; None when there is no such turn."""
        if self.outlines[index].stage == "finished":
            return _decision(self.store, self.store.url, self.episode.id, index)
        return read_decision(self.store, self.episode.id, index)

    def text(self, index: int) -> TurnText:
        """The texts of turn `index`, read only when they are shown."""
        return self.store.episodes.text(self.episode.id, index)


def open_recording(store: Store, episode_id: str) -> Recording:
    """The recording of an episode; StoreError when there is none with this id. Finished ones are
    remembered."""
    summary = store.episodes.summary(episode_id)
    if summary.status is Status.FINISHED:
        return _kept(store, store.url, summary)
    return _read(store, summary)


def _read(store: Store, summary: EpisodeSummary) -> Recording:
    outlines = tuple(store.episodes.outline(summary.id))
    return Recording(store, summary, read_head(store, summary.id), outlines)


@st.cache_resource(max_entries=64, show_spinner=False)
def _kept(_store: Store, url: str, summary: EpisodeSummary) -> Recording:
    return _read(_store, summary)


@st.cache_resource(max_entries=2048, show_spinner=False)
def _decision(_store: Store, url: str, episode_id: str, index: int) -> Decision | None:
    """Finished turns never change, so their decisions are kept (and with them their figures)."""
    return read_decision(_store, episode_id, index)
