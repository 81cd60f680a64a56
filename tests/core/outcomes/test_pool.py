"""What recorded models reply, in each role, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.changes import Change
from core.conduct.planners import (
    FIXED,
    FixedPlanner,
    PromptedPlanner,
    RandomPlanner,
    SameModelPlanner,
    fixed_planner,
)
from core.conduct.prompts import WORDS, subtask_word
from core.episode import (
    EndReason,
    Episode,
    EpisodeFinished,
    Flag,
    Grade,
    Protocol,
    Role,
    Status,
    Task,
    Usage,
    Verdict,
)
from core.errors import ConfigError, PoolError
from core.finish import EDITED
from core.outcomes.pool import RecordedPool, recorded_grading
from core.outcomes.table import OutcomeTable
from core.play.drive import drive_many
from core.play.ensembles import MajorityVote
from core.play.forking import check_change, new_child, right_reply
from core.play.policies import CyclePolicy, Policy, RandomPolicy, new_episode
from core.play.session import RECORDED_CHARACTERS, request_at
from core.tasks.graders import grading_of
from core.workflow import Workflow
from tests.core.outcomes.tables import small_answers, small_table

W, T, V = Role.WORKER, Role.THINKER, Role.VERIFIER
COSTS = {"ann": 0.01, "bob": 0.02, "cyd": 0.04}


def table_of(folder: Path, **more: object) -> OutcomeTable:
    """Three tasks whose answer is A. All but ann know the second; nobody but bob has a row of the third."""
    answers = {"ann": ["A", "B", None], "bob": ["A", "A", "A"], "cyd": ["B", "A", None]}
    return small_table(folder, answers, costs=COSTS, **more)  # type: ignore[arg-type]


def played(
    table: OutcomeTable, policy: Policy, *, turns: int = 5, seed: int = 3, **more: object
) -> list[Episode]:
    """The policy's episode of each task."""
    pool, tasks = RecordedPool(table), table.tasks
    episodes = [
        new_episode("r", i, task, policy, turns=turns, seed=seed, argmax=False, **more)  # type: ignore[arg-type]
        for i, task in enumerate(tasks)
    ]
    events = drive_many(episodes, policy, pool, recorded_grading(table, grading_of(tasks)))
    ended = {event.episode.id: event.episode for event in events if isinstance(event, EpisodeFinished)}
    return [ended[one.id] for one in episodes]


def steps(pool: Sequence[str], *turns: tuple[str, Role]) -> CyclePolicy:
    """A policy that takes these turns."""
    return CyclePolicy(tuple(pool), tuple(model for model, _ in turns), tuple(role for _, role in turns))


def test_a_worker_gives_its_recorded_reply_to_the_bare_question(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first, second, _ = played(table, steps(table.card.models, ("ann", W)), turns=1)
    [turn] = first.turns
    assert [one.content for one in turn.messages] == [table.tasks[0].question]
    assert turn.reply.text == "ann thinks about it. The answer is (A)."
    assert turn.reply.recorded is not None
    assert (turn.reply.recorded.table, turn.reply.recorded.sample) == (table.card.known_as, 0)
    assert turn.reply.usage == Usage(100, 20, 0.01)
    assert (turn.answer_after, first.correct, turn.flags) == ("A", True, (Flag.RECORDED,))
    assert (second.answer, second.correct) == ("B", False)


def test_a_verifier_accepts_where_its_own_answer_agrees(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first, second, _ = played(table, steps(table.card.models, ("ann", W), ("bob", V)), turns=2)
    assert [turn.verdict for turn in first.turns] == [None, Verdict.ACCEPT]
    assert first.end_reason is EndReason.ACCEPTED
    assert first.turns[1].flags == (Flag.RECORDED, Flag.BY_AGREEMENT)
    assert second.turns[1].verdict is Verdict.REVISE
    assert (second.answer, second.correct) == ("B", False)  # a Verifier gives no answer


def test_a_recorded_verdict_comes_first(tmp_path: Path) -> None:
    judges = [(0, "bob", "A", "REVISE"), (1, "bob", "B", "ACCEPT")]
    table = table_of(tmp_path, judges=judges)
    first, second, _ = played(table, steps(table.card.models, ("ann", W), ("bob", V)), turns=2)
    assert first.turns[1].verdict is Verdict.REVISE
    assert second.turns[1].verdict is Verdict.ACCEPT
    assert Flag.BY_AGREEMENT not in (*first.turns[1].flags, *second.turns[1].flags)


def test_a_row_is_paid_once_in_an_episode(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    turns = ("ann", W), ("cyd", V), ("bob", W), ("ann", W)
    first = played(table, steps(table.card.models, *turns), turns=4)[0]
    costs = [turn.reply.usage.cost_usd for turn in first.turns]
    assert costs == [0.01, 0.04, 0.02, 0.0]
    assert [Flag.REUSED in turn.flags for turn in first.turns] == [False, False, False, True]
    assert first.answer == "A"


def test_samples_are_drawn_without_replacement_in_an_order_by_the_seed(tmp_path: Path) -> None:
    table = small_table(tmp_path, {"ann": [["A", "B", "C"]] * 20})
    ended = played(table, steps(["ann"], ("ann", W)), turns=4)
    orders = set()
    for episode in ended:
        rows = [turn.reply.recorded for turn in episode.turns]
        drawn = [row.sample for row in rows if row is not None]
        assert sorted(drawn[:3]) == [0, 1, 2]
        assert drawn[3] == drawn[0]
        assert [Flag.REUSED in turn.flags for turn in episode.turns] == [False, False, False, True]
        orders.add(tuple(drawn))
    assert len(orders) > 1
    assert played(table, steps(["ann"], ("ann", W)), turns=4) == ended


def test_a_coordinator_reads_the_end_of_a_reply_once_and_each_time_its_answer(tmp_path: Path) -> None:
    table = small_table(tmp_path, {"ann": ["A"], "bob": ["B"]}, said="So it goes. " * 40)
    turns = ("ann", W), ("bob", V), ("bob", W), ("ann", W), ("bob", V)
    [episode] = played(table, steps(table.card.models, *turns))
    ann, bob, *again = (entry.text.split("\n") for entry in request_at(episode, 4).transcript.entries)
    ends = [" ".join(turn.reply.text.split())[-RECORDED_CHARACTERS:] for turn in episode.turns]
    assert [len(end) for end in ends] == [RECORDED_CHARACTERS] * 5
    assert ann == [ends[0], "Answer: A"]
    assert bob == [ends[1], "Answer: B", "REVISE"]
    assert again == [["Answer: B"], ["Answer: A"]]


def test_votes_draw_each_row_once_too(tmp_path: Path) -> None:
    table = small_table(tmp_path, {"ann": [["A", "B", "A"]]}, costs={"ann": 0.5})
    vote = MajorityVote(steps(["ann"], ("ann", W)), "majority:4:ann", 4, turns=1)
    [episode] = played(table, vote)
    rows = [turn.reply.recorded for turn in episode.turns]
    assert sorted(row.sample for row in rows[:3] if row is not None) == [0, 1, 2]
    assert [turn.reply.usage.cost_usd for turn in episode.turns] == [0.5, 0.5, 0.5, 0.0]
    assert episode.answer == "A"


def test_a_task_without_a_row_is_missing_for_who_needs_it_and_masked_for_others(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first, second, third = played(table, steps(table.card.models, ("ann", W)), turns=1)
    assert (first.status, second.status) == (Status.FINISHED, Status.FINISHED)
    assert (third.status, third.end_reason) == (Status.MISSING, EndReason.NOT_RECORDED)
    assert third.error == (
        "Policy 'cycle' cannot play this task: models that it needs have no recorded reply to it."
    )
    assert third.correct is None
    random = played(table, RandomPolicy(table.card.models))[2]
    assert {turn.decision.model for turn in random.turns} == {"bob"}
    assert random.left_out == ("ann", "cyd")


def test_a_role_that_no_table_holds_is_masked(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    turns = [turn for one in played(table, RandomPolicy(table.card.models)) for turn in one.turns]
    assert {turn.decision.role for turn in turns} == {W, V}


def test_a_thinker_gives_its_recorded_plan(tmp_path: Path) -> None:
    table = table_of(tmp_path, plans={(0, "ann"): "Look at the first letter."})
    first, second, _ = played(table, steps(table.card.models, ("ann", T), ("bob", W)), turns=2)
    assert first.turns[0].suggestion == "Look at the first letter."
    failed = second.turns[0].reply
    assert failed.error is not None
    assert failed.error.message == "The outcome table small has no plan of ann for this task."
    assert failed.usage.cost_usd == 0
    assert second.correct is True


def test_the_released_protocol_plays_recorded_models(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    policy = steps(table.card.models, ("ann", W), ("bob", V))
    first, second, _ = played(table, policy, turns=2, protocol=Protocol.RELEASED)
    assert (first.end_reason, first.correct) == (EndReason.ACCEPTED, True)
    assert (second.end_reason, second.correct) == (EndReason.BUDGET, False)


def test_other_tasks_and_prompted_planners_are_refused_in_one_sentence(tmp_path: Path) -> None:
    pool = RecordedPool(table_of(tmp_path))
    with pytest.raises(PoolError, match="has no such question: recorded models answer its own tasks alone"):
        pool.check([Task("t", "What is 1 + 1?", "2", "number")])
    with pytest.raises(ConfigError, match="ann replies from an outcome table, which holds no workflows"):
        pool.check([], [PromptedPlanner(("ann", "bob", "cyd"), "ann")])
    textless = RecordedPool(small_table(tmp_path, name="textless", texts=False))
    with pytest.raises(ConfigError, match="textless has no texts of its questions"):
        textless.check_texts()


def test_recorded_answers_have_their_grades_and_others_are_graded(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    asked: list[str] = []

    def grade(grades: Sequence[Grade]) -> list[bool]:
        asked.extend(one.answer for one in grades)
        return [True] * len(grades)

    graded = recorded_grading(table, grade)
    one = table.tasks[0]
    assert [*graded([Grade(one, "A"), Grade(one, "D"), Grade(one, "B")])] == [True, True, False]
    assert asked == ["D"]


# Workflows


def test_steps_of_a_workflow_work_and_compare(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    flow = Workflow((0, 1, 2), ("Solve it.", "Check it.", "Merge them."), ((), (0,), (0, 1)))
    first, second, third = played(table, FixedPlanner("conductor:own", table.card.models, flow))
    assert [turn.decision.role for turn in first.turns] == [W, V, V]
    assert [turn.verdict for turn in first.turns] == [None, Verdict.ACCEPT, Verdict.REVISE]
    assert [turn.answer_after for turn in first.turns] == ["A", "A", "A"]
    # bob finds another answer than ann's and gives it; cyd finds bob's again.
    assert [turn.verdict for turn in second.turns] == [None, Verdict.REVISE, Verdict.ACCEPT]
    assert [turn.answer_after for turn in second.turns] == ["B", "A", "A"]
    assert Flag.BY_AGREEMENT in second.turns[2].flags
    assert third.end_reason is EndReason.NOT_RECORDED


def test_a_plan_that_no_table_holds_is_said_and_costs_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    flow = Workflow((1, 1), ("Plan it.", "Solve it."), ((), (0,)))
    for episode in played(table, FixedPlanner("conductor:own", table.card.models, flow)):
        plan, work = episode.turns
        assert plan.reply.error is not None
        assert "has no plan of bob" in plan.reply.error.message
        assert (work.reply.usage.cost_usd, work.reply.reused) == (0.02, False)
        assert episode.correct is True


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, {"solve", "check", "merge"}),
        ({"plans": {(0, "bob"): "Think of letters."}}, {"plan", "solve", "check", "merge"}),
        ({"comparable": False}, {"solve"}),
    ],
)
def test_steps_that_a_table_does_not_hold_are_masked(
    tmp_path: Path, table: dict[str, Any], words: set[str]
) -> None:
    """A planner is told what a step can be, and random workflows are made of nothing else."""
    own, seen = small_table(tmp_path, small_answers(12), **table), set[str]()
    for seed in range(4):
        for episode in played(own, RandomPlanner(own.card.models), seed=seed):
            seen |= {subtask_word(turn.step.subtask) for turn in episode.turns if turn.step is not None}
            assert episode.status is Status.FINISHED
            [message] = {plan.messages[0].content for plan in episode.plans}
            assert {word for word in WORDS if f"{word}: " in message} == words
            assert "in plain language" not in message
    assert seen == words


def test_frozen_workflows_that_a_table_does_not_hold_are_refused_in_one_sentence(tmp_path: Path) -> None:
    models = ("ann", "bob", "cyd")
    plans, answers = "holds no plans, which", "holds no answers that can be compared, which"
    handed = {"debate": "was handed the others' answers", "critic": "was handed the others' answers"}
    whole = RecordedPool(small_table(tmp_path, name="whole", plans={(0, "bob"): "Think of letters."}))
    plain = RecordedPool(small_table(tmp_path, name="plain"))
    marks = RecordedPool(small_table(tmp_path, name="marks", comparable=False))
    no_plans = {"plan-and-solve": plans, "chain": plans, **handed}
    for pool, refused in (
        (whole, handed),
        (plain, no_plans),
        (marks, {**no_plans, "solvers": answers, "automix": answers}),
    ):
        for name in FIXED:
            fixed = fixed_planner(name, models)
            for policy in (fixed, SameModelPlanner(fixed, "bob")):
                if name not in refused:
                    pool.check([], [policy])
                    continue
                with pytest.raises(ConfigError, match=f"{refused[name]}.*'{policy.id}' needs: play"):
                    pool.check([], [policy])


def test_random_workflows_name_only_models_that_have_a_row(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for _ in range(3):
        third = played(table, RandomPlanner(table.card.models))[2]
        assert {turn.decision.model for turn in third.turns} == {"bob"}
        assert sum(turn.reply.usage.cost_usd or 0 for turn in third.turns) == 0.02


def test_a_workflow_of_one_model_is_played_wherever_that_model_has_a_row(tmp_path: Path) -> None:
    """Whether or not those that the workflow was written for have one."""
    table = table_of(tmp_path)
    solvers = fixed_planner("solvers", table.card.models)
    *_, third = played(table, SameModelPlanner(solvers, "bob"))
    assert (third.end_reason, third.answer) == (EndReason.COMPLETED, "A")
    assert [turn.reply.reused for turn in third.turns] == [False, True, True, True]
    *_, third = played(table, SameModelPlanner(solvers, "ann"))
    assert third.end_reason is EndReason.NOT_RECORDED


# Forks


def changed(table: OutcomeTable, parent: Episode, index: int, change: Change) -> Episode:
    check_change(change, parent, index)
    grade = recorded_grading(table, grading_of(table.tasks))
    return new_child(parent, index, change, 0, id="c", run_id="f", grade=grade)


def ended_of(table: OutcomeTable, child: Episode, policy: Policy) -> Episode:
    grade = recorded_grading(table, grading_of(table.tasks))
    events = drive_many([child], policy, RecordedPool(table), grade)
    [ended] = [event.episode for event in events if isinstance(event, EpisodeFinished)]
    return ended


def test_a_verdict_and_a_reply_can_be_changed_by_hand(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    policy = steps(table.card.models, ("ann", W), ("bob", V), ("bob", W))
    parent = played(table, policy, turns=3)[1]
    assert parent.answer == "A"
    child = changed(table, parent, 1, Change("verdict", "ACCEPT"))
    turn = child.turns[1]
    assert (turn.verdict, turn.reply.finish_reason, turn.reply.text) == (
        Verdict.ACCEPT,
        EDITED,
        parent.turns[1].reply.text,
    )
    assert Flag.BY_AGREEMENT not in turn.flags
    child = changed(table, parent, 0, Change("reply", "I take it all back. The answer is (A)."))
    turn = child.turns[0]
    assert (turn.answer_after, turn.correct_after) == ("(A)", True)
    assert Flag.RECORDED not in turn.flags
    ended = ended_of(table, child, policy)
    assert (ended.turns[1].verdict, ended.end_reason) == (Verdict.ACCEPT, EndReason.ACCEPTED)  # A is (A)
    assert right_reply(parent, 0) == Change("reply", "<answer>A</answer>")


def test_a_recorded_reply_has_no_temperature_to_change(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    parent = played(table, steps(table.card.models, ("ann", W)), turns=1)[0]
    with pytest.raises(ConfigError, match="has a recorded reply"):
        check_change(Change("temperature", "0.3"), parent, 0)


def test_what_is_asked_again_draws_the_next_row(tmp_path: Path) -> None:
    """A carried turn counts: the child pays for no row twice."""
    table = table_of(tmp_path)
    parent = played(table, steps(table.card.models, ("ann", W), ("bob", W)), turns=2)[0]
    child = changed(table, parent, 1, Change("model", "cyd"))
    ended = ended_of(table, child, steps(table.card.models, ("ann", W), ("ann", V)))
    assert [turn.reply.reused for turn in ended.turns] == [False, True]
