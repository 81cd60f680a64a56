"""Heads over recorded hidden states: what another checkpoint's head would have chosen at recorded turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.analysis.rounding import likeliest_choice, rounding
from core.checkpoint import Checkpoint
from core.episode import Decision, Role
from core.heads import Array, common_mask, softmax, split
from storage.rows.summaries import EpisodeSummary


@dataclass(frozen=True, slots=True)
class RecordedTurn:
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
    lines: tuple[RecordedTurn, ...]
    slots: NDArray[np.int64]
    roles: NDArray[np.int64]
    chances: Array
    leads: Array
    unsure: NDArray[np.bool_]
    tolerance: float
    deviation: float | None


@dataclass(frozen=True, eq=False)
class Probabilities:
    """What every head would choose with which probability: models [turns, heads, slots], roles [turns, heads, roles]
    in ROLE_ORDER."""

    models: Array
    roles: Array


def probabilities(heads: Sequence[Checkpoint], states: Array, turns: Sequence[int]) -> Probabilities:
    """The probabilities of every head at `states` [n, d], which were read before the turns `turns` [n], from 0; what a
    checkpoint may not choose has 0."""
    models, roles = [], []
    for one in heads:
        z = one.head.logits(states, one.head_vector.astype(np.float64), turns)
        of_models, of_roles = split(z, len(one.models))
        models.append(softmax(of_models, one.model_mask))
        roles.append(softmax(of_roles, one.role_mask))
    return Probabilities(np.stack(models, axis=1), np.stack(roles, axis=1))


def score(
    heads: Sequence[Checkpoint], lines: Sequence[RecordedTurn], decisions: Sequence[Decision]
) -> Rescored:
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
            picks = [
                likeliest_choice(logits, error, common_mask(mask, own)) for logits, error, mask, own in parts
            ]
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
