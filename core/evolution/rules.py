"""The simplest rules that could explain what a coordinator gains: one pair of models for all tasks, a table by family,
and a ridge regression from the question.

Each chooses among candidates that anybody could name: a single model at its best cycle of roles, or a pair, one model
that plans and one that solves by the plan. A rule plays each of its candidates once on each task that it learns from.
That is all that it costs, so its episodes are candidates times tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.conduct.planners import CONDUCTOR, PAIR, FixedPlanner, fixed_planner
from core.coordinator.encoder import Encoder
from core.episode import Role, Task
from core.errors import ConfigError
from core.evolution.baselines import Arena, QuestionRouter, question_states
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import mean_reward, rewards
from core.evolution.learner_state import Vector
from core.outcomes.features import FeatureName, question_reader
from core.outcomes.lessons import best_setting
from core.outcomes.rules import tried_by_family
from core.play.policies import SINGLE, CyclePolicy, Policy

#: The weights of the squared coefficients that the ridge regression tries, over features of variance or length 1.
PENALTIES = (10_000.0, 1000.0, 100.0, 10.0, 1.0, 0.1, 0.01)


def pairs(arena: Arena) -> list[FixedPlanner]:
    """Every pair of a planner and a solver of the arena's models, one model twice among them; none where no model can
    be asked for a plan."""
    planners = [spec.name for spec in arena.pool.specs if Role.THINKER in spec.roles]
    return [
        fixed_planner(PAIR, arena.models, (planner, solver))
        for planner in planners
        for solver in arena.models
    ]


def needed_pairs(arena: Arena) -> list[FixedPlanner]:
    """The same; ConfigError where there are none."""
    if found := pairs(arena):
        return found
    raise ConfigError(
        "No model of this pool can be asked for a plan, so there is no pair of a planner and a solver: play by-family."
    )


def tried(arena: Arena, candidates: Sequence[Policy], tasks: Sequence[Task]) -> Vector:
    """What each candidate came to on each task [candidates, tasks]; NaN where an episode is missing, or the pool knows
    no reply of one of its models to that task."""
    solved = np.full((len(candidates), len(tasks)), np.nan)
    for row, one, able in zip(solved, candidates, _able(arena, candidates, tasks), strict=True):
        row[able] = rewards(arena.play(one, [task for task, can in zip(tasks, able, strict=True) if can]))
    return solved


def best_place(solved: Vector) -> int:
    """The place of the candidate that solved the largest share of what it was tried on, of equals the first."""
    return int(np.nan_to_num(mean_reward(solved), nan=-1.0).argmax())


def best_pair(arena: Arena, validation: Sequence[Task]) -> FixedPlanner:
    """The pair that solves most validation tasks of all families together, for every task. ConfigError as of
    `needed_pairs`."""
    candidates = needed_pairs(arena)
    return candidates[best_place(tried(arena, candidates, validation))]


def table_by_family(
    arena: Arena,
    candidates: Sequence[Policy],
    known: Sequence[Task],
    tasks: Sequence[Task],
    name: str,
    recorded: Vector | None = None,
) -> QuestionRouter:
    """The candidate that solves most `known` tasks of a family plays each of the `tasks` of this family; a family
    without a known task gets the best candidate over all. The rule is told the family of each task, which no
    coordinator is. Candidates are tried on the known tasks, unless what each came to is `recorded` [candidates, known
    tasks]."""
    solved = tried(arena, candidates, known) if recorded is None else recorded
    rest, table = tried_by_family(solved.T, [task.family for task in known])
    family_of = {task.question: task.family for task in tasks}
    chosen = ", ".join(f"{family} {_short(candidates[int(own.argmax())])}" for family, own in table.items())

    def worth(questions: Sequence[str]) -> Vector:
        return np.stack([table.get(family_of.get(question, ""), rest) for question in questions])

    cost = _cost(len(candidates), len(known))
    if recorded is not None:
        cost = f"Chosen by what is recorded of {len(candidates)} candidates on {len(known):,} tasks."
    told = f"{name}, which is told each task's family: {chosen}. {cost}"
    return _router(arena, candidates, worth, tasks, name, told)


def ridge_rule(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    questions: Sequence[Task],
    validation: Sequence[Task],
    tasks: Sequence[Task],
    *,
    features: FeatureName = "states",
    encoder: Encoder | None = None,
    name: str = "ridge",
) -> QuestionRouter:
    """The candidate, a single model or a pair, of which a ridge regression promises most; it is told no family.

    The regression goes from `features` of a question (`states` need an `encoder`) to what each candidate came to on the
    `questions`. Of PENALTIES the one whose choices solve most validation tasks is taken, of equals the largest; then it
    is fitted again on both. The `tasks` are read together at once."""
    candidates: list[Policy] = [*arena.singles(cycles), *pairs(arena)]
    known = [*questions, *validation]
    solved = tried(arena, candidates, known)
    # A missing episode says nothing: its candidate's mean stands in for it, and 0 for one without any other.
    filled = np.where(np.isnan(solved), np.nan_to_num(mean_reward(solved))[:, None], solved)
    texts = [task.question for task in known]
    states = partial(question_states, encoder) if encoder is not None else None
    read = question_reader(features, texts[: len(questions)], states)
    x, n = read(texts), len(questions)

    def validated(penalty: float) -> float:
        promised = np.where(np.isnan(solved[:, n:]), -np.inf, _ridge(x[:n], filled[:, :n], penalty)(x[n:]).T)
        return float(mean_reward(solved[promised.argmax(axis=0), np.arange(n, len(known))]))

    penalty = best_setting(PENALTIES, validated)
    promise = _ridge(x, filled, penalty)
    told = (
        f"{name}: of {len(PENALTIES)} penalties {penalty:g} was best on validation tasks. "
        f"{_cost(len(candidates), len(known))}"
    )
    router = _router(arena, candidates, lambda asked: promise(read(asked)), tasks, name, told)
    router.places([task.question for task in tasks])
    return router


def _router(
    arena: Arena,
    candidates: Sequence[Policy],
    worth: Callable[[Sequence[str]], Vector],
    tasks: Sequence[Task],
    name: str,
    told: str,
) -> QuestionRouter:
    """Leaves each question to the candidate that is worth most [questions, candidates] among those that can play it."""
    able = dict(zip((task.question for task in tasks), _able(arena, candidates, tasks).T, strict=True))

    def choose(questions: Sequence[str]) -> NDArray[np.int64]:
        can = np.stack([able.get(question, np.ones(len(candidates), bool)) for question in questions])
        best: NDArray[np.int64] = np.where(can, worth(questions), -np.inf).argmax(axis=1)
        return best

    return QuestionRouter(name, arena.models, tuple(candidates), choose, told)


def _able(arena: Arena, candidates: Sequence[Policy], tasks: Sequence[Task]) -> NDArray[np.bool_]:
    """Which candidate can play which task [candidates, tasks]: all of its models can reply to it."""
    own = {spec.name: spec.tasks for spec in arena.pool.specs}
    return np.array(
        [
            [
                all((known := own[model]) is None or task.id in known for model in _models(one))
                for task in tasks
            ]
            for one in candidates
        ],
        bool,
    ).reshape(len(candidates), len(tasks))


def _models(candidate: Policy) -> tuple[str, ...]:
    if isinstance(candidate, FixedPlanner):
        return tuple(candidate.models[slot] for slot in candidate.workflow.models)
    return candidate.steps if isinstance(candidate, CyclePolicy) else candidate.models


def _ridge(x: Any, solved: Vector, penalty: float) -> Callable[[Any], Vector]:
    """What the regression from `x` [questions, features] to `solved` [candidates, questions] promises of each candidate
    for other rows of features [questions, candidates]."""
    from sklearn.linear_model import Ridge

    learned = Ridge(alpha=penalty).fit(x, solved.T)
    return lambda rows: learned.predict(rows).reshape(-1, len(solved))


def _short(candidate: Policy) -> str:
    """A candidate by its models: "jack", or "plato+jack"."""
    return candidate.id.removeprefix(SINGLE).removeprefix(f"{CONDUCTOR}fixed:{PAIR}:")


def _cost(candidates: int, tasks: int) -> str:
    return f"{candidates} candidates were tried on {tasks} tasks, {candidates * tasks:,} episodes."
