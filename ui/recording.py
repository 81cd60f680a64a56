"""One recorded episode as pages read it: its head and outline at once, decisions and texts turn by turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import streamlit as st

from core.episode import Decision, Episode, Status
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
    def models(self) -> tuple[str, ...]:
        """The pool slots in head order."""
        return self.episode.models

    def decision(self, index: int) -> Decision | None:
        """The decision of turn `index`; None when there is no such turn."""
        turns = _whole(self.store, self.episode.id).turns
        return turns[index].decision if 0 <= index < len(turns) else None

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
    episode = dataclasses.replace(_whole(store, summary.id), turns=())
    return Recording(store, summary, episode, tuple(store.episodes.outline(summary.id)))


def _whole(store: Store, episode_id: str) -> Episode:
    return store.episodes.get(episode_id)


@st.cache_resource(max_entries=64, show_spinner=False)
def _kept(_store: Store, url: str, summary: EpisodeSummary) -> Recording:
    return _read(_store, summary)
