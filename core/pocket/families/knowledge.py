"""Multiple choice over real facts: chemical elements and capital cities."""

from __future__ import annotations

import random
from collections.abc import Sequence

from core.pocket.problem import Family, Problem

#: Name and symbol of the elements, in order of atomic number from 1.
ELEMENTS = (
    ("hydrogen", "H"), ("helium", "He"), ("lithium", "Li"), ("beryllium", "Be"), ("boron", "B"), ("carbon", "C"),
    ("nitrogen", "N"), ("oxygen", "O"), ("fluorine", "F"), ("neon", "Ne"), ("sodium", "Na"), ("magnesium", "Mg"),
    ("aluminium", "Al"), ("silicon", "Si"), ("phosphorus", "P"), ("sulfur", "S"), ("chlorine", "Cl"), ("argon", "Ar"),
    ("potassium", "K"), ("calcium", "Ca"),
)  # fmt: skip

#: Country, capital, continent.
CAPITALS = (
    ("France", "Paris", "Europe"), ("Spain", "Madrid", "Europe"), ("Italy", "Rome", "Europe"),
    ("Norway", "Oslo", "Europe"), ("Greece", "Athens", "Europe"), ("Poland", "Warsaw", "Europe"),
    ("Japan", "Tokyo", "Asia"), ("China", "Beijing", "Asia"), ("India", "Delhi", "Asia"), ("Iran", "Tehran", "Asia"),
    ("Nepal", "Kathmandu", "Asia"), ("Egypt", "Cairo", "Africa"), ("Kenya", "Nairobi", "Africa"),
    ("Ghana", "Accra", "Africa"), ("Angola", "Luanda", "Africa"), ("Peru", "Lima", "America"),
    ("Cuba", "Havana", "America"), ("Chile", "Santiago", "America"), ("Canada", "Ottawa", "America"),
    ("Ecuador", "Quito", "America"),
)  # fmt: skip

LETTERS = "ABCD"


def _choice(rng: random.Random, stem: str, right: str, others: Sequence[str], recall: str) -> Problem:
    options = [right, *rng.sample([other for other in others if other != right], 3)]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    listed = " ".join(f"{mark}) {option}" for mark, option in zip(LETTERS, options, strict=True))
    decoys = tuple(mark for mark in LETTERS if mark != letter)
    return Problem(f"{stem} {listed}", letter, f"{recall} then {right}", decoys)


def _symbol_of_number(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS))
    name, symbol = ELEMENTS[number]
    recall = f"{number + 1} is {name} and {name} is {symbol}"
    others = [s for _, s in ELEMENTS]
    return _choice(rng, f"Which symbol has the element with number {number + 1}?", symbol, others, recall)


def _number_of_symbol(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS))
    name, symbol = ELEMENTS[number]
    recall = f"{symbol} is {name} and {name} is {number + 1}"
    others = [str(n + 1) for n in range(len(ELEMENTS))]
    return _choice(rng, f"Which number has the element with symbol {symbol}?", str(number + 1), others, recall)


def _name_after(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS) - 1)
    name = ELEMENTS[number][0]
    after = ELEMENTS[number + 1][0]
    recall = f"{name} is {number + 1} and {number + 2} is {after}"
    return _choice(rng, f"Which element comes right after {name}?", after, [n for n, _ in ELEMENTS], recall)


def _capital(rng: random.Random) -> Problem:
    country, city, _ = rng.choice(CAPITALS)
    return _choice(
        rng, f"Which city is the capital of {country}?", city, [c for _, c, _ in CAPITALS], f"{country} has {city}"
    )


def _continent_of_city(rng: random.Random) -> Problem:
    country, city, continent = rng.choice(CAPITALS)
    recall = f"{city} is in {country} and {country} is in {continent}"
    return _choice(
        rng, f"Which continent has the city {city}?", continent, ("Europe", "Asia", "Africa", "America"), recall
    )


def _same_continent(rng: random.Random) -> Problem:
    country, city, continent = rng.choice(CAPITALS)
    twin = rng.choice([row for row in CAPITALS if row[2] == continent and row[0] != country])
    others = [row[0] for row in CAPITALS if row[2] != continent]
    recall = f"{city} is in {country} and {country} is in {continent} like {twin[0]}"
    return _choice(rng, f"Which country is on the continent of {city}?", twin[0], others, recall)


def _country_of_city(rng: random.Random) -> Problem:
    country, city, _ = rng.choice(CAPITALS)
    return _choice(
        rng, f"Which country has the capital {city}?", country, [c for c, _, _ in CAPITALS], f"{city} is in {country}"
    )


KNOWLEDGE = Family(
    "knowledge",
    "choice",
    (_symbol_of_number, _number_of_symbol, _name_after, _capital, _continent_of_city, _same_continent),
    _country_of_city,
)
