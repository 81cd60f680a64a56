"""One episode read whole, for a page that has to stand without the store."""

from __future__ import annotations

from dataclasses import dataclass

from core.episode import Decision, Episode, Status
from storage.steps import read_decision
from storage.store import Store
from storage.summaries import EpisodeSummary, TurnOutline, TurnText


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn begun: its outline, why it was chosen and what was sent and said."""

    outline: TurnOutline
    decision: Decision | None
    text: TurnText


@dataclass(frozen=True, slots=True)
class Played:
    """An episode's summary, the episode itself and every turn begun, the unfinished last one included."""

    summary: EpisodeSummary
    episode: Episode
    turns: tuple[PlayedTurn, ...]

    @property
    def outlines(self) -> tuple[TurnOutline, ...]:
        """The turns without their texts."""
        return tuple(turn.outline for turn in self.turns)

    @property
    def running(self) -> bool:
        """Is it still being played?"""
        return self.episode.status is Status.RUNNING


def read_played(store: Store, episode_id: str) -> Played:
    """The episode with everything it needs on a page; StoreError when there is none with this id."""
    episode = store.episodes.get(episode_id)
    finished = {turn.index: turn for turn in episode.turns}
    turns = []
    for outline in store.episodes.outline(episode_id):
        if turn := finished.get(outline.index):
            text = TurnText(turn.messages, turn.reply.text, turn.reply.reasoning, partial=False)
            turns.append(PlayedTurn(outline, turn.decision, text))
        else:
            decision = read_decision(store, episode_id, outline.index)
            turns.append(PlayedTurn(outline, decision, store.episodes.text(episode_id, outline.index)))
    return Played(store.episodes.summary(episode_id), episode, tuple(turns))
