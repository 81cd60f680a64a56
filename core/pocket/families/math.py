"""Word problems in two and three steps over small whole numbers."""

from __future__ import annotations

import random

from core.pocket.problem import Family, Problem, number_decoys

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
    return Problem(
        f"{name} has {a} {thing}, buys {b} more and then loses {c}. How many {thing} does {name} have now?",
        str(total - c),
        f"{a} + {b} = {total} then {total} - {c}",
        number_decoys(total - c, rng, (total, total + c, a - c)),
    )


def _lose_gain(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, c = rng.randint(20, 40), rng.randint(2, 18)
    b = rng.randint(2, 20)
    left = a - c
    return Problem(
        f"{name} had {a} {thing}, gave {c} away and then found {b}. How many {thing} does {name} have now?",
        str(left + b),
        f"{a} - {c} = {left} then {left} + {b}",
        number_decoys(left + b, rng, (left, abs(left - b), a + b)),
    )


def _boxes(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    c = rng.randint(2, 20)
    product = a * b
    return Problem(
        f"{name} fills {a} boxes with {b} {thing} each and has {c} {thing} left over. How many {thing} in all?",
        str(product + c),
        f"{a} * {b} = {product} then {product} + {c}",
        number_decoys(product + c, rng, (product, a + b + c, product + c + b)),
    )


def _pay(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    product = a * b
    paid = product + rng.randint(1, 20)
    return Problem(
        f"{name} buys {a} {thing} at {b} dollars each and pays with {paid} dollars. How many dollars come back?",
        str(paid - product),
        f"{a} * {b} = {product} then {paid} - {product}",
        number_decoys(paid - product, rng, (product, paid - a - b, paid - product + b)),
    )


def _two_people(rng: random.Random) -> Problem:
    (one, two), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    a, b = rng.randint(3, 20), rng.randint(2, 15)
    other = a + b
    return Problem(
        f"{one} has {a} {thing}. {two} has {b} more than {one}. How many {thing} do they have together?",
        str(a + other),
        f"{a} + {b} = {other} then {a} + {other}",
        number_decoys(a + other, rng, (other, other + b, a + b + b)),
    )


def _three_steps(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(2, 9)
    c = rng.randint(2, 15)
    first, second = a * b, a * b + c
    d = rng.randint(2, min(second - 1, 20))
    return Problem(
        f"{name} fills {a} boxes with {b} {thing} each, buys {c} more and then loses {d}. "
        f"How many {thing} does {name} have now?",
        str(second - d),
        f"{a} * {b} = {first} and {first} + {c} = {second} then {second} - {d}",
        number_decoys(second - d, rng, (second, first, second + d)),
    )


def _boxes_lose(rng: random.Random) -> Problem:
    name, thing = _cast(rng)
    a, b = rng.randint(2, 5), rng.randint(3, 9)
    product = a * b
    c = rng.randint(2, product - 1)
    return Problem(
        f"{name} fills {a} boxes with {b} {thing} each and then gave {c} away. How many {thing} are left?",
        str(product - c),
        f"{a} * {b} = {product} then {product} - {c}",
        number_decoys(product - c, rng, (product, product + c, a + b)),
    )


MATH = Family(
    "math", "number", (_gain_lose, _lose_gain, _boxes, _pay, _two_people, _three_steps), _boxes_lose
)
