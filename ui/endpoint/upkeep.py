"""Lets the store forget requests, or their texts, after the days that the endpoint's configuration names."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from core.errors import TrinityError
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from storage.upkeep.retention import What, began_before, prune
from ui.endpoint.tiers import Endpoint

log = logging.getLogger(__name__)

#: How often it is looked for what is too old, in seconds.
EVERY_S = 3600.0
#: So many runs of the endpoint are looked through.
_MOST_RUNS = 10_000


def forget_old(store: Store, endpoint: Endpoint) -> int:
    """Remove what is kept no longer; of how many episodes. What is labelled or forked stays."""
    limits: dict[What, int | None] = {
        "texts": endpoint.keep_texts_days,
        "states": endpoint.keep_texts_days,  # something of the texts could be read from them
        "episodes": endpoint.keep_episodes_days,
    }
    runs = store.runs.list("serve", limit=_MOST_RUNS) if any(limits.values()) else ()
    gone = 0
    for what, days in limits.items():
        for run in runs if days else ():
            where = EpisodeFilter(run=run.id, q=began_before(f"{days}d", store.now()))
            gone += prune(store, what, where).episodes
    return gone


@dataclass
class Upkeep:
    """Looks now and then for what is too old, in a thread of its own, until it is closed."""

    store: Store
    endpoint: Endpoint
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def begin(self) -> None:
        """Look at once, and then every hour; nothing begins where all is kept."""
        if self.endpoint.keep_texts_days or self.endpoint.keep_episodes_days:
            self._thread = threading.Thread(target=self._look, name="endpoint upkeep", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=30.0)

    def _look(self) -> None:
        while not self._over.is_set():
            try:
                if gone := forget_old(self.store, self.endpoint):
                    log.info("Removed what is kept no longer of %d episodes.", gone)
            except TrinityError as error:
                log.warning("What is kept no longer could not be removed: %s", error)
            self._over.wait(EVERY_S)
