"""What chosen checkpoints make of recorded turns, from stored states, recorded logits and second opinions; no model
is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.analysis.agreement import (
    Agreement,
    FirstDifferences,
    Flags,
    Picks,
    Situations,
    agreement,
    first_differences,
    picks,
)
from core.analysis.head_lens import rounding, sampled_choices
from core.checkpoint import Checkpoint, same_reading
from core.draws import turn_key, uniform
from core.episode import ROLE_ORDER
from core.errors import ConfigError
from core.heads import Array
from storage.analysis.second_opinions import (
    EpisodeScope,
    JudgedEpisode,
    JudgedTurn,
    JudgedTurns,
    Opinion,
    read_judged,
    read_opinions,
)
from storage.store import Store

#: How many checkpoints can be put side by side.
MOST_CHECKPOINTS = 8


class Source(StrEnum):
    """Where a checkpoint's logits at a turn come from, or why there are none."""

    RECORDED = "recorded"  # it decided the turn itself
    REREAD = "reread"  # it has read the transcript again
    STATE = "state"  # its head on the stored state
    OTHER_POOL = "other_pool"
    OTHER_PROTOCOL = "other_protocol"
    OTHER_TEXT = "other_text"  # read again, but not the text that was recorded
    SVF = "svf"
    NO_STATE = "no_state"
    OTHER_READING = "other_reading"


HAS_LOGITS = (Source.RECORDED, Source.REREAD, Source.STATE)
#: What reading the transcript again would mend.
CAN_BE_READ = (Source.SVF, Source.NO_STATE, Source.OTHER_READING)
_CODES = {source: code for code, source in enumerate(Source)}


@dataclass(frozen=True, eq=False)
class CheckpointLogits:
    """One checkpoint's logits at every turn, float64 [n, rows] (0 where there are none), the most that rounding can
    have moved each, and where they come from (`sources` [n], codes of Source). `read` are the turns that it has read
    again."""

    checkpoint: Checkpoint
    logits: Array
    errors: Array
    sources: NDArray[np.int64]
    read: Flags
    devices: tuple[str, ...]
    head_proof: Proof
    reread_proof: Proof

    def with_source(self, *sources: Source) -> Flags:
        """Where the logits have one of these sources, [n]."""
        return np.asarray(np.isin(self.sources, [_CODES[source] for source in sources]))


@dataclass(frozen=True, slots=True)
class Proof:
    """Logits compared with those that the checkpoint itself recorded at `n` turns: the largest difference, how many
    were further apart than their tolerance, and how many likeliest choices are the same."""

    n: int = 0
    largest: float = 0.0
    beyond: int = 0
    same: int = 0


@dataclass(frozen=True, eq=False)
class PolicyDiff:
    """Recorded turns and what each checkpoint, the first of them the baseline, makes of them."""

    judged: JudgedTurns
    judgements: tuple[CheckpointLogits, ...]
    situations: Situations
    by_draw: bool
    unrepeated: int

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(one.checkpoint for one in self.judgements)

    @cached_property
    def used(self) -> Flags:
        """The turns at which every checkpoint has logits, [n]."""
        return np.asarray(np.all([one.with_source(*HAS_LOGITS) for one in self.judgements], axis=0))

    @cached_property
    def turns(self) -> list[JudgedTurn]:
        return [self.judged.turns[row] for row in np.flatnonzero(self.used)]

    @cached_property
    def at(self) -> Situations:
        return self.situations.where(self.used)

    @cached_property
    def picks(self) -> tuple[Picks, ...]:
        return tuple(
            picks(
                one.logits[self.used],
                one.errors[self.used],
                self.at,
                (one.checkpoint.model_mask, one.checkpoint.role_mask),
                argmax=one.checkpoint.head.argmax,
            )
            for one in self.judgements
        )

    @cached_property
    def agreements(self) -> tuple[Agreement, ...]:
        """The baseline compared with each of the others, over the used turns."""
        base, *others = self.picks
        return tuple(agreement(base, other, self.at) for other in others)

    @cached_property
    def partings(self) -> tuple[FirstDifferences, ...]:
        lengths = np.bincount(self.situations.episodes)
        return tuple(first_differences(one, lengths) for one in self.agreements)

    @property
    def tolerance(self) -> float:
        """The most that the rounding of a used state can have moved a logit."""
        return max((float(one.errors[self.used].max(initial=0.0)) for one in self.judgements), default=0.0)

    def families(self) -> list[str]:
        return [self.judged.episodes[turn.episode_id].family for turn in self.turns]

    def skipped(self) -> dict[Source, int]:
        """How many turns are not used, by the first reason that is found."""
        codes = np.stack([one.sources for one in self.judgements])
        without = [_CODES[source] for source in Source if source not in HAS_LOGITS]
        counts: Counter[Source] = Counter()
        for column in codes[:, ~self.used].T:
            counts[list(Source)[min(code for code in column if code in without)]] += 1
        return dict(counts)

    def readable(self) -> dict[str, int]:
        """How many turns each checkpoint would have to read again to judge them, those with any."""
        found = {one.checkpoint.id: int(one.with_source(*CAN_BE_READ).sum()) for one in self.judgements}
        return {checkpoint: n for checkpoint, n in found.items() if n}


def read_diff(store: Store, scope: EpisodeScope, ids: Sequence[str], *, by_draw: bool = False) -> PolicyDiff:
    """The turns of a scope as the checkpoints with these ids see them. ConfigError when they cannot be compared,
    StoreError for an id that is not kept."""
    checkpoints = _checkpoints(store, ids)
    slots = checkpoints[0].models
    for one in checkpoints:
        if one.models != slots:
            raise ConfigError(
                f"Checkpoint {one.id} chooses among {', '.join(one.models)}, but {checkpoints[0].id} among "
                f"{', '.join(slots)}: compare checkpoints of one pool."
            )
    judged = read_judged(store, scope)
    opinions = read_opinions(store, scope, ids, max(1, len(judged.episodes)))
    configs = configs_of(store, judged)
    states = StoredStates(judged)
    judgements = tuple(
        logits_of(one, judged, [o for o in opinions if o.checkpoint_id == one.id], configs, states)
        for one in checkpoints
    )
    situations, unrepeated = _situations(judged, slots, configs, by_draw=by_draw)
    return PolicyDiff(judged, judgements, situations, by_draw, unrepeated)


def _checkpoints(store: Store, ids: Sequence[str]) -> list[Checkpoint]:
    if len(set(ids)) != len(ids) or not 2 <= len(ids) <= MOST_CHECKPOINTS:
        raise ConfigError(
            f"A policy diff needs 2 to {MOST_CHECKPOINTS} different checkpoints, the baseline first."
        )
    return [store.checkpoints.load(one) for one in ids]


def configs_of(store: Store, judged: JudgedTurns) -> dict[str, Mapping[str, Any]]:
    """The config of every checkpoint that recorded a judged episode."""
    recorders = {turn.policy for turn in judged.turns}
    return {one.id: one.config for one in store.checkpoints.list() if one.id in recorders}


# One checkpoint


def logits_of(
    checkpoint: Checkpoint,
    judged: JudgedTurns,
    opinions: Sequence[Opinion],
    configs: Mapping[str, Mapping[str, Any]],
    states: StoredStates,
) -> CheckpointLogits:
    """The checkpoint's logits at every turn: its own where it recorded the turn, else what it made of it when it read
    it again, else its head on the stored state, all states in one product."""
    n, rows, own = len(judged.turns), checkpoint.head.rows, checkpoint.to_config()
    logits, errors = np.zeros((n, rows)), np.zeros((n, rows))
    readings = {one: _Reading.of(own, config) for one, config in configs.items()}

    @cache
    def kind(episode_id: str, policy: str) -> int:
        return _CODES[_kind(judged.episodes[episode_id], checkpoint, readings.get(policy))]

    sources = np.array([kind(turn.episode_id, turn.policy) for turn in judged.turns], np.int64)
    stated, usable = states.of(sources == _CODES[Source.STATE], checkpoint.encoder.hidden_size)
    sources[(sources == _CODES[Source.STATE]) & ~stated] = _CODES[Source.NO_STATE]
    vector = checkpoint.head_vector.astype(np.float64)
    indices = [judged.turns[row].idx for row in np.flatnonzero(stated)]
    logits[stated] = checkpoint.head.logits(usable, vector, indices)
    errors[stated] = rounding(checkpoint.head, usable, vector)
    recorded = _recorded(judged, checkpoint, rows)
    head_proof = _prove(recorded, {row: (logits[row], errors[row]) for row in recorded if stated[row]})
    read = _reread(judged, opinions, readings, sources)
    reread_proof = _prove(recorded, {row: (z, np.zeros(rows)) for row, z in read.items()})
    for code, found in ((Source.REREAD, read), (Source.RECORDED, recorded)):
        for row, z in found.items():
            if sources[row] != _CODES[Source.OTHER_POOL]:
                logits[row], errors[row], sources[row] = z, 0.0, _CODES[code]
    seen = {(one.episode_id, one.idx) for one in opinions}
    again = np.array([(turn.episode_id, turn.idx) in seen for turn in judged.turns], bool)
    devices = tuple(sorted({one.device for one in opinions}))
    return CheckpointLogits(checkpoint, logits, errors, sources, again, devices, head_proof, reread_proof)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a recorder's reading compares with a checkpoint's: whether its states can be used, and whether the two read
    the very same tokens."""

    states: bool
    tokens: bool

    @classmethod
    def of(cls, own: Mapping[str, Any], config: Mapping[str, Any]) -> _Reading:
        plain = not own.get("svf_layout") and not config.get("svf_layout")
        # The tokens are the same whichever of them, and in whatever precision, is looked at.
        bare = [{**one, "token_position": None, "dtype": None} for one in (own, config)]
        return cls(plain and same_reading(own, config), same_reading(*bare))


def _kind(one: JudgedEpisode, checkpoint: Checkpoint, reading: _Reading | None) -> Source:
    """What an episode's turns are to a checkpoint before it has read them again."""
    if one.models != checkpoint.models:
        return Source.OTHER_POOL
    if one.protocol != checkpoint.protocol:
        return Source.OTHER_PROTOCOL
    if checkpoint.svf_layout:
        return Source.SVF
    if reading is None:
        return Source.NO_STATE
    return Source.STATE if reading.states else Source.OTHER_READING


class StoredStates:
    """The stored states of judged turns, unpacked once for all checkpoints that read as many numbers."""

    def __init__(self, judged: JudgedTurns) -> None:
        self._turns = judged.turns
        self._unpacked: dict[int, tuple[Flags, Array]] = {}

    def of(self, wanted: Flags, width: int) -> tuple[Flags, Array]:
        """Which of the wanted turns have a state of this width, all of it finite, [n]; and these states."""
        if width not in self._unpacked:
            self._unpacked[width] = self._unpack(width)
        usable, states = self._unpacked[width]
        chosen = wanted & usable
        return chosen, states if (chosen == usable).all() else states[wanted[usable]]

    def _unpack(self, width: int) -> tuple[Flags, Array]:
        usable = np.array([len(turn.hidden) == 2 * width for turn in self._turns], bool)
        packed = b"".join(turn.hidden for turn in self._turns if len(turn.hidden) == 2 * width)
        states = np.frombuffer(packed, "<f2").reshape(-1, width)
        finite = np.isfinite(states).all(axis=1)
        usable[np.flatnonzero(usable)[~finite]] = False
        return usable, states[finite].astype(np.float64)


def _recorded(judged: JudgedTurns, checkpoint: Checkpoint, rows: int) -> dict[int, Array]:
    return {
        row: np.frombuffer(turn.model_logits + turn.role_logits, "<f8")
        for row, turn in enumerate(judged.turns)
        if turn.policy == checkpoint.id and len(turn.model_logits) + len(turn.role_logits) == 8 * rows
    }


def _reread(
    judged: JudgedTurns,
    opinions: Sequence[Opinion],
    readings: Mapping[str, _Reading],
    sources: NDArray[np.int64],
) -> dict[int, Array]:
    """The logits of second opinions, by turn. One that read another text than was recorded is left out, and noted."""
    places = {(turn.episode_id, turn.idx): row for row, turn in enumerate(judged.turns)}
    found = {}
    for one in opinions:
        row = places.get((one.episode_id, one.idx))
        if row is None or sources[row] == _CODES[Source.OTHER_POOL]:
            continue
        reading = readings.get(judged.turns[row].policy)
        digest = judged.turns[row].prompt_digest
        if reading is not None and reading.tokens and digest and digest != one.prompt_digest:
            if sources[row] != _CODES[Source.STATE]:
                sources[row] = _CODES[Source.OTHER_TEXT]
        else:
            found[row] = np.frombuffer(one.model_logits + one.role_logits, "<f8")
    return found


def _prove(recorded: Mapping[int, Array], found: Mapping[int, tuple[Array, Array]]) -> Proof:
    both = [(recorded[row], *found[row]) for row in found if row in recorded]
    if not both:
        return Proof()
    theirs, ours, errors = (np.stack(part) for part in zip(*both, strict=True))
    apart = np.abs(theirs - ours)
    models = theirs.shape[1] - len(ROLE_ORDER)
    same = np.ones(len(both), bool)
    for part in (slice(None, models), slice(models, None)):
        same &= theirs[:, part].argmax(axis=1) == ours[:, part].argmax(axis=1)
    return Proof(len(both), float(apart.max()), int((apart > errors).any(axis=1).sum()), int(same.sum()))


# The turns


def _situations(
    judged: JudgedTurns, slots: Sequence[str], configs: Mapping[str, Mapping[str, Any]], *, by_draw: bool
) -> tuple[Situations, int]:
    """The turns as every checkpoint meets them, and how many draws were recorded that the seed does not repeat."""
    played, turns = judged.episodes, judged.turns
    order = {one: place for place, one in enumerate(played)}
    models = np.ones((len(turns), len(slots)), bool)
    roles = np.ones((len(turns), len(ROLE_ORDER)), bool)
    for row, turn in enumerate(turns):
        # What the recorder itself never chooses was not forbidden to others.
        barred = configs.get(turn.policy, {}).get("barred", ())
        models[row] = _open(turn.model_mask, slots, barred)
        roles[row] = _open(turn.role_mask, ROLE_ORDER, barred)
    draws, unrepeated = _draws(judged, len(slots)) if by_draw else (np.full((len(turns), 2), np.nan), 0)
    found = Situations(
        np.array([order[turn.episode_id] for turn in turns], np.int64),
        np.unique([played[turn.episode_id].task_key for turn in turns], return_inverse=True)[1].reshape(-1),
        np.array([turn.idx for turn in turns], np.int64),
        models,
        roles,
        draws,
    )
    return found, unrepeated


def _open(mask: Sequence[bool], names: Sequence[str], barred: Sequence[str]) -> list[bool]:
    if len(mask) != len(names):
        return [True] * len(names)
    return [allowed or name in barred for allowed, name in zip(mask, names, strict=True)]


def _draws(judged: JudgedTurns, n_models: int) -> tuple[Array, int]:
    """The numbers that drew each sampled decision, [n, 2]; NaN for others, and where they do not repeat the recorded
    choice, and how many of these there are."""
    wanted, numbers, probs = [], [], []
    sizes = (8 * n_models, 8 * len(ROLE_ORDER))
    unrepeated = 0
    for row, turn in enumerate(judged.turns):
        if not turn.sampled:
            continue
        if (len(turn.model_probs), len(turn.role_probs)) != sizes:
            unrepeated += 1
            continue
        one = judged.episodes[turn.episode_id]
        wanted.append(row)
        numbers.append(uniform(turn_key(one.seed, one.task_id, turn.idx), 2))
        probs.append(np.frombuffer(turn.model_probs + turn.role_probs, "<f8"))
    draws = np.full((len(judged.turns), 2), np.nan)
    if wanted:
        held = _repeats(judged, wanted, np.stack(numbers), np.stack(probs), n_models)
        draws[np.array(wanted)[held]] = np.stack(numbers)[held]
        unrepeated += int((~held).sum())
    return draws, unrepeated


def _repeats(judged: JudgedTurns, rows: Sequence[int], numbers: Array, probs: Array, n_models: int) -> Flags:
    """Where the numbers draw the recorded choice from the recorded probabilities, as far as it was drawn."""
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    none = np.zeros((len(rows), 1))
    models, roles = (
        sampled_choices(z, none, u, np.isfinite(z)).places
        for z, u in ((logs[:, :n_models], numbers[:, 0]), (logs[:, n_models:], numbers[:, 1]))
    )
    held = np.zeros(len(rows), bool)
    for place, row in enumerate(rows):
        turn = judged.turns[row]
        slots = judged.episodes[turn.episode_id].models
        same_model = turn.model == slots[models[place]]
        same_role = turn.origin == "suggested_role" or turn.role == ROLE_ORDER[roles[place]]
        held[place] = turn.origin == "override" or (same_model and same_role)
    return held
