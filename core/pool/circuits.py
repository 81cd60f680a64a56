"""Models that could not be asked are left alone for a while (a circuit breaker for each)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: So many failures in a row open a model's circuit, for so many seconds.
FAILURES, OPEN_S = 3, 60.0


@dataclass(slots=True)
class _Circuit:
    failures: int = 0  # in a row
    until: float = 0.0  # open until then, on the monotonic clock
    trying: float = 0.0  # when it was last asked although it had been open


@dataclass
class Circuits:
    """Which models of a pool are asked: all but those whose circuit is open. After OPEN_S one request at a time tries
    such a model again; a reply closes its circuit, another failure opens it for as long again."""

    clock: Callable[[], float] = time.monotonic
    _by_model: dict[str, _Circuit] = field(default_factory=dict)

    def failed(self, model: str) -> None:
        """A call came to nothing."""
        one = self._by_model.setdefault(model, _Circuit())
        one.failures += 1
        if one.failures >= FAILURES:
            one.until, one.trying = self.clock() + OPEN_S, 0.0

    def replied(self, model: str) -> None:
        """A call brought a reply."""
        self._by_model.pop(model, None)

    def asked(self, model: str) -> None:
        """The model was chosen: where its circuit was open, this is the one request that tries it."""
        if (one := self._by_model.get(model)) is not None and one.failures >= FAILURES:
            one.trying = self.clock()

    def is_open(self, model: str) -> bool:
        """Whether the model is to be left alone now."""
        one = self._by_model.get(model)
        if one is None or one.failures < FAILURES:
            return False
        now = self.clock()
        return now < one.until or (one.trying > 0 and now < one.trying + OPEN_S)
