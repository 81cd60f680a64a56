"""What an encoder gives: hidden states, each with what was read for it; and where they outlive the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What the encoder read and computed, one row per request: `states` float32 [n, hidden size]; `recipe` is the key
    of how."""

    states: NDArray[np.float32]
    digests: tuple[str, ...]
    token_counts: tuple[int, ...]
    overflows: tuple[bool, ...]
    recipe: str = ""

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return self.states.nbytes + 400 * len(self.digests)

    def row(self, place: int) -> Encoded:
        """One request's row alone."""
        here = slice(place, place + 1)
        return replace(
            self,
            states=self.states[here],
            digests=self.digests[here],
            token_counts=self.token_counts[here],
            overflows=self.overflows[here],
        )

    @classmethod
    def of(cls, parts: Sequence[Encoded]) -> Encoded:
        """Several, at least one, one under the other."""
        return cls(
            np.concatenate([part.states for part in parts]),
            tuple(digest for part in parts for digest in part.digests),
            tuple(count for part in parts for count in part.token_counts),
            tuple(overflow for part in parts for overflow in part.overflows),
            parts[0].recipe,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """How far an encoder is with `what` it reads: `done` transcripts of so many."""

    done: int
    of: int
    what: str = "sketched transcripts read"


class StateLedger(Protocol):
    """Where hidden states outlive the process that read them. It may lose some, and never fails."""

    def recall(self, keys: Sequence[bytes]) -> Mapping[bytes, NDArray[np.float32]]:
        """The states [hidden size] that were kept, by their keys."""

    def keep(self, states: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep these as well."""
