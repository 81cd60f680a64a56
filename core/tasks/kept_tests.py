"""The tests of programs that are too long for the line of a task: each list in a file of its own, named by its digest,
beside the task file in the data folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.errors import TaskError
from core.settings import data_folder

#: The folder of the task sets that were added, below the data folder.
TASK_SETS = "tasks"
#: The end of the folder of a set's kept tests, and the beginning of the words that stand for such tests.
TESTS_END, KEPT = ".tests", "sha256:"
_NAME = re.compile(rf"{KEPT}(?P<digest>[0-9a-f]{{64}})")


def is_kept(name: str) -> bool:
    """Whether a text is a name that `keep_tests` gave."""
    return _NAME.fullmatch(name) is not None


def keep_tests(tests: list[Any], folder: Path) -> str:
    """Write a list of tests into a folder; the name that stands for it. OSError where that cannot be done."""
    content = json.dumps(tests, ensure_ascii=False).encode()
    digest = hashlib.sha256(content).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    # Without a time in it the same tests make the same file.
    (folder / f"{digest}.json.gz").write_bytes(gzip.compress(content, 1, mtime=0))
    return KEPT + digest


def kept_file(name: str) -> Path:
    """The file of the tests that a name stands for. TaskError where it is not in the data folder."""
    found = _NAME.fullmatch(name)
    digest = found["digest"] if found else ""
    path = next((data_folder() / TASK_SETS).glob(f"*{TESTS_END}/{digest}.json.gz"), None) if found else None
    if path is None:
        raise TaskError(
            f"The tests {name[:20]} of this task are not on this machine: add its set by trinity tasks add."
        )
    return path


@lru_cache(maxsize=4)
def kept_tests(name: str, content: bytes | None = None) -> Any:
    """The list of tests that a name stands for, from the `content` of its file where that is on another machine.
    TaskError where it is not in the data folder, or is another."""
    path = kept_file(name) if content is None else Path(name.removeprefix(KEPT))
    try:
        tests = gzip.decompress(path.read_bytes() if content is None else content)
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"The tests in {path} cannot be read ({error}): add their set again.") from None
    if hashlib.sha256(tests).hexdigest() != name.removeprefix(KEPT):
        raise TaskError(f"The tests in {path} have changed: add their set again.")
    return json.loads(tests)
