"""One episode read whole, for a page that has to stand without the store."""

from __future__ import annotations

from dataclasses import dataclass

from core.episode import Decision, Episode, Status
from storage.labels import Label
from storage.mapping import removed
from storage.opinions import Opinion, Scope, read_opinions
from storage.steps import read_decision
from storage.store import Store
from storage.summaries import EpisodeSummary, TurnOutline, TurnText


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn begun: its outline, why it was chosen and what was sent and said."""

    outline: TurnOutline
    decision: Decision | None
    text: TurnText
    labels: tuple[Label, ...] = ()
    opinions: tuple[Opinion, ...] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """An episode's summary, the episode itself and every turn begun, the unfinished last one included."""

    summary: EpisodeSummary
    episode: Episode
    turns: tuple[PlayedTurn, ...]
    labels: tuple[Label, ...] = ()  # about the episode as a whole

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
    gone = removed(episode.meta, "texts"), removed(episode.meta, "texts", "prompts")
    labels, opinions = store.labels.of(episode_id), read_opinions(store, Scope(episode=episode_id), None)
    turns = []
    for outline in store.episodes.outline(episode_id):
        if turn := finished.get(outline.index):
            decision: Decision | None = turn.decision
            text = TurnText(turn.messages, turn.reply.text, turn.reply.reasoning, False, *gone)
        else:
            decision = read_decision(store, episode_id, outline.index)
            text = store.episodes.text(episode_id, outline.index)
        said = tuple(one for one in labels if one.place.index == outline.index)
        others = tuple(one for one in opinions if one.idx == outline.index)
        turns.append(PlayedTurn(outline, decision, text, said, others))
    whole = tuple(one for one in labels if one.place.index is None)
    return Played(store.episodes.summary(episode_id), episode, tuple(turns), whole)
