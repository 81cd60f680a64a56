"""Pocket tasks of the eight families: seeded, and disjoint between splits by the question's own text, or by its
template."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator, Mapping

from core.episode import Task
from core.errors import TaskError
from core.pocket import FAMILIES
from core.pocket.families import CODE, KNOWLEDGE, LOGIC, MATH, Family, Problem
from core.pocket.held_out import DATES, SEQUENCES, SETS, UNITS

BY_NAME: dict[str, Family] = {
    family.name: family for family in (MATH, LOGIC, KNOWLEDGE, CODE, DATES, UNITS, SEQUENCES, SETS)
}

#: Share of the question space that each split owns, in hundredths. `train` is for training models.
SPLITS: dict[str, range] = {
    "train": range(60),
    "evolve": range(60, 80),
    "validation": range(80, 90),
    "test": range(90, 100),
}

#: A split of its own: all questions of the templates that no model was trained on and nothing was evolved on.
UNSEEN = "unseen"

#: A split is used up when this many draws in a row bring no new question.
PATIENCE = 5_000


def normalise_question(question: str) -> str:
    """The question as compared between splits: case and spacing do not make it another question."""
    return " ".join(question.lower().split())


def split_of(question: str, splits: Mapping[str, Collection[int]] = SPLITS) -> str:
    """The one split that may contain this question, by a hash of its normalised text."""
    bucket = int.from_bytes(hashlib.sha256(normalise_question(question).encode()).digest()[:4], "big") % 100
    return next(name for name, owned in splits.items() if bucket in owned)


def draw_problems(family: str, split: str, seed: int) -> Iterator[Problem]:
    """An endless stream of problems of one family whose questions belong to one split."""
    if family not in BY_NAME:
        raise TaskError(f"There is no pocket family '{family}': choose one of {', '.join(FAMILIES)}.")
    if split not in (*SPLITS, UNSEEN):
        raise TaskError(f"There is no split '{split}': choose one of {', '.join((*SPLITS, UNSEEN))}.")
    generator = BY_NAME[family]
    rng = random.Random(f"{family}/{split}/{seed}")
    while True:
        problem = (generator.unseen if split == UNSEEN else rng.choice(generator.templates))(rng)
        if split in (UNSEEN, split_of(problem.question)):
            yield problem


def draw_tasks(family: str, split: str, n: int, seed: int, *, at_most: bool = False) -> list[Task]:
    """`n` tasks with distinct questions. Ids name family, split and question, so equal tasks have equal ids.

    TaskError when the split has fewer; with `at_most`, all of those."""
    tasks: dict[str, Task] = {}
    repeats = 0  # in a row
    for problem in draw_problems(family, split, seed):
        if len(tasks) == n:
            break
        digest = hashlib.sha256(normalise_question(problem.question).encode()).hexdigest()[:10]
        task_id = f"pocket-{family}-{split}-{digest}"
        repeats = repeats + 1 if task_id in tasks else 0
        if repeats == PATIENCE:
            if at_most:
                break
            raise TaskError(
                f"pocket/{family} has only {len(tasks)} questions in split '{split}': ask for fewer."
            )
        grader = BY_NAME[family].grader
        tasks.setdefault(task_id, Task(task_id, problem.question, problem.answer, grader, family, split))
    return list(tasks.values())
