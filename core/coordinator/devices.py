"""Where an encoder reads and in what numbers: what this machine has, and what is taken of it."""

from __future__ import annotations

from typing import get_args

import torch

from core.errors import CheckpointError
from core.settings import DeviceKind


def devices_here() -> dict[DeviceKind, str]:
    """The devices of this machine and what each is, the quickest first."""
    found: dict[DeviceKind, str] = {}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU"
    return {**found, "cpu": f"{torch.get_num_threads()} threads"}


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
