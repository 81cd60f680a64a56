"""Answers as models write them, graded by hand: how many the graders take for right or wrong when they are not."""

from __future__ import annotations

import pytest

from core.episode import Grade, Grader, Task
from core.tasks.choices import read_choice
from core.tasks.graders import grade_many

APPLES = "How many apples does Ann have now?"
RIVER = "How long is the river?"
SHARE = "What share of the balls is red?"
CITY = "Which city is the capital? A) Oslo B) Rome C) Vitamin D) A"

#: Grader, question, right answer, and what was said that is right, and that is wrong.
CORPUS: list[tuple[Grader, str, str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "number",
        APPLES,
        "42",
        (
            "42", " 42 ", "42.", "42.0", "+42", "**42**", "`42`", "'42'", '"42"', "$42$", "\\(42\\)", "\\boxed{42}",
            "$\\boxed{42}$", "= 42", "x = 42", "x=42", "25 + 17 = 42", "The answer is 42", "the answer is 42.",
            "Answer: 42", "Answer: **42**", "**Answer:** 42", "The final answer is $42$.", "So the answer is 42",
            "Therefore, the total is 42", "It is 42", "Result: 42", "The result - 42", "42 apples", "42 Apples.",
            "42 items", "84/2", "4.2e1", "4.2 x 10^1", "\\frac{84}{2}", "42 \\text{ apples}", "0042",
            "forty-two", "Forty two apples",
        ),
        (
            "", "41", "-42", "4.2", "420", "43", "not 42", "The answer is not 42", "it is not 42", "more than 42",
            "less than 42", "at least 42", "about 42", "around 42", "nearly 42", "42 million", "42 thousand", "42k",
            "42 dozen", "sqrt(42)", "log 42", "42!", "42^2", "42 squared", "H42", "A42", "v42", "42b", "42 or 43",
            "42 and 43", "between 42 and 43", "42-43", "42, 43", "42; 7", "forty", "x != 42", "x > 42", "x >= 42",
            "x \u2248 42", "42 = x", "50 - 8", "6 * 7", "42 %", "42%", "1 42", "4 2", "42.0.0", "42,0", "42:00", "0x2A",
            "42 oranges", "42 apples and 3 pears", "42 have", "42 Ann",
            "not x = 42", "x is not = 42", "43 = 42", "I think", "?", "NaN", "infinity",
        ),
    ),
    (
        "number",
        RIVER,
        "1234.5",
        (
            "1234.5", "1,234.5", "1 234.5", "1\u202f234.5", "1_234.5", "1234.50", "1234.5 km", "1234.5 kilometers",
            "1,234.5 km.", "1.2345e3", "1.2345 \u00d7 10^3", "1.2345 \\times 10^{3}", "1.2345 * 10**3", "2469/2",
            "1234 1/2", "1234\u00bd", "1234 \u00bd km", "1234.5 \\, \\text{km}",
            "1.234,5", "1.234,5 km",
        ),
        ("1234", "1235", "12345", "1,2345", "1.234,6", "1234,5", "1 2345", "1234.5 million km", "1.2345 x 10^4"),
    ),
    (
        "number",
        "How much does she owe?",
        "-7",
        ("-7", "minus 7", "\u22127", "- 7", "-$7", "$-7", "-$7.00", "\u2212\u20ac7", "-7 dollars", "-7 USD", "x = -7",
         "-14/2"),
        ("7", "$7", "--7", "5 - 12", "-$7 million", "-$7m", "(7)", "-7.5"),
    ),
    (
        "number",
        SHARE,
        "0.5",
        ("0.5", ".5", "1/2", "\u00bd", "50%", "50 %", "50 percent", "50\\%", "5e-1", "5 x 10^-1", "\\frac{1}{2}"),
        ("50", "0.05", "5%", "1", "1/2/2", "half", "2/1"),
    ),
    ("number", "", "5", ("5 apples", "5 years", "five pears", "5, not 6"),
     ("5 hundred", "5 dozen", "5 less", "5 or 6", "5, not 5", "5 of 6", "5th", "6 apples", "5 apples 6", "(-5)",
      "not 5")),
    ("number", "", "-3", ("(-3)", "-3", "-3, and not 3", "-3^\\circ"), ("(3)", "3", "(-3) - 1", "3, not -3")),
    ("number", "What percentage is red?", "50", ("50", "50%", "50 percent"), ("5%", "500")),
    ("number", SHARE, "50%", ("50%", "50", "50 %", "50\\%"), ("0.05", "5", "500%")),
    ("number", "What is it?", "100", ("100", "10^2", "10**2", "10^{2}", "1e2", "1.0E2"), ("102", "10^3", "10^-2")),
    (
        "choice",
        CITY,
        "B",
        (
            "B", "b", "(B)", "[b]", "B.", "B)", "B:", "B) Rome", "B. Rome", "B: Rome", "(B) Rome.", "**B**",
            "\\boxed{B}",
            "option B", "The answer is B", "Answer: (b)", "The correct answer is B.", "`B`",
        ),
        (
            "", "A", "C", "A or B", "B or C", "A) or B)", "(A) and (B)", "B and C", "B, C", "B/C", "B. C", "B: C",
            "(B) C",
            "B) C", "A) Oslo B) Rome", "AB", "Rome or B", "not B", "1", "\u0412",
            "B) or c)", "B) Rome. Final answer: C", "B. Actually C",
        ),
    ),
    ("choice", CITY, "B", ("la B", "der B.", "The B"), ("la A", "the", "die A oder B")),
    ("choice", CITY, "D", ("D", "D) A", "(D) A", "D. A"), ("A", "A) D", "D) B", "B) A")),
    ("choice", CITY, "C", ("C) Vitamin D", "C. Vitamin D."), ("D) Vitamin C", "A) Oslo")),
    ("exact", "Who?", "Eva", ("Eva", "eva", " EVA. ", '"Eva"', "$Eva$", "\\boxed{Eva}"), ("", "Ev a", "not Eva")),
]  # fmt: skip


@pytest.mark.parametrize(("grader", "question", "answer", "right", "wrong"), CORPUS)
def test_no_answer_is_graded_wrongly(
    grader: Grader, question: str, answer: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    task = Task("t", question, answer, grader)
    said = [*right, *wrong]
    verdicts = dict(zip(said, grade_many([Grade(task, one) for one in said]), strict=True))
    falsely_right = [one for one in wrong if verdicts[one]]
    falsely_wrong = [one for one in right if not verdicts[one]]
    assert (falsely_right, falsely_wrong) == ([], [])


OSLO = "Which one?\nA) Rome\nB) Paris\nC) Oslo\nD) Bern"
LETTERS: list[tuple[str, tuple[str, ...]]] = [
    (
        "B",
        (
            "B \u2014 a safe choice", "B, the capital of France", "B: it fits all the clues", "Option (B)",
            "(B) is correct", "B is the correct answer", "The correct option is B because it is in France",
            "B (Paris)", "B - Paris", "\\boxed{\\textbf{(B)}}", "<B>", "choice B",
            "the second one is wrong, so B", "\uff22", "#### B", "B) Paris, because it lies on the Seine",
        ),
    ),
    (
        "C",
        (
            "Oslo (C)", "Oslo [C]", "A and B are wrong, so C", "A and B are wrong, so C.", "C. Oslo",
            "A, B and D are ruled out, leaving C", "Since A and B are false, C",
            "It is C, as neither A nor B holds", "neither A nor B, so C",
        ),
    ),
    ("D", ("D, not B", "**D**", "\\text{D}", "d.", "not B, the answer is D")),
]  # fmt: skip
NO_LETTER = (
    "Oslo (B) or (C)", "A or B", "A and B", "B, C", "not B", "neither A nor B", "A and B are wrong", "B - or C", "B?",
    "A and B are wrong, so C or D", "B \u2014 or maybe C", "B, but C is possible", "maybe B", "B (not sure)",
    "It could be B", "(B) or (C)", "B is wrong", "B is incorrect", "A, B and D are ruled out", "all but C",
    "everything except C", "not sure, B", "B and D, so both", "either B or D", "B is not correct",
    "C is wrong so B or D", "between B and C", "B if x > 0, else C", "B; C", "B/C", "Not Oslo (C)", "C unless B",
    "(C) and (D)", "None of them (B is close)",
)  # fmt: skip


@pytest.mark.parametrize("question", [OSLO, ""])
def test_a_letter_is_taken_where_it_stands_for_one_choice(question: str) -> None:
    for letter, texts in LETTERS:
        assert [one for one in texts if read_choice(one, question) != letter] == []
    assert [one for one in NO_LETTER if read_choice(one, question)] == []


def test_an_options_whole_text_is_its_letter_and_another_ones_is_a_contradiction() -> None:
    same = ("Oslo", "oslo.", "the answer is Oslo", "**Oslo**", "C, Oslo", "Oslo (C)")
    assert [one for one in same if read_choice(one, OSLO) != "C"] == []
    other = (
        "Oslo (B)", "B - Oslo", "B) Oslo", "B (Oslo)", "Rome or B", "not Oslo", "Oslo and Paris", "B, Oslo",
    )  # fmt: skip
    assert [one for one in other if read_choice(one, OSLO)] == []
