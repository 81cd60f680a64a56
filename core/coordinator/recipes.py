"""How far a checkpoint's decisions agree with its own where its encoder computes on another recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.checkpoint import Checkpoint, Recipe
from core.episode import Decision


@dataclass(frozen=True, slots=True)
class Agreement:
    """How `n` decisions of a checkpoint on its own recipe compare to those on another: how many have the same likeliest
    model and role, and how far their logits lie apart at most. `of` says what was decided."""

    n: int
    same: int
    largest: float
    of: str

    @classmethod
    def between(cls, own: Sequence[Decision], other: Sequence[Decision], of: str) -> Agreement:
        """Of decisions about the same requests, in the same order, at least one."""
        same = sum(
            (a.argmax_model, a.argmax_role) == (b.argmax_model, b.argmax_role)
            for a, b in zip(own, other, strict=True)
        )
        logits = [np.array([(*one.model_logits, *one.role_logits) for one in some]) for some in (own, other)]
        return cls(len(own), same, float(np.abs(logits[0] - logits[1]).max()), of)

    def __str__(self) -> str:
        return (
            f"of {self.n} {self.of}, {self.same} ({100 * self.same / self.n:.0f} %) have the same likeliest choice, "
            f"and no logit differs by more than {self.largest:.2g}"
        )


def agreement_sentence(checkpoint: Checkpoint, recipe: Recipe, found: Agreement | None) -> str:
    """What to know before a checkpoint plays on another recipe than its own; None: nothing could be compared."""
    unknown = "how far its decisions agree is not known, as none of its own is recorded and its recipe is not at hand"
    return f"Checkpoint {checkpoint.id} was made in {checkpoint.recipe} and plays here in {recipe}: {found or unknown}."
