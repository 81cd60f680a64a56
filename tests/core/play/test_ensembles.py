"""Votes, mixtures and policies without a role or some models, played by the driver over a scripted pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.episode import (
    Ask,
    EndReason,
    Episode,
    Failure,
    Replied,
    Role,
    Status,
    Task,
    Turn,
    TurnStarted,
)
from core.play.drive import drive_many
from core.play.ensembles import MajorityVote, MixtureOfAgents, WithoutModels, WithoutRole
from core.play.policies import CyclePolicy, Policy, RandomPolicy, new_episode, single_policy
from core.tasks.graders import grade_many
from tests.builders.play import ends
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("even", "odd", "judge")
TASKS = [Task(f"t{i}", f"What is {i} plus 0?", str(i), "number", "sums") for i in range(20)]
ODD = single_policy("odd", MODELS, (Role.WORKER,))
VOTE = MajorityVote(ODD, "majority:odd", turns=1)


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


def noisy(ask: Ask) -> Line:
    return f"answer {number(ask) + (1 if ask.seed % 5 < 2 else 0)}"


def games(policy: Policy, tasks: Sequence[Task] = TASKS, turns: int = 5) -> list[Episode]:
    return [
        new_episode("r", place, task, policy, turns=turns, seed=7, argmax=False)
        for place, task in enumerate(tasks)
    ]


def played(policy: Policy, lines: object, unplayed: Sequence[Episode] | None = None) -> list[Episode]:
    episodes = games(policy) if unplayed is None else unplayed
    pool = ScriptedPool(specs(MODELS), lines)  # type: ignore[arg-type]
    ended = ends(drive_many(episodes, policy, pool, grade_many))
    return [ended[one.id] for one in episodes]


def test_five_votes_are_independent_and_the_most_frequent_answer_wins() -> None:
    seen: list[Ask] = []

    def watched(ask: Ask) -> Line:
        seen.append(ask)
        return noisy(ask)

    found = played(VOTE, watched)
    assert len({(ask.messages, ask.seed) for ask in seen}) == len(seen) == 100
    assert {len(ask.messages) for ask in seen} == {1}  # nobody is told of the others
    for one in found:
        answers = [turn.reply.text.removeprefix("answer ") for turn in one.turns]
        most = max(Counter(answers).values())
        assert one.answer is not None
        assert Counter(answers)[one.answer] == most
        assert one.correct == (one.answer == one.task.answer)
        assert [turn.index for turn in one.turns] == [0, 1, 2, 3, 4]
        assert {turn.episode_id for turn in one.turns} == {one.id}
        for n, turn in enumerate(one.turns, start=1):  # of equals the first
            assert turn.answer_after == Counter(answers[:n]).most_common(1)[0][0]
            assert turn.correct_after == (turn.answer_after == one.task.answer)
    assert 0 < sum(bool(one.correct) for one in found) < 20
    alone = 1 - sum(ask.seed % 5 < 2 for ask in seen) / 100
    assert sum(bool(one.correct) for one in found) / 20 > alone  # what a vote is for


def test_the_turns_of_whole_episodes_stand_one_after_the_other() -> None:
    checked = single_policy("odd", MODELS, (Role.WORKER, Role.VERIFIER))
    vote = MajorityVote(checked, "vote")
    (one,) = played(vote, lambda ask: "answer 1", games(vote, TASKS[:1], turns=2))
    assert [turn.index for turn in one.turns] == list(range(10))
    assert [turn.decision.role for turn in one.turns] == [Role.WORKER, Role.VERIFIER] * 5
    assert one.turn_budget == 10
    assert {turn.answer_after for turn in one.turns} == {"1"}


def test_a_vote_without_any_answer_is_wrong_and_one_with_a_lost_call_is_missing() -> None:
    silent = played(VOTE, lambda ask: "no idea", games(VOTE, TASKS[:2]))
    assert [(one.answer, one.correct, one.end_reason) for one in silent] == [
        (None, False, EndReason.BUDGET)
    ] * 2

    def broken(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if number(ask) == 1 else "answer 0"

    lost = played(VOTE, broken, games(VOTE, TASKS[:2]))
    assert [one.status for one in lost] == [Status.FINISHED, Status.MISSING]
    assert lost[1].error == "Down."
    assert lost[1].reward is None


def least(ask: Ask) -> Line:
    """Who is handed all answers gives the smallest."""
    if "plan" in ask.messages[-1].content:
        return f"answer {min(ask.messages[-1].content.rpartition('plan ')[2].split('; '), key=int)}"
    return say(ask)


def test_agents_answer_alone_and_one_more_is_handed_all_their_answers() -> None:
    seen: list[Ask] = []

    def watched(ask: Ask) -> Line:
        seen.append(ask)
        return least(ask)

    mixture = MixtureOfAgents(MODELS)
    found = played(mixture, watched)
    assert all(one.correct for one in found)  # the smallest of their answers is the right one
    assert {(len(one.turns), one.turn_budget) for one in found} == {(4, 4)}
    assert [turn.decision.model for turn in found[0].turns[:3]] == list(MODELS)
    assert len({one.turns[-1].decision.model for one in found}) > 1
    last = [ask for ask in seen if "plan" in ask.messages[-1].content]
    assert len(last) == 20
    assert len(seen) == 80

    def down(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if ask.model == "odd" and number(ask) == 1 else say(ask)

    lost = played(mixture, down, games(mixture, TASKS[:3]))
    assert [one.status for one in lost] == [Status.FINISHED, Status.MISSING, Status.FINISHED]
    assert [turn.decision.model for turn in lost[1].turns] == ["even"]


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        (VOTE, noisy),
        (MajorityVote(RandomPolicy(MODELS), "vote", votes=3), say),
        (MixtureOfAgents(MODELS), least),
        (WithoutModels(RandomPolicy(MODELS), 1), say),
    ],
    ids=["answers", "episodes", "mixture", "fewer"],
)
def test_an_episode_that_was_cut_goes_on_as_if_it_had_not_been(policy: Policy, lines: object) -> None:
    whole = played(policy, lines, games(policy, TASKS[:4], turns=3))
    for one in whole:
        for n in range(len(one.turns) + 1):
            asked: list[Ask] = []

            def watched(ask: Ask) -> Line:
                asked.append(ask)  # noqa: B023
                return lines(ask)  # type: ignore[operator, no-any-return]

            cut = replace(one, turns=one.turns[:n], status=Status.INTERRUPTED, answer=None, correct=None)
            (again,) = played(policy, watched, [cut])
            assert again == one
            assert len(asked) == sum(bool(turn.messages) for turn in one.turns[n:])


def test_every_event_of_a_vote_names_the_turn_that_it_is_about() -> None:
    pool = ScriptedPool(specs(MODELS), say)
    vote = MajorityVote(RandomPolicy(MODELS), "vote", votes=2)
    index = 0
    for event in drive_many(games(vote, TASKS[:1]), vote, pool, grade_many):
        if isinstance(event, TurnStarted | Replied | Turn):
            assert event.index == index
            index += isinstance(event, Turn)
    assert index > 2


def test_a_masked_role_is_never_chosen_and_left_out_models_are_drawn_for_each_task() -> None:
    masked = WithoutRole(RandomPolicy(MODELS), Role.VERIFIER)
    roles = {turn.decision.role for one in played(masked, say) for turn in one.turns}
    assert roles == {Role.WORKER, Role.THINKER}
    fewer = WithoutModels(RandomPolicy(MODELS), 2)
    found = played(fewer, say)
    assert {len(one.left_out) for one in found} == {2}
    assert len({one.left_out for one in found}) > 1
    for one in found:
        assert {turn.decision.model for turn in one.turns} == {*MODELS} - {*one.left_out}
    assert [one.left_out for one in games(fewer)] == [one.left_out for one in found]
    inner = CyclePolicy(MODELS, MODELS, (Role.WORKER,), "all")
    assert [one.left_out for one in games(WithoutModels(inner, 2))] == [one.left_out for one in found]
