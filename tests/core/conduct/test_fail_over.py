"""A step whose model cannot be asked, where somebody waits for the answer: who does it, and how that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.changes import Change
from core.conduct.planners import RecordedWorkflows, planner_policy
from core.conduct.prompts import passed, unused
from core.conduct.session import Planner
from core.draws import turn_key
from core.episode import (
    Ask,
    EndReason,
    Episode,
    Event,
    Failure,
    Flag,
    Plan,
    Replied,
    Reply,
    Status,
    TurnStarted,
    Usage,
)
from core.errors import ConfigError
from core.finish import TOO_LONG
from core.play.drive import drive
from core.play.forked_steps import forked_step
from core.play.forking import carried_turns, check_change, new_child, possible_changes, prefix_digest
from core.play.policies import Policy, new_episode
from core.tasks.graders import grade_many
from tests.builders.play import end
from tests.builders.pools import Line, Script, ScriptedPool, specs
from tests.core.conduct.test_session import MODELS, TASK, told, writes

NO_ROUTE = Failure("infrastructure", "No route.")
#: What a call that came to nothing has cost all the same.
PAID = Reply("", finish_reason="error", usage=Usage(10, 0, 0.5), error=NO_ROUTE)


def without(*models: str, line: Line = NO_ROUTE) -> Callable[[Ask], Line]:
    """Models of which these cannot be asked."""
    return lambda ask: line if ask.model in models else told(ask)


def play(
    policy: Policy, script: Script, episode: Episode | None = None, **options: Any
) -> tuple[Episode, list[Event], ScriptedPool]:
    pool = ScriptedPool(specs(MODELS, "general"), script)
    begun = episode or new_episode("r1", 0, TASK, policy, turns=5, seed=1, argmax=False)
    events = [*drive(begun, policy, pool, grade_many, served=True, **options)]
    return end(events), events, pool


def chain() -> Planner:
    return planner_policy("conductor:fixed:chain", MODELS)  # ann plans, bob solves, cid checks


def test_the_next_model_does_the_step_and_the_call_in_vain_is_a_turn_behind_the_others() -> None:
    ended, events, pool = play(chain(), without("bob", line=PAID))
    assert [ask.model for ask in pool.asks] == ["ann", "bob", "cid", "cid"]
    assert (ended.status, ended.end_reason, ended.answer) == (Status.FINISHED, EndReason.COMPLETED, "42")
    assert [turn.decision.model for turn in ended.turns] == ["ann", "cid", "cid", "bob"]
    assert [turn.index for turn in ended.turns] == [0, 1, 2, 3]
    lost = ended.turns[3]
    assert lost.flags == (Flag.MODEL_ERROR, Flag.FAILED_OVER)
    assert lost.reply == PAID
    assert lost.messages == ended.turns[1].messages
    assert lost.step == ended.turns[1].step
    assert (lost.answer_after, lost.correct_after) == ("42", True)
    assert ended.turns[2].step is not None
    assert ended.turns[2].step.visible == (0, 1)
    assert "cid did: Solve" in pool.asks[3].messages[-1].content
    assert ended.plans[0].workflow is not None
    assert ended.plans[0].workflow.models == (0, 1, 2), "the plan is as it was written"
    begun = [(one.index, one.decision.model, one.kept_as) for one in events if isinstance(one, TurnStarted)]
    assert begun == [(0, "ann", None), (1, "bob", None), (1, "cid", 3), (2, "cid", None)]
    assert [one.index for one in events if isinstance(one, Replied)] == [0, 1, 1, 2]


def test_whoever_failed_is_asked_for_no_later_step() -> None:
    lists = 'model_id = [1, 0, 1]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [0], [1]]'
    ended, _, pool = play(writes(lists), without("bob"))
    assert [ask.model for ask in pool.asks] == ["bob", "cid", "ann", "cid"]
    assert [turn.decision.model for turn in ended.turns] == ["cid", "ann", "cid", "bob"]


def test_steps_side_by_side_fail_over_each_for_itself_and_several_times() -> None:
    ended, _, _ = play(planner_policy("conductor:fixed:solvers", MODELS), without("ann", "bob"))
    assert ended.status is Status.FINISHED
    assert {turn.decision.model for turn in ended.turns[:4]} == {"cid"}
    assert all(Flag.FAILED_OVER in turn.flags for turn in ended.turns[4:])
    assert {turn.decision.model for turn in ended.turns[4:]} == {"ann", "bob"}
    again, _, _ = play(planner_policy("conductor:fixed:solvers", MODELS), without("ann", "bob"))
    assert again == ended


def test_an_episode_is_lost_only_where_nobody_is_left() -> None:
    ended, events, pool = play(chain(), without(*MODELS))
    assert [ask.model for ask in pool.asks] == ["ann", "bob", "cid"]
    assert (ended.status, ended.end_reason, ended.error) == (Status.MISSING, EndReason.ERROR, "No route.")
    assert sum(isinstance(one, Replied) for one in events) == 3, "each call is told"


def test_where_nobody_waits_a_failure_ends_the_episode_as_before() -> None:
    ended, _, pool = _unserved()
    assert ended.status is Status.MISSING
    assert [ask.model for ask in pool.asks] == ["ann", "bob"]


def _unserved() -> tuple[Episode, list[Event], ScriptedPool]:
    pool = ScriptedPool(specs(MODELS, "general"), without("bob"))
    begun = new_episode("r1", 0, TASK, chain(), turns=5, seed=1, argmax=False)
    events = [*drive(begun, chain(), pool, grade_many)]
    return end(events), events, pool


def test_a_prompt_that_is_too_long_for_a_model_says_nothing_of_other_steps() -> None:
    def reads_little(ask: Ask) -> Line:
        long = ask.model == "ann" and "did:" in ask.messages[-1].content
        words = Failure("model", "It cannot hold a prompt this long.")
        return Reply("", finish_reason=TOO_LONG, error=words) if long else told(ask)

    lists = 'model_id = [1, 0, 0]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [0], []]'
    binary = replace(writes(lists), mode=chain().mode.AUTO)
    ended, _, _ = play(binary, reads_little)
    assert [turn.decision.model for turn in ended.turns] == ["bob", "bob", "ann", "ann"]
    assert Flag.FAILED_OVER in ended.turns[3].flags


def test_a_model_that_is_left_out_of_a_fixed_workflow_has_its_step_done_without_being_asked() -> None:
    begun = new_episode("r1", 0, TASK, chain(), turns=5, seed=1, argmax=False)
    ended, _, pool = play(chain(), told, replace(begun, left_out=("bob",)))
    assert [ask.model for ask in pool.asks] == ["ann", "cid", "cid"]
    assert len(ended.turns) == 3
    none, _, pool = play(chain(), told, replace(begun, left_out=("bob", "cid")))
    assert {ask.model for ask in pool.asks} == {"ann"}
    assert none.status is Status.FINISHED


def test_models_that_are_better_left_alone_are_asked_last() -> None:
    resting = {"bob", "cid"}
    by_name = {spec.name: spec for spec in specs(MODELS, "general")}
    begun = new_episode("r1", 0, TASK, chain(), turns=5, seed=1, argmax=False)

    def asked(*failing: str) -> list[str]:
        course: Any = chain().conduct(begun, by_name, served=True, resting=resting.__contains__)
        found = list[str]()
        response: Any = None
        while True:
            try:
                request = course.send(response)
            except StopIteration:
                return found
            response = None
            match type(request).__name__:
                case "WritePlan":
                    [response] = chain().write([request])
                case "AskSteps":
                    [(index, ask)] = request.asks.items()
                    found.append(ask.model)
                    response = index, PAID if ask.model in failing else Reply("<answer>42</answer>")
                case "Grade":
                    response = True

    assert asked() == ["ann", "ann", "ann"]
    assert asked("ann") == ["ann", "bob", "bob", "cid"], "rather than nobody"


def rounds(script: Script) -> tuple[Episode, list[Event], ScriptedPool]:
    """Two rounds of two steps each."""
    first = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    again = 'model_id = [2, 1]\nsubtasks = ["c", "d"]\naccess_list = [[], [0]]'
    return play(writes(first, again, rounds=2), script)


def test_a_later_round_reads_the_steps_before_it_and_no_call_in_vain() -> None:
    ended, _, pool = rounds(without("bob"))
    assert [turn.decision.model for turn in ended.turns] == ["ann", "cid", "bob", "cid", "cid"]
    assert [turn.step and (turn.step.round, turn.step.place, turn.step.visible) for turn in ended.turns] == [
        (0, 0, ()), (0, 1, (0,)), (0, 1, (0,)), (1, 0, ()), (1, 1, (0, 1, 3)),
    ]  # fmt: skip
    assert "ann did: a" in pool.asks[-1].messages[-1].content
    assert ended.end_reason is EndReason.COMPLETED, "a call in vain is no turn of the budget"
    assert passed(ended.task, ended.turns).keys() == {0, 1, 3, 4}
    assert 2 not in unused(ended.task, ended.turns)


def test_common_random_numbers_know_nothing_of_calls_in_vain() -> None:
    keys = [key for script in (told, without("bob")) for key in _keys(script)]
    first, second = turn_key(1, TASK.id, 0), turn_key(1, TASK.id, 2)
    assert keys == [f"{first}/plan/0/0", f"{second}/plan/1/0"] * 2


def _keys(script: Script) -> list[str]:
    found = list[str]()

    class Noting(type(writes(""))):  # type: ignore[misc]
        def write(self, requests: Any) -> list[Reply]:
            found.extend(one.key for one in requests)
            return [*super().write(requests)]

    lists = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    play(Noting((lists, lists), 2), script)
    return found


def test_played_on_from_any_turn_it_ends_the_same_and_asks_nobody_again() -> None:
    ended, _, _ = rounds(without("bob"))
    policy = writes(*[plan.reply.text for plan in ended.plans], rounds=2)
    for n in range(len(ended.turns) + 1):
        # The turns of a round are told together; what was asked of it before is stored beside them.
        stored = {
            (ended.id, one.index, one.decision.model, one.messages): one.reply for one in ended.turns[n:]
        }
        cut = replace(ended, turns=ended.turns[:n], status=Status.INTERRUPTED)
        again, _, pool = play(policy, without("bob"), cut, stored_replies=stored)
        assert again.answer == ended.answer
        assert [turn.decision.model for turn in again.turns if turn.counts] == ["ann", "cid", "cid", "cid"]
        assert [one.index for one in again.turns] == [*range(len(again.turns))]
        if n != 2:  # the call in vain of the first round was not told yet: its number is the next step's
            assert {ask.model for ask in pool.asks} <= {"bob"}


# The planner


def test_another_model_plans_where_the_one_that_should_cannot_be_asked() -> None:
    lists = 'model_id: [1]\nsubtasks: ["Solve it."]\naccess_list: [[]]'

    def planned(ask: Ask) -> Line:
        if ask.model == "cid":
            return PAID
        return lists if "The models:" in ask.messages[-1].content else "<answer>42</answer>"

    policy = planner_policy("conductor:prompted:cid", MODELS)
    ended, events, pool = play(policy, planned)
    assert [ask.model for ask in pool.asks] == ["cid", "ann", "bob"]
    assert [(plan.planner, plan.reply.error) for plan in ended.plans] == [("cid", NO_ROUTE), ("ann", None)]
    assert ended.answer == "42"
    assert sum(isinstance(one, Plan) for one in events) == 2
    lost, _, pool = play(policy, without(*MODELS))
    assert (lost.status, lost.error) == (Status.MISSING, "No route.")
    assert [plan.planner for plan in lost.plans] == ["cid", "ann", "bob"]
    left = new_episode("r1", 0, TASK, policy, turns=5, seed=1, argmax=False)
    _, _, pool = play(policy, planned, replace(left, left_out=("cid",)))
    assert [ask.model for ask in pool.asks] == ["ann", "bob"], "who is left out is not asked to plan either"


# Its forks


def test_a_fork_goes_on_with_whoever_did_the_step_and_a_call_in_vain_is_none() -> None:
    kept, _, _ = rounds(without("bob"))
    with pytest.raises(ConfigError, match="a call in vain for a step that another model did: fork turn 2"):
        check_change(Change("model", "ann"), kept, 2)
    with pytest.raises(ConfigError, match="call in vain"):
        forked_step(kept, 2)
    assert possible_changes(kept, 2) == ()
    step = forked_step(kept, 1)
    assert step is not None
    assert step.workflow.models == (0, 2), "cid did what bob was to do"
    with pytest.raises(ConfigError, match="already has this model"):
        check_change(Change("model", "cid"), kept, 1)
    for index in (1, 4):
        for change in (None, Change("subtask", "e")):
            child = new_child(kept, index, change, 0, id="e2-1", run_id="r2", grade=grade_many)
            carried = {("e2-1", at): one for at, one in carried_turns(kept, index, change).items()}
            pool = ScriptedPool(specs(MODELS, "general"), told)
            policy = RecordedWorkflows(child.policy, child.models, carried)
            over = end(drive(child, policy, pool, grade_many))
            assert over.status is Status.FINISHED
            assert [turn.decision.model for turn in over.turns[index:]] == ["cid"]
            assert [replace(one, episode_id=kept.id) for one in over.turns[:index]] == [*kept.turns[:index]]
            assert prefix_digest(kept, index) == child.fork.prefix if child.fork else False
