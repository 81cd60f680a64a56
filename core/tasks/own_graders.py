"""Graders of the user's own, `python:FILE.py:FUNCTION`: the function is found beside the task file and called in a
process of its own, with a time limit.

The function takes what was said and the expected answer, and the question if it takes a third: all texts; it answers
with a bool. It is trusted code, with this process's environment. What it raises, or anything else that it answers, is
no verdict: the episode is missing. A change of its file, though not of what that imports, makes other tasks.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from core.episode import Failure
from core.grader import own_grader
from core.tasks.background import LineChild

#: Seconds that one answer may take, and that importing the file may take.
LIMIT_S, START_S = 30.0, 120.0
_WORKER = Path(__file__).with_name("own_grader_worker.py")


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function in a file, whose content the digest tells."""

    file: Path
    name: str
    digest: str

    def grade(self, said: str, expected: str, question: str) -> bool | Failure:
        """Whether the function takes what was said for right, or why it does not say."""
        child = _child_of(self)
        greeting = child.begin().decode()
        if greeting != "ready":
            child.end()
            return self._no_verdict(greeting or "its file cannot be imported")
        answer = child.ask(json.dumps([said, expected, question]).encode(), LIMIT_S).decode()
        if answer in ("true", "false"):
            return answer == "true"
        return self._no_verdict(answer or f"it ended its process, or took longer than {LIMIT_S:.0f} s")

    def _no_verdict(self, why: str) -> Failure:
        return Failure(
            "infrastructure", f"The grader {self.name} in {self.file.name} gave no verdict: {why}."
        )


def find_function(grader: str, folder: Path) -> OwnFunction:
    """The function that a task names, its file sought from the task file's folder. ValueError, half a sentence, when it
    is not there; nothing of it is run."""
    found = own_grader(grader)
    assert found is not None
    file, name = (folder / found[0]).resolve(), found[1]
    try:
        content = file.read_bytes()
        names = {one for node in ast.parse(content).body for one in _defined(node)}
    except OSError as error:
        raise ValueError(
            f"names the grader file {found[0]}, which cannot be read ({error.strerror})"
        ) from None
    except (SyntaxError, ValueError):
        raise ValueError(f"names the grader file {found[0]}, which is not Python") from None
    if name not in names:
        raise ValueError(f"names the grader '{name}', and {found[0]} defines no such function")
    return OwnFunction(file, name, hashlib.sha256(content).hexdigest())


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement of a module may give to a function."""
    match node:
        case ast.FunctionDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [one.asname or one.name for one in names]
        case ast.Assign(targets=targets):
            return [one.id for one in targets if isinstance(one, ast.Name)]
    return []


_LOCAL = threading.local()


def _child_of(function: OwnFunction) -> LineChild:
    children: dict[OwnFunction, LineChild] = _LOCAL.__dict__.setdefault("children", {})
    if function not in children:
        command = [sys.executable, str(_WORKER), str(function.file), function.name, function.digest]
        children[function] = LineChild(command, START_S, env=os.environ, cwd=function.file.parent)
    return children[function]
