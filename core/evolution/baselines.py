"""What a coordinator has to beat: the best single model at its best cycle, random choice, and routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.coordinator.encoder import Encoder
from core.draws import derive_seed
from core.episode import Decide, Decision, Episode, Protocol, Task, Transcript
from core.evolution.cycles import CYCLES, ChosenCycle, choose_cycles, try_cycles
from core.evolution.fitness import episodes_of, mean_reward, rewards
from core.learning import play_all
from core.play.drive import GradeMany
from core.play.policies import SINGLE, Cycle, CyclePolicy, PolicyPerRequest, single_policy
from core.play.policy import Policy
from core.pool.pool import Pool

#: How much the learned router's regression is held back: the best of a grid on validation tasks.
RIDGE = 100.0


@dataclass(frozen=True, slots=True)
class Arena:
    """Where policies are measured against each other: the same pool, grader, budget, chance and rules for all."""

    pool: Pool
    grade: GradeMany
    turn_budget: int = 5
    seed: int = 0
    protocol: Protocol = Protocol.PAPER

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.pool.specs)

    @property
    def reply_seed(self) -> int:
        """Decides all that is random; common to all policies."""
        return derive_seed((self.seed, "arena"))

    def singles(self, cycles: Mapping[str, ChosenCycle]) -> list[CyclePolicy]:
        return [single_policy(model, self.models, cycles[model].cycle) for model in self.models]

    def play(self, policy: Policy, tasks: Sequence[Task]) -> list[Episode]:
        episodes = episodes_of(
            tasks,
            policy.models,
            seed=self.reply_seed,
            turn_budget=self.turn_budget,
            prefix=policy.id,
            protocol=self.protocol,
        )
        return play_all(episodes, policy, self.pool, self.grade)


def best_cycles(
    arena: Arena,
    validation: Sequence[Task],
    cycles: Sequence[Cycle] = CYCLES,
    others: Sequence[str] = ("random-model",),
) -> dict[str, ChosenCycle]:
    """The best of these cycles of every model, by name, and of each of the `others` by its own."""
    names = [*(f"{SINGLE}{model}" for model in arena.models), *others]
    trials = try_cycles(
        names,
        arena.pool,
        arena.grade,
        validation,
        turn_budget=arena.turn_budget,
        seed=arena.reply_seed,
        cycles=cycles,
        protocol=arena.protocol,
    )
    return {name.removeprefix(SINGLE): one for name, one in choose_cycles(trials).items()}


def solved_by_single(
    arena: Arena, cycles: Mapping[str, ChosenCycle], tasks: Sequence[Task]
) -> NDArray[np.float64]:
    """Rewards [models, tasks] of each model at its best cycle; their maximum is the per-question union."""
    return np.stack([rewards(arena.play(policy, tasks)) for policy in arena.singles(cycles)])


def learned_router(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    encoder: Encoder,
    train: Sequence[Task],
    *,
    ridge: float = RIDGE,
) -> QuestionRouter:
    """A single-turn router: the most promising model, at its best cycle, plays the whole episode.

    The promise is a ridge regression from the question's hidden state to each model's success on `train`; `ridge` is
    the weight of the squared coefficients, RIDGE by default."""
    solved = solved_by_single(arena, cycles, train)
    # A missing episode says nothing: its model's mean stands in for it, and 0 for a model without any other.
    success = np.where(np.isnan(solved), np.nan_to_num(mean_reward(solved))[:, None], solved)
    x = question_states(encoder, train)
    centre = x.mean(axis=0)
    x = x - centre
    weights = np.linalg.solve(
        x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (success - success.mean(axis=1)[:, None]).T
    )

    def most_promising(states: NDArray[np.float64]) -> NDArray[np.int64]:
        promise = (states - centre) @ weights + success.mean(axis=1)
        best: NDArray[np.int64] = promise.argmax(axis=1)
        return best

    return QuestionRouter("router", arena.models, tuple(arena.singles(cycles)), encoder, most_promising)


@dataclass(frozen=True, slots=True)
class QuestionRouter:
    """Leaves each question to one of `policies`: `choose` gives the place of it from the questions' hidden states
    [questions, hidden size]. What was chosen for a question stays."""

    id: str
    models: tuple[str, ...]
    policies: tuple[Policy, ...]
    encoder: Encoder
    choose: Callable[[NDArray[np.float64]], NDArray[np.int64]]
    _chosen: dict[str, int] = field(default_factory=dict)

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """The decisions of the policies that the questions are left to."""
        asked = [one.transcript.question for one in requests]
        if fresh := [question for question in dict.fromkeys(asked) if question not in self._chosen]:
            places = self.choose(_states(self.encoder, fresh))
            self._chosen.update(zip(fresh, (int(place) for place in places), strict=True))
        each = PolicyPerRequest(
            self.id, self.models, lambda one: self.policies[self._chosen[one.transcript.question]]
        )
        return each.decide(requests)


def question_states(encoder: Encoder, tasks: Sequence[Task]) -> NDArray[np.float64]:
    """What the encoder makes of the tasks' bare questions, [tasks, hidden size]."""
    return _states(encoder, [task.question for task in tasks])


def _states(encoder: Encoder, questions: Sequence[str]) -> NDArray[np.float64]:
    asked = [Decide(Transcript(question), 0, question) for question in questions]
    return encoder.encode(asked).states.astype(float)
