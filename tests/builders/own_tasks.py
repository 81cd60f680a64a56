"""Task families of one's own: word problems, algebra in LaTeX, questions with options, and small programs.

Each exercise knows how models write its right answer, and answers that are wrong.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from core.grader import Grader

SPLITS = ("evolve", "validation", "test")


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question with the ways to write its right answer, the first as the task file has it, and with wrong answers.
    `steps` are sentences of the work that leads there."""

    family: str
    grader: Grader
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    steps: tuple[str, ...]

    def line(self, split: str) -> str:
        """Its line in a task file."""
        fields = {
            "question": self.question,
            "answer": self.right[0],
            "grader": self.grader,
            "family": self.family,
            "split": split,
        }
        return json.dumps(fields) + "\n"


def exercises(each: int, seed: int = 0) -> list[Exercise]:
    """So many different ones of each family, the families in turn."""
    dice, found = random.Random(seed), {}
    for number in range(each):
        for make in FAMILIES.values():
            made = make(dice, number)
            while made.question in found:
                made = make(dice, number)
            found[made.question] = made
    return list(found.values())


def task_file(tasks: Sequence[Exercise], splits: Sequence[str] = SPLITS) -> str:
    """The text of a task file in which each family has as many tasks in each of the splits, as far as they go."""
    families = len({one.family for one in tasks})
    return "".join(one.line(splits[number // families % len(splits)]) for number, one in enumerate(tasks))


_NAMES = ("Ada", "Bruno", "Chidi", "Dora", "Emil", "Farah")
_GOODS = ("notebooks", "candles", "tiles", "bulbs", "seedlings")


def _shop(dice: random.Random, number: int) -> Exercise:
    name, goods = dice.choice(_NAMES), dice.choice(_GOODS)
    boxes, each = dice.randint(12, 60), dice.randint(11, 48)
    given, price = dice.randint(3, 99), dice.randint(2, 9)
    left = boxes * each - given
    forms: tuple[str, ...]
    if number % 2:
        total, asked = (
            left * price,
            f"How many dollars does {name} earn by selling the rest at ${price} each?",
        )
        forms = (f"{total}", f"{total:,}", f"${total:,}", f"\\${total:,}", f"{total} dollars", f"${total}.00")
        forms += (f"{left} \\times {price} = {total}",)
    else:
        total, asked = left, f"How many {goods} are left?"
        forms = (f"{total}", f"{total:,}", f"{total} {goods}", f"{total}.0", f"{total} \\text{{ {goods}}}")
    steps = (
        f"There are {boxes} boxes with {each} {goods} in each, so $ {boxes} \\times {each} = {boxes * each} $.",
        f"Of these {boxes * each:,}, {name} gives away {given}: \\[{boxes * each} - {given} = {left}\\]",
        f"```python\nboxes, each, given = {boxes}, {each}, {given}\nprint(boxes * each - given)\n```",
        f"- boxes: {boxes}\n- {goods} in a box: {each}\n- given away: {given}",
    )
    question = (
        f"{name} has {boxes} boxes with {each} {goods} in each and gives {given} {goods} to a school. {asked}"
    )
    return Exercise("shop", "number", question, forms, (f"{total + each}", f"{total + 2 * given}"), steps)


def _algebra(dice: random.Random, number: int) -> Exercise:
    return (_equation, _inequality, _roots)[number % 3](dice)


def _equation(dice: random.Random) -> Exercise:
    a, b = dice.choice((3, 7, 11, 13)), dice.randint(1, 20)
    c = b + dice.choice([k for k in range(-25, 26) if k % a])
    x = Fraction(c - b, a)
    top, bottom, sign = abs(x.numerator), x.denominator, "-" if x < 0 else ""
    forms: tuple[str, ...] = (f"{sign}\\frac{{{top}}}{{{bottom}}}", f"{sign}\\dfrac{{{top}}}{{{bottom}}}")
    forms += (f"x = {sign}\\frac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}", f"x={sign}{top}/{bottom}")
    forms += (f"${sign}\\tfrac{{{top}}}{{{bottom}}}$", f"\\left({sign}\\frac{{{top}}}{{{bottom}}}\\right)")
    steps = (
        f"Subtract {b} on both sides: $ {a}x = {c} - {b} = {c - b} $.",
        f"Divide by {a}:\n\n\\begin{{align*}}\n{a}x &= {c - b} \\\\\nx &= \\frac{{{c - b}}}{{{a}}}\n\\end{{align*}}",
        "The coefficient is not zero, so there is exactly one solution.",
    )
    wrong = (f"\\frac{{{c + b}}}{{{a}}}", f"{sign}\\frac{{{bottom}}}{{{top}}}")
    return Exercise("algebra", "math", f"Solve ${a}x + {b} = {c}$ for $x$.", forms, wrong, steps)


def _inequality(dice: random.Random) -> Exercise:
    low, a, b = dice.randint(-9, 3), dice.randint(2, 5), dice.randint(1, 9)
    high = low + dice.randint(2, 9)
    forms: tuple[str, ...] = (
        f"[{low}, {high})",
        f"\\left[{low}, {high}\\right)",
        f"[{low},{high})",
        f"x \\in [{low}, {high})",
    )
    forms += (f"${low} \\le x < {high}$", f"$\\left[{low},\\, {high}\\right)$")
    steps = (
        f"Subtract {b} from all three parts: $ {a * low} \\leq {a}x < {a * high} $.",
        f"As ${a} > 0$, dividing by {a} keeps the signs:\n\n$$ {low} \\le x < {high} $$",
        "1. The left end belongs to the set, as the sign is $\\le$.\n2. The right end does not.",
    )
    question = f"Write the solutions of ${a * low + b} \\le {a}x + {b} < {a * high + b}$ as an interval."
    wrong = (f"({low}, {high}]", f"[{low}, {high}]", f"[{low + 1}, {high})")
    return Exercise("algebra", "math", question, forms, wrong, steps)


def _roots(dice: random.Random) -> Exercise:
    low = dice.randint(-9, 8)
    high = low + dice.randint(1, 9)
    linear, constant = -(low + high), low * high
    forms: tuple[str, ...] = (
        f"\\{{{low}, {high}\\}}",
        f"\\left\\{{{low}, {high}\\right\\}}",
        f"\\{{{high}, {low}\\}}",
    )
    forms += (f"x \\in \\{{{low}, {high}\\}}", f"$\\{{{low},\\ {high}\\}}$")
    steps = (
        f"Look for two numbers with sum {low + high} and product {constant}.",
        f"These are {low} and {high}, so \\[(x - ({low}))(x - ({high})) = 0.\\]",
        f"> A product is zero when one of its factors is.\n\nHence $x_1 = {low}$ and $x_2 = {high}$.",
    )
    question = f"Give the set of all real solutions of $x^2 {linear:+}x {constant:+} = 0$."
    wrong = (f"\\{{{-high}, {-low}\\}}" if low != -high else f"\\{{{low}, {high + 1}\\}}", f"\\{{{low}\\}}")
    return Exercise("algebra", "math", question, forms, wrong, steps)


#: What is ordered by what, from the most to the least.
_ORDERS = {
    "planet has the largest diameter": "Jupiter, Saturn, Uranus, Neptune, Earth, Venus, Mars, Mercury",
    "element has the highest atomic number": "uranium, lead, gold, silver, iron, calcium, neon, carbon, helium",
    "country has the largest area": "Russia, Canada, Brazil, India, Kazakhstan, Algeria, Mexico, Chile, Norway, Nepal",
    "mountain is the highest": "Mount Everest, Aconcagua, Denali, Kilimanjaro, Mont Blanc, Mount Fuji, Ben Nevis",
    "unit of time is the longest": "a century, a decade, a year, a month, a week, a day, an hour, a minute",
    "animal usually lives longest": "a giant tortoise, an elephant, a horse, a dog, a rabbit, a mouse, a mayfly",
}


def _science(dice: random.Random, _: int) -> Exercise:
    asked, listed = dice.choice([*_ORDERS.items()])
    order = listed.split(", ")
    options = dice.sample(order, 4)
    best = min(options, key=order.index)
    letter = "ABCD"[options.index(best)]
    shown = "\n".join(f"{name}) {option}" for name, option in zip("ABCD", options, strict=True))
    forms: tuple[str, ...] = (
        letter,
        f"({letter})",
        f"{letter}) {best}",
        f"**{letter}**",
        f"{letter}. {best}",
        best,
    )
    forms += (f"Option {letter}", f"\\text{{{letter}}}", f"**{letter}) {best}**")
    steps = (
        f"We have to find out which {asked} among the four options.",
        "\n".join(f"* **{option}**: to be compared with the others." for option in options),
        f"Put in order, they are {', '.join(sorted(options, key=order.index))}.",
    )
    others = [name for name in "ABCD" if name != letter]
    wrong = (*others, *(f"{name}) {options['ABCD'.index(name)]}" for name in others))
    return Exercise("science", "choice", f"Which {asked}?\n{shown}", forms, wrong, steps)


_WORDS = (
    "lantern",
    "meadow",
    "harbour",
    "compass",
    "thistle",
    "orchard",
    "granite",
    "velvet",
    "saffron",
    "willow",
)


def _strings(dice: random.Random, _: int) -> Exercise:
    word, first, second = dice.choice(_WORDS), dice.randint(0, 2), dice.randint(2, 3)
    programs: tuple[tuple[str, Callable[[str], str]], ...] = (
        (f"word[::-1][{first}:{first + 4}]", lambda text: text[::-1][first : first + 4]),
        (f"word[{first}:] + word[:{second}]", lambda text: text[first:] + text[:second]),
        (f"word[{first}::{second}] * 2", lambda text: text[first::second] * 2),
        ("'-'.join(sorted(set(word)))", lambda text: "-".join(sorted(set(text)))),
    )
    code, run = dice.choice(programs)
    printed = run(word)
    forms: tuple[str, ...] = (
        printed,
        f"`{printed}`",
        f'"{printed}"',
        f"'{printed}'",
        f"**{printed}**",
        f"{printed}.",
    )
    steps = (
        f"The letters of `{word}` with their places:\n\n"
        + "\n".join(f"{place}. `{letter}`" for place, letter in enumerate(word)),
        f"```python\n>>> word = '{word}'\n>>> len(word)\n{len(word)}\n```",
        "A slice takes its first place and leaves out its last one.",
    )
    question = f"What does this program print?\n\n```python\nword = '{word}'\nprint({code})\n```"
    return Exercise("strings", "exact", question, forms, (printed[::-1] + "s", printed[1:] + "e"), steps)


FAMILIES: dict[str, Callable[[random.Random, int], Exercise]] = {
    "shop": _shop,
    "algebra": _algebra,
    "science": _science,
    "strings": _strings,
}
