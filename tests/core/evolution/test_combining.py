"""Cascade, majority vote, Mixture-of-Agents and labels, over a scripted pool whose models do as they are told."""

from __future__ import annotations

from collections import Counter

import numpy as np

from core.coordinator.encoder import load_encoder
from core.episode import Ask, EndReason, Episode, Failure, Role, Status, Task
from core.evolution.baselines import Arena
from core.evolution.combining import cascade, labelled_router, majority_vote, mixture_of_agents
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import label_weights
from core.play.policies import single_policy
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


ODD = single_policy("odd", MODELS, (Role.WORKER,))


def births(tasks: list[Task] = TASKS, turns: int = 5) -> list[Episode]:
    return [
        Episode(f"e{i}", "r", task, "vote", MODELS, seed=7, turn_budget=turns) for i, task in enumerate(tasks)
    ]


def test_a_cascade_is_one_model_after_the_other_until_its_judge_accepts() -> None:
    place = arena()
    policy = cascade(place, TASKS)
    assert policy.steps[1] == policy.steps[3] == "judge"
    assert {policy.steps[0], policy.steps[2]} == {"even", "odd"}
    played = place.play(policy, TASKS)
    assert all(one.correct for one in played)
    assert Counter(len(one.turns) for one in played) == {2: 10, 4: 10}


def test_five_votes_are_independent_and_the_most_frequent_answer_wins() -> None:
    seen: list[Ask] = []

    def noisy(ask: Ask) -> Line:
        seen.append(ask)
        return f"answer {number(ask) + (1 if ask.seed % 5 < 2 else 0)}"

    played = majority_vote(arena(noisy), ODD, births(turns=1))
    assert len({(ask.messages, ask.seed) for ask in seen}) == len(seen) == 100
    assert {len(ask.messages) for ask in seen} == {1}  # nobody is told of the others
    for one in played:
        answers = [turn.reply.text.removeprefix("answer ") for turn in one.turns]
        most = max(Counter(answers).values())
        assert one.answer is not None
        assert Counter(answers)[one.answer] == most
        assert one.turns[-1].answer_after == one.answer == answers[-1]
        assert one.correct == (one.answer == one.task.answer)
        assert one.meta["votes"] == f"{most} of 5"
        assert [turn.index for turn in one.turns] == [0, 1, 2, 3, 4]
        assert {turn.episode_id for turn in one.turns} == {one.id}
    assert 0 < sum(bool(one.correct) for one in played) < 20
    alone = 1 - sum(ask.seed % 5 < 2 for ask in seen) / 100
    assert sum(bool(one.correct) for one in played) / 20 > alone  # what a vote is for


def test_the_turns_of_five_coordinated_episodes_stand_one_after_the_other() -> None:
    checked = single_policy("odd", MODELS, (Role.WORKER, Role.VERIFIER))
    (one,) = majority_vote(arena(lambda ask: "answer 1"), checked, births(TASKS[:1], turns=2))
    assert [turn.index for turn in one.turns] == list(range(10))
    assert [turn.decision.role for turn in one.turns] == [Role.WORKER, Role.VERIFIER] * 5
    assert one.turn_budget == 10
    assert {turn.answer_after for turn in one.turns} == {"1"}


def test_a_vote_without_any_answer_is_wrong_and_one_with_a_lost_call_is_missing() -> None:
    silent = majority_vote(arena(lambda ask: "no idea"), ODD, births(TASKS[:2], turns=1))
    assert [(one.answer, one.correct, one.end_reason) for one in silent] == [
        (None, False, EndReason.BUDGET)
    ] * 2

    def broken(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if number(ask) == 1 else "answer 0"

    lost = majority_vote(arena(broken), ODD, births(TASKS[:2], turns=1))
    assert [one.status for one in lost] == [Status.FINISHED, Status.MISSING]
    assert lost[1].error == "Down."
    assert lost[1].reward is None


def test_agents_answer_alone_and_one_more_is_handed_all_their_answers() -> None:
    seen: list[Ask] = []

    def watched(ask: Ask) -> Line:
        seen.append(ask)
        if "plan" in ask.messages[-1].content:
            return f"answer {min(ask.messages[-1].content.rpartition('plan ')[2].split('; '), key=int)}"
        return say(ask)

    played = mixture_of_agents(arena(watched), births())
    assert all(one.correct for one in played)  # the smallest of their answers is the right one
    assert {len(one.turns) for one in played} == {4}
    assert [turn.decision.model for turn in played[0].turns[:3]] == list(MODELS)
    assert len({one.turns[-1].decision.model for one in played}) > 1
    last = [ask for ask in seen if "plan" in ask.messages[-1].content]
    assert len(last) == 20
    assert all("plan" not in ask.messages[-1].content for ask in seen[:60])

    def down(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if ask.model == "odd" and number(ask) == 1 else say(ask)

    lost = mixture_of_agents(arena(down), births(TASKS[:3]))
    assert [one.status for one in lost] == [Status.FINISHED, Status.MISSING, Status.FINISHED]


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
    policy = labelled_router(place, cycles, load_encoder("pocket"), train, test, freedom=1.0)
    assert np.mean([bool(one.correct) for one in place.play(policy, test)]) > 0.9
