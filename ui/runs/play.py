"""Plays a run to its end, whatever its kind: the one way, for a worker, the command line and every other door.

    for event in play(store, run): show(event)

Values come up as they are made (turns, generations, numbers of turns read); closing the generator stops the run. How it
ended then stands in the store.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import Any, Protocol

from core.errors import TrinityError
from core.pool.spec import digest_of_specs
from storage.recorder import heartbeats
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.runs.control import Stopped
from ui.runs.kinds import RUN_KINDS
from ui.runs.lease import finish, owner, take_over
from ui.runs.plans import RunPlan, plan_of
from ui.runs.spending import agree_to_cost, price

#: How a run is over, and why in one sentence when that was not its end.
Ending = tuple[RunStatus, str | None]

_STOPPED = "Its process was stopped; it can be resumed."


class Ready(Protocol):
    """A plan with all that it is played with, such as pool, policies and tasks."""

    @property
    def plan(self) -> RunPlan:
        """What is played, complete."""

    def play(self, store: Store, run: str) -> Generator[Any, None, Ending]:
        """Play what the run still lacks, each value kept before it is yielded. Stopped when a person asks for it."""


def prepare(store: Store, plan: RunPlan) -> Ready:
    """A plan made ready by its kind; everything that can be wrong with it is found here, before anything is played."""
    player = import_module(RUN_KINDS[plan.kind].player)  # each loads what it needs alone
    ready: Ready = player.prepare(store, plan)
    return ready


def play(store: Store, run: str, ready: Ready | None = None) -> Generator[Any]:
    """Take a run for this process, play it from wherever it stands, and write down how it ended.

    It is finished or cancelled; or interrupted, to be resumed, by Ctrl-C, SIGTERM, a closed generator, a ceiling, an
    outage or a fault of this program; or failed with one sentence, when its plan could not be made ready and nothing of
    it is kept. `ready` is its plan made ready by a door that has seen to the cost. StoreError when another process has
    the run, or it is over; a KeyboardInterrupt and a fault are passed on."""
    take_over(store, run)
    begun = ready is not None
    try:
        with heartbeats(store, run, owner()):
            if ready is None:  # nobody can be asked
                plan = plan_of(store.runs.get(run))
                agree_to_cost(price(store, plan), may_ask=False, agreed=False)
                ready = prepare(store, plan)
            if (pool := getattr(ready, "pool", None)) is not None:  # reading again asks no model
                store.runs.note_pool(run, digest_of_specs(pool.specs))
            begun = True
            ending = yield from ready.play(store, run)
    except Stopped as stopped:
        ending = RunStatus.INTERRUPTED, str(stopped) or None
    except TrinityError as error:
        found = store.runs.get(run)
        can_go_on = begun or found.episodes or found.generations
        ending = RunStatus.INTERRUPTED if can_go_on else RunStatus.FAILED, str(error)
    except (KeyboardInterrupt, GeneratorExit):
        finish(store, run, RunStatus.INTERRUPTED, _STOPPED)
        raise
    except Exception as error:  # at least the run does not look alive for ever
        finish(store, run, RunStatus.INTERRUPTED, f"It broke off: {type(error).__name__}. It can be resumed.")
        raise
    finish(store, run, *ending)
