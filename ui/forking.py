"""Plays a run of forks, the baseline first: claimed by a worker process, or played by the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from core.drive import drive_many
from core.episode import EndReason, Episode, Event, Role, Status
from core.errors import BudgetError, ConfigError
from core.forking import BASELINE, FORK, Held
from core.policy import Policy
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from storage import forks
from storage.recorder import record
from storage.store import Store
from storage.summaries import RunStatus
from ui import wiring
from ui.fork_offer import digest_of
from ui.fork_plan import ForkPlan, Sibling, siblings
from ui.lease import owner
from ui.spending import MeteredPool, check_ceiling

#: How often what a person asks is looked up, in seconds, and how many episodes are played side by side.
LOOK_S, WAVE = 0.2, 64

#: What makes episodes playable side by side: the policy that goes on, and the models it may not choose.
_Table = tuple[str, bool, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]


@dataclass
class Bridle:
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


def play(store: Store, run: str) -> tuple[RunStatus, str | None]:
    """Play a claimed run from wherever it stands; how it is over, and why when that was not its end."""
    plan = ForkPlan.from_config(store.runs.get(run).config)
    pool = wiring.resolve_pool(plan.pool, os.environ)
    bridle = Bridle(store, run)
    try:
        for _ in played(store, run, plan, pool, bridle):
            pass
    except BudgetError as error:
        return RunStatus.INTERRUPTED, str(error)
    return outcome(store, run, bridle)


def outcome(store: Store, run: str, bridle: Bridle) -> tuple[RunStatus, str | None]:
    """How a run is over that was played until nothing was left, or until it was cancelled."""
    if bridle.cancelled:
        return RunStatus.CANCELLED, None
    missing = sum(one.summary.status is Status.MISSING for one in forks.of_run(store, run))
    if missing:
        lost = f"{missing} episode{' is' if missing == 1 else 's are'} missing: models could not be asked."
        return RunStatus.INTERRUPTED, f"{lost} Go on to play what is missing."
    return RunStatus.FINISHED, None


def played(store: Store, run: str, plan: ForkPlan, pool: Pool, bridle: Bridle) -> Iterator[Event]:
    """Play what the run still lacks, all of the baseline before the first fork, recording every event before it is
    passed on. A stored reply is not asked for again. BudgetError where the ceiling is reached."""
    if digest_of(pool.specs) != plan.pool_digest:
        raise ConfigError(
            f"The models in {plan.pool} have changed since these forks were planned: plan them anew."
        )
    check_ceiling(pool.specs, plan.max_cost_usd)
    metered = MeteredPool(pool, plan.max_cost_usd, store.runs.spent_usd(run))
    parents = forks.parents(store, [branch.parent for branch in plan.branches])
    policies = _Policies(store, plan)
    for part in (BASELINE, FORK):
        due = sorted(siblings(plan, run, parents, part), key=_table)
        for _, group in groupby(due, key=_table):
            table = list(group)
            for start in range(0, len(table), WAVE):
                if bridle.stop():
                    return
                yield from _wave(store, run, table[start : start + WAVE], policies, metered, bridle)


def _table(sibling: Sibling) -> _Table:
    born, branch = sibling.born, sibling.branch
    return born.policy, born.argmax, branch.left_out, tuple(sorted(branch.cycles.items()))


class _Policies:
    """The policies of a plan, each made ready once and only when something is left for it to play."""

    def __init__(self, store: Store, plan: ForkPlan) -> None:
        self._store, self._plan = store, plan
        self._ready: dict[_Table, Policy] = {}

    def at(self, sibling: Sibling) -> Policy:
        """The policy that goes on with this child. ConfigError when it cannot."""
        table = _table(sibling)
        if table not in self._ready:
            cycles = {name: tuple(Role(role) for role in cycle) for name, cycle in table[3]}
            models = sibling.born.models
            resolver = wiring.Policies(
                self._store, models, argmax=table[1], encoder=self._plan.encoder, cycles=cycles
            )
            policy = resolver.resolve(table[0])
            if policy.models != models:
                raise ConfigError(f"Policy '{table[0]}' chooses among other models than the forked episode.")
            self._ready[table] = policy
        return self._ready[table]


def _wave(
    store: Store, run: str, wave: Sequence[Sibling], policies: _Policies, pool: Pool, bridle: Bridle
) -> Iterator[Event]:
    """Some children of one table, side by side: those that are not over yet."""
    held = {one.id: one for one in forks.by_id(store, [one.born.id for one in wave])}
    due = [one for one in wave if one.born.id not in held or held[one.born.id].correct is None]
    if not due:
        return
    forks.begin(store, [one.born for one in due], owner())
    begun = {one.id: one for one in store.episodes.unfinished(run)}
    policy = policies.at(due[0])
    mask = tuple(model not in due[0].branch.left_out for model in policy.models)
    where = {(one.born.id, one.born.fork_turn or 0): one for one in due}
    events = drive_many(
        [begun[one.born.id] for one in due],
        Held(policy, {place: one.decision for place, one in where.items() if one.decision is not None}),
        pool,
        grade_many,
        model_mask=() if all(mask) else mask,
        stop=bridle.stop,
        kept=store.episodes.kept(run),
        temperatures={place: one.temperature for place, one in where.items() if one.temperature is not None},
    )
    yield from record(store, events, owner=owner())
