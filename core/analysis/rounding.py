"""What keeping a hidden state as float16 leaves uncertain: logits, the likeliest choice, a seeded draw (no torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.heads import Array, Head, softmax

#: Half a unit in the last of float16's 11 bits, and half of its smallest step near zero.
HALF_UNIT, HALF_STEP = 2.0**-11, 2.0**-25


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a softmax's places, its probability, its lead over the next in logits (infinite for an only choice), and
    whether rounding could have made it another: then it is not to be claimed."""

    place: int
    chance: float
    lead: float
    unsure: bool


@dataclass(frozen=True, eq=False)
class Choices:
    """The fields of `Choice` for many choices at once, each array [n], with the probabilities of all places [n, k]."""

    places: NDArray[np.int64]
    leads: Array
    unsure: NDArray[np.bool_]
    probs: Array

    @property
    def first(self) -> Choice:
        place = int(self.places[0])
        return Choice(place, float(self.probs[0, place]), float(self.leads[0]), bool(self.unsure[0]))


def rounding(head: Head, states: Array, vector: Array) -> Array:
    """The most that keeping `states` [n, d] as float16 can have moved each logit, [n, rows]: every number by half a
    unit of its last bit, all in the worst direction."""
    arrays = {name: np.abs(array) for name, array in head.arrays(vector).items()}
    slack = np.maximum(np.abs(states) * HALF_UNIT, HALF_STEP)
    # What a head reads of a state is a part of it, perhaps scaled by positive numbers.
    moved = np.concatenate([part @ arrays[name].T for name, part in head.read(slack, vector).items()], axis=1)
    # A low-rank head bends what it has read, never steeper than 1, and then triples it.
    return np.asarray(3.0 * moved @ arrays["up"].T if "up" in arrays else moved)


def read_half(hidden: bytes, width: int) -> NDArray[np.float64] | None:
    """A stored state, float64 [width]; None for one of another width, or with a number too large for float16."""
    if len(hidden) != 2 * width:
        return None
    state = np.frombuffer(hidden, "<f2").astype(np.float64)
    return state if np.isfinite(state).all() else None


def likeliest_choice(logits: Array, error: Array, mask: Sequence[bool] = ()) -> Choice:
    """The likeliest choice that the mask allows, of logits that are known up to `error`."""
    return likeliest_choices(logits[None], error[None], _rows(mask, logits)).first


def sampled_choice(logits: Array, error: Array, u: float, mask: Sequence[bool] = ()) -> Choice:
    """What the uniform number `u` draws from the softmax of logits that are known up to `error`; its `lead` is how
    far the logits could move before the draw is another."""
    return sampled_choices(logits[None], error[None], np.array([u]), _rows(mask, logits)).first


def _rows(mask: Sequence[bool], logits: Array) -> NDArray[np.bool_]:
    """The mask as the only row of an array; an empty one allows all."""
    return np.array([mask or [True] * len(logits)], bool)


def likeliest_choices(logits: Array, error: Array, allowed: NDArray[np.bool_]) -> Choices:
    """`likeliest_choice` for each row of `logits`, `error` and `allowed` [n, k]; every row allows a place."""
    rows = np.arange(len(logits))
    z = np.where(allowed, logits, -np.inf)
    best = np.argmax(z, axis=1)
    ahead = z[rows, best][:, None] - z
    ahead[rows, best] = np.inf
    unsure = (ahead <= error[rows, best][:, None] + error).any(axis=1)
    return Choices(best, ahead.min(axis=1, initial=np.inf), unsure, softmax(z))


def sampled_choices(logits: Array, error: Array, u: Array, allowed: NDArray[np.bool_]) -> Choices:
    """`sampled_choice` for each row of `logits`, `error` and `allowed` [n, k], by the uniform numbers `u` [n]."""
    rows = np.arange(len(logits))
    probs = softmax(np.where(allowed, logits, -np.inf))
    ends = np.cumsum(probs, axis=1)
    past = (ends <= (u * ends[:, -1])[:, None]).sum(axis=1)
    last = allowed.shape[1] - 1 - np.argmax(allowed[:, ::-1], axis=1)
    places = np.minimum(past, last)
    above = ends[rows, places]
    at = _log_odds(u)
    # A share c of the whole moves furthest when all within it move one way and all else the other:
    # its log odds then change by twice the error.
    slack = np.minimum(
        at - _log_odds(above - probs[rows, places]),
        np.where(places == last, np.inf, _log_odds(above)) - at,
    )
    most = np.where(allowed, error, 0.0).max(axis=1, initial=0.0)
    return Choices(places, slack / 2, slack / 2 <= most, probs)


def _log_odds(shares: Array) -> Array:
    """log(p / (1 - p)) of each share [n]; minus infinity from 1e-15 down, infinity from 1 - 1e-15 up."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(shares) - np.log1p(-shares)
    return np.where(shares <= 1e-15, -np.inf, np.where(shares >= 1.0 - 1e-15, np.inf, odds))
