"""Is this answer right? Exact text, numbers, multiple choice and Python values, without asking any model."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from fractions import Fraction

from core.episode import Grade
from core.tasks.sandbox import evaluate_many, syntax_of

#: Two numbers count as equal within this relative difference: room for rounding, none for another answer.
TOLERANCE = Fraction(1, 10**6)

_LONGEST = 400  # characters of an answer that are worth parsing

_VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.USub, ast.UAdd,
    ast.Load,
)  # fmt: skip

_NUMBER = re.compile(
    r"(?P<sign>[-+\u2212]?)\s*(?:"
    r"(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"  # 1 1/2
    r"|(?P<decimal>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d+)*)(?:\.\d+)?|\.\d+)(?:[eE](?P<exponent>[-+]?\d{1,3})(?!\d))?"
    r"(?:\s*/\s*(?P<divisor>\d+(?:\.\d+)?))?"  # 3/4
    r")",
    re.ASCII,
)

#: A minus apart from its number is a dash behind a word ("The result - 42"), but not behind "is" or a mark.
_DASH = re.compile(r"(?<=\S)(?<![:=*$(])(?<!\bis)\s+[-\u2212]\s+")

#: Another choice behind the first: `B)`, `(B)`, `or B`.
_ANOTHER = re.compile(
    r"(?<![\w(\[])[(\[]?([A-Za-z])[)\]]|^\s*(?:or|and|[,/&;])\s*[(\[]?([A-Za-z])(?:[).:\]]|\s*$)"
)


def grade_many(grades: Sequence[Grade]) -> list[bool]:
    """One verdict per answer, in order; all Python values of the batch are evaluated in one child process."""
    verdicts = [_grade(grade) for grade in grades]
    codes = [index for index, verdict in enumerate(verdicts) if verdict is None]
    values = evaluate_many([text for i in codes for text in (grades[i].answer, grades[i].task.answer)])
    for index, given, right in zip(codes, values[::2], values[1::2], strict=True):
        verdicts[index] = given is not None and given == right
    return [bool(verdict) for verdict in verdicts]


def _grade(grade: Grade) -> bool | None:
    """None: a value that has to be evaluated first."""
    given, right = grade.answer, grade.task.answer
    match grade.task.grader:
        case "exact":
            return normalise_answer(given) == normalise_answer(right)
        case "number":
            value, expected = read_number(given), read_number(right)
            if value is None or expected is None:
                return False
            return abs(value - expected) <= TOLERANCE * abs(expected)
        case "choice":
            letter = read_choice(given)
            return letter is not None and letter == read_choice(right)
        case "code":
            if given.strip() == right.strip():
                return True
            return None if _is_literal(given) and not given.strip().isdigit() else False


def normalise_answer(text: str) -> str:
    """Text as `exact` compares it: without case, spacing, wrapping quotes, `$` or \\boxed{} and a final stop."""
    text = " ".join(text.split()).casefold()
    while True:
        bare = text.strip().strip("$\"'`*").rstrip(".").strip()
        if boxed := re.fullmatch(r"\\boxed\{(.*)\}", bare):
            bare = boxed[1]
        if bare == text:
            return text
        text = bare


def read_number(text: str) -> Fraction | None:
    """The one number in an answer: sign, thousands, decimals, exponent, fraction, LaTeX; units are ignored.

    After the last `=` where there is one. None when there is no number, or more than one."""
    text = text.rpartition("=")[2]
    text, rest = text[:_LONGEST], text[_LONGEST:]
    if re.search("[0-9]", rest):
        return None
    text = re.sub(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}", r"\1/\2", text)
    text = _DASH.sub("; ", text)
    found = list(_NUMBER.finditer(text))
    if len(found) != 1:
        return None
    return _value(found[0])


def _value(match: re.Match[str]) -> Fraction | None:
    sign = -1 if match["sign"] in ("-", "\u2212") else 1
    try:
        if match["whole"]:
            return sign * (int(match["whole"]) + Fraction(int(match["top"]), int(match["bottom"])))
        plain = re.sub(r"[,_]", "", match["decimal"])
        value = Fraction(plain) * Fraction(10) ** int(match["exponent"] or 0)
        return sign * (value / Fraction(match["divisor"]) if match["divisor"] else value)
    except ZeroDivisionError:
        return None


def read_choice(text: str) -> str | None:
    """The letter chosen, upper case: `B`, `(B)`, `B.`, `B) Oslo`, `answer: B`; None when it is not plain."""
    text = re.sub(r"[*_`$\"'\\{}]|boxed", "", text).strip()
    text = re.sub(
        r"^(?:(?:the )?(?:correct |right |final )?(?:answer|option|choice)(?: is)?:? *)+",
        "",
        text,
        flags=re.I,
    )
    match = re.fullmatch(
        r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])(?:[).:]|$))(?P<rest>(?:\s.*)?)\.?", text, re.DOTALL
    )
    if not match:
        return None
    letter = match[1] or match[2] or match[3]
    named = {one or other for one, other in _ANOTHER.findall(match["rest"])}
    # In another case it is a name in the choice's own text, as in "B) (a + b)".
    return None if any(o != letter and o.isupper() == letter.isupper() for o in named) else letter.upper()


def _is_literal(text: str) -> bool:
    """Is this a value and not a sum to do? Repeating the question's own expression is no answer to it."""
    tree = syntax_of(text) if len(text) <= _LONGEST else None
    return tree is not None and all(isinstance(node, _VALUES) for node in ast.walk(tree))
