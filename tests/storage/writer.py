"""A process that records episodes until it is killed, saying each event once it is acknowledged."""

from __future__ import annotations

from multiprocessing.connection import Connection

from core.episode import Delta, EpisodeFinished, EpisodeStarted, Plan
from storage.recorder import record
from storage.store import open_store
from tests.builders.play import births, events, tasks

#: So many episodes are played side by side.
AT_ONCE = 3
#: One acknowledged event: its kind, its episode, its turn (-1 for the episode itself).
Heard = tuple[str, str, int]


def write(url: str, run: str, said: Connection[Heard, None]) -> None:
    """Play many tasks, a few side by side so that episodes end all the while, and send one message per event."""
    store = open_store(url)
    store.runs.create(run, "run", {})
    born = births(run, tasks(400))
    for first in range(0, len(born), AT_ONCE):
        for happened in record(store, events(born[first : first + AT_ONCE])):
            kind = type(happened).__name__
            if isinstance(happened, EpisodeStarted | EpisodeFinished):
                said.send((kind, happened.episode.id, -1))
            elif not isinstance(happened, Delta | Plan):
                said.send((kind, happened.episode_id, happened.index))
