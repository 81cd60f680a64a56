"""The four held-out families: dates, unit conversion, number sequences and sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from core.pocket.families.math import NAMES
from core.pocket.problem import Family, Problem, number_decoys

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip


def _cyclic(rng: random.Random, names: tuple[str, ...], what: str, step: int, most: int) -> Problem:
    start, count = rng.randrange(len(names)), rng.randint(2, most)
    path = [names[(start + step * k) % len(names)] for k in range(count + 1)]
    direction = "after" if step > 0 else "before"
    decoys = rng.sample([name for name in names if name != path[-1]], 3)
    return Problem(
        f"Which {what} is {count} {what}s {direction} {path[0]}?",
        path[-1],
        f"{' '.join(path[1:])} then last",
        tuple(decoys),
    )


def _appointment(rng: random.Random) -> Problem:
    inner = _cyclic(rng, DAYS, "day", 1, 6)
    name = rng.choice(NAMES)
    start, count = inner.question.rsplit(" ", 1)[1].rstrip("?"), inner.question.split()[3]
    return Problem(
        f"{name} leaves on {start} and comes back {count} days after. On which day?",
        inner.answer,
        inner.plan,
        inner.decoys,
    )


def _weekday_of_date(rng: random.Random) -> Problem:
    first, start = rng.randrange(7), rng.randint(1, 20)
    count = rng.randint(1, 6)
    path = [DAYS[(first + k) % 7] for k in range(1, count + 1)]
    decoys = rng.sample([day for day in DAYS if day != path[-1]], 3)
    return Problem(
        f"{rng.choice(MONTHS)} {start} is a {DAYS[first]}. Which day is it {count} days after?",
        path[-1],
        f"{' '.join(path)} then last",
        tuple(decoys),
    )


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
    return Problem(
        stem.format(count=count, big=big, small=small, extra=extra),
        str(product + extra),
        f"{count} * {factor} = {product} then {product} + {extra}",
        number_decoys(product + extra, rng, (product, product + factor, count + extra)),
    )


def _units_left(rng: random.Random) -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    count, used = rng.randint(2, 5), rng.randint(1, 19)
    product = count * factor
    used = min(used, product - 1)
    return Problem(
        f"Of {count} {big}, {used} {small} are over. How many {small} are left?",
        str(product - used),
        f"{count} * {factor} = {product} then {product} - {used}",
        number_decoys(product - used, rng, (product, product + used)),
    )


def _units_two(rng: random.Random) -> Problem:
    big, small, factor = rng.choice(UNIT_PAIRS)
    one, two = rng.randint(1, 3), rng.randint(1, 2)
    count = one + two
    return Problem(
        f"How many {small} are {one} {big} and {two} {big} together?",
        str(count * factor),
        f"{one} + {two} = {count} then {count} * {factor}",
        number_decoys(count * factor, rng, (one * factor, (count + 1) * factor)),
    )


def _sequence(rng: random.Random, stem: str, shown: int, down: bool) -> Problem:
    step = rng.randint(2, 9)
    start = rng.randint(1, 20) + (step * shown if down else 0)
    signed = -step if down else step
    values = [start + signed * k for k in range(shown + 1)]
    return Problem(
        stem.format(values=", ".join(map(str, values[:-1]))),
        str(values[-1]),
        f"{'down' if down else 'up'} {step} then {values[-2]} {'-' if down else '+'} {step}",
        number_decoys(values[-1], rng, (values[-1] + signed, values[-2])),
    )


def _seq_double(rng: random.Random) -> Problem:
    start = rng.randint(1, 9)
    values = [start * 2**k for k in range(4)]
    return Problem(
        f"Each number is twice the one before: {', '.join(map(str, values[:-1]))}. What comes next?",
        str(values[-1]),
        f"twice {values[-2]} then {values[-2]} + {values[-2]}",
        number_decoys(values[-1], rng, (values[-2] + start, values[-2])),
    )


def _seq_alternate(rng: random.Random) -> Problem:
    a, b = rng.sample(range(10, 60), 2)
    return Problem(
        f"What comes next: {a}, {b}, {a}, {b}, {a}?",
        str(b),
        f"{a} and {b} then {b}",
        number_decoys(b, rng, (a,)),
    )


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
    return Problem(
        stem.format(left=_show(left), right=_show(right)),
        str(len(chosen)),
        f"{' '.join(map(str, chosen))} then len",
        number_decoys(len(chosen), rng, (len(left), len(both))),
    )


def _shared_number(rng: random.Random, word: str, choose: Callable[[list[int]], int]) -> Problem:
    left, right, both = _two_sets(rng)
    answer = choose(both)
    return Problem(
        f"Which is the {word} number in both {_show(left)} and {_show(right)}?",
        str(answer),
        f"{' '.join(map(str, both))} then {choose.__name__}",
        number_decoys(answer, rng, (choose(left), choose(right))),
    )


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
