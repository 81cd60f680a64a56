"""Orderings: who stands where, from facts given in no order."""

from __future__ import annotations

import random
from functools import partial

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


def _place(rng: random.Random, stem: str, place: int, word: str, people: int | None = None) -> Problem:
    order, facts, (_, _, most, least) = _ordering(rng, people or rng.choice(CROWDS))
    question = stem.format(most=most, least=least)
    return _problem(rng, order, f"{' '.join(facts)} {question}", place, word)


def _next_to(rng: random.Random) -> Problem:
    order, facts, scale = _ordering(rng, rng.choice(CROWDS))
    place = rng.randrange(1, len(order))
    text = f"{' '.join(facts)} Who comes right after {order[place - 1]}, from {scale[2]} to {scale[3]}?"
    return _problem(rng, order, text, place, f"after {order[place - 1]}")


LOGIC = Family(
    "logic",
    "exact",
    (
        partial(_place, stem="Who is the {most}?", place=0, word="first"),
        partial(_place, stem="Who is the {least}?", place=-1, word="last"),
        partial(_place, stem="Who is the second {most}?", place=1, word="second"),
        partial(_place, stem="Who is in the middle?", place=1, word="second", people=3),
        _next_to,
    ),
    partial(_place, stem="Who is the second {least}?", place=2, word="third", people=4),
)
