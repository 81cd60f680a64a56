"""The four held-out families: dates, unit conversion, number sequences and sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from core.pocket.families.math import NAMES
from core.pocket.problem import Family, Problem, number_problem

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip


def _steps(
    rng: random.Random, names: tuple[str, ...], first: int, count: int, step: int = 1
) -> tuple[str, str, tuple[str, ...]]:
    """The name `count` steps from place `first` of a cycle, the plan that leads there, and decoys."""
    path = [names[(first + step * k) % len(names)] for k in range(1, count + 1)]
    decoys = rng.sample([name for name in names if name != path[-1]], 3)
    return path[-1], f"{' '.join(path)} then last", tuple(decoys)


def _cyclic(rng: random.Random, names: tuple[str, ...], what: str, step: int, most: int) -> Problem:
    start, count = rng.randrange(len(names)), rng.randint(2, most)
    direction = "after" if step > 0 else "before"
    question = f"Which {what} is {count} {what}s {direction} {names[start]}?"
    return Problem(question, *_steps(rng, names, start, count, step))


def _appointment(rng: random.Random) -> Problem:
    start, count = rng.randrange(len(DAYS)), rng.randint(2, 6)
    steps = _steps(rng, DAYS, start, count)
    name = rng.choice(NAMES)
    return Problem(f"{name} leaves on {DAYS[start]} and comes back {count} days after. On which day?", *steps)


def _weekday_of_date(rng: random.Random) -> Problem:
    first, day = rng.randrange(len(DAYS)), rng.randint(1, 20)
    count = rng.randint(1, 6)
    steps = _steps(rng, DAYS, first, count)
    month = rng.choice(MONTHS)
    return Problem(f"{month} {day} is a {DAYS[first]}. Which day is it {count} days after?", *steps)


UNIT_PAIRS = (
    ("hours", "minutes", 60),
    ("weeks", "days", 7),
    ("feet", "inches", 12),
    ("days", "hours", 24),
    ("dozens", "eggs", 12),
)


def _convert_plus(rng: random.Random, stem: str) -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    count, extra = rng.randint(2, 5), rng.randint(1, 19)
    product = count * factor
    question = stem.format(count=count, big=big, small=small, extra=extra)
    plan = f"{count} * {factor} = {product} then {product} + {extra}"
    return number_problem(rng, question, product + extra, plan, (product, product + factor, count + extra))


def _units_left(rng: random.Random) -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    count, used = rng.randint(2, 5), rng.randint(1, 19)
    product = count * factor
    used = min(used, product - 1)
    question = f"Of {count} {big}, {used} {small} are over. How many {small} are left?"
    plan = f"{count} * {factor} = {product} then {product} - {used}"
    return number_problem(rng, question, product - used, plan, (product, product + used))


def _units_two(rng: random.Random) -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    one, two = rng.randint(1, 3), rng.randint(1, 2)
    count = one + two
    question = f"How many {small} are {one} {big} and {two} {big} together?"
    plan = f"{one} + {two} = {count} then {count} * {factor}"
    return number_problem(rng, question, count * factor, plan, (one * factor, (count + 1) * factor))


def _sequence(rng: random.Random, stem: str, shown: int, down: bool) -> Problem:
    step = rng.randint(2, 9)
    start = rng.randint(1, 20) + (step * shown if down else 0)
    signed = -step if down else step
    values = [start + signed * k for k in range(shown + 1)]
    question = stem.format(values=", ".join(map(str, values[:-1])))
    plan = f"{'down' if down else 'up'} {step} then {values[-2]} {'-' if down else '+'} {step}"
    return number_problem(rng, question, values[-1], plan, (values[-1] + signed, values[-2]))


def _seq_double(rng: random.Random) -> Problem:
    start = rng.randint(1, 9)
    values = [start * 2**k for k in range(4)]
    question = f"Each number is twice the one before: {', '.join(map(str, values[:-1]))}. What comes next?"
    plan = f"twice {values[-2]} then {values[-2]} + {values[-2]}"
    return number_problem(rng, question, values[-1], plan, (values[-2] + start, values[-2]))


def _seq_alternate(rng: random.Random) -> Problem:
    a, b = rng.sample(range(10, 60), 2)
    question = f"What comes next: {a}, {b}, {a}, {b}, {a}?"
    plan = f"{a} and {b} then {b}"
    return number_problem(rng, question, b, plan, (a,))


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
    plan = f"{' '.join(map(str, chosen))} then len"
    return number_problem(rng, question, len(chosen), plan, (len(left), len(both)))


def _shared_number(rng: random.Random, word: str, choose: Callable[[list[int]], int]) -> Problem:
    left, right, both = _two_sets(rng)
    answer = choose(both)
    question = f"Which is the {word} number in both {_show(left)} and {_show(right)}?"
    plan = f"{' '.join(map(str, both))} then {choose.__name__}"
    return number_problem(rng, question, answer, plan, (choose(left), choose(right)))


DATES = Family(
    "dates",
    "exact",
    (
        partial(_cyclic, names=DAYS, what="day", step=1, most=6),
        partial(_cyclic, names=DAYS, what="day", step=-1, most=6),
        partial(_cyclic, names=MONTHS, what="month", step=1, most=9),
        _appointment,
        _weekday_of_date,
    ),
    partial(_cyclic, names=MONTHS, what="month", step=-1, most=9),
)
UNITS = Family(
    "units",
    "number",
    (
        partial(_convert_plus, stem="How many {small} are in {count} {big} and {extra} {small}?"),
        partial(_convert_plus, stem="{count} {big} plus {extra} {small} is how many {small}?"),
        partial(
            _convert_plus,
            stem="It takes {count} {big} and then {extra} more {small}. How many {small} in all?",
        ),
        _units_left,
        _units_two,
    ),
    partial(_convert_plus, stem="{count} {big} and {extra} {small}: how many {small}?"),
)
SEQUENCES = Family(
    "sequences",
    "number",
    (
        partial(_sequence, stem="What comes next: {values}?", shown=4, down=False),
        partial(_sequence, stem="What comes next: {values}?", shown=4, down=True),
        partial(_sequence, stem="Continue the row {values}.", shown=3, down=False),
        _seq_double,
        _seq_alternate,
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
