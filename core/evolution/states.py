"""How the state of a learner is written and read: safetensors with the scalars beside the vectors, exact to the bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from core.errors import ConfigError

Vector = NDArray[np.float64]


def pack(kind: str, arrays: Mapping[str, Vector], scalars: Mapping[str, Any]) -> bytes:
    """Vectors float64 [n] and scalars (floats as hex) of a state of this kind."""
    return save(dict(arrays), metadata={kind: json.dumps(dict(scalars), sort_keys=True)})


def unpack(kind: str, data: bytes, names: Sequence[str]) -> tuple[dict[str, Vector], dict[str, Any]]:
    """What `pack` wrote; raises one of the errors that `refusing_damage` turns into a sentence."""
    arrays = cast("dict[str, Vector]", load(data))
    shapes = {arrays[name].shape for name in names}
    if len(shapes) > 1 or any(arrays[name].dtype != np.float64 for name in names):
        raise ValueError("arrays that do not belong together")
    return arrays, json.loads(_metadata(data)[kind])


def kind_of(data: bytes) -> str:
    """Which kind of state these bytes are; ConfigError when they are none."""
    with refusing_damage():
        return next(iter(_metadata(data)))
    raise AssertionError("unreachable")


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length])["__metadata__"]
    return found


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Whatever reading a damaged state raises becomes one sentence."""
    try:
        yield
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        StopIteration,
    ) as error:
        raise ConfigError(
            "This is not the saved state of an evolution: resume from the run that wrote it."
        ) from error
