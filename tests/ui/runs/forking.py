"""Forks as tests plan and play them over the world of sums."""

from __future__ import annotations

from core.changes import Change
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.forks.planning import plan_forks
from ui.runs.forks.results import Results, read_results
from ui.runs.plans import ForkPlan, RunPlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import play_claimed

BY_ADDER = Change("model", "adder")


def planned(
    world: Sums,
    store: Store,
    *picks: tuple[str, int],
    change: Change = BY_ADDER,
    **options: object,
) -> ForkPlan:
    """Three forks and three of the baseline at each of these turns, unless other `options` say so."""
    pool = str(world.folder / "pool.toml")
    numbers = {"n": 3, "baseline": 3} | options
    return plan_forks(store, picks, change, pool=pool, specs=wiring.resolve_pool(pool).specs, **numbers)  # type: ignore[arg-type]


def finished(store: Store, plan: RunPlan) -> str:
    """The run of a plan, played to its end."""
    run = enqueue(store, plan, Ticket())[0]
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED, store.runs.get(run).error
    return run


def played(store: Store, plan: ForkPlan) -> Results:
    """What a plan of forks came to."""
    return read_results(store, finished(store, plan), plan)


def refused(world: Sums, *arguments: object, says: str) -> None:
    """A command that ends with a sentence, and with no traceback."""
    done = world.trinity(*arguments)
    assert done.code in (1, 2)
    assert says in done.err, done.err
    assert "Traceback" not in done.err
