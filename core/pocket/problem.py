"""One generated problem: the question, its answer, the plan that leads there and answers that only look right."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from core.grader_names import Grader

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with all that the training texts need.

    `plan` names what is to be computed and computes nothing of it: that is the Worker's part. `working` is the
    computation step by step to its end, as a judge writes it before the verdict."""

    question: str
    answer: str
    plan: str
    working: str
    decoys: tuple[str, ...]


Template = Callable[[random.Random], Problem]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of problem: templates to draw from, and one that no model and no coordinator was trained on."""

    name: str
    grader: Grader
    templates: Sequence[Template]
    unseen: Template


@dataclass(frozen=True, slots=True)
class Computation:
    """Whole numbers computed from left to right: `first`, then each step's sign and number."""

    first: int
    steps: tuple[tuple[Literal["+", "-", "*"], int], ...]

    @property
    def values(self) -> list[int]:
        """The first number and what each step gives."""
        return list(
            accumulate(
                self.steps, lambda value, step: OPERATIONS[step[0]](value, step[1]), initial=self.first
            )
        )

    @property
    def plan(self) -> str:
        """As in "4 * 12 + 17"."""
        return " ".join([str(self.first), *(f"{sign} {number}" for sign, number in self.steps)])

    @property
    def working(self) -> str:
        """As in "4 * 12 = 48 + 17 = 65"."""
        done = zip(self.steps, self.values[1:], strict=True)
        return " ".join([str(self.first), *(f"{sign} {number} = {value}" for (sign, number), value in done)])

    def problem(self, rng: random.Random, question: str) -> Problem:
        """The problem that this computation solves, with decoys from a step left out or turned round."""
        near = []
        for place, (sign, number) in enumerate(self.steps):
            before, after = self.steps[:place], self.steps[place + 1 :]
            near.append(Computation(self.first, (*before, *after)).values[-1])
            if sign != "*":
                turned: Literal["+", "-"] = "-" if sign == "+" else "+"
                near.append(Computation(self.first, (*before, (turned, number), *after)).values[-1])
        return number_problem(rng, question, self.values[-1], self.plan, self.working, near)


def sum_of(values: Sequence[int]) -> Computation:
    """All values added up."""
    return Computation(values[0], tuple(("+", value) for value in values[1:]))


def number_problem(
    rng: random.Random, question: str, answer: int, plan: str, working: str, near: Sequence[int]
) -> Problem:
    """A problem with decoys such as a slip produces: `near` (results of a wrong step), one off, ten off, near by."""
    slips = (1, -1, 10, -10, *(rng.choice((-1, 1)) * rng.randint(2, 9) for _ in range(4)))
    wrong = dict.fromkeys((*near, *(answer + slip for slip in slips)))  # each once
    pool = [value for value in wrong if value != answer and value >= 0]
    decoys = tuple(str(value) for value in rng.sample(pool, min(3, len(pool))))
    return Problem(question, str(answer), plan, working, decoys)
