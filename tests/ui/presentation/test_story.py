"""The story of an episode, and the turn that is named for a wrong ending: facts of the recording, nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.analysis.blame import Blame, blame, contains_value
from core.episode import (
    ROLE_ORDER,
    Decision,
    EndReason,
    Episode,
    Flag,
    Recorded,
    Reply,
    Role,
    Status,
    Task,
    Turn,
    Usage,
    Verdict,
)
from storage.rows.progress import EpisodeProgress, episode_flags
from storage.rows.summaries import EpisodeSummary
from ui.presentation.rules import ended_words, tally_of
from ui.presentation.story import story
from ui.presentation.theme import END_WORDS

MODELS = ("ann", "bob")


def turn(index: int, model: str, role: Role, text: str, answer: str | None, **fields: object) -> Turn:
    probs = {
        "model_probs": (0.25, 0.75),
        "role_probs": tuple(0.5 if one is role else 0.25 for one in ROLE_ORDER),
    }
    decision = Decision(model, role, sampled=True, **probs)  # type: ignore[arg-type]
    fields = {"correct_after": None if answer is None else answer == "42", **fields}
    return Turn("e", index, decision, (), Reply(text, usage=Usage(1, 1, 0.0)), answer_after=answer, **fields)  # type: ignore[arg-type]


def episode(*turns: Turn, question: str = "How many?", end: EndReason = EndReason.BUDGET) -> Episode:
    answer = turns[-1].answer_after
    return Episode(
        id="e", run_id="r", task=Task("t", question, "42", "number"), policy="random", models=MODELS, turn_budget=5,
        seed=0, turns=turns, status=Status.FINISHED, end_reason=end, answer=answer, correct=answer == "42",
    )  # fmt: skip


def test_a_right_ending_tells_who_proposed_and_who_accepted() -> None:
    told = story(
        episode(
            turn(0, "bob", Role.WORKER, "41", "41"),
            turn(1, "ann", Role.VERIFIER, "no", "41", verdict=Verdict.REVISE),
            turn(2, "ann", Role.WORKER, "42", "42"),
            turn(3, "bob", Role.VERIFIER, "yes", "42", verdict=Verdict.ACCEPT),
            end=EndReason.ACCEPTED,
        )
    )
    assert told == (
        "bob began as Worker, with a probability of 37.5 %. bob gave 41 in turn 1, which is wrong; ann in turn 2 "
        "caught it (REVISE). ann gave 42 in turn 3, which is right; bob in turn 4 accepted it. It ended right by "
        "ACCEPT; the answer stands since turn 3."
    )


def test_who_began_by_hand_is_told_with_what_had_been_proposed() -> None:
    played = episode(
        turn(0, "bob", Role.WORKER, "42", "42"),
        turn(1, "ann", Role.VERIFIER, "fine", "42", verdict=Verdict.ACCEPT),
    )
    by_hand = [
        replace(one, decision=replace(one.decision, model_probs=(1.0, 0.0), origin="override"))
        for one in played.turns
    ]
    certain = replace(by_hand[0].decision, role_probs=tuple(float(one is Role.THINKER) for one in ROLE_ORDER))
    by_hand[0] = replace(by_hand[0], decision=certain)
    assert story(replace(played, turns=tuple(by_hand))).startswith(
        "A person chose bob to begin as Worker; proposed was Thinker on ann, with a probability of 100.0 %. "
        "A person chose who took turn 2. bob gave 42"
    )
    unknown = replace(certain, model_probs=(), role_probs=(), argmax_model="", sampled=False)
    told = story(replace(played, turns=(replace(by_hand[0], decision=unknown), *played.turns[1:])))
    assert told.startswith("A person chose bob to begin as Worker. bob gave")


def test_a_plan_that_holds_the_wrong_value_is_named_before_the_answer() -> None:
    wrong = episode(
        turn(0, "ann", Role.THINKER, "it must be 17", None, suggestion="it must be 17"),
        turn(1, "bob", Role.WORKER, "17", "17"),
        turn(2, "ann", Role.VERIFIER, "fine", "17", verdict=Verdict.ACCEPT),
        end=EndReason.ACCEPTED,
    )
    assert blame(wrong) == Blame(0, "plan", "17")
    assert story(wrong).endswith(
        "It ended wrong with the last answer of bob in turn 2; 17 comes first in ann's plan, turn 1."
    )
    assert "ann in turn 3 missed it (ACCEPT)" in story(wrong)
    # A value of the question says nothing about who brought it up.
    asked = replace(wrong, task=replace(wrong.task, question="How many of 17?"))
    assert blame(asked) == Blame(1, "answer", "17")


def test_a_wrong_answer_that_later_turns_gave_as_well_is_not_the_first_turns_alone() -> None:
    wrong = episode(
        turn(0, "ann", Role.WORKER, "17", "17"),
        turn(1, "bob", Role.WORKER, "17", "17"),
        turn(2, "ann", Role.THINKER, "hm", "17"),
        turn(3, "bob", Role.WORKER, "hm", "17", flags=(Flag.NO_ANSWER,)),
    )
    assert story(wrong).endswith(
        "It ended wrong with no readable answer of bob in turn 4; 17 was first given by ann in turn 1."
    )
    assert story(replace(wrong, turns=wrong.turns[:3])).endswith(
        "It ended wrong with the last answer of bob in turn 2; 17 was first given by ann in turn 1."
    )
    assert story(replace(wrong, turns=wrong.turns[:1])).endswith(
        "It ended wrong with the last answer of ann in turn 1."
    )


def test_a_wrong_value_that_was_mended_in_between_is_not_named() -> None:
    lost = episode(
        turn(0, "ann", Role.WORKER, "17", "17"),
        turn(1, "bob", Role.WORKER, "42", "42"),
        turn(2, "ann", Role.THINKER, "maybe 17", "42"),
        turn(3, "bob", Role.WORKER, "17", "17"),
    )
    assert blame(lost) == Blame(2, "plan", "17")


def test_what_has_no_answer_or_no_end_is_told_so() -> None:
    nothing = episode(turn(0, "ann", Role.WORKER, "hm", None), turn(1, "bob", Role.THINKER, "hm", None))
    assert blame(nothing) == Blame(0, "none")
    assert story(nothing).endswith("no turn gave a readable answer; turn 1 was the last that could have.")
    assert story(replace(nothing, status=Status.RUNNING)) == ""
    assert story(replace(nothing, correct=None)) == ""
    assert blame(replace(nothing, turns=())) is None


def test_many_answers_are_counted() -> None:
    turns = [turn(i, "ann", Role.WORKER, str(i), str(i)) for i in range(6)]
    assert "3 more answers came between." in story(episode(*turns))


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("so 7 it is", "7", True),
        ("so 17 it is", "7", False),
        ("it is 7.", "7", True),
        ("it is 7.5", "7", False),
        ("-7", "7", False),
        ("The Answer", "answer", True),
        ("answers", "answer", False),
        ("x = (7)", "7", True),
        ("10 - 3", "7", True),
        ("1 * 9 + 2, then half", "11", True),
        ("3.5 \u00d7 2", "7", True),
        ("21/3", "7", True),
        ("7/0 - 1", "7", True),  # the number itself
        ("14 - 7/0", "14", True),
        ("8 - 7/0", "1", False),
        ("10 - 3 - 4", "7", False),  # the whole sum counts
        ("x10 - 3", "7", False),
        ("the day after", "Sunday", False),
    ],
)
def test_a_value_stands_for_itself(text: str, value: str, found: bool) -> None:
    assert contains_value(text, value) is found


def recorded(index: int, model: str, answer: str | None, stands: str | None, **fields: object) -> Turn:
    """A turn of a recorded model that gave an answer of its own, after which another one may stand."""
    row = Recorded("small@12345678", answer=answer, by_agreement=Flag.BY_AGREEMENT in fields.get("flags", ()))  # type: ignore[operator]
    role = Role.VERIFIER if row.by_agreement else Role.WORKER
    decision = Decision(model, role, sampled=False)
    own: dict[str, Any] = {"answer_after": stands, **fields}
    own["correct_after"] = None if stands is None else stands == "42"
    return Turn("e", index, decision, (), Reply("said", recorded=row), **own)


def summary_of(one: Episode) -> EpisodeSummary:
    flags = {flag.value for turn in one.turns for flag in turn.flags}
    return EpisodeSummary(
        id=one.id, run_id=one.run_id, task_id="t", family="user", question="How many?", policy=one.policy,
        checkpoint_id=None, generation=None, status=one.status, correct=one.correct, end_reason=one.end_reason,
        turns=len(one.turns), strip="", tokens_in=0, tokens_out=0, cost_usd=None, latency_s=0.0, min_margin=None,
        mean_entropy=None, flags=tuple(flags), started=0.0, finished=0.0,
    )  # fmt: skip


def test_a_vote_is_told_with_its_votes_and_weights_not_by_the_last_answer() -> None:
    turns = (
        recorded(0, "ann", "41", "41"),
        recorded(1, "bob", "42", "41"),
        recorded(2, "cyd", "42.0", "41"),
        recorded(3, "dot", None, "41"),
    )
    wrong = replace(episode(*turns), policy="weighted-vote", models=("ann", "bob", "cyd", "dot"))
    strong = {"ann": 0.9, "bob": 0.6, "cyd": 0.6, "dot": 0.5}
    assert story(wrong, strong) == (
        "4 models were asked, each alone. It ended wrong by a weighted vote: 41 won with 1 of 3 votes (73.0 % of the "
        "weight); 42 had 2. The right answer, 42, came from bob, cyd. 1 gave no readable answer."
    )
    assert "41 won with 1 of 3 votes; 42 had 2" in story(wrong), "nobody knows what the votes weighed"
    right = replace(wrong, policy="vote", answer="42", correct=True)
    assert "It ended right by a vote: 42 won with 2 of 3 votes; 41 had 1." in story(right)
    assert tally_of(replace(wrong, policy="vote")) is None, (
        "fewer votes than another answer had win no plain vote"
    )
    assert "all 3 votes were for 41" in story(right, same=lambda one, other: True), "as a table may have it"
    assert tally_of(replace(right, policy="random")) is None
    assert ended_words(summary_of(right)) == "decided by a vote"
    ahead = [True, False, True, True]
    course = tuple(replace(one, correct_after=is_so) for one, is_so in zip(turns, ahead, strict=True))
    flags = [
        episode_flags(one, EpisodeProgress.over(one.models, course))
        for one in (right, wrong, replace(right, policy="random"))
    ]
    assert ["answer_broke" in one for one in flags] == [False, True, True], "a vote may be behind for a while"


def test_every_end_has_words() -> None:
    assert {*END_WORDS} == {*EndReason}


def test_a_comparison_of_recorded_answers_is_told_as_one() -> None:
    compared = (Flag.RECORDED, Flag.BY_AGREEMENT)
    differs = recorded(1, "bob", "41", "42", verdict=Verdict.REVISE, flags=compared)
    asked = replace(episode(recorded(0, "ann", "42", "42"), differs), policy="agree:2")
    assert story(asked) == (
        "ann began as Worker. ann gave 42 in turn 1, which is right; bob in turn 2 answered differently (41). It ended "
        "right, as no two of 2 asked answered the same, so that the first answer stands."
    )
    assert ended_words(summary_of(asked)) == "everybody was asked"
    same = recorded(1, "bob", "41", "41", verdict=Verdict.ACCEPT, flags=compared)
    agreed = episode(recorded(0, "ann", "41", "41"), same, end=EndReason.ACCEPTED)
    assert story(agreed) == (
        "ann began as Worker. ann gave 41 in turn 1, which is wrong; bob in turn 2 answered the same. It ended wrong, "
        "as two answered the same; 41 was first given by ann in turn 1."
    )
    assert ended_words(summary_of(agreed)) == "two answered the same"
    own = replace(same, decision=replace(same.decision, model="ann"), flags=(*compared, Flag.SELF_VERIFIED))
    alone = replace(agreed, turns=(agreed.turns[0], own), policy="sure")
    assert "It ended wrong, as its own answer was sure enough" in story(alone)
    assert ended_words(summary_of(alone)) == "the first was asked alone: its own answer was sure enough"
    chosen = replace(agreed, turns=(*agreed.turns, own), policy="probe")
    assert "as of several answers one was chosen" in story(chosen)
    by_head = replace(alone, policy="c1")
    assert "ann in turn 2 confirmed it by the same reply" in story(by_head)
    assert "It ended wrong, as no other model was asked to check its answer" in story(by_head)
    assert ended_words(summary_of(by_head)) == "no other model was asked to check its answer"
    assert ended_words(summary_of(chosen)).startswith("of several answers one was chosen")
    assert ended_words(summary_of(replace(agreed, turns=(turn(0, "ann", Role.WORKER, "41", "41"),)))) == (
        "accepted by a Verifier"
    )
