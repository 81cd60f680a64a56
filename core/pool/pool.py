"""The pool seam: whoever can answer an Ask, one provider or many behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from core.episode import Ask, Reply
from core.pool.spec import ModelSpec


class Pool(Protocol):
    """A set of models that answer Asks. Failures come back as data in `Reply.error`, never as exceptions."""

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""
        ...

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index into asks, reply) as each is ready, batched or concurrent as the provider can."""
        ...

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces of text as they are written, then the whole Reply last."""
        ...
