"""Word problems of two and three steps over whole numbers."""

from __future__ import annotations

import random

from core.pocket.problem import Computation, Family, Problem

NAMES = (
    *("Ann", "Bob", "Cid", "Dee", "Eva", "Fay", "Gus", "Hal"),
    *("Ida", "Jim", "Kay", "Leo", "Max", "Ned", "Pam", "Zoe"),
)
THINGS = ("apples", "books", "coins", "cards", "eggs", "pens", "shells", "stamps")


def _cast(rng: random.Random) -> tuple[str, str]:
    return rng.choice(NAMES), rng.choice(THINGS)


def _gain_lose(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(5, 40), rng.randint(2, 30)
    c = rng.randint(2, a + b - 1)
    question = (
        f"{name} has {a} {thing}, buys {b} more and then loses {c}. How many {thing} does {name} have now?"
    )
    return Computation(a, (("+", b), ("-", c))).problem(rng, question)


def _lose_gain(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, c, b = rng.randint(20, 50), rng.randint(2, 19), rng.randint(2, 30)
    question = (
        f"{name} had {a} {thing}, gave {c} away and then found {b}. How many {thing} does {name} have now?"
    )
    return Computation(a, (("-", c), ("+", b))).problem(rng, question)


def _boxes(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b, c = rng.randint(2, 6), rng.randint(2, 9), rng.randint(2, 20)
    question = f"{name} fills {a} boxes with {b} {thing} each and has {c} {thing} left over. How many {thing} in all?"
    return Computation(a, (("*", b), ("+", c))).problem(rng, question)


def _earn(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 6), rng.randint(3, 9)
    c = rng.randint(2, a * b - 1)
    question = (
        f"{name} sells {a} {thing} at {b} dollars each and spends {c} dollars. How many dollars are left?"
    )
    return Computation(a, (("*", b), ("-", c))).problem(rng, question)


def _two_people(rng: random.Random) -> Problem:
    (one, two), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    a, b = rng.randint(3, 30), rng.randint(2, 20)
    question = (
        f"{one} has {a} {thing}. {two} has {b} more than {one}. How many {thing} do they have together?"
    )
    return Computation(a, (("+", b), ("+", a))).problem(rng, question)


def _three_steps(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b, c = rng.randint(2, 6), rng.randint(2, 9), rng.randint(2, 20)
    d = rng.randint(2, a * b + c - 1)
    question = (
        f"{name} fills {a} boxes with {b} {thing} each, buys {c} more and then loses {d}. "
        f"How many {thing} does {name} have now?"
    )
    return Computation(a, (("*", b), ("+", c), ("-", d))).problem(rng, question)


def _boxes_lose(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 6), rng.randint(3, 9)
    c = rng.randint(2, a * b - 1)
    question = (
        f"{name} fills {a} boxes with {b} {thing} each and then gave {c} away. How many {thing} are left?"
    )
    return Computation(a, (("*", b), ("-", c))).problem(rng, question)


MATH = Family(
    "math", "number", (_gain_lose, _lose_gain, _boxes, _earn, _two_people, _three_steps), _boxes_lose
)
