"""The role loop, answered by hand: what it asks, in which order, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import (
    Ask,
    Decide,
    Decision,
    EndReason,
    Episode,
    Failure,
    Flag,
    Grade,
    Protocol,
    Replied,
    Reply,
    Role,
    Status,
    Task,
    Turn,
    TurnStarted,
    Verdict,
)
from core.errors import ConfigError
from core.play.session import Request, Response, play
from core.pool.spec import Dialect, ModelSpec

W, T, V = Role.WORKER, Role.THINKER, Role.VERIFIER
TASK = Task("t1", "What is 5 + 7?", "12", "number")


def specs(dialect: Dialect = "terse") -> dict[str, ModelSpec]:
    return {
        name: ModelSpec(name, dialect=dialect, role_temperature={"verifier": 0.1}) for name in ("ann", "bob")
    }


def episode(protocol: Protocol = Protocol.PAPER, turns: int = 5, seed: int = 0) -> Episode:
    return Episode("e1", "r1", TASK, "hand", ("ann", "bob"), protocol, turns, seed)


class Hand:
    """Answers a session from two lists, and remembers every request."""

    def __init__(self, choices: Sequence[tuple[str, Role]], replies: Sequence[str | Reply]) -> None:
        self.choices, self.replies = list(choices), list(replies)
        self.seen: list[Request] = []

    def answer(self, request: Request) -> Response:
        self.seen.append(request)
        match request:
            case Decide():
                model, role = self.choices[request.index % len(self.choices)]
                return Decision(model, role)
            case Ask():
                reply = self.replies.pop(0)
                return reply if isinstance(reply, Reply) else Reply(reply)
            case Grade():
                return request.answer == request.task.answer
            case _:
                return None

    def play(self, start: Episode, dialect: Dialect = "terse", role_mask: Sequence[bool] = ()) -> Episode:
        game = play(start, specs(dialect), role_mask=role_mask)
        response: Response = None
        while True:
            try:
                response = self.answer(game.send(response))
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def of(self, kind: type) -> list[Request]:
        return [request for request in self.seen if isinstance(request, kind)]

    @property
    def prompts(self) -> list[str]:
        return [request.messages[-1].content for request in self.seen if isinstance(request, Ask)]


def course(text: str) -> list[tuple[str, Role]]:
    """Who plays which role: "aW bV" is ann as a Worker, then bob as a Verifier."""
    names, roles = {"a": "ann", "b": "bob"}, {"T": T, "W": W, "V": V}
    return [(names[one[0]], roles[one[1]]) for one in text.split()]


FAILED = Reply("answer 12", error=Failure("model", "refused"))
CUT, CUT_VERDICT = (Reply(text, finish_reason="length") for text in ("answer 12", "so 12 given 12 ACCEPT"))
UNREADABLE = ["", "ACCEPT REVISE", "fine", "ACCEPT ACCEPT"]
NONE, CUT_OFF, UNREAD = Flag.NO_ANSWER, Flag.TRUNCATED, Flag.VERDICT_UNREADABLE


@pytest.mark.parametrize(
    ("roles", "replies", "reason", "answers", "flags"),
    [
        ("aT", ["x"] * 5, EndReason.BUDGET, [None] * 5, [()] * 5),
        (
            "aW",  # a Worker who says accept changes nothing
            ["ACCEPT", "answer 11 ACCEPT", "answer ACCEPT", "so 12 ACCEPT", "VERDICT: ACCEPT"],
            EndReason.BUDGET,
            [None, "11 ACCEPT", "ACCEPT", "ACCEPT", "ACCEPT"],
            [(NONE,), (), (), (NONE,), (NONE,)],
        ),
        ("aW", ["answer 11", "answer 12", "er"], EndReason.BUDGET, ["11", "12", "12"], [(), (), (NONE,)]),
        ("aW", ["answer 11", "answer 12"] * 2, EndReason.BUDGET, ["11", "12"] * 2, [()] * 4),
        ("aW bV", ["hm", "hm"], EndReason.BUDGET, [None, None], [(NONE,), (Flag.NOTHING_TO_JUDGE,)]),
        *(("aW bV", ["answer 12", one], EndReason.BUDGET, ["12"] * 2, [(), (UNREAD,)]) for one in UNREADABLE),
        ("aW bV", ["answer 11", "so 11 ACCEPT"], EndReason.ACCEPTED, ["11", "11"], [(), ()]),
        ("aW", [FAILED, "answer 12"], EndReason.BUDGET, [None, "12"], [(NONE, Flag.MODEL_ERROR), ()]),
        ("aW", [CUT], EndReason.BUDGET, ["12"], [(CUT_OFF,)]),
        ("aW bV", ["answer 12", CUT_VERDICT], EndReason.BUDGET, ["12"] * 2, [(), (UNREAD, CUT_OFF)]),
    ],
)
def test_what_a_course_comes_to(
    roles: str,
    replies: list[str | Reply],
    reason: EndReason,
    answers: list[str | None],
    flags: list[tuple[Flag, ...]],
) -> None:
    hand = Hand(course(roles), replies)
    end = hand.play(episode(turns=5 if len(flags) == 5 else len(answers)))
    assert (end.end_reason, [turn.answer_after for turn in end.turns]) == (reason, answers)
    assert [turn.flags for turn in end.turns] == flags
    assert [turn.correct_after for turn in end.turns] == [one and one == "12" for one in answers]
    assert (end.answer, end.correct, end.reward) == (
        answers[-1],
        answers[-1] == "12",
        float(answers[-1] == "12"),
    )
    assert len(hand.of(Grade)) == len({one for one in answers if one}), (
        "a repeated answer is graded from memory"
    )
    accepted = Verdict.ACCEPT if reason is EndReason.ACCEPTED else Verdict.REVISE
    assert [turn.verdict for turn in end.turns] == [
        accepted if turn.decision.role is V else None for turn in end.turns
    ]


class TestPaper:
    def test_plan_work_check_in_order(self) -> None:
        hand = Hand(course("aT bW aV"), ["5 and 7 then 5 + 7", "answer 12", "so 12 ACCEPT"])
        end = hand.play(episode())
        kinds = [Decide, TurnStarted, Ask, Replied, Turn]
        asked = [type(request) for request in hand.seen]
        assert asked == [*kinds, *kinds[:4], Grade, Turn, *kinds]
        assert (end.status, end.end_reason, end.answer, end.correct, end.reward) == (
            Status.FINISHED, EndReason.ACCEPTED, "12", True, 1.0)  # fmt: skip
        assert [turn.index for turn in end.turns] == [0, 1, 2]
        assert hand.prompts == [
            "think\nWhat is 5 + 7?",
            "work\nWhat is 5 + 7?\nplan 5 and 7 then 5 + 7",
            "check\nWhat is 5 + 7?\nanswer 12",
        ]

    def test_a_role_with_a_temperature_of_its_own_is_asked_at_it(self) -> None:
        hand = Hand(course("aT bW aV"), ["5 + 7", "answer 12", "so 12 ACCEPT"])
        hand.play(episode())
        asks = [request for request in hand.seen if isinstance(request, Ask)]
        assert [one.temperature for one in asks] == [None, None, 0.1]

    def test_the_coordinator_sees_every_reply_as_it_was_said(self) -> None:
        hand = Hand(course("aT bW aV"), [" plan ", "answer 11", "so 12 REVISE"])
        hand.play(episode(turns=3))
        last = hand.of(Decide)[-1]
        assert isinstance(last, Decide)
        assert [(e.role, e.model, e.text) for e in last.transcript.entries] == [
            (T, "ann", " plan "),
            (W, "bob", "answer 11"),
        ]
        assert last.messages == ()

    def test_a_verifier_before_any_answer_spends_a_turn_and_asks_nobody(self) -> None:
        hand = Hand(course("aV bW bV"), ["answer 12", "so 12 ACCEPT"])
        end = hand.play(episode())
        first = end.turns[0]
        assert (first.verdict, first.flags, first.messages) == (Verdict.REVISE, (Flag.NOTHING_TO_JUDGE,), ())
        assert (first.reply.text, first.reply.usage.tokens_out, first.reply.usage.cost_usd) == ("", 0, 0.0)
        assert len(hand.of(Ask)) == 2
        assert (len(end.turns), end.end_reason) == (3, EndReason.ACCEPTED)
        assert end.turns[2].flags == (Flag.SELF_VERIFIED,)

    def test_an_infrastructure_failure_is_missing_and_never_zero(self) -> None:
        lost = Reply("", error=Failure("infrastructure", "no route to host"))
        hand = Hand(course("aW"), ["answer 11", lost])
        end = hand.play(episode())
        assert (end.status, end.end_reason, end.reward) == (Status.MISSING, EndReason.ERROR, None)
        assert (len(end.turns), end.error) == (1, "no route to host")
        assert len(hand.of(Replied)) == 1

    def test_general_models_get_a_tag_of_their_own_and_must_use_it(self) -> None:
        def verdict(game_prompt: str) -> str:
            tag = game_prompt.split("VERDICT-")[1].split(":")[0]
            return f"Right.\nVERDICT-{tag}: ACCEPT"

        class Judge(Hand):
            def answer(self, request: Request) -> Response:
                if isinstance(request, Ask) and request.role is V:
                    self.replies = [verdict(request.messages[-1].content)]
                return super().answer(request)

        end = Judge(course("aW bV"), ["<answer>12</answer>"]).play(episode(), "general")
        assert end.end_reason is EndReason.ACCEPTED


CHANNELS = (
    "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>"
)


@pytest.mark.parametrize(
    "dress",
    [
        CHANNELS,
        "<think>SECRET</think>{}<|im_end|>",
        "{}\n<thinking>SECRET</thinking></s>",
        "SECRET</think>\n\n{}\ufeff",
    ],
)
@pytest.mark.parametrize("dialect", ["general", "terse"])
@pytest.mark.parametrize("protocol", [*Protocol])
def test_what_is_not_said_is_read_by_nobody_else(dress: str, dialect: Dialect, protocol: Protocol) -> None:
    said = ["Add. <suggestion>5 + 7</suggestion>", "so <answer>12</answer>", "answer 12"]
    hand = Hand(course("aT bW aW"), [dress.format(one) for one in said])
    end = hand.play(episode(protocol, 3), dialect)
    assert [turn.reply.text for turn in end.turns] == [dress.format(one) for one in said], (
        "the reply itself is kept"
    )
    transcripts = [one.transcript.entries for one in hand.seen if isinstance(one, Decide)]
    assert [entry.text.strip() for entry in transcripts[-1]] == said[:2]
    routed = [one.messages[-1].content for one in hand.seen if isinstance(one, Decide) and one.messages]
    for prompt in (*hand.prompts, *routed):
        assert "SECRET" not in prompt
        assert not re.search(r"<\||</?think|</s>|\ufeff", prompt)
    if dialect == "general":
        assert end.turns[1].answer_after == "12"


class TestKeys:
    def test_keys_name_seed_task_and_turn_only(self) -> None:
        hand = Hand(course("aT"), ["x"] * 5)
        hand.play(episode(seed=9))
        assert [r.key for r in hand.of(Decide) if isinstance(r, Decide)] == [f"9/t1/{i}" for i in range(5)]

    def test_repeating_a_prompt_counts_the_sample_and_keeps_the_seed(self) -> None:
        hand = Hand(course("aW aW bW aT aW"), ["answer 1"] * 5)
        hand.play(episode())
        asks = [r for r in hand.of(Ask) if isinstance(r, Ask)]
        assert [ask.sample for ask in asks] == [0, 1, 0, 0, 0]  # the plan of turn 3 makes the last prompt new
        assert len({ask.seed for ask in asks}) == 1

    def test_two_routes_to_one_prompt_ask_the_same(self) -> None:
        one, two = Hand(course("aW"), ["answer 1"]), Hand(course("bV aW"), ["answer 1"])
        one.play(replace(episode(turns=1), id="e5", policy="x"))
        two.play(episode(turns=2))
        assert one.of(Ask) == two.of(Ask)


ROLES = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from([W, T, V])), min_size=1, max_size=5
)
TEXTS = st.sampled_from(
    ["answer 12", "answer 11", "so 12 ACCEPT", "so 11 REVISE", "", "plan",
     "<idea>i</idea> <answer>12</answer>", "ACCEPT", "REJECT",
     "<suggestion>s</suggestion><suggested_role>verifier</suggested_role>",
     "<suggestion>s</suggestion><suggested_role>solver</suggested_role>"]
)  # fmt: skip


class TestResume:
    @given(
        ROLES,
        st.lists(TEXTS, min_size=5, max_size=5),
        st.integers(0, 5),
        st.sampled_from(list(Protocol)),
        st.sampled_from(["terse", "general"]),
    )
    def test_playing_on_after_any_turn_ends_the_same(
        self,
        choices: list[tuple[str, Role]],
        texts: list[str],
        cut: int,
        protocol: Protocol,
        dialect: Dialect,
    ) -> None:
        class ByTurn(Hand):
            def answer(self, request: Request) -> Response:
                if isinstance(request, Ask):
                    self.seen.append(request)
                    return Reply(texts[len([r for r in self.seen if isinstance(r, Turn)]) + self.skipped])
                return super().answer(request)

            skipped = 0

        whole = ByTurn(choices, [])
        end = whole.play(episode(protocol), dialect)
        later = ByTurn(choices, [])
        later.skipped = min(cut, len(end.turns))
        resumed = later.play(replace(episode(protocol), turns=end.turns[:cut]), dialect)
        assert resumed == end
        turns = [r for r in whole.seen if isinstance(r, Ask)]
        again = [r for r in later.seen if isinstance(r, Ask)]
        assert turns[len(turns) - len(again) :] == again

    def test_a_recorded_answer_without_a_grade_is_graded(self) -> None:
        hand = Hand(course("aW bV"), ["answer 12", "so 12 ACCEPT"])
        whole = hand.play(episode())
        ungraded = replace(whole, turns=tuple(replace(turn, correct_after=None) for turn in whole.turns))
        later = Hand([], [])
        assert later.play(ungraded).correct
        assert later.seen == [Grade(TASK, "12")]

    def test_where_nobody_knows_the_answer_nothing_is_judged(self) -> None:
        hand = Hand(course("aW bV"), ["answer 12", "so 12 ACCEPT"])
        end = hand.play(replace(episode(), task=replace(TASK, answer="")))
        assert (end.status, end.end_reason, end.answer) == (Status.FINISHED, EndReason.ACCEPTED, "12")
        assert (end.correct, end.reward) == (None, None)
        assert hand.of(Grade) == []
        assert [turn.correct_after for turn in end.turns] == [None, None]

    def test_a_finished_episode_asks_nothing(self) -> None:
        end = Hand(course("aW bV"), ["answer 12", "so 12 ACCEPT"]).play(episode())
        idle = Hand([], [])
        assert idle.play(replace(episode(), turns=end.turns)) == end
        assert idle.seen == []


VERIFIER_NEXT = "<suggested_role>verifier</suggested_role>"


class TestReleased:
    def play(self, choices: list[tuple[str, Role]], texts: list[str], turns: int = 5) -> tuple[Hand, Episode]:
        hand = Hand(choices, texts)
        return hand, hand.play(episode(Protocol.RELEASED, turns), "general")

    @pytest.mark.parametrize(
        ("roles", "texts", "turns", "reason", "answer", "calls"),
        [
            ("aV", [], 5, EndReason.VERIFIER_FIRST, None, 0),
            ("aT aV", ["hm"], 5, EndReason.VERIFIER_FIRST, None, 1),  # a Thinker gives nothing to judge
            ("aT bW", [f"<suggestion>x</suggestion>{VERIFIER_NEXT}"], 5, EndReason.VERIFIER_FIRST, None, 1),
            ("aW bV", ["<answer>11</answer>", "REJECT. No."], 2, EndReason.BUDGET, "11", 2),
            ("aW bV", ["<answer>12</answer>", "ACCEPT"], 5, EndReason.ACCEPTED, "12", 2),
            (
                "aW",
                ["<answer>12</answer>", "12, I think"],
                2,
                EndReason.BUDGET,
                None,
                2,
            ),  # it replaces the answer
            ("aW", ["<answer>1</answer>"] * 9, 5, EndReason.BUDGET, "1", 5),
        ],
    )
    def test_how_an_episode_ends(
        self, roles: str, texts: list[str], turns: int, reason: EndReason, answer: str | None, calls: int
    ) -> None:
        hand, end = self.play(course(roles), texts, turns)
        assert (end.end_reason, end.answer, end.reward) == (reason, answer, float(answer == "12"))
        assert len(hand.of(Ask)) == calls
        if end.turns[-1].verdict_raw:
            word = texts[-1].partition(".")[0]
            assert (end.turns[-1].verdict is Verdict.REVISE, end.turns[-1].verdict_raw) == (
                word == "REJECT",
                word,
            )

    def test_the_suggested_role_overrides_exactly_the_next_turn(self) -> None:
        think = "<suggestion>add</suggestion><suggested_role>solver</suggested_role>"
        said = [think, "<answer>12</answer>", "hm", "<answer>12</answer>"]
        hand, end = self.play(course("aT bV aT"), said, 4)
        assert [turn.decision.role for turn in end.turns] == [T, W, T, T]
        origins = [turn.decision.origin for turn in end.turns]
        assert origins == ["policy", "suggested_role", "policy", "policy"]
        assert end.turns[1].decision.model == "bob"  # the agent is still the head's
        assert "<suggestion>add</suggestion>" in hand.prompts[1]

    def test_a_suggestion_is_used_once(self) -> None:
        think = "<suggestion>add</suggestion><suggested_role>solver</suggested_role>"
        hand, _ = self.play(course("aT bW bW"), [think, "a", "b"], 3)
        assert "<suggestion>" in hand.prompts[1]
        assert "<suggestion>" not in hand.prompts[2]

    def test_a_suggestion_does_not_lift_the_mask(self) -> None:
        think = f"<suggestion>check</suggestion>{VERIFIER_NEXT}"
        hand = Hand(course("aT bW"), [think, "<answer>12</answer>"])
        end = hand.play(episode(Protocol.RELEASED, 2), "general", role_mask=(True, True, False))
        assert [turn.decision.role for turn in end.turns] == [T, W]

    def test_only_worker_thoughts_enter_the_discussion(self) -> None:
        hand, end = self.play(
            [("ann", W), ("ann", T), ("ann", V)],
            ["<idea>add</idea> 11", "deep plan", "REJECT: off by one"],
            3,
        )
        last = hand.of(Decide)[-1]
        assert isinstance(last, Decide)
        assert last.messages[0].role == "system"
        assert "<reference_thought_0>add</reference_thought_0>" in last.messages[1].content
        assert "deep plan" not in last.messages[1].content
        assert len(last.messages) == 2


class TestRefusals:
    @pytest.mark.parametrize(
        "broken",
        [
            lambda e: replace(e, models=("ann", "eve")),
            lambda e: replace(e, turn_budget=0),
        ],
    )
    def test_what_cannot_be_played_is_said_in_a_sentence(self, broken: Callable[[Episode], Episode]) -> None:
        with pytest.raises(ConfigError, match=r"\.$"):
            next(play(broken(episode()), specs()))

    @pytest.mark.parametrize("mask", [(True,), (False, False, False)])
    def test_a_mask_must_fit_and_leave_something(self, mask: tuple[bool, ...]) -> None:
        with pytest.raises(ConfigError, match="mask"):
            next(play(episode(), specs(), role_mask=mask))
