"""Multiple choice over real facts: chemical elements and capital cities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Literal

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


def _choice(
    rng: random.Random, stem: str, right: str, others: Sequence[str], plan: str, working: str
) -> Problem:
    """Four options to choose from by name."""
    decoys = rng.sample([other for other in others if other != right], 3)
    options = [right, *decoys]
    rng.shuffle(options)
    question = f"{stem}: {', '.join(options[:-1])} or {options[-1]}?"
    return Problem(question, right, plan, working, tuple(decoys))


def _moved(rng: random.Random, stem: str, by: Literal["name", "symbol"], direction: int) -> Problem:
    """An element some places from another. The plan recalls the number and leaves the sum and the element to do."""
    count = rng.randint(2, 9)
    start = rng.randrange(len(ELEMENTS) - count) + (count if direction < 0 else 0)
    end = start + direction * count
    column = ("name", "symbol").index(by)
    near = [row[column] for row in ELEMENTS[max(0, end - 4) : end + 5]]
    todo = f"{start + 1} {'+' if direction > 0 else '-'} {count}"
    right = ELEMENTS[end][column]
    question = stem.format(count=count, start=ELEMENTS[start][column])
    return _choice(rng, question, right, near, f"{todo} then {by}", f"{todo} = {end + 1} so {right}")


def _difference(rng: random.Random) -> Problem:
    low = rng.randrange(len(ELEMENTS) - 2)
    high = rng.randrange(low + 2, len(ELEMENTS))
    stem = f"By how much is the number of {ELEMENTS[high][0]} higher than that of {ELEMENTS[low][0]}"
    todo, right = f"{high + 1} - {low + 1}", high - low
    near = [str(value) for value in range(max(1, right - 4), right + 5)]
    return _choice(rng, stem, str(right), near, todo, f"{todo} = {right}")


def _largest(rng: random.Random) -> Problem:
    numbers = rng.sample(range(len(ELEMENTS)), 4)
    names = [ELEMENTS[number][0] for number in numbers]
    right = ELEMENTS[max(numbers)][0]
    question = f"Which of these elements has the largest number: {', '.join(names[:-1])} or {names[-1]}?"
    listed = " ".join(str(number + 1) for number in numbers)
    decoys = tuple(name for name in names if name != right)
    return Problem(
        question, right, f"{listed} then largest", f"{listed} so {max(numbers) + 1} so {right}", decoys
    )


def _same_continent(rng: random.Random, given: int, what: str) -> Problem:
    """A city from a country (`given` 0) or a country from a city (1): the plan recalls the continent."""
    first = rng.choice(CAPITALS)
    continent, wanted = first[2], 1 - given
    twin = rng.choice([row for row in CAPITALS if row[2] == continent and row != first])[wanted]
    others = [row[wanted] for row in CAPITALS if row[2] != continent]
    stem = f"Which {what} is on the same continent as {first[given]}"
    return _choice(rng, stem, twin, others, f"{continent} then {what}", f"{continent} so {twin}")


KNOWLEDGE = Family(
    "knowledge",
    "exact",
    (
        partial(_moved, stem="Which symbol stands {count} places after {start}", by="symbol", direction=1),
        partial(_moved, stem="Which element comes {count} places after {start}", by="name", direction=1),
        _difference,
        _largest,
        partial(_same_continent, given=0, what="city"),
        partial(_same_continent, given=1, what="country"),
    ),
    partial(_moved, stem="Which element comes {count} places before {start}", by="name", direction=-1),
)
