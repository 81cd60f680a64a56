"""One pair for all tasks, a table by family, and a ridge regression, over models that need each other's plans."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest

from core.conduct.planners import CONDUCTOR, PAIR
from core.coordinator.encoder import load_encoder
from core.episode import Ask, Episode, Failure, Role, Task
from core.errors import ConfigError
from core.evolution.baselines import Arena
from core.evolution.cycles import ChosenCycle
from core.evolution.rules import PENALTIES, best_pair, best_place, pairs, ridge_rule, table_by_family
from core.outcomes.features import FEATURES, FeatureName
from core.play.policies import Policy
from core.pool.cache import CachedPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from tests.builders.pools import Line, ScriptedPool, specs
from ui.runs import wiring

MODELS = ("guide", "hand", "namer")
CYCLES = {model: ChosenCycle((Role.WORKER,), 0.5) for model in MODELS}


def sums(first: int, n: int) -> list[Task]:
    return [
        Task(f"s{i}", f"How much is {i} plus 0?", str(i), "number", "sums") for i in range(first, first + n)
    ]


def names(first: int, n: int) -> list[Task]:
    return [
        Task(f"n{i}", f"Name the number {i}.", str(i), "number", "names") for i in range(first, first + n)
    ]


def say(ask: Ask) -> Line:
    """`hand` adds where it has the plan of `guide`, and `namer` names, with a plan or without."""
    text = ask.messages[-1].content
    if ask.role is Role.THINKER:
        return f"first {ask.model}"
    question = text.splitlines()[1]
    number = int("".join(one for one in question.partition("plus")[0] if one.isdigit()))
    able = ask.model == "namer" if "Name" in question else (ask.model == "hand" and "first guide" in text)
    return f"answer {number if able else number + 1}"


def arena(script: object = say) -> Arena:
    return Arena(ScriptedPool(specs(MODELS), script), grade_many)  # type: ignore[arg-type]


def models_of(episode: Episode) -> str:
    return "+".join(turn.decision.model for turn in episode.turns)


def test_the_pair_that_solves_most_of_all_is_one_for_all_tasks() -> None:
    assert len(pairs(arena())) == 9
    best = best_pair(arena(), [*sums(0, 3), *names(0, 2)])
    assert best.id == f"{CONDUCTOR}fixed:{PAIR}:guide+hand"
    assert best_pair(arena(), [*sums(0, 2), *names(0, 3)]).id.endswith(":guide+namer"), "of equals the first"


def test_a_table_of_pairs_plays_what_did_best_in_the_family_of_each_task() -> None:
    place, tasks = arena(), [*sums(50, 3), *names(50, 3)]
    other = Task("o1", "How much is 9 plus 0 here?", "9", "number", "other")
    rule = table_by_family(
        place, pairs(place), [*sums(0, 4), *names(0, 3)], [*tasks, other], "by-family:pairs"
    )
    played = place.play(rule, [*tasks, other])
    assert [models_of(one) for one in played] == 3 * ["guide+hand"] + 3 * ["guide+namer"] + ["guide+hand"]
    assert all(one.correct for one in played), (
        "a family that nothing was chosen for has what is best over all"
    )
    assert rule.told == (
        "by-family:pairs, which is told each task's family: names guide+namer, sums guide+hand. 9 candidates were "
        "tried on 7 tasks, 63 episodes."
    )


def test_a_table_of_single_models_lets_each_play_by_its_own_cycle() -> None:
    place, tasks = arena(), [*sums(50, 2), *names(50, 2)]
    cycles = {**CYCLES, "namer": ChosenCycle((Role.THINKER, Role.WORKER, Role.WORKER), 0.5)}
    rule = table_by_family(place, place.singles(cycles), [*sums(0, 4), *names(0, 4)], tasks, "by-family")
    played = place.play(rule, tasks)
    assert [bool(one.correct) for one in played] == [False, False, True, True], "nobody adds alone"
    assert {turn.decision.role for turn in played[-1].turns} == {Role.THINKER, Role.WORKER}
    assert "names namer, sums guide." in rule.told


@pytest.mark.parametrize("features", FEATURES)
def test_a_ridge_regression_leaves_questions_to_whom_it_promises_most_of_told_no_family(
    features: FeatureName,
) -> None:
    pool = ScriptedPool(specs(MODELS), say)
    place, tasks = Arena(pool, grade_many), [*sums(70, 8), *names(70, 8)]
    lessons, validation = [*sums(0, 12), *names(0, 12)], [*sums(30, 6), *names(30, 6)]
    encoder = load_encoder("pocket") if features == "states" else None
    rule = ridge_rule(place, CYCLES, lessons, validation, tasks, features=features, encoder=encoder)
    asked = {ask.messages[-1].content.splitlines()[1] for ask in pool.asks}
    assert asked == {task.question for task in (*lessons, *validation)}, (
        "it learns from no task that it then plays"
    )
    families = [*lessons, *validation, *tasks]
    bare = [Task(one.id, one.question, one.answer, one.grader, "user") for one in families[-len(tasks) :]]
    played = place.play(rule, bare)
    assert Counter(models_of(one) for one in played[:8]) == {"guide+hand": 8}
    assert all(one.correct for one in played)
    assert f"of {len(PENALTIES)} penalties" in rule.told
    assert "12 candidates were tried on 36 tasks, 432 episodes." in rule.told


def test_a_penalty_is_the_one_whose_choices_solve_most_validation_tasks() -> None:
    """Where nothing is to be learned of questions, all choose alike, and the largest is as good."""

    def only_namer(ask: Ask) -> Line:
        return say(ask) if ask.model == "namer" else "answer none"

    same = ridge_rule(arena(only_namer), CYCLES, names(0, 6), names(20, 6), [], features="tfidf")
    assert "penalties 10000 was best" in same.told
    # Three in four of the questions are sums: whoever holds back too much leaves them all to one.
    both = [*sums(0, 9), *names(0, 3)], [*sums(30, 9), *names(30, 3)]
    told = ridge_rule(arena(), CYCLES, *both, [], features="tfidf").told
    penalty = float(told.partition("penalties ")[2].partition(" ")[0])
    assert penalty in PENALTIES
    assert penalty < 10_000


def test_who_could_not_be_asked_is_not_chosen() -> None:
    def without_hand(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if ask.model == "hand" else say(ask)

    place = arena(without_hand)
    assert best_pair(place, sums(0, 3)).id.endswith(":guide+guide")
    assert best_place(np.array([[np.nan, np.nan], [0.0, np.nan]])) == 1
    rule = ridge_rule(place, CYCLES, names(0, 4), names(20, 4), names(40, 4), features="tfidf")
    assert all(one.correct for one in place.play(rule, names(40, 4)))


def test_a_pool_without_planners_has_no_pairs_and_leaves_no_task_to_a_model_that_cannot_reply() -> None:
    """As models do that reply from a table: none plans, and some have answered a part of the questions."""
    tasks, validation = names(50, 4), names(0, 6)
    known = frozenset(task.id for task in (*validation, *tasks[:2]))
    pool = ScriptedPool(
        [ModelSpec(one, provider="scripted", dialect="terse", roles=("worker",)) for one in MODELS[:2]]
        + [ModelSpec("namer", provider="scripted", dialect="terse", roles=("worker",), tasks=known)],
        say,
    )
    place = Arena(pool, grade_many, turn_budget=1)
    assert pairs(place) == []
    with pytest.raises(ConfigError, match="No model of this pool can be asked for a plan"):
        best_pair(place, validation)
    asked = len(pool.asks)
    rule = table_by_family(place, place.singles(CYCLES), validation, tasks, "by-family")
    assert len(pool.asks) == asked + 18
    assert [models_of(one) for one in place.play(rule, tasks)] == ["namer", "namer", "guide", "guide"]
    ridge = ridge_rule(place, CYCLES, validation, names(20, 2), tasks, features="tfidf")
    assert [ridge.policies[place].id for place in ridge.places([one.question for one in tasks])] == [
        "single:namer", "single:namer", "single:guide", "single:guide",
    ]  # fmt: skip
    assert "3 candidates were tried on 8 tasks" in ridge.told


def test_pocket_models_are_chosen_by_what_they_solve() -> None:
    """Code takes the plan of one and the numbers of another, logic two others; no pair is the best of both."""
    place = Arena(CachedPool(wiring.resolve_pool("pocket")), grade_many)
    some = {"atlas+abacus", "plato+abacus", "atlas+sage", "plato+sage"}
    candidates = [one for one in pairs(place) if one.id.rpartition(":")[2] in some]
    tasks = [one for one in load_tasks("pocket", "validation", 48, 0) if one.family in ("code", "logic")]
    rule = table_by_family(place, candidates, tasks, tasks, "by-family:pairs")
    assert "code atlas+abacus, logic plato+sage." in rule.told

    def solved(policy: Policy) -> float:
        return float(np.mean([bool(one.correct) for one in place.play(policy, tasks)]))

    assert solved(rule) > max(solved(one) for one in candidates) + 0.1


def test_features_are_named_once() -> None:
    assert get_args(FeatureName) == FEATURES
