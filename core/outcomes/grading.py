"""What the replies of a table answer, whether that is right, and which answers to a task are the same: read and graded
as in play, once for each answer that is written differently."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.episode import Grade, Protocol, Role, Task
from core.play.drive import GradeMany
from core.play.judging import final_verdicts
from core.play.reading import read_reply
from core.tasks.choices import options_of, read_choice
from core.tasks.graders import normalise_answer, syntax_of
from core.tasks.mathematics import math_answer
from core.tasks.numbers import read_number

#: So many wrong answers to a task that are written differently are compared with each other; more stand for themselves.
MOST_COMPARED = 60
#: A letter before the text of an option.
_LETTER_MARK = re.compile(r"(?<!\w)[(\[]?([A-Z])[)\].:]+\s*")
#: No question has more options.
MOST_OPTIONS = 12
#: No answer is longer.
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Read:
    """An answer and where it comes from: `ours`: it was read here from the reply, else it is the table's own."""

    answer: str | None
    ours: bool = True


def read_answer(task: Task, reply: str, given: str | None) -> Read:
    """The answer of a reply as play reads it, or the one option that its last line repeats with its letter; where none
    can be read, the one that the table gives."""
    found = (
        read_reply(Protocol.PAPER, "general", Role.WORKER, reply, grader=task.grader).answer
        if reply
        else None
    )
    plain = None if found is None else _plain(found, task)
    if task.grader == "choice":
        plain = plain if plain is None or _is_option(plain, task) else None
        plain = plain or _repeated_option(reply, task)
    if plain is not None:
        return Read(plain[:_LONGEST])
    if given is not None and given.strip():
        return Read((_plain(given, task) or given.strip())[:_LONGEST], ours=False)
    said = (found or "").strip()[:_LONGEST]
    return Read(said if re.search(r"\w\w" if task.grader == "choice" else r"\w", said) else None)


def _is_option(letter: str, task: Task) -> bool:
    """Whether a letter can be one of the task's options: it may not be the X of "the answer is (X)"."""
    return ord(letter) < ord("A") + MOST_OPTIONS or letter in options_of(task.question)


def _repeated_option(reply: str, task: Task) -> str | None:
    """The letter of the one option that the last line of a reply repeats, text and all."""
    last = reply.strip().rsplit("\n", 1)[-1]
    if last.rstrip("*_ ").endswith(":"):  # cut off while it goes through the options
        return None
    options = options_of(task.question)
    found = set()
    for mark in _LETTER_MARK.finditer(last):
        text = _bare(options.get(mark[1], ""))
        if text and _bare(last[mark.end() :]).startswith(text):
            found.add(mark[1])
    return found.pop() if len(found) == 1 else None


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[*_`$]", "", text).casefold().split()).rstrip(".")


def _plain(answer: str, task: Task) -> str | None:
    """An answer in the form that its grader compares; None for what that cannot read."""
    match task.grader:
        case "choice":
            return read_choice(answer, task.question)
        case "number":
            return answer.strip() if read_number(answer, task.question) is not None else None
        case "math":
            return answer.strip() if math_answer(answer) is not None else None
        case "code":
            return _literal(answer, task.answer)
    return answer.strip() or None


def _literal(answer: str, key: str) -> str | None:
    """A value of Python in one spelling, the key's where it is equal to that; a text that is none is the string that it
    spells."""
    bare = re.sub(r"\A`+(?:python\n)?|`+\Z", "", answer.strip()).strip()
    for text in (bare, f"'{bare}'", f'"{bare}"'):
        found = _value_of(text)
        if found is not None:
            right = _value_of(key)
            return key if right is not None and found[0] == right[0] else repr(found[0])
    return repr(bare) if bare else None


def _value_of(text: str) -> tuple[Any] | None:
    """The value that a text is in Python; None for what is none."""
    try:
        return (ast.literal_eval(syntax_of(text) or ""),)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _key(answer: str, task: Task) -> str:
    """What two answers share that are the same at first sight."""
    match task.grader:
        case "choice" | "program":
            return answer
        case "number":
            value = read_number(answer, task.question)
            percent = "%" in answer or "percent" in answer
            return answer if value is None else f"{value} {percent} {answer if value.denominator > 1 else ''}"
        case "math":
            found = math_answer(answer)
            return (
                answer
                if found is None
                else f"{found.latex} {found.unit} {'' if found.latex else found.words}"
            )
        case "code":
            return answer.strip()
    return normalise_answer(answer)


@dataclass(frozen=True, slots=True)
class Graded:
    """An answer's grade, None where nobody knows the key, and its group; -1 without an answer."""

    right: bool | None
    group: int


def grade_answers(tasks: Sequence[tuple[Task, Sequence[str | None]]], grade: GradeMany) -> list[list[Graded]]:
    """The answers to some tasks graded, and grouped by what the task's grader calls the same: each right one in one
    group, wrong ones by comparing them with one another. TaskError where a grader cannot be used."""
    keys = [[None if one is None else _key(one, task) for one in answers] for task, answers in tasks]
    first: list[dict[str, str]] = []  # of each task one answer for each way of writing it
    for (_, answers), own in zip(tasks, keys, strict=True):
        seen: dict[str, str] = {}
        for key, answer in zip(own, answers, strict=True):
            if key is not None and answer is not None:
                seen.setdefault(key, answer)
        first.append(seen)
    judged = [
        Grade(task, one)
        for (task, _), seen in zip(tasks, first, strict=True)
        if task.answer
        for one in seen.values()
    ]
    verdicts = iter(final_verdicts(grade(judged)))
    right = [
        {key: next(verdicts) if task.answer else None for key in seen}
        for (task, _), seen in zip(tasks, first, strict=True)
    ]
    groups = _grouped([task for task, _ in tasks], first, right, grade)
    return [
        [Graded(None, -1) if key is None else Graded(right[i][key], groups[i][key]) for key in own]
        for i, own in enumerate(keys)
    ]


def _grouped(
    tasks: Sequence[Task],
    first: Sequence[dict[str, str]],
    right: Sequence[dict[str, bool | None]],
    grade: GradeMany,
) -> list[dict[str, int]]:
    """The group of each way of writing an answer, by task."""
    pairs: list[tuple[int, str, str]] = []
    for i, (task, seen) in enumerate(zip(tasks, first, strict=True)):
        if task.grader in ("number", "math", "code"):
            wrong = [key for key in seen if not right[i][key]][:MOST_COMPARED]
            pairs += [(i, one, other) for place, other in enumerate(wrong) for one in wrong[:place]]
    asked = [Grade(replace(tasks[i], answer=first[i][one]), first[i][other]) for i, one, other in pairs]
    same = {pair for pair, verdict in zip(pairs, final_verdicts(grade(asked)), strict=True) if verdict}
    found: list[dict[str, int]] = []
    for i, seen in enumerate(first):
        own: dict[str, int] = {}
        number, of_right = 0, -1
        for key in seen:
            if right[i][key]:
                if of_right < 0:
                    of_right, number = number, number + 1
                own[key] = of_right
                continue
            like = next((other for other in own if (i, other, key) in same), None)
            own[key] = own[like] if like is not None else number
            number += like is None
        found.append(own)
    return found


def grader_of(keys: Iterable[str]) -> str:
    """How answers are graded where the table does not say: as letters, numbers or texts, whichever all keys are."""
    known = list(keys)
    reads: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("choice", lambda key: re.fullmatch(r"\(?[A-Z]\)?", key)),
        ("number", read_number),
    )
    return next(
        (name for name, read in reads if known and all(read(key) is not None for key in known)), "exact"
    )
