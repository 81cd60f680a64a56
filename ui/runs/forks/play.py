"""Plays a run of forks, the baseline first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from core.analysis.power import MOST_PLAYS, enough
from core.changes import BASELINE, FORK
from core.conduct.planners import RecordedWorkflows
from core.episode import Decision, Episode, Event, Status, Turn
from core.errors import ConfigError, StoreError
from core.ids import episode_id
from core.play.drive import GradeMany, drive_many
from core.play.forking import (
    HeldDecisions,
    at_temperatures,
    carried_turns,
    decision_at,
    is_held,
    new_child,
)
from core.play.judging import check_judge
from core.play.policies import Cycle, Policy
from core.pool.pool import Pool
from core.pool.spec import digest_of_specs
from storage.reads import forks
from storage.recorder import record_many
from storage.store import Store
from ui.runs import wiring
from ui.runs.forks.results import is_told
from ui.runs.grading import grading_of_episodes
from ui.runs.lease import owner
from ui.runs.plans import Branch, ForkPlan, Preparation
from ui.runs.play import Ending, GroupControl, decompositions, metered, prepare_run
from ui.runs.policies import Policies
from ui.runs.spending import Reckoned

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

#: How many episodes are played side by side.
WAVE = 64
#: The same where they are played until something can be told: at first the fewest that can tell it, then a few more.
_FEWEST, _A_FEW = next(n for n in range(1, MOST_PLAYS + 1) if enough(n) <= n), 4

#: What makes episodes playable side by side: the policy that goes on, and the models it may not choose.
_Table = tuple[str, bool, tuple[str, ...], tuple[tuple[str, Cycle], ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ForkParts:
    """All that a run of forks needs besides the store; `parents` by id, `encoders` as they are loaded."""

    shelf: ClassVar[None] = None  # a fork is set against chance: no reply of another run is reused

    plan: ForkPlan
    pool: Pool
    parents: Mapping[str, Episode]
    grade: GradeMany
    reckoned: Reckoned = field(default_factory=Reckoned)
    encoders: dict[tuple[str, str], Encoder] = field(default_factory=dict)

    @property
    def readers(self) -> Sequence[Encoder]:
        """Those that are loaded."""
        return [*self.encoders.values()]

    def encoder(self, store: Store) -> Encoder | None:
        """What reads the transcripts of children that a coordinator goes on with; None where none does."""
        change = self.plan.change
        named = [change.value] if change is not None and change.kind == "policy" else []
        for parent in self.parents.values() if self.plan.to_play else ():
            for name in (*named, parent.policy):
                if store.checkpoints.has(name):
                    policies = self._policies(store, parent.models)
                    return policies.coordinator(store.checkpoints.load(name)).encoder
        return None

    def _policies(self, store: Store, models: tuple[str, ...], **more: Any) -> Policies:
        plan = self.plan
        how: dict[str, Any] = {
            "encoder": plan.encoder,
            "encoders": self.encoders,
            "computing": plan.computing,
            "engine": plan.engine,
        }
        return Policies(store, models, **how, **more)

    def play(self, store: Store, run: str) -> Generator[Event | Preparation, None, Ending]:
        """Play what the run still lacks, all of the baseline before the first fork, recording every event before it is
        passed on; where luck is asked, until it can be told. A stored reply is not asked for again. BudgetError where
        the ceiling is reached."""
        control = GroupControl(store, run)

        @cache
        def policy(table: _Table) -> Policy:
            """The policy that goes on with the children of a table. ConfigError when it cannot."""
            name, argmax, _, cycles, models = table
            known = self._policies(store, models, argmax=argmax, cycles=dict(cycles))
            found = known.play_in(run).resolve(name)
            if found.models != models:
                raise ConfigError(f"Policy '{name}' chooses among other models than the forked episode.")
            return found

        with metered(store, run, self.pool, self.plan.max_cost_usd, self.reckoned) as paid:
            control.waits = paid.note
            for part in (BASELINE, FORK):
                due = sorted(siblings(self.plan, run, self.parents, part, self.grade), key=_table)
                for _, group in groupby(due, key=_table):
                    table = list(group)
                    for wave in _waves(table, one_by_one=self.plan.asks_luck):
                        if not (control.stop() or is_told(store, run, self.plan)):
                            yield from _wave(store, run, wave, policy, paid, self.grade, control)
        if is_told(store, run, self.plan):
            return control.ending(0)  # what is missing is not needed any more
        return control.ending(
            sum(one.summary.status is Status.MISSING for one in forks.of_runs(store, [run])[run])
        )


def prepare(store: Store, plan: ForkPlan) -> ForkParts:
    """The parts of a plan; ConfigError or StoreError when it cannot be played as it was planned."""
    parents = forks.parents(store, [branch.parent for branch in plan.branches])
    if gone := [branch.parent for branch in plan.branches if branch.parent not in parents]:
        raise StoreError(f"Episode {gone[0]}, which this run forks, is not in the store any more.")
    pool = wiring.resolve_pool(plan.pool, engine=plan.engine)
    if digest_of_specs(pool.specs) != plan.pool_digest:
        raise ConfigError(
            f"The models in {plan.pool} have changed since these forks were planned: plan them again."
        )
    check_judge(pool.specs, [parent.task for parent in parents.values()])
    return ForkParts(plan, pool, parents, grading_of_episodes(store, parents.values(), plan.engine))


@dataclass(frozen=True, slots=True)
class Sibling:
    """A child before its first new turn, how turn t is decided (None: by its policy or its workflow), at which
    temperature, and the later turns that it takes over."""

    child: Episode
    branch: Branch
    decision: Decision | None
    temperature: float | None
    carried: Mapping[int, Turn]


def siblings(
    plan: ForkPlan, run: str, parents: Mapping[str, Episode], part: str, grade: GradeMany
) -> list[Sibling]:
    """The children of one part ("baseline" or "fork") that the store did not hold when the run was planned."""
    found: list[Sibling] = []
    place = 0
    for branch in plan.branches:
        parent, own = parents[branch.parent], plan.change_at(branch)
        held, change = is_held(own, part), own if part == FORK else None
        temperature = float(change.value) if change is not None and change.kind == "temperature" else None
        first = place if part == BASELINE else place + branch.baseline
        for number in range(branch.baseline if part == BASELINE else branch.n):
            if f"{part}/{number}" in branch.reused:
                continue
            child = new_child(
                parent,
                branch.turn,
                change,
                number,
                id=episode_id(run, first + number),
                run_id=run,
                grade=grade,
                pool=plan.pool_digest,
                held=held,
                left_out=branch.left_out,
            )
            decision = decision_at(parent, branch.turn, change) if held else None
            carried = {} if plan.asks_luck else carried_turns(parent, branch.turn, change)
            found.append(Sibling(child, branch, decision, temperature, carried))
        place += branch.baseline + branch.n
    return found


def _waves(table: Sequence[Sibling], *, one_by_one: bool) -> Iterator[Sequence[Sibling]]:
    """Children of one table that are played side by side: many, or as few as can change what can be told."""
    start = 0
    while start < len(table):
        size = (_FEWEST if start == 0 else _A_FEW) if one_by_one else WAVE
        yield table[start : start + size]
        start += size


def _table(sibling: Sibling) -> _Table:
    child, branch = sibling.child, sibling.branch
    cycles = tuple(sorted(branch.cycles.items()))
    return child.policy, child.argmax, branch.left_out, cycles, child.models


def _policy(due: Sequence[Sibling], policy_of: Callable[[_Table], Policy]) -> Policy:
    """What goes on with these children of one table: their policy, but for decisions that stand already, or the
    workflows that they hold."""
    first = due[0].child
    if first.plans:
        carried = {(one.child.id, index): turn for one in due for index, turn in one.carried.items()}
        return RecordedWorkflows(first.policy, first.models, carried)
    decisions = {(one.child.id, one.branch.turn): one.decision for one in due if one.decision is not None}
    return HeldDecisions(policy_of(_table(due[0])), decisions)


def _wave(
    store: Store,
    run: str,
    wave: Sequence[Sibling],
    policy_of: Callable[[_Table], Policy],
    pool: Pool,
    grade: GradeMany,
    control: GroupControl,
) -> Iterator[Event | Preparation]:
    over = {one.id for one in forks.by_id(store, [one.child.id for one in wave]) if one.correct is not None}
    due = [one for one in wave if one.child.id not in over]
    if not due:
        return
    forks.insert_children(store, [one.child for one in due], owner())
    begun = {one.id: one for one in store.episodes.unfinished(run)}
    policy = _policy(due, policy_of)
    yield from prepare_run(store, run, decompositions([policy]))
    mask = tuple(model not in due[0].branch.left_out for model in policy.models)
    temperatures = {
        (one.child.id, one.branch.turn): one.temperature for one in due if one.temperature is not None
    }
    drive = partial(
        drive_many,
        [begun[one.child.id] for one in due],
        policy,
        pool,
        grade,
        model_mask=() if all(mask) else mask,
        stop=control.stop,
        stored_replies=store.episodes.stored_replies(run),
        terms=at_temperatures(temperatures) if temperatures else None,
    )
    yield from record_many(store, drive, owner=owner())
