"""A batch run: the same tasks under each policy; and what is chosen before it plays, the cycle of roles of each fixed
policy, and who is taught or picked."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.checkpoint import load_checkpoint
from core.conduct.planners import CONDUCTOR
from core.episode import EndReason, Episode, Event, Protocol, Role, Status, Task
from core.errors import ConfigError, StoreError, TaskError
from core.evolution.cycles import CYCLES, ChosenCycle, Trial, choose_cycles, try_cycles
from core.planner.card import CARD_FILE
from core.play.drive import GradeMany, drive_many
from core.play.judging import check_judge
from core.play.policies import PLAN_WORK_CHECK, SINGLE, Cycle, Policy, PolicyPerEpisode, Pupil, new_episode
from core.pocket import WEIGHTS
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.pool.spec import slots_of
from core.tasks.sets import digest_of_tasks
from storage.files.atomic import atomic_file
from storage.recorder import record_many
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.presentation.comparison import enumerated
from ui.runs import wiring
from ui.runs.grading import grading
from ui.runs.learning import tasks_seen
from ui.runs.lease import owner
from ui.runs.plans import Preparation, to_config
from ui.runs.play import (
    Ending,
    GroupControl,
    HaltingPool,
    Parts,
    common_parts,
    decompositions,
    metered,
    prepare_run,
    questions_read,
)
from ui.runs.policies import Policies, check_policies, cycles_of
from ui.runs.policy_kinds import Lessons
from ui.runs.settings import is_recorded
from ui.runs.settings.batch import BatchPlan, Order
from ui.runs.spending import paid_models

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder


@dataclass(frozen=True, slots=True)
class BatchParts(Parts):
    """All that a batch run needs besides the store."""

    plan: BatchPlan
    policies: list[Policy]

    @property
    def readers(self) -> Sequence[Encoder]:
        return [
            one.encoder for one in self.policies if hasattr(one, "checkpoint") and hasattr(one, "encoder")
        ]

    def play(
        self, store: Store, run: str
    ) -> Generator[Event | Preparation | CyclesTried | CyclesChosen | PolicyTaught, None, Ending]:
        """Choose and teach what is still to be chosen and taught, make encoders ready, then play what the run still
        lacks, all policies side by side, and record every event before it is passed on. An interrupted or missing
        episode goes on after its last stored turn, and a stored reply is not asked for again."""
        plan, control = self.plan, GroupControl(store, run)
        if self.shelf is not None:
            self.shelf.load([*self.tasks, *plan.choosing_tasks(), *plan.lesson_tasks()])
        plan, policies = yield from self.choose_and_teach(store, run)
        recorded = store.episodes.of_run(run)
        over = {one.id: one.cost_usd or 0.0 for one in recorded if one.status is Status.FINISHED}
        begun = {one.id: one for one in store.episodes.unfinished(run)} if recorded else {}
        stored_replies = store.episodes.stored_replies(run) if recorded else None
        policy_of: dict[str, Policy] = {}
        waiting: list[Episode] = []
        said_once = {f"{SINGLE}{spec.name}" for spec in self.pool.specs if spec.repeats}
        for place, task in enumerate(self.tasks):  # policies take turns, so that all their models have work
            for position, policy in enumerate(policies):
                new = new_episode(
                    run,
                    position * len(self.tasks) + place,
                    task,
                    policy,
                    turns=1 if policy.id in said_once else plan.turns,
                    seed=plan.seed,
                    argmax=plan.argmax,
                    protocol=plan.protocol,
                )
                if new.id not in over:
                    policy_of[new.id] = policy
                    waiting.append(begun.get(new.id, new))
        if waiting:
            yield from prepare_run(store, run, decompositions(policies))
        if waiting and not control.stop():
            each = PolicyPerEpisode("batch", plan.models, policy_of)
            with metered(store, run, self.pool, plan.max_cost_usd, self.reckoned) as paid:
                paid.ended(over.values())
                control.waits = paid.note
                drive = partial(
                    drive_many,
                    waiting,
                    each,
                    CachedPool(paid, shelf=self.shelf),
                    self.grade,
                    stop=control.stop,
                    stored_replies=stored_replies,
                )
                yield from record_many(store, drive, owner=owner())
        missing = [one for one in store.episodes.of_run(run) if one.status is Status.MISSING]
        lost = [one for one in missing if one.end_reason is not EndReason.NOT_RECORDED]
        ending = control.ending(len(lost))
        if ending[0] is RunStatus.FINISHED and not plan.reuse:
            store.learning.paid_replies(run).forget()
        return ending

    def choose_and_teach(
        self, store: Store, run: str
    ) -> Generator[
        Preparation | CyclesTried | CyclesChosen | PolicyTaught, None, tuple[BatchPlan, list[Policy]]
    ]:
        """Try every cycle for the policies that have none, choose and teach those that need it before they play, and
        give the plan as its run now keeps it, with its policies.

        Replies are kept as they come, so that a run that is resumed pays for none again. Stopped when a person asks for
        it; PoolError when no cycle can be chosen, as models could not be asked."""
        plan, pupils = self.plan, [one for one in self.policies if isinstance(one, Pupil)]
        if not pupils and not plan.undecided:
            return plan, _with_cycles(store, plan, self.policies)
        ledger, validation = store.learning.paid_replies(run), plan.choosing_tasks()
        questions, chosen_for = plan.lesson_tasks(), plan.choice_usd or ledger.spent_usd(0)
        grade = grading(store, [*validation, *questions], plan.tasks, engine=plan.engine)
        taught: dict[str, Policy] = {}
        ceiling_usd = plan.max_cost_usd
        with metered(store, run, self.pool, ceiling_usd, self.reckoned, keeps_failures=False) as paid:
            chosen_for -= paid.replies_usd
            halting = HaltingPool(paid, lambda: store.runs.control(run).cancel)
            asked = CachedPool(halting, ledger=ledger, shelf=self.shelf)
            if plan.undecided:
                chosen = yield from _chosen_cycles(plan, asked, grade, validation[: plan.choosing])
                yield CyclesChosen(chosen)
                plan = replace(plan, cycles={**plan.cycles, **chosen})
            if pupils:
                lessons = _lessons(store, plan, asked, grade, validation, questions, self.tasks)
                for one in pupils:
                    if one.reads:
                        due = [task.question for task in (*questions, *validation, *self.tasks)]
                        yield from prepare_run(store, run, questions_read(lessons.reader, due))
                    taught[one.id] = one.teach(lessons)
                    wiring.check_recorded(self.pool, (), [taught[one.id]])
                    if told := getattr(taught[one.id], "told", ""):
                        store.runs.note(run, told)
                    yield PolicyTaught(one.id, taught[one.id].id, told)
        policies = [taught.get(one.id, one) for one in _with_cycles(store, plan, self.policies)]
        orders = {one.id: order for one in policies if (order := orders_by_family(one, self.tasks))}
        names = tuple(one.id for one in policies)
        plan = replace(plan, policies=names, choice_usd=chosen_for + paid.replies_usd, orders=orders)
        store.runs.amend(run, to_config(plan), owner=owner())
        if not (plan.reuse or plan.pupils):  # else they are kept for others, or to be taught by again
            ledger.forget()
        return plan, policies


def orders_by_family(policy: Policy, tasks: Sequence[Task]) -> dict[str, Order]:
    """In which order a rule asks models, and how strong it reckons each, by family of tasks, under an empty name where
    it is the same in all; empty for any other policy, and where it is another one for every question."""
    strengths: Callable[[str], Mapping[str, float]] | None = getattr(policy, "strengths", None)
    asked_in: Callable[[str], Sequence[str]] | None = getattr(policy, "order", None)
    if strengths is None or asked_in is None:
        return {}
    found: dict[str, Order] = {}
    for task in tasks:
        strength = strengths(task.question)
        order = tuple((name, round(strength[name], 6)) for name in asked_in(task.question))
        if found.setdefault(task.family, order) != order:
            return {}
    distinct = set(found.values())
    return {"": distinct.pop()} if len(found) > 1 and len(distinct) == 1 else found


def complete_plan(store: Store, plan: BatchPlan) -> BatchPlan:
    """A plan with what a run keeps besides what was asked: each policy by its own name (a checkpoint folder is put into
    the store), the pool's models, the tasks' digest. No model is loaded."""
    models = tuple(spec.name for spec in slots_of(wiring.pool_specs(plan.pool)))
    check_policies(plan.policies, store, models)
    every = [f"{SINGLE}{model}" for model in models]
    asked = [one for name in plan.policies for one in (every if name == f"{SINGLE}*" else [name])]
    names = tuple(dict.fromkeys(_kept(store, name) for name in dict.fromkeys(asked)))
    for name in names if plan.protocol else ():
        if store.checkpoints.has(name):
            own = store.checkpoints.get(name).config.get("protocol", Protocol.PAPER)
            if own != plan.protocol:
                raise ConfigError(
                    f"Checkpoint {name} was evolved under the protocol '{own}' and cannot play by '{plan.protocol}': "
                    "leave the protocol out, or choose another policy."
                )
    return replace(plan, policies=names, models=models, digest=digest_of_tasks(plan.load_tasks()))


def prepare(store: Store, plan: BatchPlan) -> BatchParts:
    """The parts of a complete plan; everything that can be wrong is found here, before anything is played."""
    common = common_parts(store, plan, plan.load_tasks())
    resolved = resolve_policies(store, plan)
    wiring.check_recorded(common["pool"], (), resolved["policies"])
    check_judge(common["pool"].specs, [*plan.choosing_tasks(), *plan.lesson_tasks()])
    seen = tasks_seen(store, plan.policies, common["plan"].models, common["tasks"], plan.tasks)
    return BatchParts(**{**resolved, "notes": (*resolved["notes"], *seen)}, **common)


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


@dataclass(frozen=True, slots=True)
class PolicyTaught:
    """The policy of this name was chosen or taught; `policy` is what it is called from now on, `told` what was chosen
    where that name does not say it."""

    name: str
    policy: str
    told: str = ""


#: Validation tasks on which cycles are chosen where nobody says how many, nothing is paid, and replies are quick.
CHOOSING_TASKS = 40


def with_choosing(plan: BatchPlan, pool: Pool, validate: int | None = None) -> tuple[BatchPlan, str]:
    """The plan with what is remembered of the best role cycles, and the number of validation tasks on which the others
    are chosen: `validate`, else none where models cost money or write in this process, slowly; and why none are chosen
    where nothing has to be paid, empty where some are. ConfigError where a policy cannot learn what it has to."""
    plan, why = replace(plan, choosing=CHOOSING_TASKS if validate is None else validate), ""
    # Where a model can only give the same answer again, there is nothing to choose.
    said_once = {f"{SINGLE}{spec.name}": (Role.WORKER,) for spec in pool.specs if spec.repeats}
    needed = {name: said_once[name] for name in plan.undecided if name in said_once}
    plan = replace(plan, cycles={**needed, **plan.cycles})
    slow = [spec.name for spec in pool.specs if spec.provider == "local"]
    if validate is None and (slow or paid_models(pool.specs)):
        if slow and (tried := len(plan.undecided) * len(CYCLES) * plan.choosing):
            why = (
                f"Role cycles stay plan, work, check: choosing them takes {tried:,} episodes, and {enumerated(slow)} "
                f"write{'s' * (len(slow) == 1)} in this process, one token after the other. trinity run --validate "
                f"{CHOOSING_TASKS} chooses them all the same."
            )
        plan = replace(plan, choosing=0)
    try:
        if undecided := plan.undecided:
            known = RememberedCycles(plan, pool).get()
            mine = {name: known[name] for name in undecided if name in known}
            plan = replace(plan, cycles={**plan.cycles, **mine})
    except TaskError as error:
        plan, why = replace(plan, choosing=0), f"Role cycles stay plan, work, check: {error}"
    for one in plan.pupils:
        if "validation" in one.learns_from and not plan.choosing and not is_recorded(plan.pool):
            raise ConfigError(
                f"Policy '{one.id}' is chosen on validation tasks: say on how many with --validate, or name who plays "
                "behind a colon."
            )
        if one.reads:  # somebody has to say with what
            wiring.encoder_for(plan.pool, plan.encoder)
    return plan, why


def resolve_policies(store: Store, plan: BatchPlan) -> dict[str, Any]:
    """The fields of `BatchParts` about the plan's policies, in its order; those that follow a cycle of roles plan, work
    and check where none is chosen yet."""
    known = _named(store, plan)
    policies = [known.resolve(name, may_learn=True) for name in plan.policies]
    return {"policies": policies, "notes": tuple(known.told)}


def _named(store: Store, plan: BatchPlan) -> Policies:
    return Policies(
        store,
        plan.models,
        argmax=plan.argmax,
        encoder=plan.encoder,
        cycles=plan.cycles,
        computing=plan.computing,
        engine=plan.engine,
    )


def _with_cycles(store: Store, plan: BatchPlan, policies: Sequence[Policy]) -> list[Policy]:
    known = _named(store, plan)
    return [
        known.resolve(one.id, may_learn=True) if cycles_of(one.id, plan.models) else one for one in policies
    ]


def _chosen_cycles(
    plan: BatchPlan, pool: CachedPool, grade: GradeMany, tasks: Sequence[Task]
) -> Generator[CyclesTried, None, dict[str, Cycle]]:
    trials: list[Trial] = []
    for trial in try_cycles(
        plan.undecided, pool, grade, tasks, turn_budget=plan.turns, protocol=plan.protocol
    ):
        trials.append(trial)
        yield CyclesTried(len(trials), len(plan.undecided) * len(CYCLES) * len(tasks))
    found = choose_cycles(trials)
    RememberedCycles(plan, pool).add({name: one.cycle for name, one in found.items() if not one.missing})
    return {name: one.cycle for name, one in found.items()}


def _lessons(
    store: Store,
    plan: BatchPlan,
    pool: CachedPool,
    grade: GradeMany,
    validation: Sequence[Task],
    questions: Sequence[Task],
    tasks: Sequence[Task],
) -> Lessons:
    from core.evolution.baselines import Arena

    arena = Arena(pool, grade, plan.turns, plan.seed, plan.protocol or Protocol.PAPER)
    chosen = {model: plan.cycles.get(f"{SINGLE}{model}", PLAN_WORK_CHECK) for model in plan.models}
    cycles = {model: ChosenCycle(cycle, math.nan) for model, cycle in chosen.items()}
    reads = any(one.reads for one in plan.pupils)
    reader = wiring.encoder_for(plan.pool, plan.encoder) if reads else ""
    return Lessons(store, arena, cycles, validation, questions, tasks, reader, plan.computing, plan.engine)


class RememberedCycles:
    """Choices made before, in a file of the data folder; what was chosen once for a pool and its tasks stays."""

    def __init__(self, plan: BatchPlan, pool: Pool) -> None:
        self._file = wiring.data_folder() / "cycles.json"
        rules = () if plan.protocol in (None, Protocol.PAPER) else (plan.protocol.value,)
        # A pocket model that was trained again has its cycle chosen again.
        own = [WEIGHTS / spec.name / "model.safetensors" for spec in pool.specs if spec.provider == "pocket"]
        weights = [hashlib.sha256(file.read_bytes()).hexdigest() for file in own if file.exists()]
        weights += [spec.weights for spec in pool.specs if spec.weights]
        known = repr((pool.specs, weights, plan.choosing_tasks()[: plan.choosing], plan.turns, *rules))
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
