"""How a person stops, pauses or steps a run that is being played: nothing that was paid for is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from core.episode import Ask, EndReason, Episode, Reply
from core.errors import TrinityError
from core.pool.pool import Pool, closing
from core.settings import POCKET_POOL
from storage.rows.summaries import RunStatus
from storage.store import Store

#: Calls over a network that are begun together; between two such waves it can be stopped.
WAVE = 256


class Stopped(TrinityError):
    """A person asked the run to stop; why it did when they asked for something else."""


class HaltingPool:
    """A pool that looks before each wave of calls whether it shall stop. Stopped, when it shall: every reply that came
    before has been handed on."""

    def __init__(self, pool: Pool, check: Callable[[], None]) -> None:
        self.specs = pool.specs
        self._pool = pool
        self._check = check
        hosted = any(spec.provider != POCKET_POOL for spec in pool.specs)
        self._wave = WAVE if hosted else None  # models in this process are quickest when asked all at once

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


#: How often a waiting worker looks whether it may go on, in seconds.
LOOK_S = 0.15


@dataclass
class GroupControl:
    """What a person asks of a run whose episodes are played side by side: to wait, or to end it."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    cancelled: bool = False
    _looked: float = field(default=0.0, init=False)

    def stop(self, _episode: Episode | None = None) -> EndReason | None:
        """CANCELLED when asked to; waits here while the run is paused."""
        while not self.cancelled:
            if time.monotonic() - self._looked < LOOK_S:
                return None
            control = self.store.runs.control(self.run)
            self.cancelled = control.cancel
            if control.cancel or not control.paused:
                self._looked = time.monotonic()
                break
            self.sleep(LOOK_S)
        return EndReason.CANCELLED if self.cancelled else None

    def ending(self, missing: int) -> tuple[RunStatus, str | None]:
        """How a run is over that was played to its end or until it was cancelled, `missing` episodes lost."""
        if self.cancelled:
            return RunStatus.CANCELLED, None
        if not missing:
            return RunStatus.FINISHED, None
        lost = f"{missing} episode{' is' if missing == 1 else 's are'} missing: models could not be asked."
        return RunStatus.INTERRUPTED, f"{lost} Resume the run to play what is missing."


#: So long a paused run keeps a worker that another run waits for, in seconds.
PATIENCE_S = 120.0


@dataclass
class LiveControl:
    """What a person asks of the run, asked of the store: cancel, wait between turns, take over a decision."""

    store: Store
    run: str
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _passed: tuple[str, int] = field(default=("", -1), init=False)  # the last turn that was let through

    def stop(self, episode: Episode) -> EndReason | None:
        """CANCELLED when asked to; before a new decision, wait here while the run is paused. Stopped when a paused run
        makes way for one that waits for its worker."""
        turn = episode.id, len(episode.turns)
        since, number = self.clock(), self.store.runs.turns_played(self.run) + 1
        while True:
            control = self.store.runs.control(self.run)
            if control.cancel:
                return EndReason.CANCELLED
            if turn == self._passed:
                return None
            if not control.paused or control.steps >= number:
                self._passed = turn
                return None
            if self.clock() - since > PATIENCE_S and self.store.runs.next_waiting():
                raise Stopped("It waited for you, and made way for a run that waited for its worker.")
            self.sleep(LOOK_S)
