"""Is this answer right? Exact text, numbers, mathematics, choices and Python values, without asking any model.

What takes longer, programs and functions of the user's own, is in `core.tasks.grading`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from core.episode import Grade
from core.errors import TaskError
from core.tasks.choices import read_choice
from core.tasks.mathematics import same_mathematics
from core.tasks.numbers import same_number
from core.tasks.sandbox import evaluate_many, syntax_of

_LONGEST = 400  # characters of an answer that are worth parsing

_VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.USub, ast.UAdd,
    ast.Load,
)  # fmt: skip


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
            return same_number(given, right, grade.task.question)
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


def _is_literal(text: str) -> bool:
    """Is this a value and not a sum to do? Repeating the question's own expression is no answer to it."""
    tree = syntax_of(text) if len(text) <= _LONGEST else None
    return tree is not None and all(isinstance(node, _VALUES) for node in ast.walk(tree))
