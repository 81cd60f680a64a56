"""Task sets by name: the pocket families, the tasks of an outcome table, published benchmarks that were added, and a
user's own tasks in a JSON Lines file.

One task per line: {"question": ..., "answer": ..., "grader": ...}; optional `id`, `family`, `split` and
`answer_pattern`, a regular expression that finds the answer in a reply (its first group, or all of it, where it matches
last) before the usual rules do. A line {"defaults": {...}} gives such fields to all lines after it that lack them.
Without `split`, a line belongs to evolve (60 %), validation (20 %) or test (20 %) by its question's own text, so that
adding lines never moves one. Other fields are ignored.

The tasks of an outcome table are named `outcomes:NAME`. They belong to evolve (50 %), validation (15 %) or test (35 %);
`outcomes:NAME@K`, K from 0 to 4, is the K-th of five folds, in which another third of them is the test split.

Graders:

    exact, number, choice, math
        The answer is a text, a number, a letter, an expression in LaTeX.
    program
        The answer is a Python program of the model's. Instead of `answer` there is `tests`, a list that it has to pass
        whole: {"input": "3 4\\n", "output": "7\\n"} is what it reads and prints; "assert add(3, 4) == 7" calls what it
        defines, with a literal on the right; {"call": "add", "arguments": [3, 4], "value": 7} does so with values of
        JSON. {"unittest": "class Tests(unittest.TestCase): ...", "calls": "add"} is run beside the program, whose tests
        know what is right: a program that looks for it finds it. The first of the list may be {"before": "import math",
        "libraries": ["numpy"]}: code that is run before the program, and what may be imported of that which is
        installed. Programs run in a sandbox (bubblewrap, Linux) with 6 s of CPU and 1 GB of memory for each test, 20 s
        and 4 GB with libraries; decimals may differ by a millionth.
    judge
        The answer is a whole reply, which a model rates from 1 to 10: the one whose entry in pool.toml has judge = true
        (`core.play.judging`). `answer` is a reference that it is shown, and may be left out.
    python:FILE.py:FUNCTION
        A function of one's own in a file beside the task file: it takes what was said, the answer and, if it has a
        third parameter, the question, and returns True or False. It runs with all your rights, and 30 s for an answer.
    recorded
        In outcome tables alone, where a table says which replies are right and not why: the answer is the JSON list of
        their names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from core.episode import Task
from core.errors import TaskError
from core.grader import NO_REFERENCE, FixedGrader, Grader, is_grader, own_grader
from core.pocket import FAMILIES, HELD_OUT_FAMILIES, TRAINED_FAMILIES
from core.pocket.tasks import draw_tasks, normalise_question, split_of
from core.settings import data_folder
from core.tasks.choices import read_choice
from core.tasks.kept_tests import TASK_SETS
from core.tasks.mathematics import math_answer
from core.tasks.numbers import read_number
from core.tasks.own_graders import OwnFunction, find_function
from core.tasks.programs import check_tests
from core.texts import read_text, well_formed

#: Splits of a user's file with the hundredths of the question space that each owns.
FILE_SPLITS: dict[str, range] = {"evolve": range(60), "validation": range(60, 80), "test": range(80, 100)}

#: How the tasks of an outcome table are named, and the folder of all tables below the data folder.
OUTCOMES_PREFIX, OUTCOMES = "outcomes:", "outcomes"
#: Splits of an outcome table, as those of a file.
OUTCOME_SPLITS: dict[str, range] = {"evolve": range(50), "validation": range(50, 65), "test": range(65, 100)}
#: How many ways there are to split an outcome table.
FOLDS = 5

#: What a task file may grade by, besides functions of one's own.
FILE_GRADERS: tuple[FixedGrader, ...] = ("exact", "number", "choice", "math", "program", "judge")
#: What an outcome table may grade by.
TABLE_GRADERS: tuple[FixedGrader, ...] = (*FILE_GRADERS[:-1], "code", "recorded")
GRADER_WORDS = f"{', '.join(FILE_GRADERS)} or python:FILE.py:FUNCTION"

#: What `pocket` and `pocket/NAME` stand for.
POCKET_SETS: dict[str, tuple[str, ...]] = {
    "pocket": TRAINED_FAMILIES,
    "pocket/all": FAMILIES,
    "pocket/held-out": HELD_OUT_FAMILIES,
    **{f"pocket/{family}": (family,) for family in FAMILIES},
}


def load_tasks(spec: str, split: str, n: int | None, seed: int, *, at_most: bool = False) -> list[Task]:
    """`n` tasks of a set, chosen by `seed`; from a file all of the split when `n` is None or larger than it.

    Pocket sets are balanced over their families in every prefix. Raises TaskError for an unknown set or split, for a
    pocket split with fewer questions (all of them with `at_most`) and for a malformed line of a file."""
    if n is not None and n < 1:
        raise TaskError(f"{n} tasks cannot be drawn: ask for at least 1.")
    if spec in POCKET_SETS:
        return _load_pocket(POCKET_SETS[spec], split, n, seed, at_most)
    if spec.startswith(OUTCOMES_PREFIX):
        return _of_split(load_outcome_tasks(spec), Path(spec), split, n, seed)
    return _of_split(load_task_file(spec), Path(spec), split, n, seed)


def load_task_file(spec: str) -> list[Task]:
    """Every task of a set that is a file of one's own, in its order. TaskError for what is none, and as in
    `read_task_file`."""
    if spec.startswith(OUTCOMES_PREFIX):
        return load_outcome_tasks(spec)
    return read_task_file(_own_file(spec))


def outcome_folder(name: str, folder: Path) -> Path:
    """The folder of the outcome table that is named, or `outcomes:NAME` with or without a fold, below the data folder
    `folder`. TaskError where there is none."""
    name = name.removeprefix(OUTCOMES_PREFIX).partition("@")[0]
    known = sorted(path.parent.name for path in (folder / OUTCOMES).glob("[!.]*/card.json"))
    if name not in known:
        raise TaskError(
            f"There is no outcome table '{name}': use {', '.join(known)}, or add it by trinity outcomes add."
            if known
            else f"There is no outcome table '{name}': add it by trinity outcomes add {name or 'NAME'} FILE."
        )
    return folder / OUTCOMES / name


def load_outcome_tasks(spec: str) -> list[Task]:
    """Every task of `outcomes:NAME`, its split that of the fold behind @ (0 where there is none). TaskError for a table
    or a fold that is not there."""
    fold = spec.partition("@")[2]
    if fold not in ("", *map(str, range(FOLDS))):
        raise TaskError(f"There is no fold '{fold}': write {spec.partition('@')[0]}@0 to @{FOLDS - 1}.")
    path = outcome_folder(spec, data_folder()) / "tasks.jsonl"
    return list(_outcome_tasks(path, path.stat().st_mtime_ns, int(fold or 0)))


@lru_cache(maxsize=8)
def _outcome_tasks(path: Path, _: int, fold: int) -> tuple[Task, ...]:
    """The tasks of a table's file, which is as it was at a time, by fold."""
    turn = fold * 100 // FOLDS
    shares = {name: [(place + turn) % 100 for place in owned] for name, owned in OUTCOME_SPLITS.items()}
    return tuple(
        replace(task, split=split_of(task.question, shares)) for task in read_task_file(path, TABLE_GRADERS)
    )


def added_sets() -> list[str]:
    """The names of the sets that were added by `trinity tasks add`."""
    return sorted(one.stem for one in (data_folder() / TASK_SETS).glob("[!.]*.jsonl"))


def added_file(spec: str) -> str:
    """The path of the file of an added set that is named; any other name as it is."""
    if spec in POCKET_SETS or spec.endswith(".jsonl") or spec not in added_sets():
        return spec
    return str(data_folder() / TASK_SETS / f"{spec}.jsonl")


def _own_file(spec: str) -> Path:
    path = added_file(spec)
    if path.startswith("pocket/") or not path.endswith(".jsonl"):
        raise TaskError(
            f"There is no task set '{spec}': use {', '.join([*POCKET_SETS, *added_sets()])}, a .jsonl file of your own "
            "or a set that you add by trinity tasks add."
        )
    return Path(path)


def _load_pocket(families: Sequence[str], split: str, n: int | None, seed: int, at_most: bool) -> list[Task]:
    if n is None:
        raise TaskError("Pocket tasks are drawn, not listed: say how many you want.")
    share, rest = divmod(n, len(families))
    wanted = {family: share + (k < rest) for k, family in enumerate(families)}
    drawn = [remembered_tasks(family, split, count, seed, at_most) for family, count in wanted.items()]
    return [task for task in chain.from_iterable(zip_longest(*drawn)) if task is not None]


@lru_cache(maxsize=64)
def remembered_tasks(family: str, split: str, n: int, seed: int, at_most: bool) -> tuple[Task, ...]:
    """`draw_tasks`, once for the same ones: a form asks for them at every step, and 1,000 take a tenth of a second."""
    return tuple(draw_tasks(family, split, n, seed, at_most=at_most))


def _of_split(tasks: Sequence[Task], path: Path, split: str, n: int | None, seed: int) -> list[Task]:
    if split not in FILE_SPLITS:
        raise TaskError(f"A task file has no split '{split}': choose one of {', '.join(FILE_SPLITS)}.")
    tasks = [task for task in tasks if task.split == split]
    if not tasks:
        raise TaskError(
            f"{path.name} has no task in split '{split}': add lines, "
            f'or write "split": "{split}" into some of them.'
        )
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}/{task.id}".encode()).digest())[:n]


def tasks_in_file(spec: str) -> list[Task]:
    """Every task of a set that is a file; none of the program's own sets, which are drawn."""
    if spec.startswith(OUTCOMES_PREFIX):
        return load_outcome_tasks(spec)
    path = added_file(spec)
    return read_task_file(Path(path)) if path.endswith(".jsonl") else []


def read_task_file(path: Path, graders: Sequence[str] = FILE_GRADERS) -> list[Task]:
    """Every task of a JSON Lines file, in its order. Raises TaskError that names the first bad line."""
    return [task for task, _ in _read_lines(path, graders)]


def labelled_tasks(spec: str, by: str, most: int) -> tuple[list[tuple[Task, str]], int]:
    """At most `most` tasks of a set, each with its label, drawn by a fixed seed, and how many there were to draw from.

    Labels are a task's `family`, `grader` or `split`, or what the lines of a file say in the field of this name; a line
    without one is no such task. Pocket questions are those of the evolve split. TaskError as of `load_tasks`, and where
    no task has such a label."""
    if spec in POCKET_SETS:
        drawn = load_tasks(spec, "evolve", most, 0, at_most=True)
        lines: list[tuple[Task, dict[str, Any]]] = [(task, {}) for task in drawn]
    elif spec.startswith(OUTCOMES_PREFIX):
        lines = [(task, {}) for task in load_outcome_tasks(spec)]
    else:
        lines = _read_lines(_own_file(spec))
    found = [(task, label) for task, fields in lines if (label := _label(task, fields, by))]
    if not found:
        own = {name for _, fields in lines for name, value in fields.items() if _as_label(value)}
        names = [*_LABELS, *sorted(own - {*_LABELS, "question", "answer", "answer_pattern", "id"})]
        raise TaskError(f"No task of {spec} has a field '{by}': choose one of {', '.join(names)}.")
    found.sort(key=lambda one: hashlib.sha256(f"0/{one[0].id}".encode()).digest())
    return found[:most], len(found)


_LABELS = ("family", "grader", "split")


def _label(task: Task, fields: dict[str, Any], by: str) -> str:
    return str(getattr(task, by)) if by in _LABELS else _as_label(fields.get(by))


def _as_label(value: Any) -> str:
    """A class by its name; empty for what is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def _read_lines(path: Path, graders: Sequence[str] = FILE_GRADERS) -> list[tuple[Task, dict[str, Any]]]:
    """Every task with all that its line says. TaskError as of `read_task_file`."""
    try:
        lines = read_text(path).split("\n")
    except FileNotFoundError:
        raise TaskError(
            f"There is no task file {path}: give its path. If a run from another machine names it, copy it "
            "into this folder."
        ) from None
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise TaskError(f"The task file {path} cannot be read: {why}.") from None
    tasks: list[tuple[Task, dict[str, Any]]] = []
    seen: dict[str, int] = {}
    defaults: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"Line {number} of {path.name}"
        fields = _object(line, where)
        if fields.keys() == {"defaults"}:
            defaults = _defaults(fields["defaults"], where)
            continue
        task = _task(defaults | fields, where, path, graders)
        first = seen.setdefault(normalise_question(task.question), number)
        if first != number:
            raise TaskError(f"{where} asks the same question as line {first}: remove one of them.")
        tasks.append((task, defaults | fields))
    if not tasks:
        raise TaskError(f"The task file {path.name} is empty: give one JSON object per line.")
    return tasks


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise TaskError(f"{where} is not valid JSON: write one object per line.") from None
    if not isinstance(value, dict):
        raise TaskError(
            f'{where} is not a JSON object: write {{"question": ..., "answer": ..., "grader": ...}}.'
        )
    return value


def _defaults(value: Any, where: str) -> dict[str, Any]:
    known = ("grader", "family", "split", "answer_pattern")
    if not isinstance(value, dict) or value.keys() - set(known):
        raise TaskError(f"{where} has defaults that are not understood: they may set {', '.join(known)}.")
    return value


def _task(fields: dict[str, Any], where: str, path: Path, graders: Sequence[str]) -> Task:
    question, grader = _text(fields, "question", where), read_grader(fields, where, graders)
    answer = read_answer(fields, grader, where)
    split = _text(fields, "split", where) if "split" in fields else split_of(question, FILE_SPLITS)
    if split not in FILE_SPLITS:
        raise TaskError(f"{where} has an unknown split '{split}': choose {', '.join(FILE_SPLITS)}.")
    own = [read_function(grader, path, where).digest] if own_grader(grader) else []
    content = hashlib.sha256("\x1f".join((question, answer, grader, *own)).encode()).hexdigest()
    name = _text(fields, "id", where) if "id" in fields else path.stem
    return Task(
        id=f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:60]}-{content[:10]}",
        question=question,
        answer=answer,
        grader=grader,
        family=_text(fields, "family", where) if "family" in fields else "user",
        split=split,
        answer_pattern=_pattern(fields, where) if "answer_pattern" in fields else "",
    )


def read_grader(fields: dict[str, Any], where: str, graders: Sequence[str] = FILE_GRADERS) -> Grader:
    """The grader of a line. TaskError for one that no task file may have."""
    grader = _text(fields, "grader", where)
    if grader == "judge" and grader not in graders:
        raise TaskError(
            f"{where} has grader 'judge', and no model is asked here: give the marks that its replies have (right or "
            "score), or another grader."
        )
    if not is_grader(grader) or not (grader in graders or own_grader(grader)):
        raise TaskError(f"{where} has an unknown grader '{grader[:80]}': choose {GRADER_WORDS}.")
    return grader


def read_answer(fields: dict[str, Any], grader: Grader, where: str) -> str:
    """The right answer of a line, for a program its tests as JSON. TaskError for one that its grader cannot use."""
    if grader == "program":
        try:
            check_tests(fields.get("tests"))
        except ValueError as error:
            raise TaskError(f"{where} has grader 'program' and {error}.") from None
        return json.dumps(fields["tests"], ensure_ascii=False)
    if grader == "judge" and "answer" not in fields:
        return NO_REFERENCE
    answer = _text(fields, "answer", where)
    if grader == "number" and read_number(answer) is None:
        raise TaskError(f"{where} has grader 'number', but its answer '{answer}' is not one number.")
    if grader == "choice" and read_choice(answer) is None:
        raise TaskError(f"{where} has grader 'choice', but its answer '{answer}' is not one letter.")
    if grader == "math" and math_answer(answer) is None:
        raise TaskError(f"{where} has grader 'math', but its answer '{answer[:80]}' cannot be read.")
    return answer


def own_functions(spec: str) -> dict[Task, OwnFunction]:
    """The user's own functions that grade the tasks of a set: those that its file names."""
    tasks, folder = tasks_in_file(spec), Path(added_file(spec)).parent
    return {task: find_function(task.grader, folder) for task in tasks if own_grader(task.grader)}


def read_function(grader: Grader, path: Path, where: str) -> OwnFunction:
    """The function of the user's own that a line of the file `path` names. TaskError when it is not there."""
    try:
        return find_function(grader, path.parent)
    except ValueError as error:
        raise TaskError(f"{where} {error}.") from None


def _pattern(fields: dict[str, Any], where: str) -> str:
    pattern = _text(fields, "answer_pattern", where)
    try:
        re.compile(pattern)
    except re.error as error:
        raise TaskError(f"{where} has an answer_pattern that is no regular expression ({error}).") from None
    return pattern


def _text(fields: dict[str, Any], name: str, where: str) -> str:
    if name not in fields:
        raise TaskError(f"{where} has no '{name}': give question, answer and grader.")
    value = fields[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"{where} needs a text for '{name}'.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TaskError(f"{where} has half a character (a lone surrogate) in '{name}'.") from None
    return well_formed(value.strip())  # a NUL, which no database holds, is replaced as it is there


def digest_of_tasks(tasks: Sequence[Task]) -> str:
    """A SHA-256 over the tasks in order."""
    patterns = [task.answer_pattern for task in tasks]
    return hashlib.sha256((repr(tasks) + (repr(patterns) if any(patterns) else "")).encode()).hexdigest()
