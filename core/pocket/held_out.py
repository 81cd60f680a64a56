"""The four held-out families: dates, unit conversion, number sequences and sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Literal

from core.pocket.families import NAMES, Computation, Family, Problem, number_problem, sum_of

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip


def _cyclic(
    rng: random.Random, question: str, names: tuple[str, ...], start: int, count: int, step: int = 1
) -> Problem:
    """The name `count` steps from place `start` of a cycle. The plan leaves the steps to do; the working does them."""
    path = [names[(start + step * k) % len(names)] for k in range(count + 1)]
    decoys = rng.sample([name for name in names if name != path[-1]], 3)
    plan = f"{path[0]} {'+' if step > 0 else '-'} {count}"
    return Problem(question, path[-1], plan, f"{' '.join(path)} so {path[-1]}", tuple(decoys))


def _from_name(rng: random.Random, names: tuple[str, ...], what: str, step: int) -> Problem:
    start, count = rng.randrange(len(names)), rng.randint(2, len(names) - 1)
    direction = "after" if step > 0 else "before"
    question = f"Which {what} is {count} {what}s {direction} {names[start]}?"
    return _cyclic(rng, question, names, start, count, step)


def _appointment(rng: random.Random) -> Problem:
    start, count = rng.randrange(len(DAYS)), rng.randint(2, 6)
    question = f"{rng.choice(NAMES)} leaves on {DAYS[start]} and comes back {count} days after. On which day?"
    return _cyclic(rng, question, DAYS, start, count)


def _weekday_of_date(rng: random.Random) -> Problem:
    start, day, count = rng.randrange(len(DAYS)), rng.randint(1, 20), rng.randint(1, 6)
    question = f"{rng.choice(MONTHS)} {day} is a {DAYS[start]}. Which day is it {count} days after?"
    return _cyclic(rng, question, DAYS, start, count)


UNIT_PAIRS = (
    ("hours", "minutes", 60),
    ("weeks", "days", 7),
    ("feet", "inches", 12),
    ("days", "hours", 24),
    ("dozens", "eggs", 12),
)


def _convert(rng: random.Random, stem: str, sign: Literal["+", "-"] = "+") -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    count, extra = rng.randint(2, 6), rng.randint(1, 19)
    extra = min(extra, count * factor - 1)
    question = stem.format(count=count, big=big, small=small, extra=extra)
    return Computation(count, (("*", factor), (sign, extra))).problem(rng, question)


def _sequence(rng: random.Random, stem: str, shown: int, down: bool) -> Problem:
    step = rng.randint(2, 12)
    start = rng.randint(1, 20) + (step * shown if down else 0)
    values = [start + (-step if down else step) * k for k in range(shown)]
    question = stem.format(values=", ".join(map(str, values)))
    return Computation(values[-1], (("-" if down else "+", step),)).problem(rng, question)


def _seq_double(rng: random.Random) -> Problem:
    start = rng.randint(1, 19)
    values = [start, 2 * start, 4 * start]
    question = f"Each number is twice the one before: {', '.join(map(str, values))}. What comes next?"
    return sum_of([values[-1], values[-1]]).problem(rng, question)


def _seq_growing(rng: random.Random) -> Problem:
    """Each step is one more than the step before."""
    start, step = rng.randint(1, 20), rng.randint(1, 9)
    values = list(accumulate(range(step, step + 3), initial=start))
    question = f"What comes next: {', '.join(map(str, values))}?"
    return sum_of([values[-1], step + 3]).problem(rng, question)


def _seq_number(rng: random.Random) -> Problem:
    return _sequence(rng, "What number comes next: {values}?", 4, down=rng.random() < 0.5)


def _two_sets(rng: random.Random) -> tuple[list[int], list[int], list[int]]:
    both = sorted(rng.sample(range(1, 20), rng.randint(1, 3)))
    rest = [x for x in range(1, 20) if x not in both]
    extra = rng.sample(rest, 4)
    left, right = both + extra[:2], both + extra[2:]
    rng.shuffle(left)
    rng.shuffle(right)
    return left, right, [x for x in left if x in both]


def _show(values: list[int]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _set_size(rng: random.Random, stem: str, which: str) -> Problem:
    left, right, both = _two_sets(rng)
    only = [x for x in left if x not in both]
    chosen = {"both": both, "left": only, "any": left + [x for x in right if x not in both]}[which]
    question = stem.format(left=_show(left), right=_show(right))
    listed = " ".join(map(str, chosen))
    working = f"{listed} so {len(chosen)}"
    return number_problem(rng, question, len(chosen), f"{listed} then len", working, (len(left), len(both)))


def _shared_number(rng: random.Random, word: str, choose: Callable[[list[int]], int]) -> Problem:
    left, right, both = _two_sets(rng)
    answer = choose(both)
    question = f"Which is the {word} number in both {_show(left)} and {_show(right)}?"
    listed = " ".join(map(str, both))
    near = (choose(left), choose(right))
    return number_problem(
        rng, question, answer, f"{listed} then {choose.__name__}", f"{listed} so {answer}", near
    )


DATES = Family(
    "dates",
    "exact",
    (
        partial(_from_name, names=DAYS, what="day", step=1),
        partial(_from_name, names=DAYS, what="day", step=-1),
        partial(_from_name, names=MONTHS, what="month", step=1),
        _appointment,
        _weekday_of_date,
    ),
    partial(_from_name, names=MONTHS, what="month", step=-1),
)
UNITS = Family(
    "units",
    "number",
    (
        partial(_convert, stem="How many {small} are in {count} {big} and {extra} {small}?"),
        partial(_convert, stem="{count} {big} plus {extra} {small} is how many {small}?"),
        partial(
            _convert, stem="It takes {count} {big} and then {extra} more {small}. How many {small} in all?"
        ),
        partial(
            _convert, stem="Of {count} {big}, {extra} {small} are over. How many {small} are left?", sign="-"
        ),
        partial(_convert, stem="By how many {small} are {count} {big} more than {extra} {small}?", sign="-"),
    ),
    partial(_convert, stem="{count} {big} and {extra} {small}: how many {small}?"),
)
SEQUENCES = Family(
    "sequences",
    "number",
    (
        partial(_sequence, stem="What comes next: {values}?", shown=4, down=False),
        partial(_sequence, stem="What comes next: {values}?", shown=4, down=True),
        partial(_sequence, stem="Continue the row {values}.", shown=3, down=False),
        _seq_double,
        _seq_growing,
    ),
    _seq_number,
)
SETS = Family(
    "sets",
    "number",
    (
        partial(_set_size, stem="How many numbers are in both {left} and {right}?", which="both"),
        partial(_set_size, stem="How many numbers of {left} are not in {right}?", which="left"),
        partial(_set_size, stem="How many numbers are in {left} or {right}?", which="any"),
        partial(_set_size, stem="{left} and {right} share how many numbers?", which="both"),
        partial(_shared_number, word="biggest", choose=max),
    ),
    partial(_shared_number, word="smallest", choose=min),
)
