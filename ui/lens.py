"""A recorded decision looked at again: what made its logits, whether they can be recomputed, what else it could be.

Pure functions of stored values. What is recomputed from a float16 state is known up to a tolerance, and a choice that
the tolerance leaves open is never claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.draws import pick, uniform
from core.episode import ROLE_ORDER, Decision, Episode, Role
from core.heads import softmax, split
from core.metrics import kl_divergence
from core.rounding import Choice, drawn, likeliest, read_half, rounding
from core.session import draw_key

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lens:
    """A head on one stored state: `parts` [rows, n] add up to `logits` [rows], which are known up to `tolerance`
    [rows]. The first `width` parts are those of the state's numbers; a head that bends the state has none of these,
    and its `width` is 0."""

    state: Array
    parts: Array
    logits: Array
    tolerance: Array
    width: int


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of the difference of two logits: its `place` among the head's parts (-1: all others together), what
    it gives, and the state's number there."""

    place: int
    gives: float
    value: float = math.nan


@dataclass(frozen=True, slots=True)
class Check:
    """Recomputed logits beside recorded ones: the largest difference of one logit, and the most that rounding explains
    of any."""

    difference: float
    tolerance: float

    @property
    def matches(self) -> bool:
        """Whether every logit is where rounding can have left it."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, slots=True)
class Otherwise:
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


def look(checkpoint: Checkpoint, hidden: bytes, index: int) -> Lens | None:
    """The checkpoint's head on a state that was stored before turn `index`; None where no such state is stored."""
    state = read_half(hidden, checkpoint.encoder.hidden_size)
    if state is None:
        return None
    head, vector = checkpoint.head, checkpoint.head_vector.astype(np.float64)
    parts = head.parts(state, vector, index)
    return Lens(
        state=state,
        parts=parts,
        logits=head.logits(state[None], vector, [index])[0],
        tolerance=rounding(head, state[None], vector)[0],
        width=head.width if parts.shape[1] >= head.width else 0,
    )


def check(lens: Lens, decision: Decision) -> Check:
    """The logits of the lens against those that were recorded; the logit furthest beyond its own tolerance is told."""
    differences = np.abs(lens.logits - np.array([*decision.model_logits, *decision.role_logits]))
    # Sums of float64 in another order differ in their last bits, whatever the state was kept as.
    tolerance = lens.tolerance + 1e-9 * (1 + np.abs(lens.logits))
    worst = int(np.argmax(differences - tolerance)) if (differences > tolerance).any() else None
    if worst is not None:
        return Check(float(differences[worst]), float(tolerance[worst]))
    return Check(float(differences.max()), float(tolerance.max()))


def rival(logits: Sequence[float], chosen: int, mask: Sequence[bool] = ()) -> int | None:
    """The likeliest place besides the chosen one; None when nothing else was allowed."""
    others = [i for i in range(len(logits)) if i != chosen and (not mask or mask[i])]
    return max(others, key=lambda i: logits[i], default=None)


def ahead(lens: Lens, row: int, other: int, most: int = 12) -> list[Part]:
    """What put logit `row` ahead of logit `other`, the largest parts first and last all others together."""
    return _largest(lens.parts[row] - lens.parts[other], lens, most)


def pulls(lens: Lens, row: int, other: int) -> tuple[float, float]:
    """What speaks for logit `row` and what for logit `other`, each summed over all parts; both are positive, and their
    difference is the lead."""
    gives = lens.parts[row] - lens.parts[other]
    return float(gives[gives > 0].sum()), float(-gives[gives < 0].sum())


def moved(lens: Lens, before: Lens, row: int, other: int, most: int = 12) -> list[Part]:
    """What changed in that since the state `before`: the parts whose gift to the difference moved most."""
    now, then = (one.parts[row] - one.parts[other] for one in (lens, before))
    return _largest(now - then, lens, most)


def _largest(gives: Array, lens: Lens, most: int) -> list[Part]:
    order = np.argsort(-np.abs(gives), kind="stable")[:most]
    told = [
        Part(place, float(gives[place]), float(lens.state[place]) if place < lens.width else math.nan)
        for place in order.tolist()
        if gives[place] != 0
    ]
    rest = float(gives.sum() - sum(part.gives for part in told))
    return [*told, Part(-1, rest)] if len(gives) > len(told) else told


def without(
    decision: Decision, models: Sequence[str], episode: Episode, index: int, barred: frozenset[str]
) -> Otherwise | None:
    """The decision with some models and roles (by name) left out, from the recorded logits, exactly; None when no
    model or no role would be left."""
    left_out = (
        [name not in barred for name in models],
        [role.value not in barred for role in ROLE_ORDER],
    )
    masks = [
        tuple(a and b for a, b in zip(own or (True,) * len(kept), kept, strict=True))
        for own, kept in zip((decision.model_mask, decision.role_mask), left_out, strict=True)
    ]
    if not all(any(mask) for mask in masks):
        return None
    logits = np.array([*decision.model_logits, *decision.role_logits])
    return otherwise(decision, models, episode, index, logits, np.zeros(len(logits)), masks)


def otherwise(
    decision: Decision,
    models: Sequence[str],
    episode: Episode,
    index: int,
    logits: Array,
    tolerance: Array,
    masks: Sequence[Sequence[bool]],
) -> Otherwise:
    """The decision by other logits, known up to `tolerance`, under the masks of models and of roles."""
    parts = list(zip(split(logits, len(models)), split(tolerance, len(models)), masks, strict=True))
    probs = [softmax(z, mask) for z, _, mask in parts]
    best = [likeliest(z, error, mask) for z, error, mask in parts]
    told = replace(
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
    us = draws(decision, models, episode, index)
    draw = None
    if us is not None:
        draw = tuple(drawn(z, error, u, mask) for (z, error, mask), u in zip(parts, us, strict=True))
    kl = sum(
        kl_divergence(old, new.tolist())
        for new, old in zip(probs, (decision.model_probs, decision.role_probs), strict=True)
    )
    return Otherwise(told, (best[0], best[1]), draw, kl, float(tolerance.max(initial=0.0)))  # type: ignore[arg-type]


def draws(
    decision: Decision, models: Sequence[str], episode: Episode, index: int
) -> tuple[float, float] | None:
    """The two random numbers that drew this decision; None when nothing was drawn, or when they do not give what was
    recorded (as in a fork that keeps another episode's turns)."""
    if not decision.sampled or decision.origin == "override" or decision.model not in models:
        return None
    u = uniform(draw_key(episode, index), 2).tolist()
    if models[pick(decision.model_probs, u[0])] != decision.model:
        return None
    role = ROLE_ORDER[pick(decision.role_probs, u[1])]
    return None if decision.origin == "policy" and role is not decision.role else (u[0], u[1])
