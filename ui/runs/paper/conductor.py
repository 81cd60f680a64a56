"""Rows of the Conductor's table: how their planners are trained, and what is chosen for their rivals on validation
tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core.conduct.planners import FIXED, Conductor, RandomPlanner, SameModelPlanner, fixed_planner
from core.draws import uniform
from core.episode import Episode
from core.evolution.fitness import mean_reward, rewards
from core.planner.config import LearnConfig
from core.planner.statistics import IterationStats
from core.play.policy import Policy
from ui.runs import wiring
from ui.runs.paper.conductor_table import TRAINED
from ui.runs.paper.table import DEFAULT_BUDGETS, TableRow, Way
from ui.runs.plans import Suite, TrainingPlan

if TYPE_CHECKING:
    from ui.runs.paper.reproduction import Reproduction

#: The part of a training's budget that may go into the choice of its questions.
CHOOSING_SHARE = 1 / 3
#: How often a planner is kept and validated.
VALIDATIONS = 12
#: How many models a way of playing leaves out, drawn for each task.
LEFT_OUT: dict[Way, int] = {"without 1 model": 1, "without 2 models": 2}

_TRAINED = ("trained", "warm-up", "same-model")


def is_row(row: TableRow) -> bool:
    """Whether a row is of a Conductor."""
    kind = row.how.partition(":")[0]
    return kind in (*_TRAINED, "workflow", "random-workflow")


def is_trained(row: TableRow) -> bool:
    """Whether a training stands behind a row."""
    return row.how.partition(":")[0] in _TRAINED


def stem(row: TableRow) -> str:
    """How the name of what is learned for a row begins."""
    return f"planner-{row.how.partition(':')[2]}" if is_trained(row) else row.how


def training_plan(suite: Suite, row: TableRow, seed: int, n_models: int) -> TrainingPlan:
    """The training behind a row, of which a part of the budget goes into the choice of its questions."""
    budget = suite.budget * DEFAULT_BUDGETS
    settings = LearnConfig(seed=seed, **TRAINED[row.how.partition(":")[2]])
    each = n_models + settings.probes
    n = max(20, int(budget * CHOOSING_SHARE) // each)
    iterations = max(1, (budget - n * each) // (settings.questions * settings.rollouts))
    every = math.ceil(iterations / VALIDATIONS)
    learning = replace(settings, iterations=iterations, save_every=every, validate_every=every)
    return TrainingPlan(
        tasks=suite.tasks, n=n, validation=suite.validation, pool=suite.pool, learning=learning
    )


def policy_of(game: Reproduction, row: TableRow, training: str) -> Policy:
    """The policy of a Conductor's row; `training` is the run behind it, empty for none."""
    kind, _, name = row.how.partition(":")
    if kind == "random-workflow":
        return Conductor(RandomPlanner(game.models))
    if kind == "workflow":
        return Conductor(fixed_planner(name, game.models, _best_team(game, name)))
    iterations = [one for one in game.store.planners.iterations(training) if one.planner_id]
    if kind == "warm-up":
        chosen = iterations[0]
    else:  # the best on validation tasks, of equally good ones the last
        found = [IterationStats.stats_of(one.stats).validation for one in iterations]
        known = [(one.right, place) for place, one in enumerate(found) if one is not None]
        chosen = iterations[max(known)[1]] if known else iterations[-1]
    planner = wiring.load_planner(
        game.store, chosen.planner_id or "", game.models, argmax=row.played == "argmax"
    )
    if kind != "same-model":
        return Conductor(planner)
    by_model = {model: Conductor(SameModelPlanner(planner, model)) for model in game.models}
    return by_model[_best(game, game.models, lambda model: by_model[model])]


def without_models(episodes: Sequence[Episode], played: Way) -> list[Episode]:
    """The episodes as a way of playing has them: without so many models, drawn for each task."""
    n = LEFT_OUT.get(played, 0)
    if not n:
        return [*episodes]
    return [replace(one, left_out=_drawn(one, n)) for one in episodes]


def episodes_at_most(row: TableRow, suite: Suite, n_models: int) -> int:
    """A bound on what learning and choosing for a row play."""
    kind, _, name = row.how.partition(":")
    if kind == "workflow":
        return 2 * len(FIXED[name]) * n_models * CHOICE_ROUNDS * 80
    trained = suite.budget * DEFAULT_BUDGETS + (VALIDATIONS + 2) * suite.validation
    return trained + (n_models * 80 if kind == "same-model" else 0) if is_trained(row) else 0


#: How often all places of a team are gone through.
CHOICE_ROUNDS = 3


def _best_team(game: Reproduction, name: str) -> tuple[str, ...]:
    """A team for a frozen workflow: begun with the best single model everywhere, then place by place the model that is
    best beside the others, until none changes. The better of that and of one that is gone through backwards."""
    places = range(len(FIXED[name]))

    def accuracy(team: tuple[str, ...]) -> float:
        return _accuracy(game, Conductor(fixed_planner(name, game.models, team)))

    found = []
    for order in ([*places], [*places][::-1]):
        team = (game.ranked[0],) * len(places)
        for _ in range(CHOICE_ROUNDS):
            before = team
            for place in order:
                tried = [(*team[:place], model, *team[place + 1 :]) for model in game.ranked]
                team = max(tried, key=accuracy)
            if team == before:
                break
        found.append(team)
    return max(found, key=accuracy)


def _best(game: Reproduction, models: Sequence[str], policy: Callable[[str], Policy]) -> str:
    """The model whose policy is best on validation tasks."""
    return max(models, key=lambda model: _accuracy(game, policy(model)))


def _accuracy(game: Reproduction, policy: Policy) -> float:
    """On the validation tasks that everything is chosen on; the same policy is played once."""
    if policy.id not in game.chosen:
        played = game.arena(0).play(policy, game.choosing())
        game.chosen[policy.id] = float(mean_reward(rewards(played)))
    return game.chosen[policy.id]


def _drawn(episode: Episode, n: int) -> tuple[str, ...]:
    draws = uniform(f"left out/{episode.seed}/{episode.task.id}", len(episode.models))
    places = sorted(range(len(episode.models)), key=lambda place: float(draws[place]))[:n]
    return tuple(episode.models[place] for place in sorted(places))
