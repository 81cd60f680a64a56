"""How an encoder computes: the devices of this machine, which of them is taken, and how far a checkpoint's decisions
agree with its own where it is read on another recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from core.checkpoint import Checkpoint, Recipe
from core.episode import Decision
from core.errors import CheckpointError
from core.pocket.threads import SMALL
from core.processes import cores
from core.settings import DeviceKind
from core.tokens.files import encoder_size


def devices_here() -> dict[DeviceKind, str]:
    """The devices of this machine and what each is, the quickest first."""
    found: dict[DeviceKind, str] = {}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU"
    return {**found, "cpu": f"{cores()} cores"}


def chosen_device(device: str, *, small: bool) -> DeviceKind:
    """The kind of device that is meant: of "auto" the first that is here; for a `small` encoder the CPU, as its forward
    is over there before it has begun elsewhere. CheckpointError for one that is not here."""
    here = devices_here()
    if device == "auto":
        return "cpu" if small else next(iter(here))
    known: DeviceKind | None = next((one for one in get_args(DeviceKind) if one == device), None)
    if known is None:
        raise CheckpointError(
            f"The device must be one of auto, {', '.join(get_args(DeviceKind))}, not {device!r}."
        )
    if known not in here:
        raise CheckpointError(
            f"There is no device {known} here (torch {torch.__version__} finds {', '.join(here)}): leave --device out, "
            "or install torch for it."
        )
    return known


def is_small_folder(folder: Path) -> bool:
    """Whether an encoder's files hold so few numbers that one thread reads quickest."""
    try:
        return encoder_size(str(folder)) <= SMALL
    except CheckpointError:  # of files that cannot be read, loading says more
        return False


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
