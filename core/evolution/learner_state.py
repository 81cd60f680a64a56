"""A learner's state as bytes and back: safetensors with the scalars beside the vectors, exact to the bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from core.errors import ConfigError

Vector = NDArray[np.float64]

_DAMAGED = (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError, StopIteration)


@contextmanager
def _refusing_damage() -> Iterator[None]:
    """Whatever reading a damaged state raises becomes one sentence."""
    try:
        yield
    except _DAMAGED as error:
        raise ConfigError(
            "This is not the saved state of an evolution: resume from the run that wrote it."
        ) from error


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LearnerState:
    """Base of the dataclasses that hold all that a learner needs to go on, bit for bit. Fields annotated `Vector` are
    float64 [n], all of one length; those annotated `float` are written as hexadecimal, so that no bit is lost."""

    #: Names the learner in the file.
    kind: ClassVar[str]

    mean: Vector  # where it stands
    step_size: float  # how far it reaches: sigma, half a box, or a learning rate
    population: int  # candidates per generation
    seed: int
    generation: int = 0  # how many generations it has learned from

    def to_bytes(self) -> bytes:
        """The state as safetensors; the scalars are JSON in its metadata, under `kind`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        scalars = {
            name: value.hex() if isinstance(value, float) else value
            for name, value in values.items()
            if name not in arrays
        }
        return save(arrays, metadata={self.kind: json.dumps(scalars, sort_keys=True)})

    @classmethod
    @_refusing_damage()
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote; ConfigError for anything else."""
        arrays: dict[str, Any] = load(data)
        scalars = json.loads(_metadata(data)[cls.kind])
        types = {field.name: field.type for field in fields(cls)}
        vectors = [arrays[name] for name, kind in types.items() if kind == "Vector"]
        if len({vector.shape for vector in vectors}) > 1 or any(one.dtype != np.float64 for one in vectors):
            raise ValueError("arrays that do not belong together")
        floats = {name: float.fromhex(scalars[name]) for name, kind in types.items() if kind == "float"}
        return cls(**{**arrays, **scalars, **floats})

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the whole state."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@_refusing_damage()
def kind_of(data: bytes) -> str:
    """Which learner's state these bytes are; ConfigError when they are none."""
    return next(iter(_metadata(data)))


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length])["__metadata__"]
    return found
