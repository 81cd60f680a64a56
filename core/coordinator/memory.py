"""What readers remember of what they have read: as much as fits a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What takes so many bytes."""

    @property
    def nbytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class Memory(Generic[V]):
    """Values by keys. Beyond `budget` bytes those that were not used for the longest time are forgotten."""

    def __init__(self, budget: int) -> None:
        self.budget, self.bytes = budget, 0
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        """What is remembered under this key, which is used by that."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def keep(self, key: Hashable, value: V, *, trim: bool = True) -> None:
        """Remember this. Without `trim` the budget may be passed until `trim` is called."""
        self._drop(key)
        self._values[key] = value
        self.bytes += value.nbytes
        if trim:
            self.trim()

    def trim(self) -> None:
        """Forget what does not fit the budget."""
        while self.bytes > self.budget and self._values:
            self._drop(next(iter(self._values)))

    def forget(self, kept: Collection[Hashable] = ()) -> bool:
        """Drop everything but what is under the keys `kept`; False where there was nothing else."""
        others = [key for key in self._values if key not in kept]
        for key in others:
            self._drop(key)
        return bool(others)

    def _drop(self, key: Hashable) -> None:
        if (old := self._values.pop(key, None)) is not None:
            self.bytes -= old.nbytes
