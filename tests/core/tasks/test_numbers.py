"""Numbers as models write them: which are the right one, and which only look like it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.numbers import in_digits, read_number, same_number


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
        ('1200', "1'200"), ('42', '42.\n'), ('7/3', '2 1/3'),
    ],
)  # fmt: skip
def test_the_right_number_is_read_however_it_is_written(right: str, said: str) -> None:
    assert same_number(said, right, "")


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
        ('42', '\u56db\u5341\u4e8c\u4e07'), ('0.42', '42'),
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


@given(st.text(alphabet="zero one two hundred and thousand-,.()0123456789%=", max_size=60))
def test_whatever_is_said_is_read_without_a_fault(text: str) -> None:
    value = read_number(text)
    assert value is None or isinstance(value, Fraction)
