"""Lines of task files from the rows of benchmarks of code: the problem as its models are asked, and its tests."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import pickletools
import sys
import zlib
from collections.abc import Sequence
from typing import Any

from core.tasks.bubblewrap import missing_libraries
from core.tasks.programs import LONGEST_KEPT, read_tests
from core.tasks.rows import Row


class LeftOut(Exception):
    """A row that is in order and yet no task here, and why, as words that can be counted."""


# LiveCodeBench

#: What its own graders import before a program: solutions for LeetCode name types without importing them.
_IMPORTED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
_BEFORE = "\n".join(
    [
        *(f"from {name} import *" for name in _IMPORTED),
        *(f"import {name}" for name in _IMPORTED[:-2]),
        "sys.setrecursionlimit(50000)",
    ]
)
#: How a function of a program is found: LeetCode's in a class, others by their names.
_METHOD = "Solution().{name}"


def livecodebench_line(row: Row) -> dict[str, Any]:
    """A problem with its public and private tests, on standard input or of a function."""
    metadata = _loaded(row.text("metadata"), "metadata") if row.has("metadata") else {}
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    starter = str(row.fields.get("starter_code") or "").strip("\n")
    tests = [
        _livecodebench_test(one, name, starter, place)
        for place, one in enumerate([*_public_tests(row), *_private_tests(row)], start=1)
    ]
    if not tests:
        raise ValueError("has no tests")
    if starter:
        how = f"Complete this code, and give all of it:\n\n```python\n{starter}\n```"
    else:
        how = "The program reads the input from standard input and prints the answer to standard output."
    return {
        "question": f"{row.text('question_content')}\n\n{how}",
        "tests": [{"before": _BEFORE}, *tests],
        "grader": "program",
        "family": row.text("difficulty") if row.has("difficulty") else "livecodebench",
        "id": row.text("question_id") if row.has("question_id") else "livecodebench",
        **{
            key: str(row.fields[key])
            for key in ("platform", "contest_date", "question_title")
            if row.has(key)
        },
    }


def _livecodebench_test(test: Any, name: Any, starter: str, place: int) -> dict[str, Any]:
    match test:
        case {"input": str() as given, "output": str() as wanted, "testtype": "stdin"}:
            return {"input": given, "output": wanted}
        case {"input": str() as given, "output": str() as wanted, "testtype": "functional"}:
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError("has tests of a function and no 'func_name' in its metadata")
            call = _METHOD.format(name=name) if "class Solution" in starter else name
            try:
                arguments = [json.loads(line) for line in given.split("\n")]
                return {"call": call, "arguments": arguments, "value": json.loads(wanted)}
            except (ValueError, RecursionError):
                pass
    raise ValueError(f"has a test {place:,} that is not understood")


def _public_tests(row: Row) -> list[Any]:
    return _test_list(_loaded(row.text("public_test_cases"), "public_test_cases"), "public_test_cases")


def _private_tests(row: Row) -> list[Any]:
    """The tests of `private_test_cases`: JSON, or a pickled text of JSON, compressed, in base 64."""
    name = "private_test_cases"
    packed = row.text(name)
    if not packed.startswith("["):
        try:
            unpacked, whole = _unpacked(base64.b64decode(packed, validate=True))
        except (binascii.Error, zlib.error):
            raise ValueError(f"has '{name}' that are neither JSON nor compressed in base 64") from None
        if not whole:
            raise LeftOut(f"more than {LONGEST_KEPT >> 20} MiB of tests")
        packed = pickled_text(unpacked)
    return _test_list(_loaded(packed, name), name)


def _unpacked(data: bytes) -> tuple[bytes, bool]:
    """What was compressed, as far as one task may have tests, and whether that is all of it."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, LONGEST_KEPT)
    return content, stream.eof


#: Of the language of pickles: what makes one text and nothing else. None of it calls or imports anything.
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
_AROUND = ("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP")


def pickled_text(data: bytes) -> str:
    """The one text that a pickle holds, read without running it. ValueError, half a sentence, for any other pickle."""
    found = list[str]()
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _TEXTS:
                found.append(str(argument))
            elif operation.name not in _AROUND:
                raise ValueError(f"has a pickle that does more than hold a text ({operation.name})")
    except (ValueError, IndexError, UnicodeError) as error:
        if "does more" in str(error):
            raise
        found = []
    if len(found) != 1:
        raise ValueError("has a pickle that is not one text")
    return found[0]


def _loaded(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"has '{name}' that are not valid JSON") from None


def _test_list(tests: Any, name: str) -> list[Any]:
    if not isinstance(tests, list):
        raise ValueError(f"has '{name}' that are no list")
    return tests


# Functions with tests beside them: BigCodeBench, HumanEval, MBPP


def bigcodebench_line(row: Row) -> dict[str, Any]:
    """A problem as it is put to models that are instructed, with its unit tests. LeftOut for one that needs libraries
    that the sandbox cannot import."""
    begin, tests = row.text("code_prompt", "complete_prompt"), row.text("test")
    libraries = sorted(_imported_libraries(begin) | _imported_libraries(tests))
    if missing := missing_libraries(tuple(libraries)):
        raise LeftOut(f"needs {missing[0]}, which the sandbox cannot import here")
    return {
        "question": row.text("instruct_prompt", "complete_prompt"),
        # As in its own evaluation, a program may rely on what the prompt imports and defines.
        "tests": [
            {
                "before": f"import os, sys\nfrom os import environ\n{begin}\n    pass\n",
                "libraries": libraries,
            },
            {"unittest": tests, "calls": row.text("entry_point")},
        ],
        "grader": "program",
        "family": "bigcodebench",
        "id": row.text("task_id"),
        "libraries": " ".join(libraries) or "none",
    }


def _imported_libraries(code: str) -> set[str]:
    """The libraries beside the standard one that a code imports. A prompt may end in a signature without a body."""
    tree = None
    for text in (code, f"{code}\n    pass\n"):
        try:
            tree = ast.parse(text)
            break
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    if tree is None:
        raise ValueError("has code that is not Python")
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names)


def humaneval_line(row: Row) -> dict[str, Any]:
    """A function to be completed; its own `check` is run as one unit test."""
    prompt, name = row.text("prompt"), row.text("entry_point")
    if not name.isidentifier():
        raise ValueError(f"has an entry_point that is no name: '{name[:60]}'")
    return {
        "question": f"Complete this function, and give all of it:\n\n```python\n{prompt}\n```",
        "tests": [
            {"before": f"{prompt}\n    pass\n"},
            {"unittest": _as_unit_test([f"check({name})"], row.text("test")), "calls": name},
        ],
        "grader": "program",
        "family": "humaneval",
        "id": row.text("task_id"),
    }


def mbpp_line(row: Row) -> dict[str, Any]:
    """A function by its description and its tests, which its models are shown."""
    asserts = row.fields.get("test_list")
    if not isinstance(asserts, list) or not asserts or not all(isinstance(one, str) for one in asserts):
        raise ValueError("needs a list of texts for 'test_list'")
    imports = row.fields.get("test_imports")
    before = "\n".join(map(str, imports)) if isinstance(imports, list) else ""
    before = str(row.fields.get("test_setup_code") or before).strip()
    hidden = row.fields.get("challenge_test_list")
    tests = [*asserts, *(map(str, hidden) if isinstance(hidden, list) else ())]
    shown = "\n".join(asserts)
    return {
        "question": f"{row.text('text', 'prompt')}\n\nThe function has to pass these tests:\n\n```python\n{shown}\n```",
        "tests": [*([{"before": before}] if before else []), *_assertions(tests, row.text("code"))],
        "grader": "program",
        "family": "mbpp",
        "id": f"mbpp-{row.text('task_id')}",
    }


def _assertions(tests: Sequence[str], solution: str) -> list[Any]:
    """Assertions as tests whose values stay outside the sandbox, where all of them are of a call and a literal; else
    as unit tests of the function that the first of them names."""
    try:
        read_tests([*tests])
        return [*tests]
    except ValueError:
        pass
    try:
        defined = [node.name for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("has code that is not Python") from None
    called = next((name for name in defined if f"{name}(" in tests[0]), None)
    if called is None:
        raise ValueError("has tests of a function that its code does not define")
    return [{"unittest": _as_unit_test(tests), "calls": called}]


def _as_unit_test(statements: Sequence[str], before: str = "") -> str:
    body = "\n".join(f"        {line}" for one in statements for line in one.strip().splitlines())
    return f"import unittest\n{before}\n\nclass Tests(unittest.TestCase):\n    def test_all(self):\n{body}\n"
