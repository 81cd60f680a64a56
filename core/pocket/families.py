"""The four families of problems that everything is trained on, and what problems are made of: a question, its answer,
the plan that leads there and answers that only look right.

Answers of the family `code` are the generators' own; a test runs every kind of expression through the sandbox.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from core.grader import Grader

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with all that the training texts need.

    `plan` names what is to be computed and computes nothing of it: that is the Worker's part. `working` is the
    computation step by step to its end, as a judge writes it before the verdict."""

    question: str
    answer: str
    plan: str
    working: str
    decoys: tuple[str, ...]


Template = Callable[[random.Random], Problem]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of problem: templates to draw from, and one that no model and no coordinator was trained on."""

    name: str
    grader: Grader
    templates: Sequence[Template]
    unseen: Template


@dataclass(frozen=True, slots=True)
class Computation:
    """Whole numbers computed from left to right: `first`, then each step's sign and number."""

    first: int
    steps: tuple[tuple[Literal["+", "-", "*"], int], ...]

    @property
    def values(self) -> list[int]:
        """The first number and what each step gives."""
        return list(
            accumulate(
                self.steps, lambda value, step: OPERATIONS[step[0]](value, step[1]), initial=self.first
            )
        )

    @property
    def plan(self) -> str:
        """As in "4 * 12 + 17"."""
        return " ".join([str(self.first), *(f"{sign} {number}" for sign, number in self.steps)])

    @property
    def working(self) -> str:
        """As in "4 * 12 = 48 + 17 = 65"."""
        done = zip(self.steps, self.values[1:], strict=True)
        return " ".join([str(self.first), *(f"{sign} {number} = {value}" for (sign, number), value in done)])

    def problem(self, rng: random.Random, question: str) -> Problem:
        """The problem that this computation solves, with decoys from a step left out or turned round."""
        near = []
        for place, (sign, number) in enumerate(self.steps):
            before, after = self.steps[:place], self.steps[place + 1 :]
            near.append(Computation(self.first, (*before, *after)).values[-1])
            if sign != "*":
                turned: Literal["+", "-"] = "-" if sign == "+" else "+"
                near.append(Computation(self.first, (*before, (turned, number), *after)).values[-1])
        return number_problem(rng, question, self.values[-1], self.plan, self.working, near)


def sum_of(values: Sequence[int]) -> Computation:
    return Computation(values[0], tuple(("+", value) for value in values[1:]))


def number_problem(
    rng: random.Random, question: str, answer: int, plan: str, working: str, near: Sequence[int]
) -> Problem:
    """A problem with decoys such as a slip produces: `near` (results of a wrong step), one off, ten off, near by."""
    slips = (1, -1, 10, -10, *(rng.choice((-1, 1)) * rng.randint(2, 9) for _ in range(4)))
    wrong = dict.fromkeys((*near, *(answer + slip for slip in slips)))  # each once
    pool = [value for value in wrong if value != answer and value >= 0]
    decoys = tuple(str(value) for value in rng.sample(pool, min(3, len(pool))))
    return Problem(question, str(answer), plan, working, decoys)


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


def _product(rng: random.Random, stem: str, least: int, sign: Literal["+", "-"]) -> Problem:
    """So many times so many, and then more or less; no more is taken away than there is."""
    name, thing = _cast(rng)
    a, b = rng.randint(2, 6), rng.randint(least, 9)
    c = rng.randint(2, a * b - 1 if sign == "-" else 20)
    question = stem.format(name=name, thing=thing, a=a, b=b, c=c)
    return Computation(a, (("*", b), (sign, c))).problem(rng, question)


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


_FILLED = "{name} fills {a} boxes with {b} {thing} each"
MATH = Family(
    "math",
    "number",
    (
        _gain_lose,
        _lose_gain,
        partial(
            _product,
            stem=f"{_FILLED} and has {{c}} {{thing}} left over. How many {{thing}} in all?",
            least=2,
            sign="+",
        ),
        partial(
            _product,
            stem="{name} sells {a} {thing} at {b} dollars each and spends {c} dollars. How many dollars are left?",
            least=3,
            sign="-",
        ),
        _two_people,
        _three_steps,
    ),
    partial(
        _product, stem=f"{_FILLED} and then gave {{c}} away. How many {{thing}} are left?", least=3, sign="-"
    ),
)


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


def _swapped(rng: random.Random, question: str) -> Problem:
    row = _Row(rng)
    one, two = rng.sample(row.order, 2)
    place = rng.randrange(len(row.order))
    text = question.format(one=one, two=two, rank=RANKS[place], most=row.most, number=place + 1)
    other = {one: two, two: one}
    return row.problem(f"swap {one} {two}", [other.get(name, name) for name in row.order], place, text)


def _turned_row(rng: random.Random) -> Problem:
    row = _Row(rng)
    place = rng.randrange(len(row.order))
    question = f"They stand in a row, the {row.most} last. Who stands at place {place + 1}?"
    return row.problem("turned", row.order[::-1], place, question)


LOGIC = Family(
    "logic",
    "exact",
    (
        _place,
        partial(_without, question="Then {gone} leaves. Who is the {rank}{most} now?"),
        partial(_without, question="Not counting {gone}, who is the {rank}{most}?"),
        partial(
            _swapped,
            question="They stand in a row, the {most} first, and then {one} and {two} change places. "
            "Who stands at place {number}?",
        ),
        _turned_row,
    ),
    partial(
        _swapped,
        question="If {one} took the place of {two} and {two} that of {one}, who would be the {rank}{most}?",
    ),
)


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


ASK = "What does this give?"


def _condition(rng: random.Random, values: list[int], low: int = 2, high: int = 7) -> tuple[str, list[int]]:
    """A condition on x, as a limit from `low` to `high` or as odd or even, and the values that fulfil it."""
    if rng.random() < 0.5:
        limit = rng.randint(low, high)
        sign, holds = rng.choice((("<", operator.lt), (">", operator.gt), ("<=", operator.le)))
        return f"x {sign} {limit}", [x for x in values if holds(x, limit)]
    rest = int(rng.random() < 0.5)
    return f"x % 2 == {rest}", [x for x in values if x % 2 == rest]


def _filtered_sum(rng: random.Random, span: bool) -> Problem:
    """A sum over some values of a list, or of a range."""
    values = [] if span else [rng.randint(1, 9) for _ in range(5)]
    low, high, shown = 2, 7, f"{values}"
    if span:
        start = rng.randint(1, 15)
        stop = start + rng.randint(4, 6)
        values, low, high, shown = [*range(start, stop)], start + 1, stop - 2, f"range({start}, {stop})"
    condition, chosen = _condition(rng, values, low, high)
    if not 2 <= len(chosen) <= 4:
        return _filtered_sum(rng, span)
    return sum_of(chosen).problem(rng, f"{ASK} sum([x for x in {shown} if {condition}])")


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


CODE = Family(
    "code",
    "code",
    (partial(_filtered_sum, span=False), _filtered_count, _sliced_sum, _items, _lookup, _span),
    partial(_filtered_sum, span=True),
)
