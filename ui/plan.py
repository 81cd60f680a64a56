"""What a run plays, kept with it so that its id is enough to resume it, and the loop that plays it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from core.checkpoint import Checkpoint
from core.drive import drive_many
from core.episode import Episode, Event, Protocol, Role, Status, Task
from core.errors import StoreError, TaskError
from core.ids import episode_id
from core.policy import Policy
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.recorder import beating, record
from storage.store import Store
from ui.lease import owner


@dataclass(frozen=True, slots=True)
class Plan:
    """The same tasks under each policy. Paths are absolute; `pool` is "pocket" or a pool.toml's path,
    `models` its slots; `cycles` the chosen roles of those that follow a cycle, `choice_usd` what choosing
    them cost; `digest` is of the tasks."""

    policies: tuple[str, ...]
    tasks: str
    split: str
    n: int | None
    seed: int
    turns: int
    argmax: bool
    pool: str
    models: tuple[str, ...] = ()
    encoder: str | None = None
    max_cost_usd: float | None = None
    cycles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choice_usd: float = 0.0
    digest: str = ""

    def to_config(self) -> dict[str, Any]:
        """The plan as a run's config."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Plan:
        """Inverse of `to_config`; StoreError when the run was recorded by something else."""
        try:
            values: dict[str, Any] = {one.name: config[one.name] for one in fields(cls) if one.name in config}
            values |= {name: tuple(values[name]) for name in ("policies", "models")}
            values["cycles"] = {name: tuple(cycle) for name, cycle in values["cycles"].items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError("This run cannot be resumed: it was not recorded by 'trinity run'.") from error

    def load_tasks(self) -> list[Task]:
        """The tasks, the same at every call; TaskError when their file changed since the run began."""
        tasks = load_tasks(self.tasks, self.split, self.n, self.seed)
        if self.digest and digest(tasks) != self.digest:
            raise TaskError(
                f"The tasks in {self.tasks} have changed since this run began, so it cannot be resumed."
            )
        return tasks

    def role_cycles(self) -> dict[str, tuple[Role, ...]]:
        """`cycles` with roles as such."""
        return {name: tuple(Role(role) for role in cycle) for name, cycle in self.cycles.items()}

    def episodes(self, run_id: str, position: int, policy: Policy, tasks: Sequence[Task]) -> list[Episode]:
        """The episodes of the policy at `position`, as they are born."""
        first = position * len(tasks)
        return [
            birth(run_id, first + i, task, policy, turns=self.turns, seed=self.seed, argmax=self.argmax)
            for i, task in enumerate(tasks)
        ]


def birth(
    run_id: str, index: int, task: Task, policy: Policy, *, turns: int, seed: int, argmax: bool
) -> Episode:
    """A run's episode of this index, as it is born."""
    checkpoint: Checkpoint | None = getattr(policy, "checkpoint", None)
    generation = checkpoint.generation if checkpoint else None
    return Episode(
        id=episode_id(run_id, index),
        run_id=run_id,
        task=task,
        policy=policy.id,
        models=policy.models,
        protocol=checkpoint.protocol if checkpoint else Protocol.PAPER,
        turn_budget=turns,
        seed=seed,
        argmax=argmax,
        meta={} if generation is None else {"generation": str(generation)},
    )


def digest(tasks: Sequence[Task]) -> str:
    """A SHA-256 over the tasks in order."""
    return hashlib.sha256(repr(tasks).encode()).hexdigest()


def play(
    store: Store,
    run_id: str,
    plan: Plan,
    policies: Sequence[Policy],
    tasks: Sequence[Task],
    pool: Pool,
) -> Iterator[Event]:
    """Play what the run still lacks, policy after policy, recording every event before it is passed on.

    What is finished stays; an interrupted or missing episode goes on after its last stored turn, and a stored
    reply is not asked for again."""
    over = {one.id for one in store.episodes.of_run(run_id) if one.status is Status.FINISHED}
    begun = {one.id: one for one in store.episodes.unfinished(run_id)}
    kept = store.episodes.kept(run_id)
    with beating(store, run_id, owner()):
        for position, policy in enumerate(policies):
            mine = plan.episodes(run_id, position, policy, tasks)
            waiting = [begun.get(one.id, one) for one in mine if one.id not in over]
            if waiting:
                events = drive_many(waiting, policy, pool, grade_many, kept=kept)
                yield from record(store, events, owner=owner())
