"""What a coordinator has to beat: the best single model at its best cycle, random choice, and routers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from core.coordinator.encoder import Encoder
from core.draws import integer
from core.drive import GradeMany
from core.episode import ROLE_ORDER, Decide, Decision, Episode, Role, Task, Transcript
from core.evolution.fitness import episodes_of, mean_reward, play_all, rewards
from core.policies import CyclePolicy, RandomModelPolicy, single_policy
from core.policy import Policy
from core.pool.pool import Pool

#: Every cycle of roles up to length 3 that contains a Worker, shorter ones first.
CYCLES: tuple[tuple[Role, ...], ...] = tuple(
    cycle for length in (1, 2, 3) for cycle in product(ROLE_ORDER, repeat=length) if Role.WORKER in cycle
)


@dataclass(frozen=True, slots=True)
class Arena:
    """Where policies are measured against each other: the same pool, grader, budget and chance for all."""

    pool: Pool
    grade: GradeMany
    turn_budget: int = 5
    seed: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The pool's slots."""
        return tuple(spec.name for spec in self.pool.specs)

    def play(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        *,
        model_mask: Sequence[bool] = (),
        role_mask: Sequence[bool] = (),
    ) -> list[Episode]:
        """One episode per task under the policy."""
        seed = integer((self.seed, "arena"))
        episodes = episodes_of(
            tasks, policy.models, seed=seed, turn_budget=self.turn_budget, prefix=policy.id
        )
        return play_all(episodes, policy, self.pool, self.grade, model_mask=model_mask, role_mask=role_mask)

    def accuracy(self, policy: Policy, tasks: Sequence[Task]) -> float:
        """Share of tasks solved; missing episodes are left out."""
        return float(mean_reward(rewards(self.play(policy, tasks))))


def best_cycle(arena: Arena, model: str, validation: Sequence[Task]) -> tuple[tuple[Role, ...], float]:
    """The model's best cycle of roles on validation tasks, and its accuracy there; of equals the shortest."""
    scored = [
        (cycle, arena.accuracy(single_policy(model, arena.models, cycle), validation)) for cycle in CYCLES
    ]
    return max(scored, key=lambda pair: pair[1])


def best_cycles(arena: Arena, validation: Sequence[Task]) -> dict[str, tuple[tuple[Role, ...], float]]:
    """Every model's best cycle and its validation accuracy."""
    return {model: best_cycle(arena, model, validation) for model in arena.models}


def best_single(arena: Arena, cycles: Mapping[str, tuple[tuple[Role, ...], float]]) -> CyclePolicy:
    """The model that does best on validation tasks, frozen with its cycle."""
    model = max(cycles, key=lambda name: cycles[name][1])
    return single_policy(model, arena.models, cycles[model][0])


def best_random_model(arena: Arena, validation: Sequence[Task]) -> RandomModelPolicy:
    """Random models under the cycle of roles that suits them best on validation tasks."""
    policies = [RandomModelPolicy(arena.models, cycle) for cycle in CYCLES]
    return max(policies, key=lambda policy: arena.accuracy(policy, validation))


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """Looks the question up and plays the fixed policy that was chosen for it, turn by turn."""

    id: str
    models: tuple[str, ...]
    chosen: Mapping[str, CyclePolicy]  # by question

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """The chosen policy's decision per request."""
        return [self.chosen[request.transcript.question].decide([request])[0] for request in requests]


def solved_by_single(
    arena: Arena, cycles: Mapping[str, tuple[tuple[Role, ...], float]], tasks: Sequence[Task]
) -> NDArray[np.float64]:
    """Rewards [models, tasks] of each model at its best cycle; their maximum is the per-question union."""
    return np.stack(
        [
            rewards(arena.play(single_policy(model, arena.models, cycles[model][0]), tasks))
            for model in arena.models
        ]
    )


def learned_router(
    arena: Arena,
    cycles: Mapping[str, tuple[tuple[Role, ...], float]],
    encoder: Encoder,
    train: Sequence[Task],
    tasks: Sequence[Task],
    ridge: float = 1.0,
) -> TablePolicy:
    """A single-turn router: the most promising model, at its best cycle, plays the whole episode.

    The promise is a ridge regression from the question's hidden state to each model's success on `train`."""
    success = np.nan_to_num(solved_by_single(arena, cycles, train))
    x, queries = _question_states(encoder, train), _question_states(encoder, tasks)
    centre = x.mean(axis=0)
    x, queries = x - centre, queries - centre
    weights = np.linalg.solve(
        x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (success - success.mean(axis=1)[:, None]).T
    )
    promise = queries @ weights + success.mean(axis=1)
    singles = [single_policy(model, arena.models, cycles[model][0]) for model in arena.models]
    chosen = {task.question: singles[best] for task, best in zip(tasks, promise.argmax(axis=1), strict=True)}
    return TablePolicy("router", arena.models, chosen)


def family_router(
    arena: Arena, steps: Mapping[str, tuple[tuple[str, ...], tuple[Role, ...]]], tasks: Sequence[Task]
) -> TablePolicy:
    """The hand-made ceiling: per family a cycle of (models, roles) by someone who knows the pool."""
    policies = {
        family: CyclePolicy(arena.models, models, cycle, "hand-made")
        for family, (models, cycle) in steps.items()
    }
    return TablePolicy("hand-made", arena.models, {task.question: policies[task.family] for task in tasks})


def _question_states(encoder: Encoder, tasks: Sequence[Task]) -> NDArray[np.float64]:
    return encoder.encode([Decide(Transcript(task.question), 0, task.id) for task in tasks]).states.astype(
        float
    )
