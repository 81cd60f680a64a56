"""Is this answer right? Exact text, numbers, mathematics, choices and Python values, without asking any model.

What takes longer, programs and functions of the user's own, is in `core.tasks.grading`.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from itertools import takewhile

from core.episode import Grade
from core.errors import TaskError
from core.tasks.choices import read_choice
from core.tasks.math_text import unit_of
from core.tasks.mathematics import same_mathematics
from core.tasks.sandbox import evaluate_many, syntax_of

#: Two numbers count as equal within this relative difference: room for rounding, none for another answer.
TOLERANCE = Fraction(1, 10**6)

_LONGEST = 400  # characters of an answer that are worth parsing

_VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.USub, ast.UAdd,
    ast.Load,
)  # fmt: skip

#: What may stand before the number: an equation up to its last `=`, or words such as "the final answer is".
_LEAD = re.compile(
    r"(?:.*(?<![!<>~:])=\s*)?"
    r"(?:(?:so|thus|hence|therefore)\b,?\s*)?(?:there\s+(?:is|are)\s+)?"
    r"(?:(?:the|my|our)\s+)?(?:(?:final|correct|right)\s+)?"
    r"(?:(?:answer|result|value|total|sum|number|it)\b\s*(?:is\b|equals\b|[:\-\u2013\u2212](?=\s))?:?\s*)?"
    r"(?:(?:exactly|precisely|just|only)\b\s*)?",
    re.IGNORECASE | re.DOTALL,
)
_CURRENCY = r"(?P<currency>[$\u20ac\u00a3\u00a5]|(?:USD|EUR|GBP)\b)?"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212]?)\s*{_CURRENCY}\s*(?P<inner>[-+\u2212]?)\s*(?:"
    r"(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"  # 1 1/2
    r"|(?P<units>\d*)\s?(?P<vulgar>[\u00bc-\u00be\u2150-\u215e])"  # ½, 1½
    r"|(?P<decimal>(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+|\d+(?:_\d+)*)(?:\.\d*)?|\.\d+)"
    r"(?:[eE](?P<exponent>[-+]?\d{1,3})"
    r"|(?:\s*(?:[x\u00d7*\u00b7]|\\times|\\cdot)\s*(?P<ten>10))?\s*(?:\^|\*\*)\s*\{?(?P<power>[-+\u2212]?\d{1,3})\}?"
    r"|\s*/\s*(?P<divisor>\d+(?:\.\d+)?))?"  # 1e3, 10^2, 3 x 10^4, 3/4
    r")",
    re.ASCII,
)
#: What may stand behind it, in lower case, besides a word of the question.
_UNIT_WORDS = """
    % percent ° °c °f degree degrees celsius fahrenheit kelvin rad radians
    mm cm dm m km in ft yd mi inch inches foot feet yard yards mile miles meter meters metre metres
    kilometer kilometers kilometre kilometres centimeter centimeters centimetre centimetres millimeters millimetres
    mg g kg t lb lbs oz gram grams kilogram kilograms pound pounds ounce ounces ton tons tonne tonnes
    ml cl l liter liters litre litres gallon gallons cup cups
    ms s sec secs min mins h hr hrs second seconds minute minutes hour hours day days week weeks month months year years
    m2 m^2 m² cm2 cm^2 cm² km2 km^2 km² m3 m^3 m³ cm3 cm^3 cm³ km/h mph m/s
    hz khz mhz ghz w kw v a j kj cal kcal n pa kpa mol kb mb gb tb bit bits byte bytes
    people persons times items pieces units
    """
_MONEY = frozenset("$ € £ ¥ usd eur gbp dollar dollars cent cents euro euros pound pounds".split())  # noqa: SIM905
UNITS = _MONEY.union(_UNIT_WORDS.split())
#: Words behind a number that make it another number, or none.
_NO_UNIT_WORDS = """
    hundred thousand million billion trillion dozen dozens score half halves third thirds quarter quarters squared
    cubed factorial or and to not more less than over under about minus plus
    """
_NO_UNITS = frozenset(_NO_UNIT_WORDS.split())

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

#: What a question asks the number of, up to its verb: "how many red apples does ...".
_ASKED_FOR = re.compile(r"\b(?:how many|how much|number of|amount of)((?:\s+[^\W\d_]+)+)")
_VERBS = frozenset("""
    is are was were be been am do does did has have had can could will would shall should may might must
    """.split())  # fmt: skip  # noqa: SIM905
#: Words before an equation that say it does not hold.
_DENIED = re.compile(r"\b(?:not|never|no|isnt|doesnt|cannot|cant)\b", re.IGNORECASE)


def grade_many(grades: Sequence[Grade]) -> list[bool]:
    """One verdict per answer, in order; all Python values of the batch are evaluated in one child process, and
    mathematics is compared in others. TaskError for a grader that is not one of these."""
    verdicts = [_grade(grade) for grade in grades]
    unsure = [index for index, verdict in enumerate(verdicts) if verdict is None]
    maths = [index for index in unsure if grades[index].task.grader == "math"]
    for index, same in zip(
        maths, same_mathematics([(grades[i].answer, grades[i].task.answer) for i in maths]), strict=True
    ):
        verdicts[index] = same
    codes = [index for index in unsure if grades[index].task.grader == "code"]
    values = evaluate_many([text for i in codes for text in (grades[i].answer, grades[i].task.answer)])
    for index, given, right in zip(codes, values[::2], values[1::2], strict=True):
        verdicts[index] = given is not None and given == right
    return [bool(verdict) for verdict in verdicts]


def _grade(grade: Grade) -> bool | None:
    """None: a value that has to be evaluated or compared first."""
    given, right = grade.answer, grade.task.answer
    match grade.task.grader:
        case "exact":
            return normalise_answer(given) == normalise_answer(right)
        case "number":
            return _same_number(given, right, grade.task.question)
        case "choice":
            letter = read_choice(given, grade.task.question)
            return letter is not None and letter == read_choice(right, grade.task.question)
        case "math":
            return True if given.strip() == right.strip() else None
        case "code":
            if given.strip() == right.strip():
                return True
            return None if _is_literal(given) and not given.strip().isdigit() else False
        case "open":  # nobody knows the one right text
            return False
    raise TaskError(f"Task {grade.task.id} can be graded only where its run is played ({grade.task.grader}).")


def normalise_answer(text: str) -> str:
    """Text as `exact` compares it: without case, spacing, wrapping quotes, `$` or \\boxed{} and a final stop."""
    text = " ".join(text.split()).casefold()
    while True:
        bare = text.strip().strip("$\"'`*\u201c\u201d\u2018\u2019").rstrip(".").strip()
        if boxed := re.fullmatch(r"\\boxed\{(.*)\}", bare):
            bare = boxed[1]
        if bare == text:
            return text
        text = bare


def _same_number(given: str, right: str, question: str) -> bool:
    value, expected = read_number(given, question), read_number(right, question)
    if value is None or expected is None:
        return False
    if _in_percent(given) and not _in_percent(right):
        said = [value / 100, value] if _in_percent(question) else [value / 100]
    else:
        said = [value]
    return any(abs(one - expected) <= TOLERANCE * abs(expected) for one in said)


def _in_percent(text: str) -> bool:
    return "%" in text or "percent" in text.casefold()


def read_number(text: str, question: str = "") -> Fraction | None:
    """The number that an answer is: sign, currency, thousands, decimals, exponent, power of ten, fraction, LaTeX.

    Before it may stand an equation up to its last `=`, or words such as "the answer is"; behind it one unit out of
    `UNITS` or what the question asks the number of. None for anything else, such as "not 42", "42 million" or
    "8 - 5"."""
    text = _undressed(text)
    if len(text) > _LONGEST:
        return None
    lead = _LEAD.match(text)
    match = _NUMBER.match(text, lead.end() if lead else 0)
    if not match or _is_denied(text[: match.start()], match):
        return None
    value, unit = _value(match), text[match.end() :].strip(" .").casefold().removesuffix("only").strip()
    scale, _, rest = unit.partition(" ")
    if value is not None and scale.removesuffix("s") in _SCALES:
        value, unit = value * _SCALES[scale.removesuffix("s")], rest
    if match["currency"]:
        return value if unit in ("", *_MONEY) else None  # "$42 m" are millions
    if not unit or unit in _asked_for(question):
        return value
    asked = {unit_of(word) for word in _asked_for(question)} - {""}
    return value if unit in UNITS and (not asked or unit_of(unit) in asked) else None


def _is_denied(before: str, match: re.Match[str]) -> bool:
    """Whether what stands before the number says that it is not the answer: "x is not = 42", "43 = 42"."""
    left, equation, _ = before.rpartition("=")
    number = _NUMBER.fullmatch(left.strip()) if equation else None
    return bool(_DENIED.search(before)) or (number is not None and _value(number) != _value(match))


def _asked_for(question: str) -> set[str]:
    """The words for what the question asks the number of."""
    found: set[str] = set()
    for words in _ASKED_FOR.findall(question.casefold()):
        found.update(takewhile(lambda word: word not in _VERBS, words.split()))
    return found - _NO_UNITS


def _undressed(text: str) -> str:
    """One line without LaTeX, emphasis and quotes."""
    text = re.sub(r"^minus\s+(?=\d)", "-", text.strip().replace("{,}", ","), flags=re.IGNORECASE)
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}", r"\1/\2", text)
    text = re.sub(r"\\(?:text|mathrm|mbox|boxed)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\\[,;! ()\[\]]|\\(?=[$%])|\*\*(?!\d)|(?<!\d)\*\*|[`\"']", "", text)
    if text.count("$") > 1:  # marks of mathematics, not of money
        text = text.replace("$", "")
    return " ".join(text.split())


def _value(match: re.Match[str]) -> Fraction | None:
    signs = match["sign"] + match["inner"]
    if len(signs) > 1:
        return None
    sign = -1 if signs in ("-", "\u2212") else 1
    try:
        if match["whole"]:
            return sign * (int(match["whole"]) + Fraction(int(match["top"]), int(match["bottom"])))
        if match["vulgar"]:
            top, _, bottom = unicodedata.normalize("NFKC", match["vulgar"]).partition("\u2044")
            return sign * (int(match["units"] or 0) + Fraction(int(top), int(bottom)))
        value = Fraction(re.sub(r"[,_\s]", "", match["decimal"]))
        power = int((match["power"] or "0").replace("\u2212", "-"))
        if match["power"] and not match["ten"]:
            value = value**power if abs(power) <= 100 else Fraction(0)
        else:
            value *= Fraction(10) ** (int(match["exponent"] or 0) + power)
        return sign * (value / Fraction(match["divisor"]) if match["divisor"] else value)
    except (ZeroDivisionError, ValueError):
        return None


def _is_literal(text: str) -> bool:
    """Is this a value and not a sum to do? Repeating the question's own expression is no answer to it."""
    tree = syntax_of(text) if len(text) <= _LONGEST else None
    return tree is not None and all(isinstance(node, _VALUES) for node in ast.walk(tree))
