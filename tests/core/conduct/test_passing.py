"""What steps of a workflow are sent of each other, which are never used, and how far a change of one can get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import Change
from core.conduct.prompts import Passed, Reach, passed, reach_of, unused
from core.episode import Ask, Episode, Reply
from core.play.forked_steps import forked_step
from core.pool.spec import Dialect
from core.workflow import AccessMode, Workflow
from tests.core.conduct.test_forks import MODELS, recorded

AUTO = AccessMode.AUTO


def chain(*subtasks: str, reads: tuple[tuple[int, ...], ...] | None = None) -> Workflow:
    """A workflow of these subtasks, each of another model; every step may read all before it unless `reads` says."""
    n = len(subtasks)
    slots = tuple(place % len(MODELS) for place in range(n))
    return Workflow(slots, subtasks, reads or tuple(tuple(range(place)) for place in range(n)), AUTO)


def short(ask: Ask) -> Reply:
    """What a pocket model says in each role; bob solves wrongly, cid's checks accept."""
    match ask.messages[-1].content.split("\n")[0]:
        case "think":
            return Reply(f"multiply it says {ask.model}")
        case "check":
            return Reply("looks good ACCEPT" if ask.model == "cid" else "no good REVISE")
    return Reply(f"answer {41 if ask.model == 'bob' else 42}")


def play(workflow: Workflow, dialect: Dialect = "terse") -> Episode:
    """An episode run by it."""
    return recorded(workflow, script=short, dialect=dialect) if dialect == "terse" else recorded(workflow)


def sent(episode: Episode) -> list[tuple[int, ...] | None]:
    """From which turns each was sent something."""
    found = passed(episode.task, episode.turns)
    return [found[turn.index].sent for turn in episode.turns]


def test_in_full_instructions_every_reply_that_may_be_read_is_sent() -> None:
    assert sent(play(chain("plan", "solve", "check"), "general")) == [(), (0,), (0, 1)]
    side = chain("a", "b", "c", reads=((), (), (0,)))
    assert sent(play(side, "general")) == [(), (), (0,)]


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        (chain("plan", "solve", "check"), [(), (0,), (1,)]),
        (
            chain("solve", "plan", "solve"),
            [(), (), (1,)],
        ),  # who plans sees the problem alone; who solves, one plan
        (chain("plan", "plan", "solve"), [(), (), (1,)]),  # the latest one
        (chain("solve", "solve"), [(), ()]),  # an answer is no plan
        (chain("solve", "check", reads=((), ())), [(), ()]),  # nothing to judge
        (chain("solve", "solve", "solve", "merge"), [(), (), (), (0, 2)]),  # 42 twice, 41 once
    ],
)
def test_of_the_short_form_it_is_one_plan_or_one_answer(
    workflow: Workflow, expected: list[tuple[int, ...]]
) -> None:
    assert sent(play(workflow)) == expected


def test_who_merges_counts_answers_that_it_is_not_sent() -> None:
    episode = play(chain("solve", "solve", "solve", "merge"))
    assert passed(episode.task, episode.turns)[3] == Passed((0, 2), (0, 1, 2), short=True)
    assert unused(episode.task, episode.turns) == set()


def test_who_had_nothing_to_judge_asked_nobody_and_what_was_removed_is_not_known() -> None:
    episode = play(chain("solve", "check", reads=((), ())))
    assert passed(episode.task, episode.turns)[1] == Passed((), (), asked=False, short=True)
    pruned = tuple(replace(turn, messages=()) for turn in play(chain("plan", "solve")).turns)
    assert [one.sent for one in passed(episode.task, pruned).values()] == [None, None]
    assert unused(episode.task, pruned) == set()


def test_a_step_is_unused_when_nothing_of_it_reaches_the_last() -> None:
    for workflow, expected in (
        (chain("solve", "plan", "solve"), {0}),
        (chain("plan", "solve", "check"), set()),
        (chain("plan", "plan", "solve"), {0}),
        (chain("solve", "solve", "plan", "solve"), {0, 1}),
        (
            chain("solve", "check", reads=((), ())),
            set(),
        ),  # the last judged nothing: the answer is the first's
    ):
        episode = play(workflow)
        assert unused(episode.task, episode.turns) == expected, workflow.subtasks
    full = play(chain("a", "b", "c", reads=((), (), (1,))), "general")
    assert unused(full.task, full.turns) == {0}


@pytest.mark.parametrize(
    ("workflow", "turn", "change", "reach"),
    [
        (chain("plan", "solve"), 0, Change("model", "bob"), Reach.ANSWER),
        (chain("plan", "solve"), 1, Change("model", "ann"), Reach.ANSWER),
        # The last step is sent nothing of it: asked again it may give no answer, and then this one counts.
        (chain("solve", "plan", "solve"), 0, Change("reply", "answer 7"), Reach.FALLBACK),
        (chain("solve", "plan", "solve"), 0, Change("subtask", "plan it"), Reach.FALLBACK),
        (chain("solve", "solve", reads=((), ())), 0, Change("model", "cid"), Reach.NOWHERE),
        (chain("plan", "plan", "solve"), 0, Change("model", "cid"), Reach.NOWHERE),
        (
            chain("plan", "solve"),
            0,
            Change("subtask", "plan again, and better"),
            Reach.SAME,
        ),  # one word counts
        (chain("plan", "solve", "check"), 2, Change("access", "2"), Reach.SAME),  # it is sent the same
        (chain("plan", "solve", "check"), 2, Change("access", ""), Reach.ANSWER),
        (chain("solve", "solve", "solve", "merge"), 1, Change("reply", "answer 42"), Reach.ANSWER),
        (chain("solve", "solve", "solve", "merge"), 3, Change("subtask", "merge all"), Reach.SAME),
        (chain("solve", "solve", "solve", "merge"), 3, Change("access", "1,3"), Reach.ANSWER),
        (
            chain("plan", "check", reads=((), (0,))),
            0,
            Change("reply", "add"),
            Reach.NOWHERE,
        ),  # no answer in a plan
    ],
)
def test_how_far_a_change_of_a_step_can_get(
    workflow: Workflow, turn: int, change: Change, reach: Reach
) -> None:
    step = forked_step(play(workflow), turn)
    assert step is not None
    assert reach_of(step, change) is reach


def test_in_full_instructions_a_change_gets_as_far_as_who_reads_it() -> None:
    parent = play(chain("a", "b", "c", reads=((), (), (1,))), "general")
    first, second = forked_step(parent, 0), forked_step(parent, 1)
    assert first is not None
    assert second is not None
    assert reach_of(first, Change("model", "bob")) is Reach.NOWHERE
    assert reach_of(second, Change("subtask", "b, in other words")) is Reach.ANSWER


def test_a_model_that_is_prompted_in_full_reads_what_the_short_form_leaves_out() -> None:
    step = forked_step(play(chain("solve", "solve", reads=((), (0,)))), 1)
    assert step is not None
    assert reach_of(step, Change("access", "")) is Reach.SAME
    assert reach_of(step, Change("model", "cid"), {"cid": "general"}) is Reach.ANSWER
