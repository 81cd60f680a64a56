"""Adding a published set: its files are read row by row, checked, and written as a task file in the data folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from core.errors import TaskError
from core.pocket.tasks import normalise_question
from core.tasks.kept_tests import TASK_SETS, TESTS_END, keep_tests
from core.tasks.programs import LONGEST_KEPT, read_tests
from core.tasks.published import PUBLISHED, PublishedSet, recognise
from core.tasks.published_code import LeftOut
from core.tasks.rows import Row, rows_of
from core.tasks.sets import POCKET_SETS, read_answer

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
#: Characters of tests that stand in a task's own line; longer ones are kept in files of their own.
_LONGEST_IN_LINE = 1 << 16


@dataclass
class Added:
    """A set that was added: what it is, its file, the bytes of that and of its tests, its tasks by split, family and
    grader, and its rows that are no tasks, by the reason."""

    published: PublishedSet
    path: Path
    bytes: int = 0
    tasks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def splits(self) -> Counter[str]:
        """How many tasks each split has."""
        found = Counter[str]()
        for (split, _, _), n in self.tasks.items():
            found[split] += n
        return found


def add_set(
    name: str, files: Sequence[Path], folder: Path, *, kind: str | None = None, skip: bool = False
) -> Added:
    """Read the files of a published set, of the `kind` that is named or else of the one that their first rows show,
    and write it as the set `name` below the data folder `folder`. TaskError, one sentence, for the first row that is
    faulty; with `skip` such rows are left out and counted. Nothing is left behind by what fails."""
    path = set_path(name, folder)
    if path.exists():
        raise TaskError(
            f"There is a task set '{name}' already: choose another name, or trinity tasks remove {name}."
        )
    if kind is not None and kind not in PUBLISHED:
        raise TaskError(f"There is no published set '{kind}': choose one of {', '.join(PUBLISHED)}.")
    firsts = [_first_row(file) for file in files]
    published = PUBLISHED[kind] if kind else _kind_of(firsts)
    added = Added(published, path)
    draft, tests = path.with_name(f".{path.name}.draft"), path.with_name(f".{name}{TESTS_END}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(tests, ignore_errors=True)  # left behind by a crash
        with draft.open("w", encoding="utf-8") as out:
            with closing(_rows_of_all(files)) as every:
                _write(every, added, out, tests, skip)
            out.flush()
            os.fsync(out.fileno())
        if not added.tasks:
            raise TaskError(f"No task of {published.name} came of these files{_reasons(added)}.")
        if tests.exists():
            shutil.rmtree(path.with_name(f"{name}{TESTS_END}"), ignore_errors=True)
            tests.rename(path.with_name(f"{name}{TESTS_END}"))
        draft.rename(path)
    except OSError as error:
        raise TaskError(f"The task set cannot be written to {path.parent}: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)
        shutil.rmtree(tests, ignore_errors=True)
    added.bytes = sum(one.stat().st_size for one in files_of(name, folder))
    return added


def remove_set(name: str, folder: Path) -> None:
    """Remove a set that was added, with its tests. TaskError where there is none."""
    path = set_path(name, folder)
    if not path.is_file():
        known = [one.stem for one in sorted(path.parent.glob("[!.]*.jsonl"))]
        raise TaskError(f"There is no added task set '{name}': there are {', '.join(known) or 'none'}.")
    path.unlink()
    shutil.rmtree(path.with_name(f"{name}{TESTS_END}"), ignore_errors=True)


def set_path(name: str, folder: Path) -> Path:
    """The file of the set of this name below the data folder. TaskError for what can be no name."""
    if not _NAME.fullmatch(name) or name.endswith(".jsonl") or name in POCKET_SETS:
        raise TaskError(
            f"'{name[:80]}' cannot be the name of a task set: use small letters, digits, '-', '_' and '.', at most 60, "
            "and none of the program's own sets."
        )
    return folder / TASK_SETS / f"{name}.jsonl"


def files_of(name: str, folder: Path) -> list[Path]:
    """The file of a set and those of its tests."""
    path = set_path(name, folder)
    return [path, *sorted(path.with_name(f"{name}{TESTS_END}").glob("*.json.gz"))]


def _first_row(file: Path) -> Row:
    with closing(rows_of(file)) as rows:
        first = next(rows, None)
    if first is None:
        raise TaskError(f"The file {file} is empty: give it as it was published.")
    return first


def _rows_of_all(files: Sequence[Path]) -> Generator[Row]:
    for file in files:
        with closing(rows_of(file)) as rows:
            yield from rows


def _kind_of(firsts: Sequence[Row]) -> PublishedSet:
    """The set that the first rows of all files show."""
    kinds = dict[str, Row]()
    for first in firsts:
        found = recognise(first)
        if not found:
            raise TaskError(_unknown(first))
        if len(found) > 1:
            raise TaskError(
                f"{first.where} may be of {' or '.join(one.name for one in found)}: say which by --as."
            )
        kinds.setdefault(found[0].name, first)
    if len(kinds) > 1:
        words = " and ".join(f"{name} ({row.file.name})" for name, row in kinds.items())
        raise TaskError(f"These files are of different sets, {words}: add each for itself.")
    return PUBLISHED[next(iter(kinds))]


def _unknown(first: Row) -> str:
    if first.has("question") and first.has("grader"):
        return f"{first.file.name} is a task file already: name it by --tasks {first.file}."
    names = ", ".join(str(one)[:40] for one in [*first.fields][:8]) or "none"
    return (
        f"{first.where} is of no published set that is known (its fields: {names}): say which by --as; known are "
        f"{', '.join(PUBLISHED)}."
    )


@dataclass
class _Seen:
    """A question that was read: its answer, where it stands, and its line, None once another row contradicts it."""

    answer: int
    where: str
    line: str | None
    key: tuple[str, str, str]


def _write(every: Generator[Row], added: Added, out: IO[str], tests: Path, skip: bool) -> None:
    """Write the lines of all rows that are tasks, and count them and the others."""
    seen = dict[str, _Seen]()
    for row in every:
        try:
            line = _line(row, added.published)
            before = seen.get(question := normalise_question(line["question"]))
            answer = hash(json.dumps(line.get("answer", line.get("tests"))))
            if before and before.answer == answer:
                raise LeftOut("asked before, with the same answer")
            if before:
                _contradicted(before, row, added, skip)
                continue
        except LeftOut as reason:
            added.left_out[str(reason)] += 1
            continue
        except TaskError as error:
            if not skip:
                raise
            added.left_out[_reason(str(error), row)] += 1
            continue
        if "tests" in line and len(json.dumps(line["tests"])) > _LONGEST_IN_LINE:
            line["tests"] = keep_tests(line["tests"], tests)
        key = (line["split"], line["family"], line["grader"])
        seen[question] = _Seen(answer, row.where, json.dumps(line, ensure_ascii=False), key)
        added.tasks[key] += 1
    added.tasks = +added.tasks  # without those of which nothing is left
    out.writelines(f"{one.line}\n" for one in seen.values() if one.line is not None)


def _contradicted(before: _Seen, row: Row, added: Added, skip: bool) -> None:
    """The question of a row was asked before, with another answer: both are left out, or TaskError says so."""
    if not skip:
        raise TaskError(
            f"{row.where} asks the same question as {before.where[0].lower()}{before.where[1:]} and has another "
            "answer: correct one of them, or leave both out by --skip-faulty."
        )
    if before.line is not None:
        before.line = None
        added.tasks[before.key] -= 1
        added.left_out["asked twice, with different answers"] += 1
    added.left_out["asked twice, with different answers"] += 1


def _line(row: Row, published: PublishedSet) -> dict[str, Any]:
    """The line of a row, with its split, whose answer its grader can use. TaskError, one sentence, for a faulty one."""
    if missing := published.missing(row):
        raise TaskError(
            f"{row.where} has no '{missing[0].replace('|', chr(39) + ' or ' + chr(39))}', which rows of "
            f"{published.name} have: give the file as it was published."
        )
    try:
        line = published.line(row)
        line["split"] = published.splits.split(row, line["question"])
        if "tests" in line:
            if len(json.dumps(line["tests"])) > LONGEST_KEPT:
                raise LeftOut(f"more than {LONGEST_KEPT >> 20} MiB of tests")
            read_tests(line["tests"])
    except ValueError as error:
        raise TaskError(f"{row.where} {error}.") from None
    if "tests" not in line:
        read_answer(line, line["grader"], row.where)
    return line


def _reason(sentence: str, row: Row) -> str:
    """What is wrong with a row, without its place, so that it can be counted."""
    return sentence.removeprefix(row.where).strip().partition(": ")[0].rstrip(".")


def _reasons(added: Added) -> str:
    most = added.left_out.most_common(3)
    return ": " + "; ".join(f"{n:,} {reason}" for reason, n in most) if most else ""
