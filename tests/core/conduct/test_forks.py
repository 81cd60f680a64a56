"""Forks of a workflow's step: which steps are asked again, what they may read, and which changes are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes import Change, ChangeKind
from core.conduct.planners import CHECK, MERGE, PLAN, SOLVE, RecordedWorkflows, legal_workflow, planner_policy
from core.conduct.reading import write_workflow
from core.draws import reply_seed
from core.episode import Ask, EndReason, Episode, Flag, Reply, Status, Task, Usage
from core.errors import ConfigError
from core.play.drive import drive_many
from core.play.forked_steps import forked_step
from core.play.forking import (
    carried_turns,
    check_change,
    child_seed,
    decision_at,
    new_child,
    possible_changes,
    prefix_digest,
    turns_left,
)
from core.play.policies import Policy, new_episode
from core.pool.spec import Dialect
from core.tasks.graders import grade_many
from core.workflow import AccessMode, Workflow
from tests.builders.play import end
from tests.builders.pools import Script, ScriptedPool, specs
from tests.core.conduct.test_session import Texts

MODELS = ("ann", "bob", "cid")
TASK = Task("t1", "What is six times seven?", "42", "number")
#: Two independent solvers, a check of the first, and a merger of the second and the check.
SIDES = Workflow((0, 1, 2, 0), ("left", "right", "check", "merge"), ((), (), (0,), (1, 2)))


def said(ask: Ask) -> Reply:
    """Who did what with which seed; the answer is right where cid works."""
    step = re.search(r"Your step: (.*)", ask.messages[-1].content)
    answer = 42 if ask.model == "cid" else 41
    text = f"{ask.model} at {step[1] if step else ''} seed {ask.seed} <answer>{answer}</answer>"
    return Reply(text, usage=Usage(10, 5, 0.25), latency_s=2.0)


def run(
    episode: Episode, policy: Policy, script: Script = said, dialect: Dialect = "general"
) -> tuple[Episode, ScriptedPool]:
    pool = ScriptedPool(specs(MODELS, dialect), script)
    return end(drive_many([episode], policy, pool, grade_many)), pool


def recorded(
    workflow: Workflow = SIDES, *later: str, script: Script = said, dialect: Dialect = "general"
) -> Episode:
    """An episode run by this workflow, and by the lists of later rounds."""
    policy = Texts((write_workflow(workflow), *later), 1 + len(later), mode=workflow.mode)
    episode = new_episode("r1", 0, TASK, policy, turns=9, seed=1, argmax=False)
    return run(episode, policy, script, dialect)[0]


def forked(
    parent: Episode,
    index: int,
    change: Change | None,
    number: int = 0,
    script: Script = said,
    dialect: Dialect = "general",
) -> tuple[Episode, ScriptedPool]:
    if change is not None:
        check_change(change, parent, index)
    child = new_child(parent, index, change, number, id="e2-1", run_id="r2", grade=grade_many)
    carried = {("e2-1", turn): one for turn, one in carried_turns(parent, index, change).items()}
    return run(child, RecordedWorkflows(child.policy, child.models, carried), script, dialect)


def steps(pool: ScriptedPool) -> list[str]:
    """What was asked, by who and what."""
    found = (re.search(r"Your step: (.*)", ask.messages[-1].content) for ask in pool.asks)
    return [f"{ask.model} {one[1] if one else ''}" for ask, one in zip(pool.asks, found, strict=True)]


def test_another_model_does_its_step_and_only_what_reads_it_is_asked_again() -> None:
    parent = recorded()
    ended, pool = forked(parent, 0, Change("model", "cid"))
    assert steps(pool) == ["cid left", "cid check", "ann merge"]
    assert (ended.status, ended.end_reason) == (Status.FINISHED, EndReason.COMPLETED)
    kept, was = ended.turns[1], parent.turns[1]
    assert kept.reply.text == was.reply.text
    assert (kept.messages, kept.decision, kept.step) == (was.messages, was.decision, was.step)
    assert (kept.reply.usage.cost_usd, kept.reply.latency_s, was.reply.usage.cost_usd) == (0.0, 0.0, 0.25)
    assert Flag.REUSED in kept.flags
    assert Flag.REUSED not in ended.turns[2].flags
    merged = pool.asks[-1].messages[-1].content
    assert was.reply.text in merged, "what was kept is still read"
    assert parent.turns[2].reply.text not in merged, "what was asked again is read as it is now"
    (plan,) = ended.plans
    assert plan.workflow == replace(SIDES, models=(2, 1, 2, 0))
    assert plan.reply.text == parent.plans[0].reply.text, "the planner's reply is what it wrote"
    assert plan.episode_id == ended.id
    assert (
        {ask.seed for ask in pool.asks}
        == {reply_seed(ended.seed, TASK.id)}
        != {reply_seed(parent.seed, TASK.id)}
    )


def test_the_baseline_asks_the_same_steps_with_the_recorded_workflow_and_the_forks_seed() -> None:
    parent = recorded()
    fork, fork_pool = forked(parent, 2, Change("model", "bob"), 3)
    base, base_pool = forked(parent, 2, None, 3)
    assert steps(fork_pool) == ["bob check", "ann merge"]
    assert steps(base_pool) == ["cid check", "ann merge"]
    assert fork.seed == base.seed == child_seed(parent, 2, 3)
    assert [ask.seed for ask in fork_pool.asks] == [ask.seed for ask in base_pool.asks]
    assert forked(parent, 2, None, 4)[1].asks[0].seed != base_pool.asks[0].seed
    assert base.plans[0].workflow == SIDES
    assert [turn.reply.text for turn in base.turns[:2]] == [turn.reply.text for turn in parent.turns[:2]]
    assert turns_left(parent, 2, None) == turns_left(parent, 2, Change("model", "bob")) == 2
    assert decision_at(parent, 2, None) is None


@given(st.integers(0, 10**9), st.integers(0, 4), st.sampled_from(["general", "terse"]))
@settings(deadline=None)
def test_exactly_the_step_and_what_reads_it_is_asked_again_in_any_workflow(
    number: int, at: int, dialect: Dialect
) -> None:
    workflow = legal_workflow(str(number), (0, 1, 2))
    place = at % len(workflow)
    replies = {"think": "add", "work": "answer 42", "check": "fine ACCEPT"}

    def terse(ask: Ask) -> Reply:
        kind = ask.messages[-1].content.split("\n")[0]
        return Reply(replies[kind]) if dialect == "terse" else said(ask)

    parent = recorded(workflow, script=terse, dialect=dialect)
    ended, pool = forked(parent, place, None, script=terse, dialect=dialect)
    dependent = {place}
    for step, seen in enumerate(workflow.reads):
        if dependent & set(seen):
            dependent.add(step)
    assert sorted(ask.sample for ask in pool.asks) == [
        step for step in sorted(dependent) if ended.turns[step].messages
    ]
    assert len(ended.turns) == len(workflow)
    for step in set(range(len(workflow))) - dependent:
        assert ended.turns[step].reply.text == parent.turns[step].reply.text
        assert ended.turns[step].messages == parent.turns[step].messages
    if dialect == "terse":  # whose replies do not depend on the seed
        assert [turn.answer_after for turn in ended.turns] == [turn.answer_after for turn in parent.turns]
        assert (ended.answer, ended.correct) == (parent.answer, parent.correct)


def test_an_answer_that_a_kept_step_only_passed_on_is_the_one_that_now_stands_before_it() -> None:
    """The plan, which reads nobody, has no answer of its own: after it the changed step's stands."""
    texts = (SOLVE, PLAN, CHECK)
    workflow = Workflow((0, 1, 1), texts, ((), (), (1,)), AccessMode.AUTO)

    def terse(ask: Ask) -> Reply:
        if ask.messages[-1].content.startswith("think"):
            return Reply("6 * 7")
        return Reply("answer 42" if ask.model == "cid" else "answer 41")

    parent = recorded(workflow, script=terse, dialect="terse")
    assert [turn.answer_after for turn in parent.turns] == ["41", "41", "41"]
    ended, pool = forked(parent, 0, Change("model", "cid"), script=terse, dialect="terse")
    assert [ask.model for ask in pool.asks] == ["cid"]
    assert [turn.answer_after for turn in ended.turns] == ["42", "42", "42"]
    assert ended.correct is True


def test_another_subtask_is_asked_and_told_to_its_readers() -> None:
    ended, pool = forked(recorded(), 2, Change("subtask", " look twice "))
    assert steps(pool) == ["cid look twice", "ann merge"]
    assert "was asked: look twice" in pool.asks[1].messages[-1].content
    assert ended.turns[2].step is not None
    assert ended.turns[2].step.subtask == "look twice"


@pytest.mark.parametrize(
    ("access", "reads", "sees"),
    [("1,2", (0, 1), "ab"), ("2", (1,), "b"), ("", (), ""), (" 2 , 1", (0, 1), "ab")],
)
def test_another_access_shows_what_it_allows_and_nothing_else(
    access: str, reads: tuple[int, ...], sees: str
) -> None:
    parent = recorded(replace(SIDES, mode=AccessMode.AUTO))
    ended, pool = forked(parent, 2, Change("access", access))
    text = pool.asks[0].messages[-1].content
    for mark, turn in zip("ab", parent.turns[:2], strict=True):
        assert (turn.reply.text in text) == (mark in sees)
    assert ended.turns[2].step is not None
    assert ended.turns[2].step.visible == reads
    assert steps(pool) == ["cid check", "ann merge"]


def test_an_edited_reply_is_read_by_those_that_may_and_nobody_is_asked_for_it() -> None:
    change = Change("reply", "I say <answer>7</answer>")
    ended, pool = forked(recorded(), 2, change)
    assert steps(pool) == ["ann merge"]
    assert "I say" in pool.asks[0].messages[-1].content
    edited = ended.turns[2]
    assert (edited.answer_after, edited.correct_after) == ("7", False)
    assert (edited.reply.finish_reason, edited.reply.usage.cost_usd) == ("edited", 0.0)
    certain, pool = forked(recorded(), 3, Change("reply", "so <answer>42</answer>"))
    assert (certain.correct, pool.asks) == (True, [])
    assert turns_left(recorded(), 3, change) == 0
    assert turns_left(recorded(), 0, change) == 2


def test_a_later_round_is_not_planned_again_and_an_earlier_one_stays_as_it_was() -> None:
    again = write_workflow(Workflow((2, 1), ("c", "d"), ((), (0,))))
    parent = recorded(Workflow((0, 1), ("a", "b"), ((), (0,))), again)
    assert len(parent.turns) == 4
    ended, pool = forked(parent, 1, Change("model", "cid"))
    assert (steps(pool), len(ended.turns), len(ended.plans)) == (["cid b"], 2, 1)
    assert ended.end_reason is EndReason.COMPLETED
    second, pool = forked(parent, 2, Change("model", "bob"))
    assert steps(pool) == ["bob c", "bob d"]
    assert [one.reply for one in second.turns[:2]] == [one.reply for one in parent.turns[:2]]
    assert len(second.plans) == 2
    assert "ann at a" in pool.asks[1].messages[-1].content, "the round before is read as it was"
    with pytest.raises(ConfigError, match="Turn 4 cannot read turn 1: choose among 3, or none"):
        check_change(Change("access", "1"), parent, 3)


def test_naming_models_in_the_access_list_keeps_who_reads_whom() -> None:
    by_id = Workflow((0, 1, 0), ("a", "b", "c"), ((), (0,), (1,)), AccessMode.CHOOSE_ID)
    ended, _ = forked(recorded(by_id), 1, Change("model", "cid"))
    assert [turn.step and turn.step.visible for turn in ended.turns] == [(), (0,), (1,)]
    two = Workflow((0, 0, 1, 2), ("a", "b", "c", "d"), ((), (), (0, 1), ()), AccessMode.CHOOSE_ID)
    with pytest.raises(ConfigError, match="all earlier answers of a model or none"):
        check_change(Change("access", "1"), recorded(two), 2)
    check_change(Change("access", "3"), recorded(two), 3)


@pytest.mark.parametrize(
    ("kind", "value", "index", "says"),
    [
        ("model", "ann", 0, "changes nothing"), ("model", "eve", 0, "no model 'eve'"),
        ("subtask", "  ", 0, "must have between 1"), ("subtask", "left", 0, "changes nothing"),
        ("subtask", " left ", 0, "changes nothing"), ("access", "1", 0, "first step of its workflow"),
        ("access", "3", 2, "Turn 3 cannot read turn 3: choose among 1, 2, or none"),
        ("access", "4", 2, "cannot read turn 4"), ("access", "0", 2, "cannot read turn 0"),
        ("access", "first", 2, "such as 1,2: 'first' does not"), ("access", "1", 2, "changes nothing"),
        ("access", "2", 2, "no step would read turn 1"),
        ("role", "worker", 0, "is a step of a workflow: change its model"),
        ("stop", "", 1, "is a step of a workflow"), ("reply", " ", 1, "must have between 1"),
        ("model", "ann", 4, "between 1 and 4"),
    ],
)  # fmt: skip
def test_what_makes_the_workflow_illegal_is_one_sentence(
    kind: ChangeKind, value: str, index: int, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        check_change(Change(kind, value), recorded(), index)


def test_a_planner_that_shows_all_or_nothing_allows_nothing_between() -> None:
    binary = Workflow((0, 1, 2), ("a", "b", "c"), ((), (), (0, 1)), AccessMode.BINARY)
    with pytest.raises(ConfigError, match="reads all earlier ones or none"):
        check_change(Change("access", "2"), recorded(binary), 2)
    check_change(Change("access", ""), recorded(binary), 2)
    assert possible_changes(recorded(binary), 0) == ("model", "subtask", "reply")
    assert possible_changes(recorded(binary), 1) == ("model", "subtask", "access", "reply")


def test_a_step_that_nobody_was_asked_for_has_neither_model_nor_reply_to_change() -> None:
    workflow = Workflow((0, 1), (MERGE, SOLVE), ((), (0,)))
    parent = recorded(workflow, script=lambda _: Reply("answer 42"), dialect="terse")
    assert not parent.turns[0].messages
    assert possible_changes(parent, 0) == ("subtask",)
    with pytest.raises(ConfigError, match="change its subtask or its access"):
        check_change(Change("model", "cid"), parent, 0)


def test_a_fork_can_be_forked_and_the_digest_tells_what_is_carried() -> None:
    parent = recorded()
    fork, _ = forked(parent, 2, Change("model", "bob"))
    assert prefix_digest(parent, 2) != prefix_digest(fork, 2), "of another workflow"
    assert prefix_digest(parent, 2) != prefix_digest(recorded(script=lambda _: Reply("no")), 2)
    deeper, pool = forked(replace(fork, id="e1-9"), 3, Change("model", "cid"))
    assert steps(pool) == ["cid merge"]
    assert deeper.correct is True
    assert deeper.turns[2].reply.text == fork.turns[2].reply.text


def test_what_an_interrupted_episode_had_not_finished_is_asked() -> None:
    parent = recorded()
    partly = replace(parent, turns=parent.turns[:1], status=Status.INTERRUPTED, answer=None, correct=None)
    step = forked_step(partly, 0)
    assert step is not None
    assert step.anew == (0, 1, 2, 3)
    _, pool = forked(partly, 0, None)
    assert sorted(steps(pool)) == ["ann left", "ann merge", "bob right", "cid check"]


def test_a_turn_whose_workflow_is_not_recorded_is_not_forked() -> None:
    with pytest.raises(ConfigError, match="workflow that is not recorded"):
        possible_changes(replace(recorded(), plans=()), 1)


def test_a_planner_is_never_asked_again() -> None:
    planned = planner_policy("conductor:prompted:cid", MODELS)
    lists = write_workflow(SIDES)

    def prompted(ask: Ask) -> Reply:
        return Reply(lists) if "The models:" in ask.messages[-1].content else said(ask)

    episode = new_episode("r1", 0, TASK, planned, turns=5, seed=1, argmax=False)
    parent, _ = run(episode, planned, prompted)
    ended, pool = forked(parent, 0, Change("model", "bob"), script=prompted)
    assert steps(pool) == ["bob left", "cid check", "ann merge"]
    assert ended.policy == "conductor:prompted:cid"
    assert RecordedWorkflows(ended.policy, MODELS).models == ended.models
    with pytest.raises(ConfigError, match="writes whole workflows"):
        RecordedWorkflows(ended.policy, MODELS).decide([])
