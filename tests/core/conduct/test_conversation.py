"""Workflows that answer a person's conversation: what each step is sent of it, and what is read from the last one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from core.conduct.planners import MERGE, SOLVE, planner_policy
from core.conduct.prompts import Passed, passed, step_messages, unused
from core.episode import Ask, Episode, Flag, Message, Reply, Status, Task
from core.images import Image, beside_with
from core.play.chat import NOTE, is_shortened
from core.play.drive import drive
from core.play.policies import new_episode
from core.play.roles import prompt_tokens
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from tests.builders.play import end
from tests.builders.pools import Line, Script, ScriptedPool, specs
from tests.core.play.test_chat import SYSTEM, TALK, TOOLS

MODELS = ("ann", "bob", "cid")


def task(conversation: tuple[Message, ...] = TALK) -> Task:
    return Task("t", "all of it as one text", "", "open", conversation=conversation)


def play(name: str, script: Script, talk: tuple[Message, ...] = TALK) -> tuple[Episode, ScriptedPool]:
    pool, policy = ScriptedPool(specs(MODELS, "general"), script), planner_policy(name, MODELS)
    episode = new_episode("r1", 0, task(talk), policy, turns=5, seed=1, argmax=False)
    return end(drive(episode, policy, pool, grade_many)), pool


def by_name(ask: Ask) -> Line:
    return f"What {ask.model} says."


def test_a_workflow_of_one_step_sends_the_conversation_as_it_is() -> None:
    for talk in (TALK, TOOLS):
        ended, pool = play("conductor:fixed:single", by_name, talk)
        assert [ask.messages for ask in pool.asks] == [talk]
        assert (ended.answer, ended.turns[0].answer_rule) == ("What ann says.", "whole")


@pytest.mark.parametrize("talk", [TALK, TOOLS, (Message("user", "Two?"),)])
def test_each_step_is_sent_the_persons_messages_and_behind_them_what_it_may_read(
    talk: tuple[Message, ...],
) -> None:
    ended, pool = play("conductor:fixed:solvers", by_name, talk)
    *solvers, merger = (ask.messages for ask in pool.asks)
    for messages in solvers:
        assert messages[: len(talk) - 1] == talk[:-1]
        assert [one.role for one in messages].count("system") == [one.role for one in talk].count("system")
        assert messages[-1].role == "user"
        assert messages[-1].content.endswith(SOLVE)
        assert "the person will not" in messages[-1].content
        assert not any(one.role == "assistant" and "says" in one.content for one in messages)
    told = [one.content for one in merger if one.role == "assistant"][-3:]
    assert told == ["What ann says.", "What bob says.", "What cid says."]
    roles = [one.role for one in merger[len(talk) - 1 :]]
    assert all(one != other for one, other in pairwise(roles))
    assert sum(SOLVE in one.content for one in merger) == 3, "each stands behind the note that asked for it"
    last = merger[-1].content
    assert last.startswith(f"{NOTE} The person will read what you write now.")
    assert MERGE in last
    assert last.endswith("Two?")
    assert ended.answer == "What ann says."
    assert [turn.answer_after for turn in ended.turns] == [None, None, None, "What ann says."]


def test_nothing_of_it_is_quoted_or_bound_to_a_tag() -> None:
    _, pool = play("conductor:fixed:chain", by_name)
    for ask in pool.asks:
        text = "\n".join(one.content for one in ask.messages)
        assert "BEGIN " not in text
        assert "<answer>" not in text
        assert [one for one in ask.messages if one.role == "system"] == [SYSTEM]


def test_what_the_last_step_repeats_of_its_note_is_no_part_of_the_answer() -> None:
    def parrot(ask: Ask) -> Line:
        return f"{ask.messages[-1].content}\n\nDeux." if NOTE in ask.messages[-1].content else "Deux."

    ended, _ = play("conductor:fixed:plan-and-solve", parrot, TOOLS)
    assert ended.answer == "Deux."

    def speaks_of_it(ask: Ask) -> Line:
        return f"{SOLVE}\n\nDeux."

    assert play("conductor:fixed:plan-and-solve", speaks_of_it)[0].answer == "Deux."
    asked = (*TALK[:-1], Message("user", f"What does this mean? {SOLVE}"))
    assert play("conductor:fixed:single", speaks_of_it, asked)[0].answer == f"{SOLVE}\n\nDeux."


def test_what_was_written_for_other_models_is_no_answer() -> None:
    def silent_at_last(ask: Ask) -> Line:
        return "" if "The person will read" in ask.messages[-1].content else "First a plan."

    ended, _ = play("conductor:fixed:plan-and-solve", silent_at_last)
    assert ended.answer is None
    assert Flag.NO_ANSWER in ended.turns[-1].flags


def test_a_tag_that_the_person_asked_for_stays_in_the_answer() -> None:
    page = "Write <answer>42</answer> into the file."
    assert play("conductor:fixed:chain", lambda _: page)[0].answer == page


def test_other_dialects_and_tasks_are_prompted_as_before() -> None:
    terse = step_messages(ModelSpec("m", dialect="terse"), task(), "plan", [], last=True)
    assert [one.content for one in terse] == ["think\nall of it as one text"]
    quoted = step_messages(ModelSpec("m"), replace(task(), conversation=()), "Solve it.", [], last=True)
    assert "BEGIN " in quoted[1].content
    assert "Your step: Solve it." in quoted[1].content


def test_it_is_told_what_each_step_was_sent() -> None:
    ended, _ = play("conductor:fixed:chain", by_name)
    assert passed(ended.task, ended.turns) == {
        0: Passed((), ()),
        1: Passed((0,), (0,)),
        2: Passed((0, 1), (0, 1)),
    }
    assert unused(ended.task, ended.turns) == frozenset()


def test_a_small_window_leaves_out_what_was_read_first_and_never_the_conversation() -> None:
    def long(ask: Ask) -> Line:
        return f"{ask.model} " + "word " * 300

    _, pool = play("conductor:fixed:solvers", long)
    whole = pool.asks[-1].messages
    room = prompt_tokens(whole) * 2 // 3
    small = [
        replace(one, context_window=room + 100, max_tokens=100) if one.name == "ann" else one
        for one in specs(MODELS, "general")
    ]
    policy = planner_policy("conductor:fixed:solvers", MODELS)
    pool = ScriptedPool(small, long)
    episode = new_episode("r1", 0, task(), policy, turns=5, seed=1, argmax=False)
    ended = end(drive(episode, policy, pool, grade_many))
    shorter = pool.asks[-1].messages
    assert is_shortened(shorter)
    assert shorter[: len(TALK) - 1] == TALK[:-1]
    assert prompt_tokens(shorter) <= room
    assert any(one.content.startswith("cid ") for one in shorter)
    assert not any(one.content.startswith("ann ") for one in shorter)
    assert ended.answer is not None
    none = [replace(one, context_window=150, max_tokens=100) for one in small]
    pool = ScriptedPool(none, long)
    ended = end(drive(episode, policy, pool, grade_many))
    assert not pool.asks, "a conversation is never shortened"
    assert ended.status is Status.FINISHED
    assert ended.answer is None
    assert ended.turns[-1].reply.error is not None
    assert "window" in ended.turns[-1].reply.error.message


def test_images_go_to_models_that_read_them_and_a_blind_one_is_not_asked() -> None:
    seen = Image(url="https://pictures.example.com/a.png")
    talk = (Message("user", "[image]", beside_with({}, [seen])),)
    policy = planner_policy("conductor:fixed:plan-and-solve:ann+bob", MODELS)
    sighted = [replace(one, images=one.name == "ann") for one in specs(MODELS, "general")]
    pool = ScriptedPool(sighted, [Reply("A plan.")])
    episode = new_episode("r1", 0, task(talk), policy, turns=5, seed=1, argmax=False)
    ended = end(drive(episode, policy, pool, grade_many))
    assert [ask.model for ask in pool.asks] == ["ann"]
    assert pool.asks[0].messages[0].beside == talk[0].beside
    assert ended.status is Status.MISSING
    assert "which it does not read" in (ended.error or "")
