"""One generated problem: the question, its answer, the plan that leads there and answers that only look right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.episode import Grader


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with all that the training texts need. `plan` stops one step short of the answer."""

    question: str
    answer: str
    plan: str
    decoys: tuple[str, ...]

    @property
    def working(self) -> str:
        """The plan carried to its end, as a judge writes it before the verdict."""
        return f"{self.plan} so {self.answer}"


Template = Callable[[random.Random], Problem]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of problem: templates to draw from, and one that only tests ever see."""

    name: str
    grader: Grader
    templates: Sequence[Template]
    unseen: Template


def number_problem(rng: random.Random, question: str, answer: int, plan: str, near: Sequence[int]) -> Problem:
    """A problem with decoys such as a slip produces: `near` (results of a wrong step), one off, ten off, near by."""
    slips = (1, -1, 10, -10, *(rng.choice((-1, 1)) * rng.randint(2, 9) for _ in range(4)))
    pool = [value for value in (*near, *(answer + slip for slip in slips)) if value != answer and value >= 0]
    decoys = tuple(str(value) for value in rng.sample(pool, min(3, len(pool))))
    return Problem(question, str(answer), plan, decoys)
