"""Is the reward's curvature separable over a head's logits? The block-separability of the paper's theory, estimated.

The paper (arXiv 2512.04695, definition 1) explains why sep-CMA-ES suffices by a Hessian of the expected reward that is
nearly block-diagonal. Here the blocks are the logits: row i of the head, which makes logit i from the hidden state.
Models and roles are drawn from softmaxes, so the Hessian follows from played episodes by the score function: it is the
mean over episodes of (reward - mean reward) times (g g' + the second derivatives of log p), where g is the gradient of
the log probability of all that an episode chose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.heads import Array

#: Directions of the hidden states in which the rows are looked at: all of them would need far more episodes.
DIRECTIONS = 3
#: Fewer episodes tell nothing.
FEWEST_EPISODES = 40
#: Shuffles of the rewards: what is found where there is nothing to find.
SHUFFLES = 20
SEED = 0


@dataclass(frozen=True, eq=False)
class Choices:
    """All drawn choices of some episodes, turn by turn: `states` [n, hidden size], the probabilities they were drawn
    from, `model_probs` [n, models] and `role_probs` [n, roles], the places `models` [n] and `roles` [n] that were
    chosen, the `episodes` [n] they belong to, and each episode's `rewards` [episodes]."""

    states: NDArray[np.float32]
    model_probs: Array
    role_probs: Array
    models: NDArray[np.int64]
    roles: NDArray[np.int64]
    episodes: NDArray[np.int64]
    rewards: Array


@dataclass(frozen=True, slots=True)
class Coupling:
    """How far a matrix is from block-diagonal, in three ways, each 0 for one that is: `spectral`, the norm of what is
    outside of the blocks over that of the blocks; `largest`, the largest block outside over the geometric mean of its
    two blocks inside; `row`, the largest sum over a row of blocks outside over the block inside."""

    spectral: float
    largest: float
    row: float


@dataclass(frozen=True, eq=False)
class BlockSeparability:
    """The estimate from `episodes` episodes. `curvature` [logits, logits] is each block's Frobenius norm, the sign of
    its trace kept; `coupling` that of the estimate and `by_chance` its mean under shuffled rewards. `outside` is the
    share of the squared curvature that lies outside of the blocks, without the share that is noise (by two halves of
    the episodes); None where `found` is False: the two halves then agree no better than under shuffled rewards, and
    none of the figures says anything."""

    episodes: int
    directions: int
    curvature: Array
    coupling: Coupling
    by_chance: Coupling
    found: bool
    outside: float | None


def block_separability(choices: Choices, directions: int = DIRECTIONS) -> BlockSeparability | None:
    """The Hessian's blocks, in the directions in which the states vary most, each scaled to a mean square of 1.

    None with fewer than FEWEST_EPISODES episodes, or when all of them were rewarded alike."""
    if len(choices.rewards) < FEWEST_EPISODES or np.ptp(choices.rewards) == 0:
        return None
    parts = _Parts.of(choices, directions)
    rng = np.random.default_rng(SEED)
    hessian = parts.hessian(choices.rewards)
    agreement, outside = parts.halves(choices.rewards, rng)
    shuffled = [rng.permutation(choices.rewards) for _ in range(SHUFFLES)]
    by_chance = [coupling(parts.hessian(rewards)) for rewards in shuffled]
    found = agreement > max(parts.halves(rewards, rng)[0] for rewards in shuffled)
    traces = np.trace(hessian, axis1=1, axis2=3)
    return BlockSeparability(
        episodes=len(choices.rewards),
        directions=hessian.shape[1],
        curvature=np.where(traces < 0, -1.0, 1.0) * _norms(hessian),
        coupling=coupling(hessian),
        by_chance=Coupling(
            *(
                float(np.mean([getattr(one, name) for one in by_chance]))
                for name in ("spectral", "largest", "row")
            )
        ),
        found=bool(found),
        outside=min(1.0, max(0.0, outside / agreement)) if found else None,
    )


def coupling(hessian: Array) -> Coupling:
    """The three distances of a Hessian [rows, directions, rows, directions] from block-diagonal."""
    rows, k = hessian.shape[:2]
    norms = _norms(hessian)
    inside, outside = np.diag(norms), norms - np.diag(np.diag(norms))
    blocks = np.einsum("iaib->iab", hessian)
    rest = hessian.copy()
    rest[np.arange(rows), :, np.arange(rows), :] = 0.0
    most = float(np.linalg.norm(blocks, 2, axis=(1, 2)).max())
    scale = np.sqrt(np.outer(inside, inside))
    return Coupling(
        spectral=_over(float(np.linalg.norm(rest.reshape(rows * k, rows * k), 2)), most),
        largest=max(map(_over, outside.ravel().tolist(), scale.ravel().tolist())),
        row=max(map(_over, outside.sum(axis=1).tolist(), inside.tolist())),
    )


def _over(part: float, whole: float) -> float:
    """`part / whole`; 0 for nothing of nothing."""
    return part / whole if whole else (math.inf if part else 0.0)


def _norms(hessian: Array) -> Array:
    found: Array = np.sqrt(np.einsum("iajb,iajb->ij", hessian, hessian))
    return found


@dataclass(frozen=True, eq=False)
class _Parts:
    """What every Hessian needs, per episode: `gradients` [episodes, rows, directions] and `seconds`
    [episodes, rows, rows, directions, directions], the second derivatives of the log probability."""

    gradients: Array
    seconds: Array

    @classmethod
    def of(cls, choices: Choices, directions: int) -> _Parts:
        x = _directions(choices.states.astype(float), directions)
        n, m = choices.model_probs.shape
        k, rows, episodes = x.shape[1], m + choices.role_probs.shape[1], len(choices.rewards)
        drawn = (
            (slice(0, m), choices.model_probs, choices.models),
            (slice(m, rows), choices.role_probs, choices.roles),
        )
        deviations, curvatures = np.zeros((n, rows)), np.zeros((n, rows, rows))
        for span, p, chosen in drawn:
            deviations[:, span] = np.eye(p.shape[1])[chosen] - p
            curvatures[:, span, span] = p[:, :, None] * p[:, None, :] - p[:, :, None] * np.eye(p.shape[1])
        gradients = np.zeros((episodes, rows, k))
        np.add.at(gradients, choices.episodes, deviations[:, :, None] * x[:, None, :])
        seconds = np.zeros((episodes, rows, rows, k, k))
        for turn in range(n):  # one at a time: all at once would be a matrix of the head's size per turn
            seconds[choices.episodes[turn]] += np.multiply.outer(curvatures[turn], np.outer(x[turn], x[turn]))
        return cls(gradients, seconds)

    def hessian(self, rewards: Array, used: NDArray[np.int64] | None = None) -> Array:
        """[rows, directions, rows, directions] over the `used` episodes, else over all."""
        some = np.arange(len(rewards)) if used is None else used
        weights = (rewards[some] - rewards[some].mean()) / len(some)
        g = self.gradients[some]
        products = np.einsum("e,eia,ejb->iajb", weights, g, g, optimize=True)
        seconds = np.einsum("e,eijab->iajb", weights, self.seconds[some], optimize=True)
        found: Array = products + seconds
        return found

    def halves(self, rewards: Array, rng: np.random.Generator) -> tuple[float, float]:
        """The squared curvature in all and outside of the blocks, as products of what two halves of the episodes say:
        noise, which they do not share, has a mean of 0 there."""
        order = rng.permutation(len(rewards))
        one, two = (self.hessian(rewards, half) for half in np.array_split(order, 2))
        products = np.einsum("iajb,iajb->ij", one, two)
        return float(products.sum()), float(products.sum() - np.trace(products))


def _directions(states: Array, directions: int) -> Array:
    """The states [n, d] in their leading directions [n, at most directions], each with a mean square of 1."""
    left, values, _ = np.linalg.svd(states, full_matrices=False)
    real = values > 1e-9 * (values[0] if len(values) else 0.0)
    found: Array = left[:, real][:, :directions] * np.sqrt(len(states))
    return found


def gain_over_random_search(generations: Array) -> Array:
    """How the lead of CMA-ES over random search grows with the generations T by the paper's proposition 1, where each
    has 16 T trials: T / ln(max(e, floor(16 T))), without its constants, which the paper does not give."""
    found: Array = generations / np.log(np.maximum(math.e, np.floor(16 * generations)))
    return found
