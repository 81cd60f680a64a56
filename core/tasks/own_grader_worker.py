"""Calls a grader of the user's own, in a process that `core.tasks.own_graders` starts; standard library only.

One JSON list (said, expected, question) per line in; `true`, `false` or half a sentence per line out.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def _function(file: Path, name: str, digest: str) -> Callable[..., Any]:
    """The function of a file with this content, which is given the question where it takes a third text."""
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ImportError("its file has changed since the run began")
    sys.path[0] = str(file.parent)
    module = sys.modules[file.stem] = ModuleType(file.stem)
    module.__file__ = str(file)
    exec(compile(content, file, "exec"), module.__dict__)
    function: Callable[..., Any] = getattr(module, name)
    signature = inspect.signature(function)
    try:
        signature.bind("said", "expected", "question")
    except TypeError:
        signature.bind("said", "expected")
        return lambda said, expected, _: function(said, expected)
    return function


def _verdict(function: Callable[..., Any], line: str) -> str:
    found = function(*json.loads(line))
    if isinstance(found, bool):
        return json.dumps(found)
    return f"it answers with {type(found).__name__} and not with True or False"


def _raised(error: BaseException) -> str:
    return f"it raises {type(error).__name__} ({' '.join(str(error).split())[:200]})"


def _listen(requests: queue.SimpleQueue[str]) -> None:
    """Pass requests on, and end at once when the asking process is gone, even in the middle of a call."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def main() -> None:
    """Say `ready`, or why not; then answer line by line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a function prints is no answer
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[requests], daemon=True).start()
    try:
        function = _function(Path(sys.argv[1]), *sys.argv[2:4])
    except BaseException as error:
        print(_raised(error), file=answers, flush=True)
        return
    print("ready", file=answers, flush=True)
    while True:
        line = requests.get()
        try:
            said = _verdict(function, line)
        except BaseException as error:  # also what ends a process, as `sys.exit` does
            said = _raised(error)
        print(said, file=answers, flush=True)


if __name__ == "__main__":
    main()
