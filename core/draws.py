"""Keyed randomness: the same key string draws the same numbers in every process, in any order.

A draw is a pure function of its key (SHA-256 of the key's UTF-8 bytes keys a Philox4x64 counter generator),
so an episode's choices depend on neither what ran before it nor what runs beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def uniform(key: str, n: int = 1) -> NDArray[np.float64]:
    """`n` numbers uniform in [0, 1), shape (n,)."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    return generator.random(n)


def turn_key(seed: int, task_id: str, index: int) -> str:
    """What keys the random choices of a turn, from 0; the policy is no part of it (common random numbers)."""
    return f"{seed}/{task_id}/{index}"


def reply_seed(seed: int, task_id: str) -> int:
    """What an episode's models are asked with: the same for every policy, so that their chances are the same."""
    return derive_seed((seed, task_id))


def draw_index(probabilities: ArrayLike, u: float) -> int:
    """Index drawn from `probabilities` (of any sum; 0 is never drawn) by the uniform number `u`, by inverse CDF."""
    weights = np.asarray(probabilities, dtype=np.float64)
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))


def derive_seed(parts: Sequence[object]) -> int:
    """A 63-bit non-negative integer fixed by `parts`, for seeds handed to other generators."""
    digest = hashlib.sha256(
        "\x1f".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    ).digest()
    return int.from_bytes(digest[:8], "little") >> 1
