"""How the answers to a task are judged, by name."""

from __future__ import annotations

import re
from typing import Literal, NewType, TypeGuard, get_args

#: How answers are judged. `code`: a value of Python; `program`: a program that passes tests; `open`: the answer is a
#: whole reply to somebody, which nothing here can judge. `judge`: the same, which the judge of the pool rates from 1 to
#: 10; the task's `answer` is a reference for it, or NO_REFERENCE.
#: `recorded`: whether it is right stands in the outcome table that the task comes from, whose `answer` is the JSON list
#: of the right replies' names.
FixedGrader = Literal["exact", "number", "choice", "math", "code", "program", "open", "judge", "recorded"]
#: `python:FILE.py:FUNCTION`: a function of the user's own, in a file beside the task file.
OwnGrader = NewType("OwnGrader", str)
Grader = FixedGrader | OwnGrader

#: Graders of tasks whose answer is a whole reply to somebody.
WHOLE_REPLIES = ("open", "judge")
#: The answer of a task that a judge rates without a reference.
NO_REFERENCE = "(a judge rates the reply)"

_OWN_GRADER = re.compile(r"python:(?P<file>[^\n]{1,200}\.py):(?P<function>[A-Za-z_]\w{0,79})", re.ASCII)


def own_grader(grader: str) -> tuple[str, str] | None:
    """File and function of a grader of the user's own; None for any other."""
    found = _OWN_GRADER.fullmatch(grader)
    return (found["file"], found["function"]) if found else None


def is_grader(name: str) -> TypeGuard[Grader]:
    """Whether there can be a grader of this name."""
    return name in get_args(FixedGrader) or own_grader(name) is not None
