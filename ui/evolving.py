"""Evolutions that a page begins: queued once, however often it is clicked, and played by a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import ConfigError, TrinityError
from storage.store import Store
from storage.summaries import RunStatus
from ui.halting import Stopped
from ui.tickets import Ticket, enqueue


def queue(store: Store, config: Mapping[str, Any], ticket: Ticket) -> tuple[str, bool]:
    """Write an evolution down as queued; its id, and whether this call did it and not one before. ConfigError when
    another evolution has its name."""
    run = ticket.run(config)
    name = config.get("name")
    for other in store.runs.list(kind="evolve", limit=100_000):
        if other.id == run:
            return run, False
        if name and name in (other.id, other.config.get("name")):
            raise ConfigError(
                f"There is an evolution named '{name}': choose another name, or go on with that one."
            )
    return enqueue(store, "evolve", config, ticket)


def play(store: Store, run: str) -> tuple[RunStatus, str | None]:
    """Play a claimed evolution from wherever it stands; how it is over, and why when that was not its end. Whatever
    stops it once it is under way leaves it interrupted, to be resumed."""
    from ui.evolution import most, played, prepared
    from ui.outline import Outline
    from ui.spending import agree

    begun = bool(store.runs.get(run).generations)
    try:
        parts = prepared(Outline.from_config(store.runs.get(run).config))
        agree(parts.pool.specs, most(parts), parts.outline.max_cost_usd, may_ask=False, agreed=False)
    except TrinityError as error:
        return (RunStatus.INTERRUPTED if begun else RunStatus.FAILED), str(error)
    try:
        for _ in played(store, run, parts):
            pass
    except Stopped:
        return RunStatus.INTERRUPTED, None
    except TrinityError as error:
        return RunStatus.INTERRUPTED, str(error)
    return RunStatus.FINISHED, None
