"""Heads: from hidden states to model and role logits, and from these to probabilities (NumPy, no torch).

The heads of the paper's table 3 and the turn-aware one of the authors' code, behind one interface: named arrays that
lie one after the other in a flat vector, and logits from states and vector. Shapes: d is the hidden size, rows the
models and roles together; every sum is in float64, so that batching cannot change a choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from core.draws import uniform
from core.episode import ROLE_ORDER
from core.errors import ConfigError

Array = NDArray[np.float64]
Numbers = NDArray[Any]  # of any precision
HeadKind = Literal["linear", "low-rank", "sparse", "block-diagonal-2", "block-diagonal-10", "turn-aware"]


@dataclass(frozen=True)
class Head:
    """The linear head, z = W h without a bias (paper eq. 5); the others change what stands between."""

    rows: int
    width: int
    #: Whether choices are the best of each softmax instead of drawn from it (table 3: block-diagonal-10 only).
    argmax: ClassVar[bool] = False

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The head's arrays in the order in which they lie in the vector."""
        return {"weight": (self.rows, self.width)}

    @property
    def size(self) -> int:
        """How many numbers the head has."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def arrays(self, vector: Numbers) -> dict[str, Numbers]:
        """The named arrays as views of a vector [size]."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            found[name] = vector[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
        return found

    def initial(self) -> Array:
        """Where an evolution begins, float64 [size]: zeros, so that every choice is equally likely."""
        return np.zeros(self.size)

    def neutral(self) -> Array:
        """A place near `initial` where every choice is equally likely, and small steps change that."""
        return self.initial()

    def read(self, state: Numbers, vector: Numbers, turns: Sequence[int] = ()) -> Mapping[str, Numbers]:
        """What each array that reads the state multiplies when the state is `state` [d] or [n, d]: name -> its
        input. Without `turns` [n] a turn is read as zeros."""
        return {"weight": state}

    def logits(self, states: Numbers, vector: Numbers, turns: Sequence[int]) -> Array:
        """Logits float64 [n, rows] of `states` [n, d] that were read before the turns `turns` [n], from 0."""
        arrays, inputs = self.arrays(vector), self.read(states, vector, turns)
        return np.concatenate([product(part, arrays[name]) for name, part in inputs.items()], axis=1)


class LowRankHead(Head):
    """z = 3 V ELU(U h), alpha 0.1, of the rank in the authors' code: 20 for 10 rows and 1,024 numbers, which
    gives the 20,680 of table 6 (the paper's text says 14)."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """U [rank, d] and V [rows, rank]."""
        return {"down": (self.rank, self.width), "up": (self.rows, self.rank)}

    @property
    def rank(self) -> int:
        """How many directions of the state the head reads."""
        n, d = self.rows, self.width
        wanted = max(int(0.75 * d * n / (d + n)), max(8, 2 * n))
        return max(1, min(wanted, int(min(d / 4, 32 * n))))

    def initial(self) -> Array:
        """Xavier-uniform, gain 1 for U and 3 for V, always the same: at zero no small step would change a thing."""
        arrays = []
        for (name, shape), gain in zip(self.shapes.items(), (1.0, 3.0), strict=True):
            bound = gain * math.sqrt(6 / sum(shape))
            arrays.append(bound * (2 * uniform(f"head/low-rank/{name}", math.prod(shape)) - 1))
        return np.concatenate(arrays)

    def neutral(self) -> Array:
        """The same U, but V at zero: every choice is equally likely, and a small step of V changes that."""
        vector = self.initial()
        vector[-self.rows * self.rank :] = 0.0
        return vector

    def logits(self, states: Numbers, vector: Numbers, turns: Sequence[int]) -> Array:
        arrays = self.arrays(vector)
        inner = product(states, arrays["down"])
        activated = np.where(inner > 0, inner, 0.1 * np.expm1(np.minimum(inner, 0.0)))
        return 3.0 * product(activated, arrays["up"])

    def read(self, state: Numbers, vector: Numbers, turns: Sequence[int] = ()) -> Mapping[str, Numbers]:
        return {"down": state}


class SparseHead(Head):
    """z = W (h alpha): only the k = d (1 - sigmoid(density)) best-scored numbers of the state are read.

    alpha is a softmax of their scores over a temperature in [1, 20], scaled to sum k. (In the authors' gradient
    training the choice is noisy; here every vector is one function, as in their evaluation.)"""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """W [rows, d], scores [d], and two single numbers."""
        return {
            "weight": (self.rows, self.width),
            "scores": (self.width,),
            "temperature": (1,),
            "density": (1,),
        }

    def initial(self) -> Array:
        """W zero, scores from N(0, 4) (always the same), temperature 10, density 0: half of the state is read."""
        u = uniform("head/sparse/scores", 2 * self.width).reshape(2, -1)
        scores = 2 * np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1])  # Box and Muller
        return np.concatenate([np.zeros(self.rows * self.width), scores, [10.0, 0.0]])

    def read(self, state: Numbers, vector: Numbers, turns: Sequence[int] = ()) -> Mapping[str, Numbers]:
        """W reads what alpha leaves of the state."""
        return {"weight": state * self._alpha(vector)}

    def _alpha(self, vector: Numbers) -> Array:
        arrays = {name: np.asarray(array, np.float64) for name, array in self.arrays(vector).items()}
        density = arrays["density"].item()
        read = 1 / (1 + math.exp(density)) if density < 700 else 0.0  # 1 - sigmoid(density)
        count = max(1, math.floor(self.width * read))
        best = np.argsort(-arrays["scores"], kind="stable")[:count]
        alpha = np.zeros(self.width)
        temperature = np.clip(arrays["temperature"].item(), 1.0, 20.0)
        alpha[best] = count * softmax(arrays["scores"][best] / temperature)
        return alpha


class BlockDiagonalHead(Head):
    """Each group of rows reads its own part of the state: W is block-diagonal."""

    @property
    def blocks(self) -> int:
        return min(2, self.rows)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """One array [rows of the block, numbers of the block] per block."""
        return {f"block_{k}": (len(r), len(d)) for k, (r, d) in enumerate(self._parts)}

    @property
    def _parts(self) -> list[tuple[range, range]]:
        """Rows and numbers of the state by block, as even as can be, the larger parts first."""
        rows, numbers = (
            [range(int(run[0]), int(run[-1]) + 1) for run in np.array_split(np.arange(count), self.blocks)]
            for count in (self.rows, self.width)
        )
        return list(zip(rows, numbers, strict=True))

    def read(self, state: Numbers, vector: Numbers, turns: Sequence[int] = ()) -> Mapping[str, Numbers]:
        """Each block reads its part of the state."""
        return {f"block_{k}": state[..., d.start : d.stop] for k, (_, d) in enumerate(self._parts)}


class OneBlockEachHead(BlockDiagonalHead):
    """One block per logit, chosen by argmax (block-diagonal-10 in table 3, where there are 10 logits)."""

    argmax = True

    @property
    def blocks(self) -> int:
        return self.rows


class TurnAwareHead(Head):
    """Linear over the state and a fixed sinusoidal embedding of the turn (the authors' code, not the paper)."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """W [rows, d + embedding]."""
        return {"weight": (self.rows, self.width + self.embedding)}

    @property
    def embedding(self) -> int:
        """Width of the turn's embedding."""
        return max(64, int(0.1 * self.width))

    def read(self, state: Numbers, vector: Numbers, turns: Sequence[int] = ()) -> Mapping[str, Numbers]:
        """W reads the state and the embedding of the turn."""
        embedded = np.zeros((*state.shape[:-1], self.embedding))
        if len(turns):
            half = -(-self.embedding // 2)
            angles = np.asarray(turns, np.float64)[:, None] / 10_000 ** (np.arange(half) / half)
            embedded = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, : self.embedding]
        return {"weight": np.concatenate([state, embedded], axis=-1)}


_HEADS: Mapping[str, type[Head]] = {
    "linear": Head,
    "low-rank": LowRankHead,
    "sparse": SparseHead,
    "block-diagonal-2": BlockDiagonalHead,
    "block-diagonal-10": OneBlockEachHead,
    "turn-aware": TurnAwareHead,
}


def head_of(kind: str, n_models: int, hidden_size: int) -> Head:
    """The head of a kind over a pool and an encoder. ConfigError when there is no such kind or it cannot fit."""
    if kind not in _HEADS:
        raise ConfigError(f"There is no head '{kind}': choose {', '.join(get_args(HeadKind))}.")
    head = _HEADS[kind](n_models + len(ROLE_ORDER), hidden_size)
    if isinstance(head, BlockDiagonalHead) and hidden_size < head.rows:
        raise ConfigError(
            f"A {kind} head has a block for each of {head.rows} logits, more than {hidden_size} numbers allow."
        )
    return head


def product(states: Numbers, weight: Numbers) -> Array:
    """`states` [n, d] times `weight` [rows, d], float64 [n, rows]."""
    return np.asarray(np.einsum("nd,rd->nr", np.asarray(states, np.float64), np.asarray(weight, np.float64)))


def split(z: Array, n_models: int) -> tuple[Array, Array]:
    """Logits [..., models + roles] as (models, roles), the roles in ROLE_ORDER."""
    if z.shape[-1] != n_models + len(ROLE_ORDER):
        raise ConfigError(
            f"A head for {n_models} models has {n_models + len(ROLE_ORDER)} rows, not {z.shape[-1]}."
        )
    return z[..., :n_models], z[..., n_models:]


def softmax(z: Numbers, mask: Sequence[bool] = ()) -> Array:
    """Probabilities over the last axis, float64; where `mask` is False the logit is minus infinity."""
    values = np.asarray(z, np.float64)
    if len(mask):
        allowed = np.asarray(mask, bool)
        if allowed.shape != values.shape[-1:]:
            raise ConfigError(f"The mask has {allowed.size} entries for {values.shape[-1]} choices.")
        if not allowed.any():
            raise ConfigError("Every choice is masked out; leave at least one model and one role allowed.")
        values = np.where(allowed, values, -np.inf)
    exponentials = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True), np.float64)


def common_mask(mask: Sequence[bool], own: Sequence[bool]) -> Sequence[bool]:
    """What the turn allowed and this coordinator may choose; empty for everything, also where nothing would be left."""
    if not (mask and own):
        return mask or own
    both = [one and other for one, other in zip(mask, own, strict=True)]
    return both if any(both) else ()
