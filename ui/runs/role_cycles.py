"""The cycles of roles that a batch run's fixed policies play by: tried on validation tasks first, then frozen."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.episode import Protocol, Role, Task
from core.errors import StoreError, TaskError
from core.evolution.cycles import CYCLES, Trial, choose_cycles, try_cycles
from core.play.policies import Cycle
from core.pocket import WEIGHTS
from core.pool.cache import CachedPool, ReplyShelf
from core.pool.pool import Pool
from storage.files.atomic import atomic_file
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import HaltingPool
from ui.runs.grading import grading
from ui.runs.lease import owner
from ui.runs.plans import BatchPlan, to_config
from ui.runs.spending import MeteredPool, paid_models

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CyclesTried:
    """`n` of the episodes are over that try every cycle of roles, out of `of`."""

    n: int
    of: int


@dataclass(frozen=True, slots=True)
class CyclesChosen:
    """The best cycle of each policy that had none yet."""

    cycles: Mapping[str, Cycle]


#: Validation tasks on which cycles are chosen where nobody says how many and nothing has to be paid.
CHOOSING_TASKS = 40


def with_choosing(plan: BatchPlan, pool: Pool, validate: int | None = None) -> tuple[BatchPlan, str]:
    """The plan with what is remembered of the best role cycles, and the number of validation tasks on which the others
    are chosen: `validate`, else none where models cost money; and why none are chosen where the task set has too few
    for it, empty where it has enough."""
    if validate is None:
        validate = 0 if paid_models(pool.specs) else CHOOSING_TASKS
    try:
        return with_remembered(replace(plan, choosing=validate), pool), ""
    except TaskError as error:
        return plan, f"Role cycles stay plan, work, check: {error}"


def with_remembered(plan: BatchPlan, pool: Pool) -> BatchPlan:
    """The plan with the cycles that were chosen before for this pool and these validation tasks."""
    if not plan.undecided:
        return plan
    known = _remembered(plan, pool).get()
    mine = {name: known[name] for name in plan.undecided if name in known}
    return replace(plan, cycles={**plan.cycles, **mine})


def choose(
    store: Store, run: str, plan: BatchPlan, pool: MeteredPool, shelf: ReplyShelf | None = None
) -> Generator[CyclesTried | CyclesChosen, None, BatchPlan]:
    """Try every cycle for the policies that have none, and give the plan with the best, as its run now keeps it.

    Replies are kept as they come, so that a run that is resumed pays for none again. Stopped when a person asks for it;
    PoolError when no cycle can be chosen, as models could not be asked."""
    tasks, ledger = plan.choosing_tasks(), store.evolution.paid_replies(run)
    metered = pool.anew(plan.choice_usd + ledger.spent_usd(0))
    halting = HaltingPool(metered, lambda: store.runs.control(run).cancel)
    trials: list[Trial] = []
    for trial in try_cycles(
        plan.undecided,
        CachedPool(halting, ledger=ledger, shelf=shelf),
        grading(store, tasks, plan.tasks),
        tasks,
        turn_budget=plan.turns,
        protocol=plan.protocol,
    ):
        trials.append(trial)
        yield CyclesTried(len(trials), len(plan.undecided) * len(CYCLES) * len(tasks))
    found = choose_cycles(trials)
    _remembered(plan, pool).add({name: one.cycle for name, one in found.items() if not one.missing})
    chosen = {name: one.cycle for name, one in found.items()}
    plan = replace(plan, cycles={**plan.cycles, **chosen}, choice_usd=metered.spent_usd)
    store.runs.amend(run, to_config(plan), owner=owner())
    if not plan.reuse:  # else they are kept for others
        ledger.forget()
    yield CyclesChosen(chosen)
    return plan


def _remembered(plan: BatchPlan, pool: Pool) -> RememberedCycles:
    return RememberedCycles(wiring.data_folder(), pool, plan.choosing_tasks(), plan.turns, plan.protocol)


def _pocket_weights(pool: Pool) -> list[str]:
    """Digests of the pocket models in a pool: a model that was trained again has its cycle chosen again."""
    files = [WEIGHTS / spec.name / "model.safetensors" for spec in pool.specs if spec.provider == "pocket"]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]


class RememberedCycles:
    """Choices made before, in a file; what was chosen once for a pool and its tasks stays."""

    def __init__(
        self, folder: Path, pool: Pool, tasks: Sequence[Task], turns: int, protocol: Protocol | None = None
    ) -> None:
        self._file = folder / "cycles.json"
        rules = () if protocol in (None, Protocol.PAPER) else (protocol.value,)
        known = repr((pool.specs, _pocket_weights(pool), tasks, turns, *rules))
        self._key = hashlib.sha256(known.encode()).hexdigest()[:16]

    def get(self) -> dict[str, Cycle]:
        """What is known for this pool, tasks and turn budget, by policy."""
        return {
            name: tuple(Role(role) for role in cycle)
            for name, cycle in self._read().get(self._key, {}).items()
        }

    def add(self, chosen: Mapping[str, Cycle]) -> None:
        """Remember more, if the folder can be written; the file is replaced in one step."""
        known = self._read()
        known.setdefault(self._key, {}).update({name: list(cycle) for name, cycle in chosen.items()})
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._file) as draft:
                draft.write_text(json.dumps(known, indent=1))
        except (OSError, StoreError) as error:
            log.warning("Role cycles will be chosen again: %s", error)

    def _read(self) -> dict[str, dict[str, list[str]]]:
        try:
            known = json.loads(self._file.read_text())
        except (OSError, ValueError):  # never written, or damaged: choosing again mends it
            return {}
        return known if isinstance(known, dict) else {}
