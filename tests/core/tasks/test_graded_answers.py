"""Answers as models write them, graded by hand: how many the graders take for right or wrong when they are not."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Grade, Task
from core.grader import Grader
from core.tasks.choices import read_choice
from core.tasks.graders import grade_many, normalise_answer
from core.tasks.numbers import in_digits, read_number, same_number

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
    ("exact", "Who?", "Eva", ("Eva", "eva", " EVA. ", '"Eva"', "$Eva$", "\\boxed{Eva}"),
     ("", "Ev a", "not Eva", "Eva Ann", "\u0415va")),
    ("choice", "", "B", ("B) (a + b)", "B) f(x)", "B) x", "B) Vitamin C.", "B: Oslo", "(b) Oslo"),
     ("A cat", "AB", "", "Oslo", "\u0410", "A. or B.", "A), B)")),
    ("choice", "", "A", ("A) Oslo (A)",), ("(A) and (C)", "A) Oslo B) Rome")),
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


# Numbers: which are the right one, and which only look like it


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ('72', '72, in total, so the farmer earns that much'), ('3', 'three'), ('25', '25%'), ('0.25', '25%'),
        ('25%', '25%'), ('25%', '25'), ('-7', '\u20137'), ('-7', '\u22127'), ('-7', '\uff0d7'),
        ('70000', '70k'), ('70000', '$70k'), ('0.5', '\\frac12'), ('1/2', '\\frac12'), ('42', '42 (since 6*7)'),
        ('42', '42 (since 6*7 = 42)'), ('42', '\u0664\u0662'), ('42', '\u096a\u0968'), ('42', '\uff14\uff12'),
        ('42', '\u56db\u5341\u4e8c'), ('105', 'one hundred and five'), ('105', '\u4e00\u767e\u96f6\u4e94'),
        ('1234.5', '1.234,5'), ('1.234,5', '1.234,5'), ('1.234,5', '1234.5'), ('3,5', '3,5'), ('3,5', '3.5'),
        ('18', '#### 18'), ('1200', '1 200'), ('1234567', '12,34,567'), ('42', 'forty-two'),
        ('12000', 'twelve thousand'), ('-3', 'minus three'), ('-3', 'negative three'),
        ('2.5', 'two point five'), ('0.25', '\u767e\u5206\u4e4b\u4e8c\u5341\u4e94'), ('30000', '3\u4e07'),
        ('15000', '1.5\u4e07'), ('1005', '\u4e00\u5343\u96f6\u4e94'), ('110000', '\u5341\u4e00\u4e07'),
        ('72', '72 dollars, which is the profit'), ('72', '72. So she earns 72 dollars.'),
        ('42', '\u7b54\u6848\u662f42'), ('42', '42 because 43 - 1 = 42'), ('100', 'a hundred'),
        ('1000000', 'one million'), ('1900', 'nineteen hundred'), ('42', '42, as 6*7 is that'), ('5', '**5**'),
        ('1500000', '1.5M'), ('1000000', '1000000.0'), ('1/3', '0.333333'), ('0.333333', '1/3'),
        ('3.14159', '3.141590'), ('1234567.89', '1,234,567.89'), ('6.02e23', '6.02 x 10^23'),
        ('25', '25%, as the question asks'), ('5', '5 (five)'), ('2\\frac{1}{3}', '7/3'), ('0.5', '$0.50'),
        ('1000000', '1e6'), ('1200', "1'200"), ('42', '42.\n'), ('7/3', '2 1/3'),
    ],
)  # fmt: skip
def test_the_right_number_is_read_however_it_is_written(right: str, said: str) -> None:
    assert same_number(said, right, "")


@pytest.mark.parametrize(
    ("question", "said", "same"),
    [
        ("What is her average speed?", "10 miles per hour", True),
        ("How many miles per hour does she drive?", "10 miles/hour", True),
        ("How many miles does she drive?", "10 miles per hour", False),
        ("What is the volume of the box?", "10 cubic inches", True),
        ("How many square feet is the room?", "10 square feet", True),
        ("How many feet is the room long?", "10 square inches", False),
        ("What is her average speed?", "10 miles per hour per day", False),
        ("What is her average speed?", "10 per hour", False),
        ("What is her average speed?", "10 miles per dozen", False),
    ],
)
def test_rates_areas_and_volumes_are_units_where_they_are_asked_for(
    question: str, said: str, same: bool
) -> None:
    assert same_number(said, "10", question) is same


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ('72', 'It is not 72'), ('72', '72, -72'), ('72', '72, so -72'), ('5', 'between 5 and 7'),
        ('12', '12 or 13'), ('3', 'three of the 12'), ('12', 'three of the 12'), ('72', '72, not sure'),
        ('72', '72, but 73 is also possible'), ('43', '42, 43'), ('42', '42, 43'), ('42', '42 (or 43)'),
        ('42', '42 (in thousands)'), ('42', '42 thousand'), ('1000000', '1000001'), ('1000000', '1000000.5'),
        ('1/1990', '1/1991'), ('1/1000000', '1/1000001'), ('0.5', 'half'), ('42', 'forty two hundred'),
        ('40', 'forty, two'), ('12', 'twelve or thirteen'), ('1', 'one of them'), ('1', 'no one'),
        ('20', 'twenty twenty'), ('70', '70k'), ('1.5', '1.5k'), ('0.25', '0.25%'), ('3', 'x = 3 or x = -3'),
        ('-3', 'x = 3 or x = -3'), ('-3', 'x = 3 and y = -3'), ('42', '42, if x is positive'),
        ('1234', '1.234,5'), ('1.2345', '1.234,5'), ('1234', '1.234'), ('3', '3,5'), ('35', '3,5'),
        ('42', 'about 42'), ('42', '42 (approx.)'), ('42', '42; 7'), ('42', '42-43'), ('42', '42\u201343'),
        ('2', '\u4e8c\u3007'), ('5', '\u4e94\u516d'), ('10', '\u767e'), ('42', '42 (wrong)'),
        ('42', '42, no wait, 43'), ('42', '42 (43 - 1 = 41)'), ('4', 'four hundred'), ('72', '72 per week'),
        ('100', 'hundred'), ('2', 'two thirds'), ('0.000001', '0.0000012'), ('42', '42 (a third of it)'),
        ('1000000', '999999'), ('0.333333', '0.3334'), ('123456789', '123456788'),
        ('1000000000000', '1000000000001'), ('1/3', '0.3333'), ('2\\frac{1}{3}', '21/3'), ('5', '5 (or 6)'),
        ('5', '5 (6 at most)'), ('1234567.89', '1234567.95'), ('72', 'The answer is not 72, in total'),
        ('72', '72, I guess'), ('12', '12 of 13'), ('50%', '0.5%'), ('3', 'one in three'),
        ('300', 'three hundred thousand'), ('3', '3, 4 and 5'), ('2', 'second'), ('18', '#### 18 or 19'),
        ('42', '\u56db\u5341\u4e8c\u4e07'), ('0.42', '42'), ('0', '0.0000001'),
    ],
)  # fmt: skip
def test_another_number_is_never_the_right_one(right: str, said: str) -> None:
    assert not same_number(said, right, "")


@pytest.mark.parametrize(
    ("right", "question", "said", "same"),
    [
        ("25", "", "25%", True), ("25", "How many apples are red?", "25%", False), ("0.25", "", "25%", True),
        ("0.25", "", "0.25%", False), ("0.25", "What percentage is it?", "25%", True), ("25%", "", "25", True),
        ("25%", "", "0.25%", False), ("1", "", "1%", False), ("1", "", "100%", True),
    ],
)  # fmt: skip
def test_what_per_cent_means_the_right_answer_says(right: str, question: str, said: str, same: bool) -> None:
    assert same_number(said, right, question) == same


@given(st.integers(-(10**18), 10**18), st.integers(1, 10**6))
def test_exact_numbers_are_the_same_only_where_they_are_equal(value: int, more: int) -> None:
    assert same_number(str(value), f"{value:,}", "")
    assert not same_number(str(value + more), str(value), "")
    assert same_number(f"{value}/7", f"{3 * value}/21", "")
    assert not same_number(f"{value + more}/{10**9}", f"{value}/{10**9}", "")
    for dress in ("{}", "{:,}", "{}.0", " {} km", "${}$", "= {}"):
        assert read_number(dress.format(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-12", -12), ("- 3", -3), ("+4", 4), ("12.50", Fraction(25, 2)), (".5", Fraction(1, 2)),
        ("1,234,567", 1234567), ("1e3", 1000), ("2.5E-1", Fraction(1, 4)), ("-3/4", Fraction(-3, 4)),
        ("1 1/2", Fraction(3, 2)), ("\\dfrac{-1}{2}", Fraction(-1, 2)), ("$12.00", 12), ("50%", 50),
        ("12 apples", None), ("5 + 7 = 12", 12), ("The result - 42", 42), ("The result -42", -42),
        ("The answer is - 3", -3), ("x = - 3", -3), ("Answer: - 3", -3), ("**Answer:** - 3", -3), ("8 - 3/4", None),
        ("1" * 400 + "2", None), ("7" + " " * 400 + "or 8", None), ("7" + " " * 400 + "days", 7),
        ("1 + 1 = 2" + " " * 400 + "days", 2), ("3 or 4", None), ("3,5", None), ("1,2345", None), ("1.2.3", None),
        ("1/0", None), ("1e99999", None), ("", None), ("=", None), ("\u0661\u0662", 12),
    ],
)  # fmt: skip
def test_a_number_is_read_when_it_is_the_only_one(text: str, value: Fraction | int | None) -> None:
    assert read_number(text) == value


_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
)
_WORDS = [*_UNITS.split(), "seventeen", "eighteen", "nineteen"]
_TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(value: int) -> str:
    if value < 20:
        return _WORDS[value]
    if value < 100:
        return _TENS[value // 10] + (f"-{_WORDS[value % 10]}" if value % 10 else "")
    name, size = next(
        one for one in (("million", 10**6), ("thousand", 10**3), ("hundred", 100)) if value >= one[1]
    )
    rest = value % size
    joined = " and " if rest < 100 else " "
    return f"{in_words(value // size)} {name}" + (f"{joined}{in_words(rest)}" if rest else "")


def in_chinese(value: int) -> str:
    if value >= 10**4:
        rest = value % 10**4
        gap = "\u96f6" if rest < 1000 else ""
        return in_chinese(value // 10**4) + "\u4e07" + (gap + in_chinese(rest) if rest else "")
    digits = "\u96f6\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d"
    for sign, size in (("\u5343", 1000), ("\u767e", 100), ("\u5341", 10)):
        if value >= size:
            rest = value % size
            gap = "\u96f6" if 0 < rest < size // 10 else ""
            return digits[value // size] + sign + gap + (in_chinese(rest) if rest else "")
    return digits[value]


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**8 - 1))
def test_number_words_are_read_as_they_are_built(english: int, chinese: int) -> None:
    assert read_number(in_words(english)) == english
    assert in_digits(in_chinese(chinese)) == str(chinese)


@given(st.text() | st.text(alphabet="zero one two hundred and thousand-,.()0123456789%=", max_size=60))
def test_whatever_is_said_is_read_without_a_fault(text: str) -> None:
    value = read_number(text)
    assert value is None or isinstance(value, Fraction)
    read_choice(text)
    assert normalise_answer(normalise_answer(text)) == normalise_answer(text)
