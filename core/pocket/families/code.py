"""What does this Python expression give? Conditions, slices, dictionaries and off-by-one traps.

The answers written here are the generators' own; a test runs every kind of expression through the sandbox.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from functools import partial

from core.pocket.problem import Family, Problem, number_problem

ASK = "What does this give?"


def _digits(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(1, 9) for _ in range(count)]


def _trace(values: list[int], last: str) -> str:
    return f"{' '.join(map(str, values)) or 'none'} then {last}"


def _filtered(rng: random.Random, last: str, fold: Callable[[list[int]], int]) -> Problem:
    values = _digits(rng, rng.choice((4, 5)))
    if rng.random() < 0.5:
        limit = rng.randint(2, 7)
        sign, holds = rng.choice((("<", operator.lt), (">", operator.gt), ("<=", operator.le)))
        condition = f"x {sign} {limit}"
        chosen = [x for x in values if holds(x, limit)]
    else:
        rest = int(rng.random() < 0.5)
        condition = f"x % 2 == {rest}"
        chosen = [x for x in values if x % 2 == rest]
    if not chosen:
        return _filtered(rng, last, fold)
    answer = fold(chosen)
    question = f"{ASK} {last}([x for x in {values} if {condition}])"
    return number_problem(
        rng, question, answer, _trace(chosen, last), (fold(values), len(chosen), max(chosen))
    )


def _sliced(rng: random.Random, last: str, fold: Callable[[list[int]], int]) -> Problem:
    values = _digits(rng, 5)
    start = rng.randint(0, 2)
    stop = rng.randint(start + 2, min(start + 3, 5))
    part = values[start:stop]
    answer = fold(part)
    question = f"{ASK} {last}({values}[{start}:{stop}])"
    near = (fold(values[start : stop + 1]), fold(values[start + 1 : stop]), fold(values))
    return number_problem(rng, question, answer, _trace(part, last), near)


def _two_items(rng: random.Random) -> Problem:
    values = _digits(rng, 5)
    i, j = rng.randrange(4), rng.choice((-1, -2))
    a, b = values[i], values[j]
    sign, answer = ("+", a + b) if rng.random() < 0.5 else ("*", a * b)
    question = f"{ASK} {values}[{i}] {sign} {values}[{j}]"
    plan = f"{a} and {b} then {a} {sign} {b}"
    return number_problem(rng, question, answer, plan, (values[i + 1] + b, a + values[0]))


def _lookup(rng: random.Random) -> Problem:
    keys = rng.sample("abcdef", 3)
    values = [rng.randint(10, 29) for _ in keys]
    table = "{" + ", ".join(f"'{k}': {v}" for k, v in zip(keys, values, strict=True)) + "}"
    wanted = rng.choice(keys)
    found, other = values[keys.index(wanted)], rng.randint(2, 19)
    answer = found + other
    question = f"{ASK} {table}['{wanted}'] + {other}"
    plan = f"{found} then {found} + {other}"
    return number_problem(rng, question, answer, plan, tuple(value + other for value in values))


def _span(rng: random.Random) -> Problem:
    start = rng.randint(1, 6)
    stop = start + rng.randint(3, 5)
    values = list(range(start, stop))
    answer = sum(values)
    question = f"{ASK} sum(range({start}, {stop}))"
    return number_problem(rng, question, answer, _trace(values, "sum"), (answer + stop, answer - start))


CODE = Family(
    "code",
    "code",
    (
        partial(_filtered, last="sum", fold=sum),
        partial(_filtered, last="len", fold=len),
        partial(_sliced, last="max", fold=max),
        _two_items,
        _lookup,
        _span,
    ),
    partial(_sliced, last="sum", fold=sum),
)
