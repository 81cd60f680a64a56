"""What does this Python expression give? Conditions, slices, dictionaries and off-by-one traps.

The answers written here are the generators' own; a test runs every kind of expression through the sandbox.
"""

from __future__ import annotations

import operator
import random

from core.pocket.problem import Computation, Family, Problem, sum_of

ASK = "What does this give?"


def _condition(rng: random.Random, values: list[int], low: int = 2, high: int = 7) -> tuple[str, list[int]]:
    """A condition on x, as a limit from `low` to `high` or as odd or even, and the values that fulfil it."""
    if rng.random() < 0.5:
        limit = rng.randint(low, high)
        sign, holds = rng.choice((("<", operator.lt), (">", operator.gt), ("<=", operator.le)))
        return f"x {sign} {limit}", [x for x in values if holds(x, limit)]
    rest = int(rng.random() < 0.5)
    return f"x % 2 == {rest}", [x for x in values if x % 2 == rest]


def _filtered_sum(rng: random.Random) -> Problem:
    values = [rng.randint(1, 9) for _ in range(5)]
    condition, chosen = _condition(rng, values)
    if not 2 <= len(chosen) <= 4:
        return _filtered_sum(rng)
    return sum_of(chosen).problem(rng, f"{ASK} sum([x for x in {values} if {condition}])")


def _filtered_count(rng: random.Random) -> Problem:
    values = [rng.randint(1, 9) for _ in range(5)]
    condition, chosen = _condition(rng, values)
    if not chosen:
        return _filtered_count(rng)
    times, more = rng.randint(2, 9), rng.randint(2, 19)
    question = f"{ASK} len([x for x in {values} if {condition}]) * {times} + {more}"
    return Computation(len(chosen), (("*", times), ("+", more))).problem(rng, question)


def _sliced_sum(rng: random.Random) -> Problem:
    values = [rng.randint(1, 19) for _ in range(5)]
    start = rng.randint(0, 2)
    stop = rng.randint(start + 2, min(start + 3, 5))
    return sum_of(values[start:stop]).problem(rng, f"{ASK} sum({values}[{start}:{stop}])")


def _items(rng: random.Random) -> Problem:
    values = [rng.randint(2, 9) for _ in range(5)]
    i, j, k = rng.randrange(4), rng.choice((-1, -2)), rng.randrange(5)
    question = f"v = {values}. {ASK} v[{i}] * v[{j}] + v[{k}]"
    return Computation(values[i], (("*", values[j]), ("+", values[k]))).problem(rng, question)


def _lookup(rng: random.Random) -> Problem:
    keys = rng.sample("abcdef", 3)
    values = {key: rng.randint(10, 39) for key in keys}
    x, y = rng.sample(keys, 2)
    less = rng.randint(2, 19)
    table = "{" + ", ".join(f"'{key}': {value}" for key, value in values.items()) + "}"
    question = f"d = {table}. {ASK} d['{x}'] + d['{y}'] - {less}"
    return Computation(values[x], (("+", values[y]), ("-", less))).problem(rng, question)


def _span(rng: random.Random) -> Problem:
    start = rng.randint(1, 30)
    stop = start + rng.randint(3, 4)
    return sum_of(range(start, stop)).problem(rng, f"{ASK} sum(range({start}, {stop}))")


def _filtered_span(rng: random.Random) -> Problem:
    start = rng.randint(1, 15)
    stop = start + rng.randint(4, 6)
    values = list(range(start, stop))
    condition, chosen = _condition(rng, values, start + 1, stop - 2)
    if not 2 <= len(chosen) <= 4:
        return _filtered_span(rng)
    return sum_of(chosen).problem(rng, f"{ASK} sum([x for x in range({start}, {stop}) if {condition}])")


CODE = Family(
    "code",
    "code",
    (_filtered_sum, _filtered_count, _sliced_sum, _items, _lookup, _span),
    _filtered_span,
)
