"""Chooses the cycle of roles that suits a fixed policy best on validation tasks, and remembers it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from core.drive import drive_many
from core.episode import ROLE_ORDER, Decide, Decision, Episode, EpisodeFinished, Role, Status, Task
from core.pocket import WEIGHTS
from core.policies import RandomModelPolicy, round_robin_policy, single_policy
from core.policy import Policy
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.tasks.graders import grade_many

Cycle = tuple[Role, ...]

SINGLE = "single:"
LONGEST = 3


def all_cycles() -> list[Cycle]:
    """Every cycle of up to three roles in which somebody works, each once: W, W is the same as W."""
    found = [cycle for length in range(1, LONGEST + 1) for cycle in product(ROLE_ORDER, repeat=length)]
    return [cycle for cycle in found if Role.WORKER in cycle and not _repeats(cycle)]


def _repeats(cycle: Cycle) -> bool:
    return any(len(cycle) % n == 0 and cycle[:n] * (len(cycle) // n) == cycle for n in range(1, len(cycle)))


def follows_cycle(policy: str) -> bool:
    """Whether a policy of this name plays roles in a fixed order."""
    return policy.startswith(SINGLE) or policy in ("random-model", "round-robin")


def cycle_policy(name: str, models: tuple[str, ...], cycle: Cycle) -> Policy:
    """The policy of a name that follows a cycle. ConfigError for a model that the pool does not have."""
    if name.startswith(SINGLE):
        return single_policy(name.removeprefix(SINGLE), models, cycle)
    return RandomModelPolicy(models, cycle) if name == "random-model" else round_robin_policy(models, cycle)


@dataclass(frozen=True, slots=True)
class _Each:
    """Lets every episode be decided by its own policy."""

    models: tuple[str, ...]
    policy_of: Mapping[str, Policy]
    id: str = "cycles"

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return [self.policy_of[request.episode_id].decide([request])[0] for request in requests]


def choose(
    names: Sequence[str], pool: Pool, tasks: Sequence[Task], turns: int
) -> Iterator[int | dict[str, Cycle]]:
    """The best cycle of each policy: most tasks right, then fewest turns. Yields the number of episodes,
    then 1 for each one played, and the choices last."""
    models = tuple(spec.name for spec in pool.specs)
    tried = {f"{name} {place}": (name, cycle) for name in names for place, cycle in enumerate(all_cycles())}
    policies = {key: cycle_policy(name, models, cycle) for key, (name, cycle) in tried.items()}
    episodes = [
        Episode(f"{key} {task.id}", "cycles", task, key, models, turn_budget=turns)
        for key in tried
        for task in tasks
    ]
    yield len(episodes)
    each = _Each(models, {one.id: policies[one.policy] for one in episodes})
    scores = dict.fromkeys(tried, (0, 0))
    for event in drive_many(episodes, each, CachedPool(pool), grade_many):
        if isinstance(event, EpisodeFinished):
            over = event.episode
            right, fewer = scores[over.policy]
            right += over.status is Status.FINISHED and bool(over.correct)
            scores[over.policy] = right, fewer - len(over.turns)
            yield 1
    best = {
        name: max((key for key in tried if tried[key][0] == name), key=scores.__getitem__) for name in names
    }
    yield {name: tried[key][1] for name, key in best.items()}


def _pocket_weights(pool: Pool) -> list[str]:
    """Digests of the pocket models in a pool: a model that was trained again has its cycle chosen again."""
    files = [WEIGHTS / spec.name / "model.safetensors" for spec in pool.specs if spec.provider == "pocket"]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]


class Remembered:
    """Choices made before, in a file; what was chosen once for a pool and its tasks stays."""

    def __init__(self, folder: Path, pool: Pool, tasks: Sequence[Task], turns: int) -> None:
        self._file = folder / "cycles.json"
        known = repr((pool.specs, _pocket_weights(pool), tasks, turns))
        self._key = hashlib.sha256(known.encode()).hexdigest()[:16]

    def get(self) -> dict[str, Cycle]:
        """What is known for this pool, tasks and turn budget, by policy."""
        return {
            name: tuple(Role(role) for role in cycle)
            for name, cycle in self._read().get(self._key, {}).items()
        }

    def add(self, chosen: Mapping[str, Cycle]) -> None:
        """Remember more; the file is replaced in one step."""
        known = self._read()
        known.setdefault(self._key, {}).update({name: list(cycle) for name, cycle in chosen.items()})
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(known, indent=1))
        draft.replace(self._file)

    def _read(self) -> dict[str, dict[str, list[str]]]:
        try:
            known = json.loads(self._file.read_text())
        except (OSError, ValueError):  # never written, or damaged: choosing again mends it
            return {}
        return known if isinstance(known, dict) else {}
