"""Whether a program passes its tests: they are run in a sandbox, and what comes out is compared here."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from core.play.python_code import chosen_program
from core.tasks.bubblewrap import USUAL, Limits, outputs
from core.tasks.program_runner import encoded

#: Numbers with a decimal point count as equal within this difference, relative to the larger one, or near 0.
_RELATIVE, _NEAR_ZERO = 1e-6, 1e-9
#: Bytes of all tests of one task.
_LONGEST = 16 << 20
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_FORMS = 'write each as {"input": "3 4\\n", "output": "7\\n"} or "assert add(3, 4) == 7", with a literal on the right'
#: Types that are written as a call of a literal.
_BUILT = {"set": set, "frozenset": frozenset, "tuple": tuple, "list": list, "dict": dict}


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """One test: what goes into the sandbox, and what has to come out, which never does."""

    given: dict[str, str]  # {"input": text} or {"call": expression}
    expected: Any  # a text, or a value as `encoded` has it

    def is_passed(self, said: str | None) -> bool:
        if said is None:
            return False
        if "input" in self.given:
            return _same_text(said, self.expected)
        try:
            return _same_value(json.loads(said), self.expected)
        except (ValueError, RecursionError):
            return False


def passes(program: str, tests: str, limits: Limits = USUAL) -> bool:
    """Whether a program, in code fences or not, passes all of a task's tests. NoSandbox where nothing can be run.

    Which of several blocks make up the program is settled before anything is run."""
    wanted = read_tests(json.loads(tests))
    calls = [one.given["call"] for one in wanted if "call" in one.given]
    with closing(outputs(chosen_program(program, calls), [one.given for one in wanted], limits)) as said:
        return all(one.is_passed(next(said, None)) for one in wanted)


def read_tests(tests: Any) -> list[ProgramTest]:
    """The tests of a task as its line has them. ValueError, half a sentence, for what is no list of tests."""
    if not isinstance(tests, list) or not tests:
        raise ValueError(f"has no list of tests: {_FORMS}")
    if len(json.dumps(tests)) > _LONGEST:
        raise ValueError(f"has more than {_LONGEST:,} bytes of tests: leave out the longest")
    return [_read(one, place) for place, one in enumerate(tests, start=1)]


def _read(test: Any, place: int) -> ProgramTest:
    match test:
        case {"input": str() as given, "output": str() as expected, **rest} if not rest:
            return ProgramTest({"input": given}, expected)
        case str():
            try:
                call, value = _sides(test)
                return ProgramTest({"call": ast.unparse(call)}, encoded(_value(value)))
            except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
                pass
    raise ValueError(f"has a test {place} that is not understood: {_FORMS}")


def _sides(test: str) -> tuple[ast.expr, ast.expr]:
    """The two sides of `assert CALL == VALUE`."""
    (statement,) = ast.parse(test.strip()).body
    match statement:
        case ast.Assert(test=ast.Compare(ops=[ast.Eq() | ast.Is()], left=left, comparators=[right])):
            return left, right
    raise ValueError


def _value(expected: ast.expr) -> Any:
    match expected:
        case ast.Call(func=ast.Name(id=name), args=[content], keywords=[]) if name in _BUILT:
            return _BUILT[name](_value(content))
    return ast.literal_eval(expected)


def _same_value(given: Any, expected: Any) -> bool:
    """Whether two `encoded` values are equal as Python has it, but for rounding."""
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(_same_value, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(
            _same_value(given[key], expected[key]) for key in given
        )
    if isinstance(given, float) or isinstance(expected, float):
        return isinstance(given, float | int) and isinstance(expected, float | int) and _near(given, expected)
    return bool(given == expected)


def _same_text(given: str, expected: str) -> bool:
    """Whether two outputs have the same words and numbers, line by line; empty lines at the end do not count."""
    lines, wanted = ([line.split() for line in text.rstrip().split("\n")] for text in (given, expected))
    return len(lines) == len(wanted) and all(map(_same_line, lines, wanted))


def _same_line(given: Sequence[str], expected: Sequence[str]) -> bool:
    return len(given) == len(expected) and all(map(_same_word, given, expected))


def _same_word(given: str, expected: str) -> bool:
    if given == expected:
        return True
    decimal = any(mark in given + expected for mark in ".eE")
    return bool(
        decimal
        and _DECIMAL.fullmatch(given)
        and _DECIMAL.fullmatch(expected)
        and _near(float(given), float(expected))
    )


def _near(given: float, expected: float) -> bool:
    try:
        if math.isnan(given) and math.isnan(expected):
            return True
        return math.isclose(given, expected, rel_tol=_RELATIVE, abs_tol=_NEAR_ZERO)
    except OverflowError:  # of an integer beyond all floats
        return False
