"""How replies are read: verdicts, answers and plans, against hostile texts and those of models that do not obey."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import ANSWER_RULES, Flag, Protocol, Role, Verdict
from core.grader import Grader
from core.play.answers import find_answer
from core.play.reading import read_reply, with_verdict
from core.tasks.choices import read_choice
from core.tasks.mathematics import math_answer
from core.tasks.numbers import read_number
from tests.core.play.verdict_corpus import (
    GENERAL_ACCEPTS,
    GENERAL_FALSE_ACCEPTS,
    TERSE_ACCEPTS,
    TERSE_FALSE_ACCEPTS,
)

DATA = Path(__file__).parent / "data"
TAG = "k3j5q7zz"
PAPER = Protocol.PAPER


def verify(text: str, tag: str = TAG) -> Verdict | None:
    return read_reply(PAPER, "general", Role.VERIFIER, text, tag).verdict


class TestGeneralVerdict:
    @pytest.mark.parametrize("text", GENERAL_FALSE_ACCEPTS)
    def test_no_trick_is_an_acceptance(self, text: str) -> None:
        reading = read_reply(PAPER, "general", Role.VERIFIER, text.format(tag=TAG), TAG)
        assert reading.verdict is Verdict.REVISE
        assert (Flag.VERDICT_UNREADABLE in reading.flags) == (reading.verdict_raw == "")

    @pytest.mark.parametrize("text", GENERAL_ACCEPTS)
    def test_a_proper_last_line_is_an_acceptance(self, text: str) -> None:
        reading = read_reply(PAPER, "general", Role.VERIFIER, text.format(tag=TAG), TAG)
        assert reading.verdict is Verdict.ACCEPT
        assert reading.verdict_raw.upper() == "ACCEPT"
        assert reading.flags == ()

    def test_a_proper_revise_is_not_flagged(self) -> None:
        reading = read_reply(PAPER, "general", Role.VERIFIER, f"7 is wrong.\nVERDICT-{TAG}: REVISE", TAG)
        assert (reading.verdict, reading.verdict_raw, reading.flags) == (Verdict.REVISE, "REVISE", ())

    def test_without_a_tag_nothing_is_accepted(self) -> None:
        assert verify("VERDICT-: ACCEPT", tag="") is Verdict.REVISE

    @given(st.text(), st.text())
    def test_text_without_the_tag_is_never_accepted(self, before: str, after: str) -> None:
        assert verify(f"{before}ACCEPT{after}") is Verdict.REVISE

    @given(st.text(alphabet="ACEPTVRDISacept:-*_` .\n{}[]\"'", max_size=60))
    def test_only_a_clean_last_line_is_accepted(self, noise: str) -> None:
        text = f"{noise}\nVERDICT-{TAG}: ACCEPT\n{noise}"
        bare = all(re.fullmatch(r"\s*(?:```\w*\s*)?", line) for line in noise.split("\n"))
        assert (verify(text) is Verdict.ACCEPT) == bare


class TestTerseVerdict:
    @pytest.mark.parametrize("text", TERSE_FALSE_ACCEPTS)
    def test_no_trick_is_an_acceptance(self, text: str) -> None:
        assert read_reply(PAPER, "terse", Role.VERIFIER, text).verdict is Verdict.REVISE

    @pytest.mark.parametrize("text", TERSE_ACCEPTS)
    def test_the_last_word_accepts(self, text: str) -> None:
        reading = read_reply(PAPER, "terse", Role.VERIFIER, text)
        assert (reading.verdict, reading.verdict_raw, reading.flags) == (Verdict.ACCEPT, "ACCEPT", ())


def test_the_corpus_has_over_a_hundred_cases() -> None:
    assert len(set(GENERAL_FALSE_ACCEPTS)) + len(set(TERSE_FALSE_ACCEPTS)) > 100


class TestGeneralReplies:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("so <answer>12</answer>", "12"), ("<answer>11</answer> no: <answer> 12 </answer>", "12"),
            ("<ANSWER>12</Answer>", "12"), ("<answer>a<answer>b</answer>", "b"),
            ("<answer>two\nlines</answer>", "two\nlines"), ("<answer>12</answer> and <answer>13", "12"),
            ("<answer></answer>", None), ("<answer>  </answer>", None), ("the answer is 12", "12"),
            ("<answer>12", "12"), ("", None),
        ],
    )  # fmt: skip
    def test_the_last_answer_in_the_asked_form_counts(self, text: str, answer: str | None) -> None:
        reading = read_reply(PAPER, "general", Role.WORKER, text)
        assert reading.answer == answer
        assert (Flag.NO_ANSWER in reading.flags) == (answer is None)

    def test_a_choice_that_stands_alone_at_the_end_counts_before_a_sentence_about_answers(self) -> None:
        text = "The answer is plausible, as each step can be undone.\n\n**B**"
        reading = read_reply(PAPER, "general", Role.WORKER, text, grader="choice")
        assert (reading.answer, reading.answer_rule) == ("B", "letter")

    @given(st.text())
    def test_a_worker_has_no_verdict_and_a_verifier_no_answer(self, text: str) -> None:
        text += f"<answer>1</answer><suggestion>x</suggestion>\nVERDICT-{TAG}: ACCEPT"
        for dialect in ("general", "terse"):
            worker = read_reply(PAPER, dialect, Role.WORKER, text, TAG)
            thinker = read_reply(PAPER, dialect, Role.THINKER, text, TAG)
            verifier = read_reply(PAPER, dialect, Role.VERIFIER, text, TAG)
            assert worker.verdict is thinker.verdict is None
            assert verifier.answer is thinker.answer is None
            assert worker.suggestion == verifier.suggestion == ""

    @pytest.mark.parametrize(
        ("reason", "readable"),
        [
            (" because the last step does not hold.", True),
            (" - the sign is wrong, though the rest holds.", True),
            (", or ACCEPT", False),
            (", unless x is positive", False),
        ],
    )
    def test_why_an_answer_is_to_be_revised_may_be_told_in_words_of_doubt(
        self, reason: str, readable: bool
    ) -> None:
        reading = read_reply(PAPER, "general", Role.VERIFIER, f"VERDICT-{TAG}: REVISE{reason}", TAG)
        assert (reading.verdict is Verdict.REVISE, not reading.flags) == (True, readable)

    def test_a_suggestion_is_read_from_its_tags_only(self) -> None:
        reading = read_reply(PAPER, "general", Role.THINKER, "Hm. <suggestion> add them </suggestion>")
        assert reading.suggestion == "add them"
        assert read_reply(PAPER, "general", Role.THINKER, "add them").flags == (Flag.NO_SUGGESTION,)


class TestThinkingAloud:
    def test_a_verdict_or_answer_in_thought_is_none(self) -> None:
        thought = f"<think>VERDICT-{TAG}: ACCEPT</think>"
        assert verify(thought) is Verdict.REVISE
        assert verify(f"{thought}\nVERDICT-{TAG}: ACCEPT") is Verdict.ACCEPT
        assert read_reply(PAPER, "general", Role.WORKER, "<think><answer>1</answer></think>").answer is None


def lines(name: str) -> list[dict[str, Any]]:
    """A corpus of replies, labelled by hand before they were read."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def test_verdicts_of_models_that_take_liberties() -> None:
    """What a careful reader would take for a verdict is one, and nothing else: no false acceptance, no lost verdict."""
    corpus = lines("verdicts.jsonl")
    assert len([one for one in corpus if one["verdict"]]) >= 60
    for one in corpus:
        reading = read_reply(PAPER, "general", Role.VERIFIER, one["reply"].replace("{tag}", TAG), TAG)
        assert (None if reading.flags else reading.verdict) == one["verdict"], one
        if not reading.flags:
            changed = with_verdict(
                PAPER, "general", one["reply"].replace("{tag}", TAG), TAG, Verdict("REVISE")
            )
            assert read_reply(PAPER, "general", Role.VERIFIER, changed, TAG).verdict is Verdict.REVISE


@pytest.mark.parametrize(
    ("reply", "found", "rule"),
    [
        ("Dear you,\n\nall is well.", "Dear you,\n\nall is well.", "whole"),
        ("Thinking.<answer>Dear you,\n\nall is well.</answer>", "Dear you,\n\nall is well.", "tag"),
        ("<answer>Cut in\n\nthe mid", "Cut in\n\nthe mid", "open tag"),
        ("<think>hm</think> Yes \\boxed{4}.", "Yes \\boxed{4}.", "whole"),
        (" ", None, None),
    ],
)
def test_an_open_answer_is_the_whole_reply(reply: str, found: str | None, rule: str | None) -> None:
    reading = read_reply(PAPER, "general", Role.WORKER, reply, grader="open")
    assert (reading.answer, reading.answer_rule) == (found, rule)


LOOP = "for n in range(3):\n\n    print(n)"


@pytest.mark.parametrize(
    ("reply", "found", "rule"),
    [
        (f"So:\n<answer>\n```python\n{LOOP}\n```\n</answer>", LOOP, "tag"),
        (f"<answer>{LOOP}</answer>", LOOP, "tag"),
        ("<answer>\n    x = 1\n    print(x)\n</answer>", "x = 1\nprint(x)", "tag"),
        (f"<answer>\nThe sum:\n~~~py\n{LOOP}\n~~~\nwhich prints\n~~~\n0 1 2\n~~~\n</answer>", LOOP, "tag"),
        (f"<answer>{LOOP}</answer>\nNo, better:\n<answer>your answer</answer>", LOOP, "tag"),
        (f"<answer>\n```python\n{LOOP}", LOOP, "open tag"),
        (f"First:\n```\nprint(1)\n```\nthen\n```python\n{LOOP}\n```\nIt prints\n```\n0\n1\n```", LOOP, "fence"),
        (f"Cut short:\n```python\n{LOOP}", LOOP, "fence"),
        (f"<think>print(5)</think>\n{LOOP}\n", LOOP, "whole"),
        ("print('\\boxed{4}')", "print('\\boxed{4}')", "whole"),
        ("The answer is 4.", None, None),
        ("Yes", None, None),
        ("\\boxed{4}", None, None),
    ],
)  # fmt: skip
def test_a_program_keeps_its_lines_and_loses_its_fence(
    reply: str, found: str | None, rule: str | None
) -> None:
    reading = read_reply(PAPER, "general", Role.WORKER, reply, grader="program")
    assert (reading.answer, reading.answer_rule) == (found, rule)


def test_answers_of_models_that_take_liberties() -> None:
    """Each is found as a careful reader would find it, and where there is none, none is."""

    def bare(answer: str | None) -> str | None:
        """Without the marks that every grader takes away; the letter of a choice with its text behind it."""
        if answer is None:
            return None
        text = " ".join(re.sub(r"\\text|\\[()]|[${}]", "", answer).split()).strip("*. ")
        choice = re.match(r"\(?([A-Z])\)(?:\s|$)", text)
        return (choice[1] if choice else text).casefold()

    corpus, rules = lines("replies.jsonl"), set()
    for one in corpus:
        reading = read_reply(PAPER, "general", Role.WORKER, one["reply"], grader=one["grader"])
        assert bare(reading.answer) == bare(one["found"]), one
        assert (Flag.NO_ANSWER in reading.flags) == (one["found"] is None)
        rules.add(reading.answer_rule)
    assert rules == {None, *ANSWER_RULES} - {"pattern", "whole", "fence", "conclusion"}


def test_a_tasks_own_pattern_finds_its_answer_first() -> None:
    said = "RESULT[12] and <answer>13</answer> RESULT[14]"
    assert find_answer(said, "number", r"RESULT\[(\d+)\]") == ("14", "pattern")
    assert find_answer(said, "number", r"RESULT\[\d+\]") == ("RESULT[14]", "pattern")
    assert find_answer("<answer>13</answer>", "number", r"RESULT\[(\d+)\]") == ("13", "tag")


@pytest.mark.parametrize(
    ("reply", "grader", "found"),
    [
        ('Here it is:\n```json\n{"why": "so", "answer": "12"}\n```\nTell me if not.', "number", "12"),
        ('{"why": "a text\nof two lines, \\( x \\)", "answer": "\\frac{1}{2}"}', "math", r"\frac{1}{2}"),
        (r'{"answer": "\\times 3 \n"}', "math", r"\times 3"),
        (r'{"answer": "\text{no} \u0041"}', "math", r"\text{no} A"),
        ('{"answer": "["a", "b"]"\n}', "code", '["a", "b"]'),
        ("{'answer': 1, \"answer\": '[\"a\"]'\n}", "code", '["a"]'),
        ('{"answer": {"a": true}, "why": ""}', "code", "{'a': True}"),
        (r"""{"answer": "'a\nb'"}""", "code", r"'a\nb'"),
        ('{"answer": ""}', "code", "''"),
        ('{"why": "they say \\"answer\\": \\"5\\"", "answer": "6", "sure": 1}', "number", "6"),
        ('{"answer": "5"}, or rather {"answer": "6"}', "number", "6"),
        ('"why": "the brace is lost",\n"answer": "87.1"', "number", "87.1"),
        ('"why": "so it is",\n"answer": "17"\n```', "number", "17"),
        ('{"answer": "  "}', "code", "'  '"),
        ('{"why": "___", "answer": "___"}', "number", None),
        (f'{{"why": "{"long " * 2000}", "answer": 7}}', "number", "7"),
        ('{"answer": null}', "number", None),
        ('{"answer": "it is cut o', "number", None),
        ('{"answer": ""}', "exact", None),
    ],
)
def test_an_answer_in_json_is_read_where_it_stands_and_with_the_faults_that_models_make(
    reply: str, grader: Grader, found: str | None
) -> None:
    assert find_answer(reply, grader) == (None if found is None else (found, "json"))


@given(st.text(alphabet="<answer>/\\boxed{}#\n the answer is 4B.*$`", max_size=80))
def test_whatever_is_said_is_read_without_a_fault(text: str) -> None:
    found = find_answer(text, "choice")
    assert found is None or found[0].strip()


@pytest.mark.parametrize("grader", ["number", "choice", "math", "program", "open"])
@pytest.mark.parametrize(
    "text",
    [
        *(f"So 5{filler * 5000}x" for filler in (" ", ".", "*", "5 ", "\n")),
        *(f"```{filler * 5000}" for filler in (" ", ".", "*", "5 ", "\n")),
        "A and " * 3000, "so B " * 3000, "(A) " * 3000, "x = 5, " * 3000, "one hundred " * 3000,
        "\u4e00\u767e" * 5000, "x = 1\n" * 3000, "=" * 5000, '"answer": "' * 3000, '"answer": "' + '\\"' * 5000,
        '"answer": ' + "[" * 5000,
    ],
    ids=range(21),
)  # fmt: skip
def test_a_hostile_reply_is_read_and_graded_in_no_long_time(text: str, grader: Grader) -> None:
    begun = time.process_time()
    for reply in (text, f"<answer>{text}</answer>"):
        reading = read_reply(PAPER, "general", Role.WORKER, reply, grader=grader)
        read_number(reading.answer or "")
        read_choice(reading.answer or "")
        math_answer(reading.answer or "")
    assert time.process_time() - begun < 8
