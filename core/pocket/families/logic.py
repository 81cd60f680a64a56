"""Orderings: who stands where, from facts given in no order."""

from __future__ import annotations

import random

from core.pocket.families.math import NAMES
from core.pocket.problem import Family, Problem

#: How many people stand in a row.
CROWDS = (4, 4, 5)

#: (more, less, most, least)
SCALES = (
    ("taller", "shorter", "tallest", "shortest"),
    ("older", "younger", "oldest", "youngest"),
    ("faster", "slower", "fastest", "slowest"),
    ("richer", "poorer", "richest", "poorest"),
    ("stronger", "weaker", "strongest", "weakest"),
)


def _ordering(rng: random.Random, people: int) -> tuple[list[str], list[str], tuple[str, str, str, str]]:
    order = rng.sample(NAMES, people)
    scale = rng.choice(SCALES)
    facts = [
        f"{high} is {scale[0]} than {low}." if rng.random() < 0.5 else f"{low} is {scale[1]} than {high}."
        for high, low in zip(order, order[1:], strict=False)
    ]
    rng.shuffle(facts)
    return order, facts, scale


def _problem(rng: random.Random, order: list[str], text: str, place: int, word: str) -> Problem:
    decoys = [name for name in order if name != order[place]]
    return Problem(
        text, order[place], f"{' '.join(order)} then {word}", tuple(rng.sample(decoys, min(3, len(decoys))))
    )


def _most(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, rng.choice(CROWDS))
    return _problem(rng, order, f"{' '.join(facts)} Who is the {scale[2]}?", 0, "first")


def _least(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, rng.choice(CROWDS))
    return _problem(rng, order, f"{' '.join(facts)} Who is the {scale[3]}?", len(order) - 1, "last")


def _second(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, rng.choice(CROWDS))
    return _problem(rng, order, f"{' '.join(facts)} Who is the second {scale[2]}?", 1, "second")


def _middle(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, 3)
    return _problem(rng, order, f"{' '.join(facts)} Who is in the middle?", 1, "second")


def _next_to(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, rng.choice(CROWDS))
    place = rng.randrange(1, len(order))
    text = f"{' '.join(facts)} Who comes right after {order[place - 1]}, from {scale[2]} to {scale[3]}?"
    return _problem(rng, order, text, place, f"after {order[place - 1]}")


def _second_least(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, 4)
    return _problem(rng, order, f"{' '.join(facts)} Who is the second {scale[3]}?", 2, "third")


LOGIC = Family("logic", "exact", (_most, _least, _second, _middle, _next_to), _second_least)
