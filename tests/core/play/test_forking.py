"""Forks: what fits a turn, what is carried, how an edited turn is read again, who decides from there, and which
changes cannot change the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.changes import Change, ChangeKind, Fork
from core.episode import (
    Ask,
    Decide,
    Decision,
    EndReason,
    Episode,
    Flag,
    Protocol,
    Reply,
    Role,
    Status,
    Task,
    Verdict,
)
from core.errors import ConfigError
from core.play import reading, roles
from core.play.drive import drive_many
from core.play.forking import (
    HeldDecisions,
    at_temperatures,
    check_change,
    child_seed,
    decision_at,
    keeps_answer,
    new_child,
    possible_changes,
    prefix_digest,
    right_reply,
    turns_left,
)
from core.play.policies import Policy
from core.pool.spec import Dialect
from tests.builders.play import end, grade
from tests.builders.pools import ScriptedPool, specs
from tests.builders.recorded import episode

T, W, V = Role.THINKER, Role.WORKER, Role.VERIFIER
TASK = Task("t1", "What is 5 + 7?", "12", "number")
COURSE = [("ann", T), ("bob", W), ("ann", V), ("bob", W), ("bob", V)]


class Fixed(Policy):
    """Decides by a list, and remembers where it was asked."""

    id, models = "fixed", ("ann", "bob")

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        self.asked += [(one.episode_id, one.index) for one in requests]
        return [Decision(*COURSE[one.index], model_logits=(0.5, 0.25)) for one in requests]


def pool(dialect: Dialect = "terse") -> ScriptedPool:
    """Bob answers 13 first and 12 when seen again; ann believes everything."""

    def line(ask: Ask) -> Reply:
        _, tag = roles.dialect_and_tag(ask.messages)
        accept = f"VERDICT-{tag}: ACCEPT" if tag else "fine ACCEPT"
        text = {T: "add <suggestion>add</suggestion>", V: accept}.get(ask.role, "")
        if ask.role is W:
            again = ask.sample > 0 or "Turn 3" in ask.messages[-1].content
            answer = 12 if again else 13
            text = f"<answer>{answer}</answer>" if dialect == "general" else f"answer {answer}"
        return Reply(text, reasoning="because")

    return ScriptedPool(specs(("ann", "bob"), dialect), line)


def play(episode: Episode, dialect: Dialect = "terse", **options: object) -> tuple[Episode, ScriptedPool]:
    asked = pool(dialect)
    policy = options.pop("policy", None) or Fixed()
    return end(drive_many([episode], policy, asked, grade, **options)), asked  # type: ignore[arg-type]


def recorded(dialect: Dialect = "terse") -> Episode:
    """Thinker, a wrong answer, and a Verifier who accepts it."""
    return play(Episode("e1", "r1", TASK, "fixed", ("ann", "bob"), seed=3), dialect)[0]


def born(parent: Episode, index: int, change: Change | None, number: int = 0) -> Episode:
    return new_child(parent, index, change, number, id="e2", run_id="r2", grade=grade)


def test_what_can_be_changed_depends_on_the_turn() -> None:
    parent = recorded()
    assert [len(parent.turns), parent.end_reason, parent.correct] == [3, EndReason.ACCEPTED, False]
    assert possible_changes(parent, 0) == ("model", "role", "policy", "temperature", "reply")
    assert possible_changes(parent, 1) == ("model", "role", "policy", "temperature", "reply", "stop")
    assert "verdict" in possible_changes(parent, 2)
    nobody_asked = replace(parent.turns[2], messages=(), flags=(Flag.NOTHING_TO_JUDGE,))
    unasked = replace(parent, turns=(*parent.turns[:2], nobody_asked))
    assert possible_changes(unasked, 2) == ("role", "policy", "stop")


@pytest.mark.parametrize("dialect", ["terse", "general"])
def test_a_right_reply_is_the_known_answer_or_the_verdict_that_the_answer_deserves(dialect: Dialect) -> None:
    parent = recorded(dialect)
    assert right_reply(parent, 0) is None, "nobody knows a right plan"
    answer = right_reply(parent, 1)
    assert answer is not None
    child = born(parent, 1, answer)
    assert [child.turns[1].answer_after, child.turns[1].correct_after] == ["12", True]
    assert right_reply(parent, 2) == Change("verdict", "REVISE")
    saved, _ = play(child, dialect)
    assert saved.correct
    assert [right_reply(saved, index) for index in range(3)] == [None, None, None], "all is right as it is"
    for task in (
        replace(TASK, grader="program", answer='["assert f()"]'),
        replace(TASK, grader="open"),
        replace(TASK, answer=""),
    ):
        assert right_reply(replace(parent, task=task), 1) is None


@pytest.mark.parametrize(
    ("kind", "value", "index", "says"),
    [
        ("model", "bob", 1, "changes nothing"), ("model", "eve", 1, "no model 'eve'"),
        ("role", "judge", 1, "no role 'judge'"), ("verdict", "ACCEPT", 2, "changes nothing"),
        ("verdict", "REVISE", 1, "not a Verifier's"), ("temperature", "hot", 1, "between 0 and 2"),
        ("temperature", "nan", 1, "between 0 and 2"), ("reply", "  ", 1, "must have between 1"),
        ("stop", "", 0, "is the first"), ("model", "ann", 3, "between 1 and 3"),
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_one_sentence(
    kind: ChangeKind, value: str, index: int, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        check_change(Change(kind, value), recorded(), index)


def test_an_episode_that_is_being_played_is_not_forked() -> None:
    with pytest.raises(ConfigError, match="still being played"):
        possible_changes(replace(recorded(), status=Status.RUNNING), 0)


@pytest.mark.parametrize("dialect", ["terse", "general"])
def test_a_forced_verdict_changes_the_verdict_and_nothing_else(dialect: Dialect) -> None:
    parent = recorded(dialect)
    forked = born(parent, 2, Change("verdict", "REVISE"))
    was, turn = parent.turns[2], forked.turns[2]
    assert forked.turns[:2] == tuple(replace(one, episode_id="e2") for one in parent.turns[:2])
    assert (turn.verdict, turn.answer_after, turn.correct_after) == (Verdict.REVISE, "13", False)
    assert turn.reply.text == was.reply.text.replace("ACCEPT", "REVISE")
    assert (turn.decision, turn.messages, turn.reply.reasoning) == (was.decision, was.messages, "because")
    assert turn.flags == was.flags == ()
    end, asked = play(forked, dialect)
    assert [one.role for one in asked.asks] == [W, V]  # the turns it carries are not asked for again
    assert (end.answer, end.correct, len(end.turns)) == ("12", True, 5)
    assert turns_left(parent, 2, Change("verdict", "REVISE")) == 2
    assert turns_left(forked, 2, Change("verdict", "ACCEPT")) == 0


@pytest.mark.parametrize(
    ("text", "protocol", "wanted"),
    [
        ("ACCEPT REVISE", Protocol.PAPER, "ACCEPT REVISE\nREVISE"),
        ("REJECT, it is wrong", Protocol.RELEASED, "ACCEPT, it is wrong"),
        ("hm", Protocol.RELEASED, "ACCEPT. hm"),
    ],
)
def test_a_verdict_that_could_not_be_read_is_written_so_that_it_can(
    text: str, protocol: Protocol, wanted: str
) -> None:
    released = protocol is Protocol.RELEASED
    verdict = Verdict.ACCEPT if released else Verdict.REVISE
    dialect: Dialect = "general" if released else "terse"
    changed = reading.with_verdict(protocol, dialect, text, "", verdict)
    assert changed in (wanted, verdict.value)
    assert reading.read_reply(protocol, dialect, V, changed).verdict is verdict


def test_an_edited_reply_is_read_and_graded_as_if_it_had_been_said() -> None:
    parent = recorded()
    right, mute = (born(parent, 1, Change("reply", text)).turns[1] for text in ("answer 12", "no idea"))
    assert (right.answer_after, right.correct_after, right.flags) == ("12", True, ())
    assert (mute.answer_after, mute.correct_after, mute.flags) == (None, None, (Flag.NO_ANSWER,))
    assert (right.reply.usage.cost_usd, right.reply.finish_reason, right.reply.reasoning) == (
        0.0,
        "edited",
        "",
    )
    end, asked = play(born(parent, 1, Change("reply", "answer 12")))
    assert (end.correct, end.end_reason, len(asked.asks)) == (True, EndReason.ACCEPTED, 1)


def test_a_model_a_role_and_a_temperature_are_changed_at_that_turn_alone() -> None:
    parent = recorded()
    for change, model, role in ((Change("model", "ann"), "ann", W), (Change("role", "thinker"), "bob", T)):
        policy = Fixed()
        decision = decision_at(parent, 1, change)
        assert decision is not None
        held = HeldDecisions(policy, {("e2", 1): decision})
        end, _ = play(born(parent, 1, change), policy=held)
        at = end.turns[1].decision
        assert (at.model, at.role, at.origin) == (model, role, "override")
        assert at.model_logits == (0.5, 0.25)  # still what the policy had to say there
        assert ("e2", 1) not in policy.asked
        assert end.turns[2].decision.origin == "policy"
    _, asked = play(
        born(parent, 1, Change("temperature", "0")),
        terms=at_temperatures({("e2", 1): 0.0, ("e9", 2): 2.0}),
    )
    assert [ask.temperature for ask in asked.asks] == [0.0, None]


def test_stopping_ends_with_the_answer_so_far_and_asks_nobody() -> None:
    end, asked = play(born(recorded(), 2, Change("stop")))
    assert (len(end.turns), end.answer, end.end_reason) == (2, "13", EndReason.BUDGET)
    assert asked.asks == []


def test_the_baseline_plays_the_recorded_decision_and_shares_the_seed_of_its_fork() -> None:
    parent = recorded()
    base, forked = born(parent, 1, None, 4), born(parent, 1, Change("model", "ann"), 4)
    assert base.seed == forked.seed == child_seed(parent, 1, 4)
    assert len({child_seed(parent, 1, number) for number in range(50)} | {parent.seed}) == 51
    assert decision_at(parent, 1, None) == parent.turns[1].decision
    assert decision_at(parent, 1, Change("policy", "random")) is None
    assert born(parent, 1, Change("policy", "random")).policy == "random"
    assert base.fork == Fork("e1", 1, None, 4, prefix_digest(parent, 1))
    assert forked.fork == replace(base.fork, change=Change("model", "ann"))


def test_the_prefix_hash_tells_every_change_before_the_turn_and_none_after_it() -> None:
    parent = recorded()
    forked = born(parent, 2, Change("verdict", "REVISE"))
    assert prefix_digest(forked, 2) == prefix_digest(parent, 2)  # whose copy it is does not matter
    assert prefix_digest(forked, 3) != prefix_digest(parent, 3)
    edited = born(parent, 1, Change("reply", "answer 13 "))
    assert prefix_digest(edited, 2) != prefix_digest(parent, 2)
    assert child_seed(edited, 2, 0) != child_seed(parent, 2, 0)
    again = new_child(
        forked, 1, Change("reply", "answer 12"), 0, id="e3", run_id="r3", grade=grade
    )  # fork of a fork
    assert again.fork is not None
    assert (again.fork.parent, len(again.turns), again.turns[1].correct_after) == ("e2", 2, True)


@pytest.fixture
def parent() -> Episode:
    """An episode of a Thinker, a Worker and a Verifier, say, whose last turn is the last that its budget allows."""
    made = episode("e-parent")
    return replace(made, turn_budget=len(made.turns), status=Status.FINISHED)


def test_to_stop_keeps_the_answer_where_it_was_there_already(parent: Episode) -> None:
    for index in range(1, len(parent.turns)):
        same = parent.turns[index - 1].answer_after == parent.answer
        assert keeps_answer(parent, index, Change("stop")) is same


def test_at_the_last_turn_only_who_works_can_change_the_answer(parent: Episode) -> None:
    last = len(parent.turns) - 1
    before = parent.turns[last - 1].answer_after == parent.answer
    assert keeps_answer(parent, last, Change("role", "thinker")) is before
    assert not keeps_answer(parent, last, Change("role", "worker"))
    assert not keeps_answer(parent, last, Change("policy", "random"))


def test_what_can_still_be_played_on_or_is_not_over_may_change_it(parent: Episode) -> None:
    last = len(parent.turns) - 1
    more = replace(parent, turn_budget=parent.turn_budget + 1)
    assert not keeps_answer(more, last, Change("role", "thinker"))
    assert not keeps_answer(replace(parent, status=Status.INTERRUPTED), last, Change("stop"))
