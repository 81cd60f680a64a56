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
    ("potassium", "K"), ("calcium", "Ca"), ("scandium", "Sc"), ("titanium", "Ti"), ("vanadium", "V"),
    ("chromium", "Cr"),
    ("manganese", "Mn"), ("iron", "Fe"), ("cobalt", "Co"), ("nickel", "Ni"), ("copper", "Cu"), ("zinc", "Zn"),
    ("gallium", "Ga"), ("germanium", "Ge"), ("arsenic", "As"), ("selenium", "Se"), ("bromine", "Br"), ("krypton", "Kr"),
    ("rubidium", "Rb"), ("strontium", "Sr"), ("yttrium", "Y"), ("zirconium", "Zr"), ("niobium", "Nb"),
    ("molybdenum", "Mo"), ("technetium", "Tc"), ("ruthenium", "Ru"), ("rhodium", "Rh"), ("palladium", "Pd"),
    ("silver", "Ag"), ("cadmium", "Cd"), ("indium", "In"), ("tin", "Sn"), ("antimony", "Sb"), ("tellurium", "Te"),
    ("iodine", "I"), ("xenon", "Xe"), ("caesium", "Cs"), ("barium", "Ba"),
)  # fmt: skip

#: Country, capital, continent.
CAPITALS = (
    ("France", "Paris", "Europe"), ("Spain", "Madrid", "Europe"), ("Italy", "Rome", "Europe"),
    ("Norway", "Oslo", "Europe"), ("Greece", "Athens", "Europe"), ("Poland", "Warsaw", "Europe"),
    ("Japan", "Tokyo", "Asia"), ("China", "Beijing", "Asia"), ("India", "Delhi", "Asia"), ("Iran", "Tehran", "Asia"),
    ("Nepal", "Kathmandu", "Asia"), ("Egypt", "Cairo", "Africa"), ("Kenya", "Nairobi", "Africa"),
    ("Ghana", "Accra", "Africa"), ("Angola", "Luanda", "Africa"), ("Peru", "Lima", "America"),
    ("Cuba", "Havana", "America"), ("Chile", "Santiago", "America"), ("Canada", "Ottawa", "America"),
    ("Ecuador", "Quito", "America"), ("Sweden", "Stockholm", "Europe"), ("Austria", "Vienna", "Europe"),
    ("Hungary", "Budapest", "Europe"), ("Portugal", "Lisbon", "Europe"), ("Ireland", "Dublin", "Europe"),
    ("Vietnam", "Hanoi", "Asia"), ("Thailand", "Bangkok", "Asia"), ("Iraq", "Baghdad", "Asia"),
    ("Mongolia", "Ulaanbaatar", "Asia"), ("Jordan", "Amman", "Asia"), ("Morocco", "Rabat", "Africa"),
    ("Senegal", "Dakar", "Africa"), ("Uganda", "Kampala", "Africa"), ("Libya", "Tripoli", "Africa"),
    ("Colombia", "Bogota", "America"), ("Uruguay", "Montevideo", "America"),
    ("Finland", "Helsinki", "Europe"), ("Belgium", "Brussels", "Europe"), ("Romania", "Bucharest", "Europe"),
    ("Turkey", "Ankara", "Asia"), ("Syria", "Damascus", "Asia"), ("Laos", "Vientiane", "Asia"),
    ("Nigeria", "Abuja", "Africa"), ("Zambia", "Lusaka", "Africa"), ("Tunisia", "Tunis", "Africa"),
    ("Bolivia", "Sucre", "America"), ("Jamaica", "Kingston", "America"), ("Panama", "Panama City", "America"),
)  # fmt: skip

CONTINENTS = ("Europe", "Asia", "Africa", "America")


def _choice(rng: random.Random, stem: str, right: str, others: Sequence[str], plan: str) -> Problem:
    """Four options to choose from by name. The plan recalls the first fact and names what is still to be recalled."""
    decoys = rng.sample([other for other in others if other != right], 3)
    options = [right, *decoys]
    rng.shuffle(options)
    return Problem(f"{stem}: {', '.join(options[:-1])} or {options[-1]}?", right, plan, tuple(decoys))


def _symbol_of_number(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS))
    name, symbol = ELEMENTS[number]
    stem = f"Which symbol has the element with number {number + 1}"
    return _choice(rng, stem, symbol, [s for _, s in ELEMENTS], f"{number + 1} is {name} then symbol")


def _number_of_symbol(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS))
    name, symbol = ELEMENTS[number]
    stem = f"Which number has the element with symbol {symbol}"
    numbers = [str(n + 1) for n in range(len(ELEMENTS))]
    return _choice(rng, stem, str(number + 1), numbers, f"{symbol} is {name} then number")


def _name_after(rng: random.Random) -> Problem:
    number = rng.randrange(len(ELEMENTS) - 1)
    name, after = ELEMENTS[number][0], ELEMENTS[number + 1][0]
    stem = f"Which element comes right after {name}"
    return _choice(rng, stem, after, [n for n, _ in ELEMENTS], f"{name} is {number + 1} then {number + 2}")


def _capital(rng: random.Random) -> Problem:
    country, city, continent = rng.choice(CAPITALS)
    stem = f"Which city is the capital of {country}"
    return _choice(rng, stem, city, [c for _, c, _ in CAPITALS], f"{country} is in {continent} then city")


def _continent_of_city(rng: random.Random) -> Problem:
    country, city, continent = rng.choice(CAPITALS)
    stem = f"Which continent has the city {city}"
    return _choice(rng, stem, continent, CONTINENTS, f"{city} is in {country} then continent")


def _same_continent(rng: random.Random) -> Problem:
    country, _, continent = rng.choice(CAPITALS)
    twin = rng.choice([row[1] for row in CAPITALS if row[2] == continent and row[0] != country])
    others = [row[1] for row in CAPITALS if row[2] != continent]
    stem = f"Which city is on the same continent as {country}"
    return _choice(rng, stem, twin, others, f"{country} is in {continent} then city")


def _country_of_city(rng: random.Random) -> Problem:
    country, city, continent = rng.choice(CAPITALS)
    stem = f"Which country has the capital {city}"
    return _choice(rng, stem, country, [c for c, _, _ in CAPITALS], f"{city} is in {continent} then country")


KNOWLEDGE = Family(
    "knowledge",
    "exact",
    (_symbol_of_number, _number_of_symbol, _name_after, _capital, _continent_of_city, _same_continent),
    _country_of_city,
)
