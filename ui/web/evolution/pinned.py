"""What every generation's head would choose at recorded turns: stored hidden states through stored heads, no model
asked.

States are kept as float16: a choice whose lead is within what that rounding can move is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import streamlit as st

from core.checkpoint import Checkpoint, reads_alike
from core.errors import CheckpointError
from storage.analysis.counterfactual import RecordedTurn, Rescored, score
from storage.filters.episode_filter import EpisodeFilter
from storage.reads.episode_steps import read_decisions
from storage.rows.summaries import CheckpointSummary, EpisodeSummary
from storage.store import Store
from ui.web.evolution.course import Lineage

#: Recorded episodes that can be chosen from, and how many are shown at once.
OFFERED, MOST_PINS = 80, 6
#: The episodes that totals count: no fork, no live play, nothing decided by hand.
_COUNTED = EpisodeFilter(status="finished", forks="without")


#: How a cache tells its arguments apart; nothing of a generation or of a finished episode ever changes.
HASHES: dict[str | type[Any], Callable[[Any], Any]] = {
    Store: attrgetter("url"),
    Lineage: attrgetter("run", "indices"),
    EpisodeSummary: attrgetter("id"),
}


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=HASHES)
def heads_of(store: Store, lineage: Lineage) -> tuple[Checkpoint, ...]:
    """The checkpoint of every generation that has one, first to last; CheckpointError for a damaged one."""
    return tuple(store.checkpoints.of_run(lineage.run))


# Which recorded episodes fit


def offered(store: Store, lineage: Lineage) -> list[EpisodeSummary]:
    """Finished episodes of checkpoints that read as this run's do: those of its own last generation that played,
    before those of others, a few of every family first. Only such as totals count: what a person plays beside them
    changes nothing here."""
    fitting = _reading_alike(store, lineage)
    found: dict[str, EpisodeSummary] = {}
    for one in fitting:
        families = store.episodes.facets(replace(_COUNTED, policy=one.id)).family
        for family in sorted(families, key=lambda value: value.value):
            where = replace(_COUNTED, policy=one.id, family=family.value)
            for episode in store.episodes.page(where, order="oldest", limit=OFFERED // len(families)).items:
                found.setdefault(episode.id, episode)
        if len(found) >= OFFERED:
            break
    return list(found.values())


def own_plays(store: Store, lineage: Lineage) -> list[EpisodeSummary]:
    """The newest finished live plays, and plays with decisions by hand, of checkpoints that read as this run's do."""
    fitting = {one.id for one in _reading_alike(store, lineage)}
    where = EpisodeFilter(status="finished", q="measured == False and evolution == False")
    played = store.episodes.page(where, limit=OFFERED).items
    # The turns of a play that was handed to another policy are not all of one reading.
    return [one for one in played if one.policy in fitting and "swapped" not in one.flags]


def _reading_alike(store: Store, lineage: Lineage) -> list[CheckpointSummary]:
    """The checkpoints that read as this run's do, its own and the latest generations first."""
    checkpoints = store.checkpoints.list()
    ours = next((one for one in checkpoints if one.run_id == lineage.run), None)
    if ours is None:
        return []
    fitting = [one for one in checkpoints if reads_alike(ours.config, one.config)]
    return sorted(fitting, key=lambda one: (one.run_id == lineage.run, one.generation or 0), reverse=True)


def default_pins(episodes: Sequence[EpisodeSummary]) -> list[str]:
    """One episode per family, in the order offered."""
    first: dict[str, str] = {}
    for one in episodes:
        first.setdefault(one.family, one.id)
    return list(first.values())[:MOST_PINS]


# Scoring


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def rescore(store: Store, lineage: Lineage, episodes: Sequence[EpisodeSummary]) -> Rescored:
    """Every turn of the episodes through every generation's head."""
    heads = heads_of(store, lineage)
    if not heads:
        raise CheckpointError("The store holds no checkpoint of this run: its heads cannot be applied.")
    width = heads[-1].encoder.hidden_size
    turns = [
        (RecordedTurn(episode, index, decision.model, decision.role), decision)
        for episode in episodes
        for index, decision in enumerate(read_decisions(store, episode.id))
        if len(decision.hidden_state) == 2 * width
    ]
    return score(heads, [line for line, _ in turns], [decision for _, decision in turns])
