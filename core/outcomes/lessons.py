"""What every model of a pool makes of tasks when each answers once, alone: what rules and routers learn from.

A recorded pool's are read from its outcome table; other pools are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.episode import Episode, Protocol, Role, Status, Task
from core.errors import PoolError
from core.learning import episodes_of, play_all
from core.outcomes.pool import RecordedPool
from core.outcomes.table import OutcomeTable, tables
from core.play.drive import GradeMany
from core.play.policies import Policy, single_policy
from core.pool.pool import Pool
from core.pool.spec import slots_of
from core.tasks.graders import normalise_answer

#: Settings of a rule or a router that are tried on validation tasks at most; one with fewer possible settings tries
#: them all.
TRIALS = 20

S = TypeVar("S")


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What `models` made of tasks, each array [tasks, models]. `right`: 1 or 0, over several samples their mean, NaN
    where it is not known; `group`: answers of a task that are the same share a number, -1 without an answer, of sample
    0; `tokens` (sent and written) and `cost` (USD) of a reply, NaN where they are not known. `samples`: where a model
    has several replies to a task, the same of each sample by itself."""

    models: tuple[str, ...]
    right: NDArray[np.float64]
    group: NDArray[np.int64]
    tokens: NDArray[np.float64]
    cost: NDArray[np.float64]
    samples: tuple[Known, ...] = field(default=(), kw_only=True)

    def of(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Known:
        """The same of some of the tasks."""
        samples = tuple(sample.of(places) for sample in self.samples)
        return Known(self.models, *(array[places] for array in self.arrays), samples=samples)

    @property
    def each(self) -> tuple[Known, ...]:
        """Each sample by itself."""
        return self.samples or (self,)

    def of_samples(self, samples: Iterable[tuple[NDArray[np.float64], NDArray[np.int64]]]) -> Known:
        """The same with its samples, given what is right and the groups of each [tasks, models]."""
        one_each = (Known(self.models, right, group, self.tokens, self.cost) for right, group in samples)
        return replace(self, samples=tuple(one_each))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of it in the order of its fields, but the samples."""
        return self.right, self.group, self.tokens, self.cost


def joined(one: Known, other: Known) -> Known:
    """What is known of the tasks of both, in order."""
    pairs = zip(one.arrays, other.arrays, strict=True)
    samples = tuple(joined(*both) for both in zip(one.samples, other.samples, strict=True))
    return Known(one.models, *(np.concatenate(pair) for pair in pairs), samples=samples)


def table_behind(pool: Pool) -> OutcomeTable | None:
    """The outcome table that a pool replies from, however it is wrapped; None for one whose models are asked."""
    if isinstance(pool, RecordedPool):
        return pool.table
    digests = {spec.weights for spec in pool.specs if spec.provider == "recorded"}
    if len(digests) != 1 or any(spec.provider != "recorded" for spec in pool.specs):
        return None
    return next((table for table in tables() if table.card.digest in digests), None)


def known_outcomes(
    pool: Pool,
    tasks: Sequence[Task],
    grade: GradeMany | None = None,
    *,
    policies: Sequence[Policy] = (),
    turn_budget: int = 1,
    seed: int = 0,
    protocol: Protocol = Protocol.PAPER,
) -> Known:
    """What every model of the pool makes of these tasks.

    Of a recorded pool it is read from the table, and nothing is played. Other pools are asked, which needs `grade`:
    each task once by the policy that stands for each model, by default the model alone as Worker, with `turn_budget`
    and `seed` of the episodes. PoolError for a task that the table lacks."""
    if (table := table_behind(pool)) is not None:
        return known_of_table(table, tasks)
    if grade is None:
        raise PoolError("Models that are not recorded have to be asked, and nobody grades them here.")
    models = tuple(spec.name for spec in slots_of(pool.specs))
    each = policies or [single_policy(model, models, (Role.WORKER,)) for model in models]
    played = [
        play_all(
            episodes_of(
                tasks, models, seed=seed, turn_budget=turn_budget, prefix=policy.id, protocol=protocol
            ),
            policy,
            pool,
            grade,
        )
        for policy in each
    ]
    return known_of_episodes(models, played)


def known_of_table(table: OutcomeTable, tasks: Sequence[Task]) -> Known:
    """What the table holds of these tasks. PoolError for a task that it lacks."""
    index = table.task_index
    if unknown := next((task for task in tasks if task.id not in index), None):
        raise PoolError(
            f"The outcome table {table.card.name} has no task {unknown.id}: recorded models answer its own tasks alone "
            f"(--tasks outcomes:{table.card.name})."
        )
    places = np.array([index[task.id] for task in tasks], np.int64)
    whole = Known(
        table.card.models,
        table.over_samples("right"),
        table.of_first("group").astype(np.int64),
        table.over_samples("tokens_in") + table.over_samples("tokens_out"),
        table.over_samples("cost"),
    )
    return whole.of_samples(table.each_sample("right")).of(places)


def known_of_episodes(models: Sequence[str], played: Sequence[Sequence[Episode]]) -> Known:
    """What ended episodes [models][tasks] came to. Right answers of a task are the same, wrong ones where their texts
    are the same but for case, spaces and punctuation."""
    shape = len(played[0]) if played else 0, len(models)
    right, tokens, cost = (np.full(shape, np.nan) for _ in range(3))
    group = np.full(shape, -1, np.int64)
    for place in range(shape[0]):
        names: dict[str, int] = {}
        for slot, episodes in enumerate(played):
            one = episodes[place]
            if one.status is not Status.FINISHED or one.correct is None:
                continue
            right[place, slot] = one.correct
            used = [turn.reply.usage for turn in one.turns]
            tokens[place, slot] = sum(usage.tokens_in + usage.tokens_out for usage in used)
            paid = [usage.cost_usd for usage in used]
            cost[place, slot] = sum(np.nan if usd is None else usd for usd in paid)
            if one.answer is not None:
                said = "right" if one.correct else f"wrong {normalise_answer(one.answer)}"
                group[place, slot] = names.setdefault(said, len(names))
    return Known(tuple(models), right, group, tokens, cost)


def best_setting(settings: Sequence[S], score: Callable[[S], float | tuple[float, ...]]) -> S:
    """The setting with the highest score, of equals the first. No more than TRIALS can be tried."""
    if len(settings) > TRIALS:
        raise ValueError(f"{len(settings)} settings are more than the {TRIALS} trials that each rule has.")
    return max(settings, key=score)
