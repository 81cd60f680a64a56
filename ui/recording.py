"""One recorded episode as pages read it: its head and outline at once, decisions and texts turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from core.deciders import decider
from core.episode import Decision, Episode, Status
from storage.steps import TurnAtHand, read_head, read_turns
from storage.store import Store
from storage.summaries import EpisodeSummary, TurnOutline, TurnText


@dataclass(frozen=True, slots=True)
class Recording:
    """An episode without its turns, its summary, the outlines of its turns, and ways to read one turn. `forked`: it is
    a fork or has forks; `labelled`: something was said about it."""

    store: Store
    summary: EpisodeSummary
    episode: Episode  # turns left out
    outlines: tuple[TurnOutline, ...]
    forked: bool = False
    labelled: bool = False
    at_hand: Mapping[int, TurnAtHand] = field(default_factory=dict)

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

    def around(self, index: int) -> Recording:
        """The recording with turn `index` and the one before it at hand, both read at once."""
        return replace(self, at_hand=read_turns(self.store, self.episode.id, {max(0, index - 1), index}))

    def decision(self, index: int) -> Decision | None:
        """The decision of turn `index`; None when there is no such turn."""
        found = self._turn(index)
        return found.decision if found else None

    def said(self, index: int) -> TurnText:
        """What turn `index` said, without what its model was sent."""
        found = self._turn(index)
        return found.said if found else self.text(index)

    def text(self, index: int) -> TurnText:
        """All texts of turn `index`; what its model was sent can be far longer than what it said."""
        return self.store.episodes.text(self.episode.id, index)

    def _turn(self, index: int) -> TurnAtHand | None:
        return self.at_hand.get(index) or read_turns(self.store, self.episode.id, {index}).get(index)


def open_recording(store: Store, episode_id: str) -> Recording:
    """The recording of an episode; StoreError when there is none with this id."""
    head = read_head(store, episode_id)
    outlines = (_kept if head.episode.status is Status.FINISHED else _outlines)(
        store, store.url, head.summary
    )
    return Recording(store, head.summary, head.episode, outlines, head.forked, head.labelled)


def _outlines(store: Store, url: str, summary: EpisodeSummary) -> tuple[TurnOutline, ...]:
    return tuple(store.episodes.outline(summary.id))


@st.cache_resource(max_entries=64, show_spinner=False)
def _kept(_store: Store, url: str, summary: EpisodeSummary) -> tuple[TurnOutline, ...]:
    """Finished turns never change, so their outlines are kept."""
    return _outlines(_store, url, summary)
