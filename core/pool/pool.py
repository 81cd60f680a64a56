"""The interface of pools: one provider or many that answer an Ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from core.episode import Ask, Reply
from core.errors import PoolError
from core.pool.spec import ModelSpec

T = TypeVar("T")


class Pool(Protocol):
    """A set of models that answer Asks. Failures come back as data in `Reply.error`, never as exceptions."""

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index into asks, reply) as each is ready, batched or concurrent as the provider can.
        Closing the iterator cancels the calls in flight."""

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces of text as they are written, then the whole Reply last."""


def entry(entries: Mapping[str, T], model: str) -> T:
    """The entry of this model; PoolError when the pool has none."""
    if model not in entries:
        raise PoolError(f"The pool has no model named '{model}'; it has {', '.join(entries)}.")
    return entries[model]


@contextmanager
def closing(iterator: Iterator[T]) -> Iterator[Iterator[T]]:
    """Close `iterator` on leaving, if it can be closed: calls in flight are cancelled instead of paid for."""
    try:
        yield iterator
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
