"""Who plays a run: its owner, until nobody has heard of that one for long."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select, update

from core.errors import StoreError
from storage.rows.schema import run
from storage.rows.summaries import RunStatus

#: A run without a sign of life for this long is taken for dead.
DEAD_AFTER_S = 30.0
#: It is called stalled before that.
STALLED_AFTER_S = 20.0

_OWNER = select(run.c.owner).where(run.c.id == bindparam("of"))


def check_owner(connection: Connection, run_id: str, owner: str | None) -> None:
    """StoreError unless the run is there and this owner's."""
    found = connection.execute(_OWNER, {"of": run_id}).first()
    if found is None:
        raise StoreError(f"The store holds no run {run_id} any more: nothing more of it is stored.")
    if found.owner != owner:
        holder = str(found.owner).partition("@")[0]  # without when it began
        raise StoreError(f"Process {holder} has taken run {run_id} over: leave it to that one.")


def take(connection: Connection, run_id: str, at: float, dead: str | None, **values: Any) -> bool:
    """Give a run that nobody plays (`_is_free`) these values and a fresh start; False when it is not free. Calls that
    were under way when it was last played are lost."""
    fresh: dict[str, Any] = {"heartbeat": at, "finished": None, "error": None, "cancel": False}
    fresh |= {"lost_usd": run.c.lost_usd + run.c.under_way_usd, "under_way_usd": 0.0}
    change = update(run).where(run.c.id == run_id, _is_free(at, dead)).values(**fresh, **values)
    return connection.execute(change).rowcount == 1


def _is_free(at: float, dead: str | None) -> ColumnElement[bool]:
    """Runs that nobody plays: queued, interrupted, silent, or still of the owner that is known to be dead."""
    gone = run.c.heartbeat < at - DEAD_AFTER_S
    if dead is not None:
        gone = or_(gone, run.c.owner == dead)
    return or_(
        run.c.status.in_([RunStatus.QUEUED, RunStatus.INTERRUPTED]),
        and_(run.c.status == RunStatus.RUNNING, gone),
    )


def update_own(connection: Connection, run_id: str, owner: str | None, **values: Any) -> None:
    """Give a run these values. StoreError unless it is there and this owner's."""
    mine = run.c.owner.is_not_distinct_from(owner)
    if connection.execute(update(run).where(run.c.id == run_id, mine).values(**values)).rowcount == 0:
        check_owner(connection, run_id, owner)
