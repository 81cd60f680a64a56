"""Orderings: who stands where, from facts given in no order, after somebody left, changed places or turned round."""

from __future__ import annotations

import random
from collections.abc import Sequence

from core.pocket.families.math import NAMES
from core.pocket.problem import Family, Problem

#: How many people are compared.
CROWDS = (4, 4, 5, 5)

#: (more, less, most, least)
SCALES = (
    ("taller", "shorter", "tallest", "shortest"),
    ("older", "younger", "oldest", "youngest"),
    ("faster", "slower", "fastest", "slowest"),
    ("richer", "poorer", "richest", "poorest"),
    ("stronger", "weaker", "strongest", "weakest"),
)

RANKS = ("", "second ", "third ", "fourth ", "fifth ")


class _Row:
    """Some people in order, from most to least, and the facts that say so."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.order = rng.sample(NAMES, rng.choice(CROWDS))
        self.more, self.less, self.most, self.least = rng.choice(SCALES)
        facts = [
            f"{high} is {self.more} than {low}."
            if rng.random() < 0.5
            else f"{low} is {self.less} than {high}."
            for high, low in zip(self.order, self.order[1:], strict=False)
        ]
        rng.shuffle(facts)
        self.facts = " ".join(facts)

    def problem(self, change: str, after: Sequence[str], place: int, question: str) -> Problem:
        """Who stands at `place` of `after`, the order after the change. The plan names the change, unmade.

        Names follow each other without numbers between them: in trials a model of this size found the next name by the
        one before it, and never across a number."""
        plan = " ".join(part for part in (*self.order, change, f"then {place + 1}") if part)
        changed = f" so {' '.join(after)}" if change else ""
        answer = after[place]
        decoys = [name for name in self.order if name != answer]
        return Problem(
            f"{self.facts} {question}",
            answer,
            plan,
            f"{' '.join(self.order)}{changed} so {answer}",
            tuple(self.rng.sample(decoys, min(3, len(decoys)))),
        )

    def swapped(self, one: str, two: str) -> list[str]:
        other = {one: two, two: one}
        return [other.get(name, name) for name in self.order]


def _place(rng: random.Random) -> Problem:
    row = _Row(rng)
    place = rng.randrange(len(row.order))
    return row.problem("", row.order, place, f"Who is the {RANKS[place]}{row.most}?")


def _without(rng: random.Random, question: str) -> Problem:
    row = _Row(rng)
    gone = rng.choice(row.order)
    left = [name for name in row.order if name != gone]
    place = rng.randrange(len(left))
    text = question.format(gone=gone, rank=RANKS[place], most=row.most)
    return row.problem(f"without {gone}", left, place, text)


def _leaves(rng: random.Random) -> Problem:
    return _without(rng, "Then {gone} leaves. Who is the {rank}{most} now?")


def _not_counting(rng: random.Random) -> Problem:
    return _without(rng, "Not counting {gone}, who is the {rank}{most}?")


def _swapped_row(rng: random.Random) -> Problem:
    row = _Row(rng)
    one, two = rng.sample(row.order, 2)
    place = rng.randrange(len(row.order))
    question = (
        f"They stand in a row, the {row.most} first, and then {one} and {two} change places. "
        f"Who stands at place {place + 1}?"
    )
    return row.problem(f"swap {one} {two}", row.swapped(one, two), place, question)


def _turned_row(rng: random.Random) -> Problem:
    row = _Row(rng)
    place = rng.randrange(len(row.order))
    question = f"They stand in a row, the {row.most} last. Who stands at place {place + 1}?"
    return row.problem("turned", row.order[::-1], place, question)


def _exchange(rng: random.Random) -> Problem:
    row = _Row(rng)
    one, two = rng.sample(row.order, 2)
    place = rng.randrange(len(row.order))
    question = f"If {one} took the place of {two} and {two} that of {one}, who would be the {RANKS[place]}{row.most}?"
    return row.problem(f"swap {one} {two}", row.swapped(one, two), place, question)


LOGIC = Family("logic", "exact", (_place, _leaves, _not_counting, _swapped_row, _turned_row), _exchange)
