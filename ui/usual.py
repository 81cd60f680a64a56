"""Who is compared when nobody says: the checkpoints of the newest evolution that played the same tasks."""

from __future__ import annotations

from collections.abc import Sequence

from storage.sides import played, shared_tasks
from storage.store import Store
from ui.comparing import MOST_SIDES
from ui.remembered import remembered

#: Part of the newest checkpoint's tasks that another must have played to stand beside it.
_ENOUGH = 0.5


@remembered
def usual_checkpoints(store: Store) -> list[str]:
    """Ids of the newest evolution's checkpoints that have recorded episodes of the same tasks, oldest generation
    first: at most MOST_SIDES, the oldest, the newest and evenly between. Empty when no evolution has two of them."""
    here = {one.policy for one in played(store)}
    evolutions: dict[str | None, list[str]] = {}
    for one in store.checkpoints.list():
        if one.id in here and one.generation is not None:
            evolutions.setdefault(one.run_id, []).append(one.id)
    for ids in evolutions.values():
        shared = shared_tasks(store, ids[-1], ids)
        same = [one for one in ids if shared.get(one, 0) >= _ENOUGH * shared[ids[-1]]]
        if len(same) > 1:
            return evenly(same, MOST_SIDES)
    return []


def evenly(ids: Sequence[str], most: int) -> list[str]:
    """At most so many of them (two or more): the first, the last, and evenly between."""
    if len(ids) <= most:
        return list(ids)
    return [ids[round(i * (len(ids) - 1) / (most - 1))] for i in range(most)]
