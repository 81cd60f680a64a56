"""The linear head: from hidden states to model and role logits and probabilities (no torch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import ROLE_ORDER
from core.errors import ConfigError

Probabilities = NDArray[np.float64]


def logits(states: NDArray[Any], head: NDArray[Any]) -> NDArray[np.float64]:
    """z = W h [n, rows] (paper eq. 5, no bias) of `states` [n, d] under `head` [rows, d].

    In float64 so that batching cannot change a choice."""
    return np.asarray(np.einsum("nd,rd->nr", np.asarray(states, np.float64), np.asarray(head, np.float64)))


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
