"""A batch run: the same tasks under each policy, made ready and played; and the cycles of roles chosen for it."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.checkpoint import load_checkpoint
from core.conduct.planners import CONDUCTOR
from core.episode import Episode, Event, Protocol, Status, Task
from core.errors import ConfigError
from core.planner.card import CARD_FILE
from core.play.drive import GradeMany, drive_many
from core.play.policies import SINGLE, PolicyPerEpisode
from core.play.policy import Policy, new_episode
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.tasks.sets import digest_of_tasks
from storage.recorder import record
from storage.rows.summaries import RunStatus
from storage.shelves.replies import SharedReplies
from storage.store import Store
from ui.runs import wiring
from ui.runs.choices import (
    CyclesChosen,
    CyclesTried,
    PolicyTaught,
    made_ready,
    resolve_policies,
)
from ui.runs.control import GroupControl
from ui.runs.grading import grading
from ui.runs.lease import owner
from ui.runs.play import Ending
from ui.runs.policies import check_policies
from ui.runs.settings.batch import BatchPlan, same_models
from ui.runs.spending import MeteredPool, Reckoned


@dataclass(frozen=True, slots=True)
class BatchParts:
    """All that a batch run needs besides the store. `shelf` is what is reused, `reckoned` what was not billed as
    usual."""

    plan: BatchPlan
    pool: Pool
    policies: list[Policy]
    tasks: list[Task]
    grade: GradeMany
    shelf: SharedReplies | None = None
    reckoned: Reckoned = field(default_factory=Reckoned)

    def play(
        self, store: Store, run: str
    ) -> Generator[Event | CyclesTried | CyclesChosen | PolicyTaught, None, Ending]:
        """Choose and teach what is still to be chosen and taught, then play what the run still lacks, all policies
        side by side, and record every event before it is passed on. An interrupted or missing episode goes on after
        its last stored turn, and a stored reply is not asked for again."""
        plan, control = self.plan, GroupControl(store, run)
        if self.shelf is not None:
            self.shelf.load([*self.tasks, *plan.choosing_tasks(), *plan.lesson_tasks()])
        below_ceiling = MeteredPool(self.pool, plan.max_cost_usd, reckoned=self.reckoned)
        plan, policies = yield from made_ready(
            store, run, plan, self.policies, self.tasks, below_ceiling, self.shelf
        )
        metered = below_ceiling.anew(store.runs.spent_usd(run) + plan.choice_usd)
        over = {
            one.id: one.cost_usd or 0.0 for one in store.episodes.of_run(run) if one.status is Status.FINISHED
        }
        metered.ended(over.values())
        pool = CachedPool(metered, shelf=self.shelf)
        begun = {one.id: one for one in store.episodes.unfinished(run)}
        stored_replies = store.episodes.stored_replies(run)
        policy_of: dict[str, Policy] = {}
        waiting: list[Episode] = []
        for place, task in enumerate(self.tasks):  # policies take turns, so that all their models have work
            for position, policy in enumerate(policies):
                new = new_episode(
                    run,
                    position * len(self.tasks) + place,
                    task,
                    policy,
                    turns=plan.turns,
                    seed=plan.seed,
                    argmax=plan.argmax,
                    protocol=plan.protocol,
                )
                if new.id not in over:
                    policy_of[new.id] = policy
                    waiting.append(begun.get(new.id, new))
        if waiting and not control.stop():
            each = PolicyPerEpisode("batch", plan.models, policy_of.__getitem__)
            events = drive_many(
                waiting, each, pool, self.grade, stop=control.stop, stored_replies=stored_replies
            )
            yield from record(store, events, owner=owner())
        ending = control.ending(sum(one.missing for one in store.runs.policies(run)))
        if ending[0] is RunStatus.FINISHED and not plan.reuse:
            store.learning.paid_replies(run).forget()
        return ending


def completed(store: Store, plan: BatchPlan) -> BatchPlan:
    """A plan with what a run keeps besides what was asked: each policy by its own name (a checkpoint folder is put into
    the store), the pool's models, the tasks' digest. No model is loaded."""
    models = tuple(spec.name for spec in wiring.pool_specs(plan.pool))
    check_policies(plan.policies, store, models)
    every = [f"{SINGLE}{model}" for model in models]
    asked = [one for name in plan.policies for one in (every if name == f"{SINGLE}*" else [name])]
    names = tuple(dict.fromkeys(_kept(store, name) for name in dict.fromkeys(asked)))
    _check_protocol(store, names, plan.protocol)
    return replace(plan, policies=names, models=models, digest=digest_of_tasks(plan.load_tasks()))


def prepare(store: Store, plan: BatchPlan) -> BatchParts:
    """The parts of a complete plan; everything that can be wrong is found here, before anything is played."""
    tasks = plan.load_tasks()
    pool = wiring.resolve_pool(plan.pool)
    same_models(plan, tuple(spec.name for spec in pool.specs))
    grade = grading(store, tasks, plan.tasks)
    shelf = store.episodes.shared_replies(pool.specs) if plan.reuse else None
    return BatchParts(plan, pool, resolve_policies(store, plan), tasks, grade, shelf)


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
    """The policy's name; a checkpoint's folder is put into the store, so that the run can name it by its id."""
    if store.checkpoints.has(name, planner=True):
        return CONDUCTOR + name
    if not os.path.isdir(name):  # of a name that no path can have: no error, no folder
        return name
    if (Path(name) / CARD_FILE).exists():
        from core.planner.planner import LanguagePlanner

        planner = LanguagePlanner.load(Path(name))
        wiring.keep_planner(store, planner)
        return planner.id
    checkpoint = load_checkpoint(name)
    wiring.keep_checkpoint(store, checkpoint)
    return checkpoint.id
