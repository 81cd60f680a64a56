"""Whether a program passes its tests: they are run in a sandbox, and what comes out is compared here.

Tests in `unittest` are the exception: they know what is right and stand beside the program in the sandbox, where one
that looks for them finds it. They are counted here, so that none can be left out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from core.play.python_code import chosen_program
from core.tasks.bubblewrap import USUAL, WITH_LIBRARIES, Limits, check_libraries, outputs
from core.tasks.kept_tests import is_kept, kept_tests
from core.tasks.program_runner import encoded

#: Numbers with a decimal point count as equal within this difference, relative to the larger one, or near 0.
_RELATIVE, _NEAR_ZERO = 1e-6, 1e-9
#: Bytes of all tests of one task: where they stand in its line, and where they are kept in a file of their own.
_LONGEST, LONGEST_KEPT = 16 << 20, 64 << 20
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_FORMS = (
    'write each as {"input": "3 4\\n", "output": "7\\n"} or "assert add(3, 4) == 7", with a literal on the right, or '
    'as {"call": "add", "arguments": [3, 4], "value": 7} or {"unittest": "class ...", "calls": "add"}'
)
#: What is called with arguments: `add`, `Solution().add`.
_CALLED = re.compile(r"[A-Za-z_]\w*(?:\(\))?(?:\.[A-Za-z_]\w*)?", re.ASCII)
#: Types that are written as a call of a literal.
_BUILT = {"set": set, "frozenset": frozenset, "tuple": tuple, "list": list, "dict": dict}


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """One test: what goes into the sandbox, and what has to come out, which never does."""

    given: dict[
        str, str
    ]  # {"input": text}, {"call": expression, perhaps "arguments": JSON} or {"unittest": code}
    expected: Any  # a text, a value as `encoded` has it, or how many tests there are at least in the code
    calls: str = ""  # what it needs of the program, as an expression

    def is_passed(self, said: str | None) -> bool:
        if said is None:
            return False
        if "input" in self.given:
            return _same_text(said, self.expected)
        try:
            value = json.loads(said)
        except (ValueError, RecursionError):
            return False
        if "unittest" in self.given:
            return isinstance(value, list) and len(value) == 2 and value[0] >= self.expected and not value[1]
        if "arguments" in self.given and isinstance(value, dict) and value.keys() == {"tuple"}:
            value = value["tuple"]  # which JSON cannot tell from a list
        return _same_value(value, self.expected)


@dataclass(frozen=True, slots=True)
class ProgramTests:
    """The tests of a task; the code that stands before the program, empty for none; and the installed libraries that
    they may import besides the standard one."""

    each: Sequence[ProgramTest]
    before: str = ""
    libraries: tuple[str, ...] = ()


def passes(program: str, tests: str, limits: Limits = USUAL, *, content: bytes | None = None) -> bool:
    """Whether a program, in code fences or not, passes all of a task's tests; `content`: of the file that they are kept
    in, where that is on another machine. NoSandbox where nothing can be run, or a library is missing; TaskError where
    the tests are kept in a file that is not here.

    Which of several blocks make up the program is settled before anything is run. A program that passes takes as long
    as its tests are many: the clock gives each of them its seconds of CPU."""
    wanted = json.loads(tests)
    found = read_tests(kept_tests(wanted, content) if isinstance(wanted, str) else wanted)
    check_libraries(found.libraries)
    limits = WITH_LIBRARIES if found.libraries else limits
    limits = replace(limits, total_s=max(limits.total_s, float(limits.CPU * len(found.each))))
    code = chosen_program(program, [one.calls for one in found.each if one.calls])
    given = [one.given for one in found.each]
    with closing(outputs(code, given, limits, before=found.before, libraries=bool(found.libraries))) as said:
        return all(one.is_passed(next(said, None)) for one in found.each)


def read_tests(tests: Any) -> ProgramTests:
    """The tests of a task as its line has them. ValueError, half a sentence, for what is no list of tests."""
    if not isinstance(tests, list) or not tests:
        raise ValueError(f"has no list of tests: {_FORMS}")
    if (size := len(json.dumps(tests))) > LONGEST_KEPT:
        raise ValueError(f"has {size:,} bytes of tests, more than {LONGEST_KEPT:,}: leave out the longest")
    first = tests[0]
    if not isinstance(first, dict) or "before" not in first:
        return ProgramTests([_read(one, place) for place, one in enumerate(tests, start=1)])
    match first:
        case {"before": str() as before, **rest} if rest.keys() <= {"libraries"} and len(tests) > 1:
            each = [_read(one, place) for place, one in enumerate(tests[1:], start=2)]
            return ProgramTests(each, _python(before), _names(rest.get("libraries", [])))
    raise ValueError(
        'has code before the program that is not understood: write it as {"before": "import math"}'
    )


def check_tests(tests: Any) -> None:
    """ValueError, half a sentence, for what a task file may not give as the tests of a line."""
    if isinstance(tests, str) and is_kept(tests):
        return
    read_tests(tests)
    if (size := len(json.dumps(tests))) > _LONGEST:
        raise ValueError(f"has {size:,} bytes of tests, more than {_LONGEST:,}: leave out the longest")


def _names(libraries: Any) -> tuple[str, ...]:
    if isinstance(libraries, list) and all(isinstance(one, str) and one.isidentifier() for one in libraries):
        return tuple(libraries)
    raise ValueError('has libraries that are not understood: write them as ["numpy", "pandas"]')


def _python(code: str) -> str:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("has code before the program that is not Python") from None
    return code


def _read(test: Any, place: int) -> ProgramTest:
    match test:
        case {"unittest": str() as code, "calls": str() as name, **rest} if not rest and name.isidentifier():
            if count := _count_unit_tests(code):
                return ProgramTest({"unittest": code}, count, name)
        case {"call": str() as name, "arguments": list() as values, "value": wanted, **rest} if not rest:
            if _CALLED.fullmatch(name):
                arguments = {"call": name, "arguments": json.dumps(values)}
                return ProgramTest(arguments, encoded(wanted), f"{name}()")
        case {"input": str() as given, "output": str() as expected, **rest} if not rest:
            return ProgramTest({"input": given}, expected)
        case str():
            try:
                call, value = _sides(test)
                expression = ast.unparse(call)
                return ProgramTest({"call": expression}, encoded(_value(value)), expression)
            except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
                pass
    raise ValueError(f"has a test {place} that is not understood: {_FORMS}")


def _count_unit_tests(code: str) -> int:
    """How many methods of the code's own classes are tests by their names; 0 for what is not Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    return sum(
        len(
            {
                one.name
                for one in node.body
                if isinstance(one, ast.FunctionDef) and one.name.startswith("test")
            }
        )
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.bases
    )


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
