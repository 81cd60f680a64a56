"""What every generation's head would choose at recorded turns: stored hidden states through stored heads, no model
asked.

States are kept as float16: a choice whose lead is within what that rounding can move is not claimed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.episode import Decision, Role
from core.errors import CheckpointError
from core.heads import Head, split
from core.rounding import likeliest, rounding
from storage.filters import EpisodeFilter
from storage.steps import read_decisions
from storage.store import Store
from storage.summaries import EpisodeSummary
from ui.lineage import Lineage

Array = NDArray[np.float64]

#: Recorded episodes that can be chosen from, and how many are shown at once.
OFFERED, MOST_PINS = 80, 6
#: What must be the same for two checkpoints to read the same state from a transcript.
_READING = ("input_format", "token_position", "dtype", "protocol")


@dataclass(frozen=True, slots=True)
class Line:
    """A recorded turn: the episode it belongs to, its index, and what was chosen then."""

    episode: EpisodeSummary
    index: int
    model: str
    role: Role


@dataclass(frozen=True, eq=False)
class Rescored:
    """What each generation would choose at each line. Arrays [lines, generations]: slots of `models`, places in
    ROLE_ORDER, the chosen pair's probability, the smaller of both leads in logits, and whether rounding alone could
    turn the choice. `tolerance` is the most that rounding can move a logit here; `deviation` the largest difference
    from recorded logits, where a generation of this run recorded the line itself."""

    models: tuple[str, ...]
    generations: tuple[int, ...]
    lines: tuple[Line, ...]
    slots: NDArray[np.int64]
    roles: NDArray[np.int64]
    chances: Array
    leads: Array
    unsure: NDArray[np.bool_]
    tolerance: float
    deviation: float | None


def heads_of(store: Store, lineage: Lineage) -> tuple[Checkpoint, ...]:
    """The checkpoint of every generation that has one, first to last; CheckpointError for a damaged one."""
    return _heads(store, store.url, lineage.run, len(lineage.generations))


@st.cache_resource(max_entries=8, show_spinner=False)
def _heads(_store: Store, url: str, run: str, n: int) -> tuple[Checkpoint, ...]:
    return tuple(
        Checkpoint.from_bytes(summary.config, weights)
        for summary, weights in _store.checkpoints.of_run(run)
        if summary.generation is not None
    )


# Which recorded episodes fit


def same_reading(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two checkpoints' configs name one encoder, read in one way; what SVF changes in it is not looked at."""
    one, other = ours.get("encoder", {}), theirs.get("encoder", {})
    name = "digest" if one.get("digest") and other.get("digest") else "name"
    same = one.get(name) == other.get(name) and one.get("hidden_size") == other.get("hidden_size")
    return same and all(ours.get(key) == theirs.get(key) for key in _READING)


def same_slots(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two checkpoints choose among the same models in the same order."""
    return list(ours.get("models", [])) == list(theirs.get("models", []))


def reads_alike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether a state that was read under one checkpoint's config is the one that the other's head would get."""
    plain = not ours.get("svf_layout") and not theirs.get("svf_layout")
    return plain and same_reading(ours, theirs) and same_slots(ours, theirs)


def offered(store: Store, lineage: Lineage) -> list[EpisodeSummary]:
    """Finished episodes of checkpoints that read as this run's do: those of its own last generation that played,
    before those of others, a few of every family first."""
    kept = {one.id: one for one in store.checkpoints.list()}
    ours = next((one for one in kept.values() if one.run_id == lineage.run), None)
    if ours is None:
        return []
    played = [kept[one.value] for one in store.episodes.facets().policy if one.value in kept]
    fitting = [one for one in played if reads_alike(ours.config, one.config)]
    fitting.sort(key=lambda one: (one.run_id == lineage.run, one.generation or 0), reverse=True)
    found: dict[str, EpisodeSummary] = {}
    for one in fitting:
        families = store.episodes.facets(EpisodeFilter(policy=one.id, status="finished")).family
        for family in sorted(families, key=lambda value: value.value):
            where = EpisodeFilter(policy=one.id, family=family.value, status="finished")
            for episode in store.episodes.page(where, order="oldest", limit=OFFERED // len(families)).items:
                if "swapped" not in episode.flags:  # whose turns are not all of one reading
                    found.setdefault(episode.id, episode)
        if len(found) >= OFFERED:
            break
    return list(found.values())


def default_pins(episodes: Sequence[EpisodeSummary]) -> list[str]:
    """One episode per family, in the order offered."""
    first: dict[str, str] = {}
    for one in episodes:
        first.setdefault(one.family, one.id)
    return list(first.values())[:MOST_PINS]


# Scoring


def rescore(store: Store, lineage: Lineage, episodes: Sequence[EpisodeSummary]) -> Rescored:
    """Every turn of the episodes through every generation's head. Remembered: nothing of it ever changes."""
    return _rescored(
        store, lineage, episodes, store.url, lineage.run, len(lineage.generations), _ids(episodes)
    )


def _ids(episodes: Sequence[EpisodeSummary]) -> tuple[str, ...]:
    return tuple(one.id for one in episodes)


@st.cache_resource(max_entries=32, show_spinner=False)
def _rescored(
    _store: Store,
    _lineage: Lineage,
    _episodes: Sequence[EpisodeSummary],
    url: str,
    run: str,
    n: int,
    ids: tuple[str, ...],
) -> Rescored:
    heads = heads_of(_store, _lineage)
    if not heads:
        raise CheckpointError("The store holds no checkpoint of this run: its heads cannot be applied.")
    width = heads[-1].encoder.hidden_size
    turns = [
        (Line(episode, index, decision.model, decision.role), decision)
        for episode in _episodes
        for index, decision in enumerate(read_decisions(_store, episode.id))
        if len(decision.hidden_state) == 2 * width
    ]
    return score(heads, [line for line, _ in turns], [decision for _, decision in turns])


def score(heads: Sequence[Checkpoint], lines: Sequence[Line], decisions: Sequence[Decision]) -> Rescored:
    """The choices of every head at every line, whose decisions hold the states and the masks."""
    models = heads[-1].models
    states = np.array([np.frombuffer(one.hidden_state, "<f2") for one in decisions], np.float64)
    states = states.reshape(len(decisions), heads[-1].encoder.hidden_size)
    turns = [line.index for line in lines]
    shape = (len(lines), len(heads))
    slots, roles = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    chances, leads, unsure = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
    tolerance = 0.0
    deviations: list[float] = []
    for column, checkpoint in enumerate(heads):
        vector = checkpoint.head_vector.astype(np.float64)
        z = checkpoint.head.logits(states, vector, turns)
        moved = rounding(checkpoint.head, states, vector)
        tolerance = max(tolerance, float(moved.max(initial=0.0)))
        for row, decision in enumerate(decisions):
            parts = zip(
                split(z[row], len(models)),
                split(moved[row], len(models)),
                (decision.model_mask, decision.role_mask),
                (checkpoint.model_mask, checkpoint.role_mask),
                strict=True,
            )
            picks = [likeliest(logits, error, allowed(mask, own)) for logits, error, mask, own in parts]
            slots[row, column], roles[row, column] = (pick.place for pick in picks)
            chances[row, column] = picks[0].chance * picks[1].chance
            leads[row, column] = min(pick.lead for pick in picks)
            unsure[row, column] = any(pick.unsure for pick in picks)
            if lines[row].episode.policy == checkpoint.id and decision.model_logits:
                recorded = np.array([*decision.model_logits, *decision.role_logits])
                deviations.append(float(np.abs(recorded - z[row]).max()))
    return Rescored(
        models,
        tuple(one.generation or 0 for one in heads),
        tuple(lines),
        slots,
        roles,
        chances,
        leads,
        unsure,
        tolerance,
        max(deviations, default=None),
    )


def allowed(mask: Sequence[bool], own: Sequence[bool]) -> Sequence[bool]:
    """What was allowed at the turn, less what this coordinator never chooses; empty for everything, also where nothing
    would be left."""
    if not (mask and own):
        return mask or own
    both = [one and other for one, other in zip(mask, own, strict=True)]
    return both if any(both) else ()


# The heads themselves


def head_rows(checkpoint: Checkpoint) -> Array | None:
    """What each logit reads of the state, [rows, numbers read]: rows that can be compared. None for a head that bends
    the state in between."""
    head, vector = checkpoint.head, checkpoint.head_vector.astype(np.float64)
    arrays = head.arrays(vector)
    if "up" in arrays:
        return None
    scales = head.read(np.ones(head.width), vector)
    if "weight" in arrays:
        return np.asarray(arrays["weight"] * np.where(_embedded(head, arrays), 1.0, scales["weight"]))
    places = head.read(np.arange(head.width, dtype=np.float64), vector)
    rows, start = np.zeros((head.rows, head.width)), 0
    for name, read in places.items():
        block = arrays[name]
        rows[start : start + len(block), read.astype(int)] = block
        start += len(block)
    return rows


def _embedded(head: Head, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Which columns of the weight read the turn and not the state."""
    return np.arange(arrays["weight"].shape[1]) >= head.width


def cosines(rows: Array) -> Array:
    """The cosine of every pair of rows; NaN for a row of zeros."""
    lengths = np.linalg.norm(rows, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((rows @ rows.T) / np.outer(lengths, lengths))
