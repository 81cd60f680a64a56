"""The linear head: from hidden states to model and role logits, probabilities and margins (no torch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import ROLE_ORDER
from core.errors import ConfigError

Probabilities = NDArray[np.float64]


def logits(states: NDArray[Any], heads: NDArray[Any]) -> NDArray[np.float64]:
    """z = W h (paper eq. 5, no bias), in float64 so that batching cannot change a choice.

    `states` [n, d]; `heads` [rows, d] for one head or [n, rows, d] for one head per state. Returns [n, rows].
    """
    h, w = np.asarray(states, np.float64), np.asarray(heads, np.float64)
    return np.asarray(np.einsum("nd,rd->nr" if w.ndim == 2 else "nd,nrd->nr", h, w))


def split(z: NDArray[np.float64], n_models: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logits [..., models + roles] as (models, roles), the roles in ROLE_ORDER."""
    if z.shape[-1] != n_models + len(ROLE_ORDER):
        raise ConfigError(
            f"A head for {n_models} models has {n_models + len(ROLE_ORDER)} rows, not {z.shape[-1]}."
        )
    return z[..., :n_models], z[..., n_models:]


def softmax(z: NDArray[Any], mask: Sequence[bool] = ()) -> Probabilities:
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


def margin(z: NDArray[Any] | Sequence[float], mask: Sequence[bool] = ()) -> float:
    """Distance between the two best allowed logits, infinite when only one is allowed."""
    values = np.asarray(z, np.float64)
    allowed = np.sort(values[np.asarray(mask, bool)] if len(mask) else values)
    return float(allowed[-1] - allowed[-2]) if allowed.size > 1 else float("inf")
