"""Policies: whatever chooses a model and a role for the next turn, from an evolved coordinator to a fixed cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.episode import Decide, Decision


@runtime_checkable
class Policy(Protocol):
    """Chooses the next (model, role). Batched: one call may decide for thousands of episodes at once."""

    @property
    def id(self) -> str:
        """A checkpoint's id, or a name such as "random" or "single:NAME"."""
        ...

    @property
    def models(self) -> tuple[str, ...]:
        """The pool slots it chooses between, in head order."""
        ...

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, in order. Pure: the same requests give the same decisions."""
        ...


@dataclass(frozen=True)
class Around:
    """What a policy that stands around another one has of it: its id, because what was changed is said turn by turn,
    and its slots."""

    inner: Policy

    @property
    def id(self) -> str:
        """The inner policy's id."""
        return self.inner.id

    @property
    def models(self) -> tuple[str, ...]:
        """The inner policy's slots."""
        return self.inner.models
