"""One episode with everything about it, for a page that has to do without the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.analysis.overruled import Pair, overruled_pair
from core.episode import Decision, Episode, Status
from storage.analysis.second_opinions import EpisodeScope, Opinion, read_opinions
from storage.reads.episode_steps import read_decision
from storage.rows.summaries import EpisodeSummary, TurnOutline, TurnText
from storage.shelves.labels import Label
from storage.store import Store
from ui.presentation.words import Generations, generations_of


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn that was begun: its outline, decision, texts, labels and second opinions, and what a person overruled."""

    outline: TurnOutline
    decision: Decision | None
    text: TurnText
    labels: tuple[Label, ...] = ()
    opinions: tuple[Opinion, ...] = ()
    proposed: Pair | None = None  # what a person overruled, where it is known


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode's summary, the episode itself and every turn begun, the unfinished last one included."""

    summary: EpisodeSummary
    episode: Episode
    turns: tuple[PlayedTurn, ...]
    labels: tuple[Label, ...] = ()  # about the episode as a whole
    names: Generations = field(default_factory=dict)  # by which its policies are called

    @property
    def outlines(self) -> tuple[TurnOutline, ...]:
        """The turns without their texts."""
        return tuple(turn.outline for turn in self.turns)

    @property
    def running(self) -> bool:
        """Is it still being played?"""
        return self.episode.status is Status.RUNNING


def read_played(store: Store, episode_id: str) -> PlayedEpisode:
    """The episode with everything it needs on a page; StoreError when there is none with this id."""
    episode = store.episodes.get(episode_id)
    finished = {turn.index: turn for turn in episode.turns}
    removed = episode.removed.get("texts"), episode.removed.get("texts", episode.removed.get("prompts"))
    labels, opinions = (
        store.labels.of(episode_id),
        read_opinions(store, EpisodeScope(episode=episode_id), None),
    )
    turns = []
    for outline in store.episodes.outline(episode_id):
        if turn := finished.get(outline.index):
            decision: Decision | None = turn.decision
            text = TurnText(turn.messages, turn.reply.text, turn.reply.reasoning, False, *removed)
        else:
            decision = read_decision(store, episode_id, outline.index)
            text = store.episodes.text(episode_id, outline.index)
        turn_labels = tuple(one for one in labels if one.place.index == outline.index)
        others = tuple(one for one in opinions if one.idx == outline.index)
        proposed = overruled_pair(decision, episode.models, episode, outline.index) if decision else None
        turns.append(PlayedTurn(outline, decision, text, turn_labels, others, proposed))
    own_labels = tuple(one for one in labels if one.place.index is None)
    summary = store.episodes.summary(episode_id)
    return PlayedEpisode(summary, episode, tuple(turns), own_labels, generations_of(store))
