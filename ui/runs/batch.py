"""A batch run: the same tasks under each policy, made ready and played; and the cycles of roles chosen for it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.checkpoint import load_checkpoint
from core.episode import Event, Protocol, Role, Status, Task
from core.errors import ConfigError, StoreError
from core.play.drive import drive_many
from core.play.policies import SINGLE, Cycle
from core.play.policy import Policy, new_episode
from core.pocket import WEIGHTS
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from core.tasks.sets import digest_of_tasks
from storage.files.atomic import atomic_file
from storage.recorder import record
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import GroupControl
from ui.runs.lease import owner
from ui.runs.plans import BatchPlan, same_models
from ui.runs.play import Ending
from ui.runs.spending import MeteredPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchParts:
    """All that a batch run needs besides the store; `pool` counts what is spent."""

    plan: BatchPlan
    pool: MeteredPool
    policies: list[Policy]
    tasks: list[Task]

    def play(self, store: Store, run: str) -> Generator[Event, None, Ending]:
        """Play what the run still lacks, policy after policy, and record every event before it is passed on. An
        interrupted or missing episode goes on after its last stored turn, and a stored reply is not asked for again."""
        plan, control = self.plan, GroupControl(store, run)
        metered = self.pool.anew(store.runs.spent_usd(run) + plan.choice_usd)
        over = {
            one.id: one.cost_usd or 0.0 for one in store.episodes.of_run(run) if one.status is Status.FINISHED
        }
        metered.ended(over.values())
        pool = CachedPool(metered)
        begun = {one.id: one for one in store.episodes.unfinished(run)}
        stored_replies = store.episodes.stored_replies(run)
        for position, policy in enumerate(self.policies):
            first = position * len(self.tasks)
            episodes = [
                new_episode(
                    run,
                    number,
                    task,
                    policy,
                    turns=plan.turns,
                    seed=plan.seed,
                    argmax=plan.argmax,
                    protocol=plan.protocol,
                )
                for number, task in enumerate(self.tasks, first)
            ]
            waiting = [begun.get(one.id, one) for one in episodes if one.id not in over]
            if waiting and not control.stop():
                events = drive_many(
                    waiting, policy, pool, grade_many, stop=control.stop, stored_replies=stored_replies
                )
                yield from record(store, events, owner=owner())
        return control.ending(sum(one.missing for one in store.runs.policies(run)))


def completed(store: Store, plan: BatchPlan) -> BatchPlan:
    """A plan with what a run keeps besides what was asked: each policy by its own name (a checkpoint folder is put into
    the store), the pool's models, the tasks' digest. No model is loaded."""
    wiring.check_policies(plan.policies, store, plan.pool)
    models = tuple(spec.name for spec in wiring.pool_specs(plan.pool))
    every = [f"{SINGLE}{model}" for model in models]
    asked = [one for name in plan.policies for one in (every if name == f"{SINGLE}*" else [name])]
    names = tuple(dict.fromkeys(_kept(store, name) for name in dict.fromkeys(asked)))
    _check_protocol(store, names, plan.protocol)
    return replace(plan, policies=names, models=models, digest=digest_of_tasks(plan.load_tasks()))


def prepare(store: Store, plan: BatchPlan) -> BatchParts:
    """The parts of a complete plan; everything that can be wrong is found here, before anything is played."""
    tasks = plan.load_tasks()
    pool = MeteredPool(wiring.resolve_pool(plan.pool), plan.max_cost_usd)
    same_models(plan, tuple(spec.name for spec in pool.specs))
    return BatchParts(plan, pool, resolve_policies(store, plan), tasks)


def resolve_policies(store: Store, plan: BatchPlan) -> list[Policy]:
    """The plan's policies, in its order."""
    resolver = wiring.Policies(
        store, plan.models, argmax=plan.argmax, encoder=plan.encoder, cycles=plan.cycles
    )
    return [resolver.resolve(name) for name in plan.policies]


def _check_protocol(store: Store, names: Sequence[str], protocol: Protocol | None) -> None:
    """ConfigError for a checkpoint that was evolved under other rules than those asked for: it plays by its own."""
    for name in names:
        if protocol and store.checkpoints.has(name):
            own = store.checkpoints.get(name).config.get("protocol", Protocol.PAPER)
            if own != protocol:
                raise ConfigError(
                    f"Checkpoint {name} was evolved under the protocol '{own}' and cannot play by '{protocol}': leave "
                    "the protocol out, or choose another policy."
                )


def _kept(store: Store, name: str) -> str:
    """The policy's name; a checkpoint folder is put into the store, so that the run can name it by its id."""
    if not os.path.isdir(name):  # of a name that no path can have: no error, no folder
        return name
    checkpoint = load_checkpoint(name)
    wiring.keep_checkpoint(store, checkpoint)
    return checkpoint.id


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
