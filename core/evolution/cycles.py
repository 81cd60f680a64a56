"""The cycle of roles that suits a fixed policy best: chosen on validation tasks, then frozen (pocket.md, row 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from core.drive import GradeMany, drive_many
from core.episode import ROLE_ORDER, Decide, Decision, Episode, EpisodeFinished, Role, Status, Task
from core.policies import Cycle, cycle_policy
from core.policy import Policy
from core.pool.pool import Pool

LONGEST = 3


def _repeats(cycle: Cycle) -> bool:
    return any(len(cycle) % n == 0 and cycle[:n] * (len(cycle) // n) == cycle for n in range(1, len(cycle)))


#: Every cycle of up to three roles in which somebody works, each once (W, W is the same as W), shorter ones first.
CYCLES: tuple[Cycle, ...] = tuple(
    cycle
    for length in range(1, LONGEST + 1)
    for cycle in product(ROLE_ORDER, repeat=length)
    if Role.WORKER in cycle and not _repeats(cycle)
)


@dataclass(frozen=True, slots=True)
class ChosenCycle:
    """A policy's best cycle and its accuracy on the tasks that chose it."""

    cycle: Cycle
    accuracy: float


def choose_cycles(
    names: Sequence[str],
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    *,
    turn_budget: int,
    seed: int = 0,
    played: Callable[[], None] = lambda: None,
) -> dict[str, ChosenCycle]:
    """The best cycle of each policy: most tasks right, of equals the fewest turns, of equals the shortest.

    Plays len(names) x len(CYCLES) x len(tasks) episodes and calls `played` after each; a missing one is not right.
    """
    models = tuple(spec.name for spec in pool.specs)
    tried = {f"{name} {place}": (name, cycle) for name in names for place, cycle in enumerate(CYCLES)}
    policies = {key: cycle_policy(name, models, cycle) for key, (name, cycle) in tried.items()}
    episodes = [
        Episode(f"{key} {task.id}", "cycles", task, key, models, turn_budget=turn_budget, seed=seed)
        for key in tried
        for task in tasks
    ]
    each = _Each(models, {one.id: policies[one.policy] for one in episodes})
    scores = dict.fromkeys(tried, (0, 0))
    for event in drive_many(episodes, each, pool, grade):
        if isinstance(event, EpisodeFinished):
            over = event.episode
            right, fewer = scores[over.policy]
            right += over.status is Status.FINISHED and bool(over.correct)
            scores[over.policy] = right, fewer - len(over.turns)
            played()
    best = {
        name: max((key for key in tried if tried[key][0] == name), key=scores.__getitem__) for name in names
    }
    return {
        name: ChosenCycle(tried[key][1], scores[key][0] / max(1, len(tasks))) for name, key in best.items()
    }


@dataclass(frozen=True, slots=True)
class _Each:
    """Lets every episode be decided by its own policy."""

    models: tuple[str, ...]
    policy_of: Mapping[str, Policy]
    id: str = "cycles"

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return [self.policy_of[request.episode_id].decide([request])[0] for request in requests]
