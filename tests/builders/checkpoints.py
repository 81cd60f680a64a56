"""A checkpoint of any head over any models, for a tiny encoder that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity


def checkpoint(
    models: Sequence[str] = ("ada", "bo", "cy"),
    width: int = 4,
    kind: str = "linear",
    *,
    seed: int | None = None,
    spread: float = 1.0,
    **fields: Any,
) -> Checkpoint:
    """Generation 0 as its head begins; with a `seed` an evolved one, its numbers away from there by `spread` (a
    standard deviation). `width` is the hidden state's; `fields` as in Checkpoint."""
    start = Checkpoint.begin(models, EncoderIdentity("tiny", width, digest="d"), head_kind=kind, **fields)
    if seed is None:
        return start
    moved = start.vector + np.random.default_rng(seed).normal(size=len(start.vector)) * spread
    return start.with_vector(moved, **{"generation": None, "kind": "evolved", **fields})
