"""Lets a person stop an evolution between two waves of calls: nothing that was paid for is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from core.episode import Ask, Reply
from core.errors import TrinityError
from core.pool.pool import Pool, closing
from core.pool.spec import ModelSpec
from core.settings import POCKET

#: Calls over a network that are begun together; between two such waves it can be stopped.
WAVE = 256


class Stopped(TrinityError):
    """A person asked the run to stop."""


class HaltingPool:
    """A pool that looks before each wave of calls whether it shall stop. Stopped, when it shall: every reply that came
    before has been handed on."""

    def __init__(self, pool: Pool, check: Callable[[], None]) -> None:
        self._pool = pool
        self._check = check
        hosted = any(spec.provider != POCKET for spec in pool.specs)
        self._wave = WAVE if hosted else None  # models in this process are quickest when asked all at once

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The models in slot order."""
        return self._pool.specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Answers of the pool behind, as they are ready."""
        wave = self._wave or max(1, len(asks))
        for begin in range(0, len(asks), wave):
            self._check()
            with closing(self._pool.ask(asks[begin : begin + wave])) as replies:
                for index, reply in replies:
                    yield begin + index, reply

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of the pool behind, then the whole reply."""
        self._check()
        yield from self._pool.stream(ask)
