"""What several checkpoints would choose at the same recorded turns: where they agree and differ (no torch).

Every checkpoint is shown the transcript as it was recorded (teacher-forced). A choice that the rounding of a stored
state could turn is too close to call: it counts neither as agreement nor as disagreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from core.analysis.head_lens import Choices, likeliest_choices, sampled_choices
from core.analysis.metrics import ClusteredShare
from core.episode import ROLE_ORDER
from core.heads import Array, split

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: In the place of a turn index: the two checkpoints never differ.
NEVER = -1


@dataclass(frozen=True, eq=False)
class Situations:
    """`n` recorded turns, those of an episode together and in order. Which episode and which task each belongs to,
    and its index, int [n]; what was allowed, bool [n, models] and [n, roles]; the uniform numbers that draw model and
    role, [n, 2], NaN where the likeliest is taken."""

    episodes: Ints
    tasks: Ints
    indices: Ints
    models: Flags
    roles: Flags
    draws: Array

    def __len__(self) -> int:
        return len(self.indices)

    def where(self, rows: Flags) -> Situations:
        """Those of the turns where `rows` [n] is True."""
        return Situations(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Picks:
    """What one checkpoint would choose at each turn: slot, place in ROLE_ORDER and whether rounding could turn either,
    each [n]; the probabilities, [n, models] and [n, roles]."""

    slots: Ints
    roles: Ints
    unsure: Flags
    model_probs: Array
    role_probs: Array

    @property
    def pairs(self) -> Ints:
        """Slot and role as one number: slot times roles plus role."""
        return self.slots * len(ROLE_ORDER) + self.roles

    @property
    def chances(self) -> Array:
        rows = np.arange(len(self.slots))
        return np.asarray(self.model_probs[rows, self.slots] * self.role_probs[rows, self.roles])


def picks(
    logits: Array,
    errors: Array,
    at: Situations,
    own: tuple[Sequence[bool], Sequence[bool]] = ((), ()),
    *,
    argmax: bool = False,
) -> Picks:
    """The choices by `logits` [n, models + roles] that are known up to `errors`. `own` masks what the checkpoint never
    chooses, models and roles; with `argmax` nothing is drawn."""
    n_models = at.models.shape[1]
    parts = zip(
        split(logits, n_models), split(errors, n_models), (at.models, at.roles), own, at.draws.T, strict=True
    )
    found = [
        _choices(z, error, _allowed(at_turn, mask), np.full(len(at), np.nan) if argmax else u)
        for z, error, at_turn, mask, u in parts
    ]
    model, role = found
    return Picks(model.places, role.places, model.unsure | role.unsure, model.probs, role.probs)


def _choices(z: Array, error: Array, allowed: Flags, u: Array) -> Choices:
    """The sampled choices where there is a uniform number, the likeliest elsewhere."""
    best = likeliest_choices(z, error, allowed)
    draws = np.isfinite(u)
    if not draws.any():
        return best
    sampled = sampled_choices(z, error, np.where(draws, u, 0.5), allowed)
    return Choices(
        np.where(draws, sampled.places, best.places),
        np.where(draws, sampled.leads, best.leads),
        np.where(draws, sampled.unsure, best.unsure),
        best.probs,
    )


def _allowed(at_turn: Flags, own: Sequence[bool]) -> Flags:
    """What the turn and the checkpoint both allow; where that is nothing, what the checkpoint allows."""
    mask = np.array(own, bool) if len(own) else np.ones(at_turn.shape[1], bool)
    both = at_turn & mask
    return np.where(both.any(axis=1, keepdims=True), both, mask)


@dataclass(frozen=True, eq=False)
class Agreement:
    """Two checkpoints' picks side by side, each [n]: whether they are the same, whether that is too close to call, and
    the divergence KL(A || B) of model and role together in nats (infinite where B never chooses what A may)."""

    at: Situations
    same: Flags
    close: Flags
    divergence: Array

    @property
    def called(self) -> Flags:
        """Where rounding leaves no doubt whether they agree, [n]."""
        return ~self.close

    @property
    def differs(self) -> Flags:
        """Where they surely choose otherwise, [n]."""
        return ~self.same & ~self.close

    @property
    def rate(self) -> float | None:
        """The share of turns with the same choice among the `called` ones; None when there is none."""
        n = int(self.called.sum())
        return int((self.same & self.called).sum()) / n if n else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `rate`; all turns of a task count as one draw."""
        hits = np.bincount(self.at.tasks, (self.same & self.called))
        return ClusteredShare.of(hits, np.bincount(self.at.tasks, self.called)).ci95

    def where(self, rows: Flags) -> Agreement:
        return Agreement(self.at.where(rows), self.same[rows], self.close[rows], self.divergence[rows])


def agreement(a: Picks, b: Picks, at: Situations) -> Agreement:
    """Where `a` and `b` choose the same. Two that rounding could turn are never said to agree, nor to differ."""
    return Agreement(
        at,
        a.pairs == b.pairs,
        a.unsure | b.unsure,
        kl_each(a.model_probs, b.model_probs) + kl_each(a.role_probs, b.role_probs),
    )


def kl_each(p: Array, q: Array) -> Array:
    """KL(p || q) in nats of each row's distributions [n, k], [n]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=1), 0.0))


@dataclass(frozen=True, eq=False)
class FirstDifferences:
    """Each episode's first turn at which two surely differ (NEVER without one), and whether every turn before it
    (without one: every turn) could be called, each [episodes]; `episodes` says which they are."""

    episodes: Ints
    turns: Ints
    sure: Flags


def first_differences(found: Agreement, lengths: Ints) -> FirstDifferences:
    """Where the two first differ, by episode; `lengths`: how many turns each was recorded with, judged or not."""
    at = found.at
    episodes, begins = np.unique(at.episodes, return_index=True)
    ends = [*begins[1:].tolist(), len(at)]
    turns = np.full(len(episodes), NEVER)
    sure = np.ones(len(episodes), bool)
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True)):
        differing = np.flatnonzero(found.differs[begin:end])
        until = begin + int(differing[0]) if len(differing) else end
        if len(differing):
            turns[row] = at.indices[until]
        # A turn that could not be judged could have been the first as well.
        expected = int(turns[row]) if len(differing) else int(lengths[episodes[row]])
        sure[row] = until - begin == expected and not found.close[begin:until].any()
    return FirstDifferences(episodes, turns, sure)


def confusion(a: Picks, b: Picks, called: Flags) -> Ints:
    """How often `b` would choose a pair where `a` would choose another or the same, [pairs of a, pairs of b]."""
    size = a.model_probs.shape[1] * a.role_probs.shape[1]
    flat = np.bincount(a.pairs[called] * size + b.pairs[called], minlength=size * size)
    return np.asarray(flat.reshape(size, size), np.int64)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Divergences at turn `index`: mean and quartiles (nats) of the finite among `n`, and how many are infinite."""

    index: int
    n: int
    mean: float
    low: float
    high: float
    infinite: int


def divergence_by_turn(found: Agreement) -> list[Divergence]:
    result = []
    for index in np.unique(found.at.indices).tolist():
        values = found.divergence[found.at.indices == index]
        finite = values[np.isfinite(values)]
        if len(finite):
            low, high = np.quantile(finite, [0.25, 0.75]).tolist()
            infinite = len(values) - len(finite)
            result.append(Divergence(index, len(values), float(finite.mean()), low, high, infinite))
    return result
