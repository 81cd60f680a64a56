"""Workflows that are run: what each step sees, what runs side by side, and what becomes of failures and ceilings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conduct.planners import (
    CHECK,
    FIXED,
    MERGE,
    PLAN,
    SOLVE,
    legal_workflow,
    planner_policy,
)
from core.conduct.reading import write_workflow
from core.conduct.session import MOST_ATTEMPTS, Planner, conduct
from core.episode import (
    Ask,
    AskSteps,
    EndReason,
    Episode,
    Event,
    Failure,
    Flag,
    Plan,
    Replied,
    Reply,
    Role,
    Status,
    Task,
    Turn,
    TurnStarted,
    Usage,
    WritePlan,
)
from core.errors import ConfigError
from core.play.drive import DriveOptions, drive, drive_many
from core.play.policies import Policy, new_episode
from core.pool.cache import CachedPool
from core.pool.spec import Dialect, ModelSpec
from core.tasks.graders import grade_many
from core.workflow import AccessMode, PlanFault, Workflow
from tests.builders.play import end, ends
from tests.builders.pools import Line, Script, ScriptedPool, specs

MODELS = ("ann", "bob", "cid")
TASK = Task("t1", "What is six times seven?", "42", "number")


def play(
    policy: Policy,
    script: Script,
    *,
    dialect: Dialect = "general",
    turns: int = 5,
    **options: Unpack[DriveOptions],
) -> tuple[Episode, list[Event], ScriptedPool]:
    pool = ScriptedPool(specs(MODELS, dialect), script)
    episode = new_episode("r1", 0, TASK, policy, turns=turns, seed=1, argmax=False)
    events = [*drive(episode, policy, pool, grade_many, **options)]
    return end(events), events, pool


def told(ask: Ask) -> Line:
    """Every model says who it is and what it was asked to do."""
    step = re.search(r"Your step: (.*)", ask.messages[-1].content)
    return f"{ask.model} did: {step[1] if step else ''} <answer>42</answer>"


def test_a_chain_shows_each_step_what_its_list_allows() -> None:
    ended, _, pool = play(planner_policy("conductor:fixed:chain", MODELS), told)
    assert (ended.status, ended.end_reason, ended.correct) == (Status.FINISHED, EndReason.COMPLETED, True)
    first, second, third = (ask.messages[-1].content for ask in pool.asks)
    assert [ask.model for ask in pool.asks] == list(MODELS)
    assert all(TASK.question in text for text in (first, second, third))
    assert "ann did" not in first
    assert "ann did" in second
    assert "ann did" in third
    assert "bob did" in third
    assert "Model id 0 was asked: Plan how" in second
    assert "final answer" in third
    assert "final answer to the problem" not in second
    assert [turn.step and turn.step.visible for turn in ended.turns] == [(), (0,), (0, 1)]
    (plan,) = ended.plans
    assert plan.workflow is not None
    assert plan.reply.text == write_workflow(plan.workflow)


@given(st.integers(0, 10**9), st.sampled_from(["general", "terse"]))
@settings(deadline=None)
def test_a_step_sees_the_steps_that_its_list_names_and_no_others(number: int, dialect: Dialect) -> None:
    """Each reply holds a mark of its own, and each message exactly the marks of what it may see."""
    workflow = legal_workflow(str(number), (0, 1, 2))
    assert_access(workflow, dialect)


def assert_access(workflow: Workflow, dialect: Dialect) -> None:
    by_name = {name: ModelSpec(name, dialect=dialect) for name in MODELS}
    planner = planner_policy("conductor:random", MODELS)
    episode = Episode("e1", "r1", TASK, "conductor:random", MODELS, turn_budget=5)
    course = conduct(episode, by_name, planner)
    next(course)
    request = course.send(Reply(write_workflow(workflow)))
    asked: dict[int, str] = {}
    try:
        while True:
            match request:
                case AskSteps(asks):
                    for index, ask in asks.items():
                        asked[index] = "\n".join(message.content for message in ask.messages)
                    index = max(asks)  # the last one asked is answered first
                    mark = f"mark{index}x"
                    role = asks[index].role
                    text = {
                        Role.THINKER: mark,
                        Role.WORKER: f"answer {mark}",
                        Role.VERIFIER: f"{mark} ACCEPT",
                    }[role]
                    request = course.send((index, Reply(text if dialect == "terse" else mark)))
                case Plan() | TurnStarted() | Replied() | Turn():
                    request = course.send(None)
                case _:
                    request = course.send(True)
    except StopIteration as ended:
        over = ended.value
    assert over.end_reason is EndReason.COMPLETED
    for index, text in asked.items():
        marks = {int(number) for number in re.findall(r"mark(\d)x", text)}
        if dialect == "general":
            assert marks == set(workflow.reads[index])
        else:  # a short form shows one plan or one answer: one that it sees, or that a judge it sees passed on
            reached = set(workflow.reads[index])
            for place in sorted(reached, reverse=True):
                if over.turns[place].decision.role is Role.VERIFIER:
                    reached |= {*_reached(workflow, place)}
            assert marks <= reached


def _reached(workflow: Workflow, place: int) -> Iterator[int]:
    for earlier in workflow.reads[place]:
        yield earlier
        yield from _reached(workflow, earlier)


def test_the_short_form_passes_on_plans_answers_and_what_a_judge_accepts() -> None:
    def pocket(ask: Ask) -> Line:
        prompt = ask.messages[-1].content
        if prompt.startswith("think"):
            return "6 * 7"
        if prompt.startswith("check"):
            return "42 given " + ("42 ACCEPT" if prompt.endswith("answer 42") else "41 REVISE")
        return "answer 42" if ask.model == "bob" and "plan 6 * 7" in prompt else "answer 41"

    lists = (
        "model_id = [0, 1, 2, 0]\n"
        f'subtasks = ["{PLAN}", "{SOLVE}", "{SOLVE}", "{MERGE}"]\naccess_list = [[], [0], [0], [1, 2]]'
    )
    ended, _, pool = play(writes(lists), pocket, dialect="terse")
    assert pool.asks[1].messages[0].content == f"work\n{TASK.question}\nplan 6 * 7"
    assert pool.asks[3].messages[0].content == f"check\n{TASK.question}\nanswer 41", (
        "of two as frequent the latest"
    )
    assert ended.answer == "42", "the judge rejects it, so the other one is given"
    assert ended.correct is True
    assert [turn.decision.role.value for turn in ended.turns] == ["thinker", "worker", "worker", "verifier"]
    alone, _, pool = play(
        writes(f'model_id = [0]\nsubtasks = ["{CHECK}"]\naccess_list = [[]]'), pocket, dialect="terse"
    )
    assert not pool.asks
    assert Flag.NOTHING_TO_JUDGE in alone.turns[0].flags
    assert alone.correct is False


@dataclass(frozen=True)
class Texts(Planner):
    """A planner that writes these texts, one per round."""

    texts: tuple[str, ...]
    rounds: int = 1
    id: str = "conductor:texts"
    models: tuple[str, ...] = MODELS
    mode: AccessMode = AccessMode.CHOOSE_POSITION

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        return [Reply(self.texts[one.round], usage=Usage(0, 0, 0.0)) for one in requests]


def writes(*texts: str, rounds: int = 1) -> Texts:
    return Texts(texts, rounds)


def test_independent_steps_are_asked_at_once_and_an_early_reply_is_used_at_once() -> None:
    lists = 'model_id = [0, 1, 2, 0]\nsubtasks = ["a", "b", "c", "d"]\naccess_list = [[], [], [0], [1, 2]]'
    by_name = {name: ModelSpec(name) for name in MODELS}
    course = conduct(Episode("e1", "r1", TASK, "x", MODELS), by_name, Texts((lists,)))
    next(course)
    request = course.send(Reply(lists))
    waits = []
    while not isinstance(request, AskSteps):
        request = course.send(None)
    waits.append([*request.asks])
    request = course.send((0, Reply("first")))
    while not isinstance(request, AskSteps):
        request = course.send(None)
    waits.append([*request.asks])
    assert waits == [[0, 1], [1, 2]], "step 2 reads step 0 alone, so it does not wait for step 1"


@pytest.mark.parametrize(
    "text", ["The answer is 42.", "", "model_id = [9]\nsubtasks = ['x']\naccess_list = [[]]"]
)
def test_a_plan_that_cannot_be_read_is_wrong_with_a_stored_reason(text: str) -> None:
    ended, events, pool = play(writes(text), told)
    assert (ended.end_reason, ended.correct, ended.turns) == (EndReason.UNREADABLE_PLAN, False, ())
    (plan,) = ended.plans
    assert plan.fault in (PlanFault.NO_LISTS, PlanFault.UNKNOWN_MODEL)
    assert not pool.asks
    assert sum(isinstance(event, Plan) for event in events) == 1


def test_a_model_that_plans_is_asked_again_and_not_for_ever() -> None:
    policy = planner_policy("conductor:prompted:cid", MODELS)
    good = 'model_id: [1]\nsubtasks: ["Solve it."]\naccess_list: [[]]'
    ended, _, pool = play(policy, ["I would say 42.", good, "<answer>42</answer>"])
    assert [plan.fault for plan in ended.plans] == [PlanFault.NO_LISTS, None]
    assert [ask.model for ask in pool.asks] == ["cid", "cid", "bob"]
    assert ended.correct is True
    assert "Model id 2: cid" in pool.asks[0].messages[-1].content
    never, _, pool = play(policy, lambda _: "42")
    assert never.end_reason is EndReason.UNREADABLE_PLAN
    assert len(pool.asks) == len(never.plans) == MOST_ATTEMPTS


def test_the_last_reply_that_is_not_empty_is_the_answer_and_readers_go_without_a_failed_step() -> None:
    def faulty(ask: Ask) -> Line:
        if ask.model == "bob":
            return Failure("model", "It refused.")
        return f"by {ask.model}: <answer>42</answer>" if ask.model == "ann" else ""

    ended, _, pool = play(planner_policy("conductor:fixed:chain", MODELS), faulty)
    assert ended.answer == "42"
    assert ended.correct is True
    assert "It refused" not in pool.asks[2].messages[-1].content
    assert pool.asks[2].messages[-1].content.count("was asked:") == 1
    assert Flag.MODEL_ERROR in ended.turns[1].flags


@pytest.mark.parametrize("dialect", ["general", "terse"])
def test_no_thinking_and_no_mark_of_a_template_reaches_another_step_or_the_planner(dialect: Dialect) -> None:
    def marked(ask: Ask) -> Line:
        asked = ask.messages[-1].content
        said = "answer 42" if dialect == "terse" else f"by {ask.model}: <answer>42</answer>"
        said = (
            "a plan" if asked.startswith("think") else "so 42 ACCEPT" if asked.startswith("check") else said
        )
        return f"<|channel|>analysis<|message|>SECRET<|end|><|channel|>final<|message|>{said}<|return|>"

    ended, _, pool = play(planner_policy("conductor:fixed:chain", MODELS), marked, dialect=dialect)
    assert (ended.answer, ended.correct) == ("42", True)
    assert all("SECRET" in turn.reply.text for turn in ended.turns), "the reply itself is kept"
    for ask in pool.asks:
        assert not re.search(r"SECRET|<\|", ask.messages[-1].content)

    def written(ask: Ask) -> Line:
        return "<think>SECRET</think>by: <answer>42</answer></s>"

    lists = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    _, _, pool = play(
        writes(f"<thinking>no</thinking>{lists}<|im_end|>", "It is right.</s>", rounds=2), written
    )
    assert len(pool.asks) == 2
    assert "SECRET" not in pool.asks[1].messages[-1].content


def test_an_infrastructure_failure_makes_the_episode_missing() -> None:
    ended, _, _ = play(
        planner_policy("conductor:fixed:solvers", MODELS),
        lambda ask: Failure("infrastructure", "No route.") if ask.model == "bob" else "<answer>42</answer>",
    )
    assert (ended.status, ended.error, ended.correct) == (Status.MISSING, "No route.", None)


def test_a_ceiling_stops_before_the_next_call_and_the_rest_is_played_on_without_asking_again() -> None:
    policy = planner_policy("conductor:fixed:debate", MODELS)
    calls: list[int] = []

    def two_calls(_: Episode) -> EndReason | None:
        calls.append(1)
        return EndReason.COST_CEILING if len(calls) > 3 else None  # the plan is asked about too

    halted, events, pool = play(policy, told, stop=two_calls)
    assert (halted.status, halted.end_reason) == (Status.INTERRUPTED, EndReason.COST_CEILING)
    assert len(pool.asks) == 2
    replies = [event for event in events if isinstance(event, Replied)]
    assert [event.index for event in replies] == [0, 1], "what was under way is taken up"
    begun = {event.index: event for event in events if isinstance(event, TurnStarted)}
    stored = {
        (halted.id, event.index, begun[event.index].decision.model, begun[event.index].messages): event.reply
        for event in replies
    }
    rest = ScriptedPool(specs(MODELS, "general"), told)
    ended = end(drive(halted, policy, rest, grade_many, stored_replies=stored))
    straight, _, _ = play(policy, told)
    assert len(rest.asks) == 3
    assert ended == straight


def test_a_second_round_keeps_or_writes_anew_and_sees_the_first_where_its_access_is_complete() -> None:
    first = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    again = 'model_id = [2, 1]\nsubtasks = ["c", "d"]\naccess_list = [[], [0]]'
    ended, _, pool = play(writes(first, again, rounds=2), told)
    assert [turn.step and (turn.step.round, turn.step.visible) for turn in ended.turns] == [
        (0, ()), (0, (0,)), (1, ()), (1, (0, 1, 2)),
    ]  # fmt: skip
    assert "ann did: a" in pool.asks[3].messages[-1].content
    assert "ann did: a" not in pool.asks[2].messages[-1].content
    kept, _, pool = play(writes(first, "It is right.", rounds=2), told)
    assert [plan.keeps for plan in kept.plans] == [False, True]
    assert kept.correct is True
    assert len(pool.asks) == 2
    short, _, _ = play(writes(first, again, rounds=2), told, turns=3)
    assert (short.end_reason, len(short.turns)) == (EndReason.BUDGET, 2)


def test_one_model_for_every_step_keeps_the_number_of_calls() -> None:
    ended, _, pool = play(planner_policy("conductor:same-model:cid:fixed:debate", MODELS), told)
    assert {ask.model for ask in pool.asks} == {"cid"}
    assert len(pool.asks) == len(FIXED["debate"])
    assert ended.policy == "conductor:same-model:cid:fixed:debate"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conductor:fixed:none", "no frozen workflow 'none'"),
        ("conductor:fixed:chain:zoe", "no model 'zoe'"),
        ("conductor:prompted:zoe", "no model 'zoe'"),
        ("conductor:what", "is not understood"),
        ("conductor:same-model:ann:prompted:bob", "same-model needs"),
    ],
)
def test_names_that_mean_nothing_are_one_sentence(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planner_policy(name, MODELS)


def test_many_episodes_are_planned_and_asked_together_as_alone() -> None:
    policy = planner_policy("conductor:random", MODELS)
    pool = ScriptedPool(specs(MODELS, "general"), told)
    episodes = [
        new_episode("r1", n, replace(TASK, id=f"t{n}"), policy, turns=5, seed=1, argmax=False)
        for n in range(30)
    ]
    together = ends(drive_many(episodes, policy, pool, grade_many))
    for one in episodes:
        assert (
            end(drive(one, policy, ScriptedPool(specs(MODELS, "general"), told), grade_many))
            == together[one.id]
        )


def test_a_step_that_fails_in_the_middle_of_a_batch_ends_its_own_episode_and_no_other() -> None:
    """The pool answers many calls at once; those of the lost episode's other steps come after its end."""

    def faulty(ask: Ask) -> Line:
        lost = ask.model == "ann" and "eight" in ask.messages[-1].content
        return Failure("infrastructure", "No route.") if lost else "<answer>42</answer>"

    policy = planner_policy("conductor:fixed:solvers", MODELS)
    tasks = [TASK, replace(TASK, id="t2", question="What is six times eight?")]
    episodes = [
        new_episode("r1", place, task, policy, turns=5, seed=1, argmax=False)
        for place, task in enumerate(tasks)
    ]
    pool = CachedPool(ScriptedPool(specs(MODELS, "general"), faulty))
    ended = ends(drive_many(episodes, policy, pool, grade_many)).values()
    assert {one.task.id: one.status for one in ended} == {"t1": Status.FINISHED, "t2": Status.MISSING}
