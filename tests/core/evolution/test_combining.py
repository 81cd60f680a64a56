"""Cascade, best answerer and labels, over a scripted pool whose models do as they are told."""

from __future__ import annotations

from collections import Counter

import numpy as np

from core.coordinator.encoder import load_encoder
from core.episode import Ask, Role, Task
from core.evolution.baselines import Arena, best_answerer, cascade, labelled_router
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import label_weights
from core.play.policies import cascade_policy
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("even", "odd", "judge")
TASKS = [Task(f"t{i}", f"What is {i} plus 0?", str(i), "number", "sums") for i in range(20)]


def number(ask: Ask) -> int:
    return int(ask.messages[-1].content.split("What is ")[1].split(" ")[0])


def say(ask: Ask) -> Line:
    """`even` solves even numbers and `odd` the others; `judge` knows what is right, the other two accept all."""
    right = number(ask)
    if ask.role is Role.VERIFIER:
        good = ask.messages[-1].content.endswith(f"answer {right}") or ask.model != "judge"
        return "so ACCEPT" if good else "so REVISE"
    able = {"even": right % 2 == 0, "odd": right % 2 == 1, "judge": False}[ask.model]
    return f"answer {right if able else right + 100}"


def arena(say: object = say, turn_budget: int = 5) -> Arena:
    return Arena(ScriptedPool(specs(MODELS), say), grade_many, turn_budget=turn_budget)  # type: ignore[arg-type]


def test_a_cascade_is_one_model_after_the_other_until_its_judge_accepts() -> None:
    place = arena()
    policy = cascade(place, TASKS)
    assert policy == cascade_policy(policy.id.removeprefix("cascade:").split("+"), MODELS)
    assert policy.steps[1] == policy.steps[3] == "judge"
    assert {policy.steps[0], policy.steps[2]} == {"even", "odd"}
    played = place.play(policy, TASKS)
    assert all(one.correct for one in played)
    assert Counter(len(one.turns) for one in played) == {2: 10, 4: 10}


def test_the_best_answerer_is_the_model_that_solves_most_alone() -> None:
    assert best_answerer(arena(), TASKS[:3]) == "even"  # 0 and 2
    assert best_answerer(arena(), TASKS[1:4]) == "odd"


def test_labels_go_to_who_solved_most_often_and_ties_count_evenly() -> None:
    solved = np.array([[1.0, 2 / 3, 0.0, np.nan], [1 / 3, 2 / 3, 0.0, 1.0]])
    assert label_weights(solved).tolist() == [[1.0, 0.5, 0.0, 0.0], [0.0, 0.5, 0.0, 1.0]]


def test_a_router_learns_from_labels_which_model_to_ask() -> None:
    words = {
        "even": "How many apples are in the basket of my brother when there are",
        "odd": "Name the element number",
    }
    tasks = [
        Task(f"{kind}{i}", f"{words[kind]} {i}?", str(i), "number", kind) for kind in words for i in range(30)
    ]

    def by_kind(ask: Ask) -> Line:
        text = ask.messages[-1].content
        able = ask.model == ("odd" if "element" in text else "even")
        value = int(text.split("?")[0].rpartition(" ")[2])
        return f"answer {value if able else value + 1}"

    cycles = {model: ChosenCycle((Role.WORKER,), 0.5) for model in MODELS}
    place = arena(by_kind, turn_budget=1)
    train, test = tasks[:20] + tasks[30:50], tasks[20:30] + tasks[50:]
    # Of forty questions little is learned under the default, which was chosen for hundreds.
    policy = labelled_router(place, cycles, load_encoder("pocket"), train, freedom=1.0)
    assert np.mean([bool(one.correct) for one in place.play(policy, test)]) > 0.9
