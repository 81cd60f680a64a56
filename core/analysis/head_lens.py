"""A recorded decision looked at again: whether its logits can be recomputed, what else it could be, and what a policy
had decided where a person decided otherwise (no torch).

Pure functions of stored values. What is recomputed from a float16 state is known up to a tolerance, and a choice that
the tolerance leaves open is never claimed. A draw is a pure function of its key, so that what was drawn can be drawn
again from the recorded probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import kl_divergence
from core.checkpoint import Checkpoint
from core.draws import draw_index, turn_key, uniform
from core.episode import ROLE_ORDER, Decision, Episode, Protocol, Role
from core.heads import Array, Head, softmax, split

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


def likeliest_choices(logits: Array, error: Array, allowed: NDArray[np.bool_]) -> Choices:
    """The likeliest choice that `allowed` [n, k] leaves each row, one place at least, of `logits` [n, k] that are known
    up to `error`."""
    rows = np.arange(len(logits))
    z = np.where(allowed, logits, -np.inf)
    best = np.argmax(z, axis=1)
    ahead = z[rows, best][:, None] - z
    ahead[rows, best] = np.inf
    unsure = (ahead <= error[rows, best][:, None] + error).any(axis=1)
    return Choices(best, ahead.min(axis=1, initial=np.inf), unsure, softmax(z))


def sampled_choices(logits: Array, error: Array, u: Array, allowed: NDArray[np.bool_]) -> Choices:
    """What the uniform numbers `u` [n] draw from the softmaxes of such logits; a `lead` is how far they could move
    before the draw is another."""
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


@dataclass(frozen=True, eq=False)
class Lens:
    """A head on one stored state: its `logits` [rows], which are known up to `tolerance` [rows]."""

    logits: Array
    tolerance: Array


@dataclass(frozen=True, slots=True)
class LogitCheck:
    """Recomputed logits against recorded ones: the largest difference of one, and the most that rounding explains."""

    difference: float
    tolerance: float

    @property
    def matches(self) -> bool:
        """Whether every logit is where rounding can have left it."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class AlternativeDecision:
    """What would have been chosen instead: the likeliest pair and, where the choice was drawn, what the same random
    numbers would have drawn (None where it was not). `kl` is D_KL(recorded || other) of the joint choice, in nats."""

    decision: Decision  # with the other probabilities and the other argmax
    best: tuple[Choice, Choice]
    draw: tuple[Choice, Choice] | None
    kl: float
    tolerance: float  # the largest of the logits

    @property
    def unsure(self) -> bool:
        """Whether rounding leaves open what would have been chosen in the way this turn was chosen."""
        return any(choice.unsure for choice in self.draw or self.best)

    @property
    def pair(self) -> tuple[int, Role]:
        """What would have been chosen in the way this turn was chosen: model slot and role."""
        model, role = self.draw or self.best
        suggested = self.decision.origin == "suggested_role"  # by a Thinker, whatever the head would choose
        return model.place, self.decision.role if suggested else ROLE_ORDER[role.place]


def lens_of(checkpoint: Checkpoint, hidden: bytes, index: int) -> Lens | None:
    """The checkpoint's head on a state that was stored before turn `index`; None where no such state is stored."""
    state = read_half(hidden, checkpoint.encoder.hidden_size)
    if state is None:
        return None
    head, vector = checkpoint.head, checkpoint.head_vector.astype(np.float64)
    return Lens(head.logits(state[None], vector, [index])[0], rounding(head, state[None], vector)[0])


def compare_logits(lens: Lens, decision: Decision) -> LogitCheck:
    """The logits of the lens against the recorded ones; where any is beyond its own tolerance, the furthest such."""
    differences = np.abs(lens.logits - np.array([*decision.model_logits, *decision.role_logits]))
    # Sums of float64 in another order differ in their last bits, whatever the state was kept as.
    tolerance = lens.tolerance + 1e-9 * (1 + np.abs(lens.logits))
    if (differences > tolerance).any():
        worst = int(np.argmax(differences - tolerance))
        return LogitCheck(float(differences[worst]), float(tolerance[worst]))
    return LogitCheck(float(differences.max()), float(tolerance.max()))


def runner_up(logits: Sequence[float], chosen: int, mask: Sequence[bool] = ()) -> int | None:
    """The likeliest place besides the chosen one; None when nothing else was allowed."""
    others = [i for i in range(len(logits)) if i != chosen and (not mask or mask[i])]
    return max(others, key=lambda i: logits[i], default=None)


def decision_without(
    decision: Decision, models: Sequence[str], episode: Episode, index: int, barred: frozenset[str]
) -> AlternativeDecision | None:
    """The decision without some models and roles (by name), from the recorded logits; None when none would be left."""
    left_out = ([name not in barred for name in models], [role.value not in barred for role in ROLE_ORDER])
    masks = [
        tuple(a and b for a, b in zip(own or (True,) * len(kept), kept, strict=True))
        for own, kept in zip((decision.model_mask, decision.role_mask), left_out, strict=True)
    ]
    if not all(any(mask) for mask in masks):
        return None
    logits = np.array([*decision.model_logits, *decision.role_logits])
    return alternative_decision(decision, models, episode, index, logits, np.zeros(len(logits)), masks)


def alternative_decision(
    decision: Decision,
    models: Sequence[str],
    episode: Episode,
    index: int,
    logits: Array,
    tolerance: Array,
    masks: Sequence[Sequence[bool]],
) -> AlternativeDecision:
    """The decision by other logits, known up to `tolerance`, under the masks of models and of roles."""
    parts = list(zip(split(logits, len(models)), split(tolerance, len(models)), masks, strict=True))
    probs = [softmax(z, mask) for z, _, mask in parts]
    rows = [
        (z[None], error[None], np.array([mask or [True] * len(z)], bool)) for z, error, mask in parts
    ]  # of one decision each; an empty mask allows all
    best = [likeliest_choices(*row).first for row in rows]
    found = replace(
        decision,
        model_logits=tuple(parts[0][0].tolist()),
        role_logits=tuple(parts[1][0].tolist()),
        model_probs=tuple(probs[0].tolist()),
        role_probs=tuple(probs[1].tolist()),
        argmax_model=models[best[0].place],
        argmax_role=ROLE_ORDER[best[1].place],
        model_mask=tuple(masks[0]),
        role_mask=tuple(masks[1]),
    )
    us = recorded_draws(decision, models, episode, index)
    draw = None
    if us is not None:
        draw = tuple(
            sampled_choices(z, error, np.array([u]), allowed).first
            for (z, error, allowed), u in zip(rows, us, strict=True)
        )
    kl = sum(
        kl_divergence(old, new.tolist())
        for new, old in zip(probs, (decision.model_probs, decision.role_probs), strict=True)
    )
    return AlternativeDecision(found, (best[0], best[1]), draw, kl, float(tolerance.max(initial=0.0)))  # type: ignore[arg-type]


def recorded_draws(
    decision: Decision, models: Sequence[str], episode: Episode, index: int
) -> tuple[float, float] | None:
    """The two random numbers that drew this decision; None when nothing was drawn, or when they do not give what was
    recorded (as in a fork that keeps another episode's turns)."""
    if not decision.sampled or decision.origin == "override" or decision.model not in models:
        return None
    u = uniform(turn_key(episode.seed, episode.task.id, index), 2).tolist()
    if models[draw_index(decision.model_probs, u[0])] != decision.model:
        return None
    role = ROLE_ORDER[draw_index(decision.role_probs, u[1])]
    return None if decision.origin == "policy" and role is not decision.role else (u[0], u[1])


# The heads themselves


def head_rows(checkpoint: Checkpoint) -> Array | None:
    """What each logit reads of the state, [rows, numbers read], to compare; None for a head that bends the state."""
    head, vector = checkpoint.head, checkpoint.head_vector.astype(np.float64)
    arrays = head.arrays(vector)
    if "up" in arrays:
        return None
    scales = head.read(np.ones(head.width), vector)
    if "weight" in arrays:
        embedded = np.arange(arrays["weight"].shape[1]) >= head.width  # columns that read the turn
        return np.asarray(arrays["weight"] * np.where(embedded, 1.0, scales["weight"]))
    places = head.read(np.arange(head.width, dtype=np.float64), vector)
    rows, start = np.zeros((head.rows, head.width)), 0
    for name, read in places.items():
        block = arrays[name]
        rows[start : start + len(block), read.astype(int)] = block
        start += len(block)
    return rows


def cosines(rows: Array) -> Array:
    """The cosine of every pair of rows; NaN for a row of zeros."""
    lengths = np.linalg.norm(rows, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((rows @ rows.T) / np.outer(lengths, lengths))


Pair = tuple[str, Role]


def overruled_pair(decision: Decision, models: Sequence[str], episode: Episode, index: int) -> Pair | None:
    """The model and the role that were proposed for turn `index` before a person chose; None where nobody took the turn
    over, or where it cannot be told: by the released rules the Thinker before has a say in it, and a fork keeps the
    turns of an episode that drew with another key."""
    if decision.origin != "override" or episode.fork is not None or episode.protocol is Protocol.RELEASED:
        return None
    if not decision.model_probs or not decision.role_probs:
        return None
    if not decision.sampled:
        return (decision.argmax_model, decision.argmax_role) if decision.argmax_role is not None else None
    u = uniform(turn_key(episode.seed, episode.task.id, index), 2).tolist()
    return (
        models[draw_index(decision.model_probs, u[0])],
        ROLE_ORDER[draw_index(decision.role_probs, u[1])],
    )
