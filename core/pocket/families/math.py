"""Word problems in two and three steps over small whole numbers."""

from __future__ import annotations

import random

from core.pocket.problem import Family, Problem, number_problem

NAMES = (
    *("Ann", "Bob", "Cid", "Dee", "Eva", "Fay", "Gus", "Hal"),
    *("Ida", "Jim", "Kay", "Leo", "Max", "Ned", "Pam", "Zoe"),
)
THINGS = ("apples", "books", "coins", "cards", "eggs", "pens", "shells", "stamps")


def _cast(rng: random.Random) -> tuple[str, str]:
    return rng.choice(NAMES), rng.choice(THINGS)


def _gain_lose(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(5, 30), rng.randint(2, 20)
    c = rng.randint(2, min(a + b - 1, 25))
    total = a + b
    question = (
        f"{name} has {a} {thing}, buys {b} more and then loses {c}. How many {thing} does {name} have now?"
    )
    plan = f"{a} + {b} = {total} then {total} - {c}"
    return number_problem(rng, question, total - c, plan, (total, total + c, a - c))


def _lose_gain(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, c = rng.randint(20, 40), rng.randint(2, 18)
    b = rng.randint(2, 20)
    left = a - c
    question = (
        f"{name} had {a} {thing}, gave {c} away and then found {b}. How many {thing} does {name} have now?"
    )
    plan = f"{a} - {c} = {left} then {left} + {b}"
    return number_problem(rng, question, left + b, plan, (left, abs(left - b), a + b))


def _boxes(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    c = rng.randint(2, 20)
    product = a * b
    question = f"{name} fills {a} boxes with {b} {thing} each and has {c} {thing} left over. How many {thing} in all?"
    plan = f"{a} * {b} = {product} then {product} + {c}"
    return number_problem(rng, question, product + c, plan, (product, a + b + c, product + c + b))


def _pay(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    product = a * b
    paid = product + rng.randint(1, 20)
    question = f"{name} buys {a} {thing} at {b} dollars each and pays with {paid} dollars. How many dollars come back?"
    plan = f"{a} * {b} = {product} then {paid} - {product}"
    return number_problem(rng, question, paid - product, plan, (product, paid - a - b, paid - product + b))


def _two_people(rng: random.Random) -> Problem:
    (one, two), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    a, b = rng.randint(3, 20), rng.randint(2, 15)
    other = a + b
    question = (
        f"{one} has {a} {thing}. {two} has {b} more than {one}. How many {thing} do they have together?"
    )
    plan = f"{a} + {b} = {other} then {a} + {other}"
    return number_problem(rng, question, a + other, plan, (other, other + b, a + b + b))


def _three_steps(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    c = rng.randint(2, 15)
    first, second = a * b, a * b + c
    d = rng.randint(2, min(second - 1, 20))
    question = (
        f"{name} fills {a} boxes with {b} {thing} each, buys {c} more and then loses {d}. "
        f"How many {thing} does {name} have now?"
    )
    plan = f"{a} * {b} = {first} and {first} + {c} = {second} then {second} - {d}"
    return number_problem(rng, question, second - d, plan, (second, first, second + d))


def _boxes_lose(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(3, 9)
    product = a * b
    c = rng.randint(2, product - 1)
    question = (
        f"{name} fills {a} boxes with {b} {thing} each and then gave {c} away. How many {thing} are left?"
    )
    plan = f"{a} * {b} = {product} then {product} - {c}"
    return number_problem(rng, question, product - c, plan, (product, product + c, a + b))


MATH = Family(
    "math", "number", (_gain_lose, _lose_gain, _boxes, _pay, _two_people, _three_steps), _boxes_lose
)
