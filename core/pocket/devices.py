"""Where a language model computes and in what numbers: the devices of this machine, and which of them is taken."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from core.errors import CheckpointError
from core.pocket.threads import SMALL, suited_threads
from core.processes import cores
from core.settings import DeviceKind, Dtype
from core.tokens.files import encoder_size

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype)}


def devices_here() -> dict[DeviceKind, str]:
    """The devices of this machine and what each is, the quickest first."""
    found: dict[DeviceKind, str] = {}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU"
    return {**found, "cpu": f"{cores()} cores"}


def chosen_device(device: str, *, small: bool) -> DeviceKind:
    """The kind of device that is meant: of "auto" the first that is here; for a `small` model the CPU, as its forward
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
            f"There is no device {known} here (torch {torch.__version__} finds {', '.join(here)}): name another or "
            "none, or install torch for it."
        )
    return known


def chosen_computing(folder: Path, device: str, dtype: str | None) -> tuple[DeviceKind, Dtype]:
    """The device and the numbers of a folder's model: without a `dtype` bfloat16 on cuda and float32 elsewhere.
    CheckpointError for what is not there."""
    if dtype is not None and dtype not in TORCH_DTYPES:
        raise CheckpointError(f"The dtype must be one of {', '.join(TORCH_DTYPES)}, not {dtype!r}.")
    kind = chosen_device(device, small=device == "auto" and _is_small_folder(folder))
    usual: Dtype = "bfloat16" if kind == "cuda" else "float32"
    return kind, next((one for one in get_args(Dtype) if one == dtype), usual)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is what torch raises where memory runs out; not every device has a type of its own for it."""
    words = str(error).lower()
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "out of memory" in words
        or "t allocate memory" in words  # can't, or cannot
    )


def load_fault(what: str, error: Exception) -> str:
    """Why a model cannot be loaded, in a sentence that says what to do. `what`: which one; transformers checks little,
    and raises anything for damaged files."""
    if is_out_of_memory(error):
        return (
            f"There is not enough memory for {what}: end other programs, name a smaller one, or halve it by the dtype "
            "bfloat16."
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{what[:1].upper()}{what[1:]} cannot be loaded: {reason[:300]}"


def _is_small_folder(folder: Path) -> bool:
    """Whether a model's files hold so few numbers that one thread reads quickest."""
    try:
        return encoder_size(str(folder)) <= SMALL
    except CheckpointError:  # of files that cannot be read, loading says more
        return False


@cache
def fingerprint() -> str:
    """How small models compute here: the same on machines whose results agree to the last bit, as far as the usual
    steps of a model tell it."""
    rng = np.random.default_rng(0)
    some, other = (
        torch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in ((97, 257), (257, 129))
    )
    with suited_threads(small=True), torch.inference_mode():
        found = torch.nn.functional.gelu(some @ other).softmax(-1)
        found = torch.nn.functional.layer_norm(found * 100, found.shape[-1:]).sin()
    return hashlib.sha256(torch.__version__.encode() + found.numpy().tobytes()).hexdigest()[:16]
