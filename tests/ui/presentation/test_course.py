"""The course of an episode: which turns are blunders, and that cells say in words what they colour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.episode import Flag, Role, Verdict
from tests.ui.web.test_figures import outline
from ui.presentation.course import Happening, blunders, cells, happenings, next_of, turn_words, wrong_since
from ui.presentation.theme import ink_on, model_colour

MODELS = ("alpha", "beta")


def test_first_right_then_broke_then_fixed() -> None:
    turns = [
        outline(0, answer_after="1", correct_after=False),
        outline(1, answer_after="2", correct_after=True),
        outline(2, answer_after="3", correct_after=False),
        outline(3, answer_after="2", correct_after=True),
    ]
    assert happenings(turns) == ((), (Happening.FIRST_RIGHT,), (Happening.BROKE,), (Happening.FIXED,))
    assert blunders(turns) == (2,)
    assert wrong_since(turns) is None
    assert wrong_since(turns[:3]) == 2


def test_where_a_wrong_episode_went_wrong_is_a_blunder() -> None:
    turns = [
        outline(0, role=Role.THINKER),
        outline(1, answer_after="1", correct_after=False),
        outline(2, role=Role.VERIFIER, verdict=Verdict.REVISE, answer_after="1", correct_after=False),
        outline(3, answer_after="4", correct_after=False),
        outline(4, stage="asked"),
    ]
    assert wrong_since(turns) == 1
    assert happenings(turns) == ((), (Happening.WRONG_SINCE,), (), (), ())
    assert blunders(turns) == (1,)
    assert [cell.answer.tone for cell in cells(turns, MODELS)] == ["quiet", "bad", "quiet", "bad", "quiet"]
    assert wrong_since(turns[:1]) is None


def test_a_verifier_that_sends_a_right_answer_back_is_a_blunder() -> None:
    checks = {"role": Role.VERIFIER, "verdict": Verdict.REVISE, "answer_after": "2"}
    turns = [
        outline(0, answer_after="2", correct_after=True),
        outline(1, correct_after=True, **checks),
        outline(2, correct_after=False, **{**checks, "answer_after": "3"}),  # this one does well to
        outline(3, correct_after=True, stage="asked", **checks),
    ]
    assert happenings(turns)[1] == (Happening.SENT_BACK,)
    assert Happening.SENT_BACK not in {one for here in happenings(turns)[2:] for one in here}
    assert 1 in blunders(turns)
    assert "sent a right answer back" in [mark.word for mark in cells(turns, MODELS)[1].marks]
    assert "sent a right answer back" in turn_words(turns[1], 4)


def test_what_is_no_blunder_and_that_only_a_running_turn_is_pending() -> None:
    accepts = {"role": Role.VERIFIER, "verdict": Verdict.ACCEPT}
    right = outline(1, answer_after="2", correct_after=True)
    none, good = outline(0, **accepts), outline(2, answer_after="2", correct_after=True, **accepts)
    assert blunders([none, right, good]) == (0,), "an ACCEPT of no answer is one, of a right one none"
    turns = [outline(0, answer_after="2", correct_after=True), outline(1, stage="asked")]
    assert blunders(turns) == ()
    assert [cells(turns, MODELS, running=one)[1].pending for one in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"margin": 0.01}, Happening.LOW_MARGIN),
        ({"flags": (Flag.VERDICT_UNREADABLE,)}, Happening.UNREADABLE),
        ({"flags": (Flag.NOTHING_TO_JUDGE,)}, Happening.NOTHING_TO_JUDGE),
        ({"flags": (Flag.TRUNCATED,)}, Happening.CUT),
        ({"error": "timed out"}, Happening.ERROR),
        ({"origin": "override"}, Happening.OVERRIDE),
    ],
)
def test_events_are_marked(changes: dict[str, object], expected: Happening) -> None:
    assert happenings([outline(0, **changes)]) == ((expected,),)


def test_cells_carry_letter_shape_word_and_colour() -> None:
    turns = [
        outline(0, role=Role.THINKER, model="beta"),
        outline(1, answer_after="7", correct_after=False),
        outline(2, role=Role.VERIFIER, verdict=Verdict.REVISE, answer_after="7", correct_after=False),
    ]
    drawn = cells(turns, MODELS)
    assert [(cell.letter, cell.shape) for cell in drawn] == [
        ("T", "circle"),
        ("W", "square"),
        ("V", "triangle"),
    ]
    assert drawn[0].colour == model_colour("beta", MODELS) != drawn[1].colour
    assert drawn[0].ink == ink_on(drawn[0].colour)
    assert drawn[2].verdict is not None
    assert drawn[2].verdict.word == "Revise"
    assert (drawn[1].answer.word, drawn[1].answer.tone) == ("7", "bad")
    assert "wrong" in drawn[1].label
    assert all(0 <= cell.entropy <= 1 for cell in drawn if cell.entropy is not None)


def test_a_plan_does_not_take_the_standing_answer_for_its_own() -> None:
    turns = [
        outline(0, answer_after="7", correct_after=False),
        outline(1, role=Role.THINKER, answer_after="7", correct_after=False),
        outline(2, role=Role.VERIFIER, verdict=Verdict.REVISE, answer_after="7", correct_after=False),
    ]
    words = [cell.answer.word for cell in cells(turns, MODELS)]
    assert words == ["7", "so far 7", "still 7"]


def test_words_for_a_screen_reader() -> None:
    turn = outline(3, role=Role.VERIFIER, verdict=Verdict.ACCEPT, answer_after="4\u202e2", correct_after=True)
    assert turn_words(turn, 7) == "Turn 4 of 7, Verifier, alpha, Accept, answer 4⟨U+202E⟩2 is right"


def test_next_goes_round() -> None:
    assert [next_of((1, 4), 1), next_of((1, 4), 4), next_of((), 0)] == [4, 1, None]


def test_two_recorded_answers_that_are_compared_are_no_judgement() -> None:
    compared = (Flag.RECORDED, Flag.BY_AGREEMENT)
    other = {"role": Role.VERIFIER, "verdict": Verdict.REVISE, "answer_after": "2", "flags": compared}
    turns = [
        outline(0, answer_after="2", correct_after=True),
        outline(1, correct_after=True, **other),
        outline(2, correct_after=False, **{**other, "verdict": Verdict.ACCEPT, "answer_after": "3"}),
        outline(3, correct_after=False, **{**other, "flags": (*compared, Flag.SELF_VERIFIED)}),
    ]
    assert blunders(turns[:2]) == (), "to answer otherwise is no fault"
    words = turn_words(turns[1], 4)
    assert "Answered differently" in words
    assert "sent a right answer back" not in words
    assert "verdict by comparing two recorded answers" in words
    assert Happening.SAME_AND_WRONG in happenings(turns)[2]
    assert [mark.word for mark in cells(turns, MODELS)[2].marks if mark.glyph == "!"] == [
        "the same wrong answer"
    ]
    assert "Answered the same" in turn_words(turns[2], 4)
    assert "The same reply" in turn_words(replace(turns[3], verdict=Verdict.ACCEPT), 4)
    assert "no other model was asked to check its answer" in turn_words(turns[3], 4)
    assert "judged its own" not in turn_words(turns[3], 4)
