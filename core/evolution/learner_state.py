"""A learner as its state: what it asks for next, what it is once it was told, and itself as bytes, exact to the bit."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from core.episode import Episode
from core.errors import ConfigError

if TYPE_CHECKING:
    from core.evolution.search import SearchSpace

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
class LearnerState(ABC):
    """Base of the dataclasses that hold all that a learner needs to go on, bit for bit (the ask and tell interface).
    Fields annotated `Vector` are float64 [n], all of one length; those annotated `float` are written as hexadecimal, so
    that no bit is lost."""

    #: Names the learner in the file.
    kind: ClassVar[str]

    mean: Vector  # where it stands
    step_size: float  # how far it reaches: sigma, half a box, or a learning rate
    population: int  # candidates per generation
    seed: int
    generation: int = 0  # how many generations it has learned from

    @abstractmethod
    def ask(self) -> Vector:
        """The generation's points [population, n], the same at every call."""

    @abstractmethod
    def tell(self, fitness: Vector, played: Sequence[Episode] = ()) -> LearnerState:
        """The state after the generation. `fitness` [population] is to be maximised, NaN where it is missing; `played`
        are the episodes in the order of the points."""

    def vectors(self, points: Vector, space: SearchSpace) -> Vector:
        """The vectors that points of the search [..., n] stand for."""
        return space.vectors(points)

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


def check_told(fitness: Vector, population: int) -> Vector:
    """Fitness as float64 [population]; ConfigError for another number of values."""
    fitness = np.asarray(fitness, float)
    if fitness.shape != (population,):
        raise ConfigError(
            f"A generation of {population} candidates cannot be told {fitness.size} fitness values."
        )
    return fitness


@_refusing_damage()
def kind_of(data: bytes) -> str:
    """Which learner's state these bytes are; ConfigError when they are none."""
    return next(iter(_metadata(data)))


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length])["__metadata__"]
    return found
