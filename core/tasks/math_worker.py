"""Compares mathematical expressions with math-verify, in a process of its own: one JSON pair per line in, one per line
out.

It is a process because math-verify interrupts what takes too long by a signal, which only a main thread can have, and
because sympy can take any amount of time and memory. Run by `core.tasks.mathematics`.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import warnings
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

#: Seconds for one step of a comparison, seconds of CPU for all of a process, bytes of memory.
STEP_S = 2
MEMORY = 2 << 30
#: A power beyond this is not worked out.
_HIGHEST_POWER = 10_000
_MODULO = re.compile(
    r"(?:(?P<name>[a-z])\s*)?(?:\\equiv|=)\s*(?P<value>-?\d+)\s*\(?\s*\\?p?mod(?:ulo)?\s*\{?\s*(?P<modulus>\d+)\s*\}?\s*\)?"
)
_IN_BASE = re.compile(r"(?P<digits>[0-9A-Fa-f]+)\s*_\s*\{?\s*(?P<base>\d{1,2})\s*\}?")
_SMALL_TOWER = re.compile(r"\^\s*\{\s*(\d{1,2})\s*\^\s*\{?\s*([0-3])\s*\}?\s*\}")
#: What stands for members of a list that are left out.
_DOTS = re.compile(r"\\(?:ldots|dots[cbm]?|cdots)(?![A-Za-z])|\.\.\.|\u2026")
_IN_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)\s*\{?\(?\s*)(-?\d+(?:\.\d+)?)\s*\^\s*\{?\\circ\s*\}?"
)


def same(given: str, right: str) -> bool:
    """Whether two expressions in LaTeX are the same in mathematics."""
    known = [_classified(text) for text in (given, right)]
    if any(known):
        return known[0] == known[1]
    if any(_DOTS.search(text) for text in (given, right)):
        return _same_sequence(given, right)
    ours, theirs = _parsed(right), _parsed(given)
    if ours is None or theirs is None:
        return False
    sets = [_as_set(one) for one in (ours, theirs)]
    if None not in sets:
        return bool(sets[0] == sets[1])
    return (_verified(ours, theirs) or _equal(ours, theirs)) and not _differ(ours, theirs)


def _same_sequence(given: str, right: str) -> bool:
    """Whether two lists that leave members out show the same members at the same places."""
    ours, theirs = ([part.strip() for part in text.split(",")] for text in (right, given))
    return len(ours) == len(theirs) and all(
        one == other
        or (bool(_DOTS.fullmatch(one)) and bool(_DOTS.fullmatch(other)))
        or (not _DOTS.search(one + other) and same(other, one))
        for one, other in zip(ours, theirs, strict=True)
    )


def _classified(text: str) -> tuple[Any, ...] | None:
    """Notations that the parser does not know: numbers in a base, residues, ratios."""
    text = text.strip()
    if found := _IN_BASE.fullmatch(text):
        return "base", found["digits"].lower().lstrip("0"), int(found["base"])
    if found := _MODULO.fullmatch(text):
        return "modulo", int(found["value"]) % max(1, int(found["modulus"])), int(found["modulus"])
    if found := re.fullmatch(r"(\d+)\s*(?::|to)\s*(\d+)(?:\s*(?::|to)\s*(\d+))?", text):
        return ("ratio", *(int(part) for part in found.groups() if part))
    return None


def _parsed(text: str) -> Any:
    text = _SMALL_TOWER.sub(lambda it: f"^{{{int(it[1]) ** int(it[2])}}}", text)
    text = _IN_DEGREES.sub(r"\1 \\frac{\2\\pi}{180} ", text)
    text = re.sub(r"\\langle(.*)\\rangle", r"(\1)", text)
    text = re.sub(r"\\begin\s*\{[pb]matrix\}([^&]*)\\end\s*\{[pb]matrix\}", _column, text)
    if (
        any(int(power) > _HIGHEST_POWER for power in re.findall(r"\^\s*\{?\s*(\d+)", text))
        or text.count("^{") > 6
    ):
        return None
    if re.search(r"\^\s*\{[^{}]*\^\s*\{?[^{}]*\^|\^\s*\{\s*\d+\s*\^|\d{4,}\s*!|!\s*!", text):  # towers
        return None
    found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=STEP_S)
    if not found or isinstance(found[0], str):
        return None
    decimals = {one: sympy.Rational(str(one)) for one in found[0].atoms(sympy.Float)}
    return found[0].xreplace(decimals)  # a decimal is what it says, exactly


def _column(found: re.Match[str]) -> str:
    rows = found[1].split(2 * "\\")
    return f"({','.join(rows)})"


def _as_set(value: Any) -> Any:
    """The numbers that an inequality or an interval stands for; None for anything else."""
    if value is sympy.S.EmptySet or isinstance(value, (sympy.Interval, sympy.Union)):
        return value
    if isinstance(value, sympy.FiniteSet):
        parts = [_as_set(part) for part in value.args]
        return sympy.Union(*parts) if parts and None not in parts else None
    related = isinstance(value, (sympy.core.relational.Relational, sympy.And, sympy.Or))
    if related and not isinstance(value, sympy.Eq) and len(value.free_symbols) == 1:
        try:
            return value.as_set()
        except (NotImplementedError, TypeError, ValueError):
            return None
    return None


def _verified(ours: Any, theirs: Any) -> bool:
    try:
        return bool(
            verify(ours, theirs, float_rounding=12, allow_set_relation_comp=True, timeout_seconds=STEP_S)
        )
    except Exception:
        return False


def _equal(ours: Any, theirs: Any) -> bool:
    """Whether two expressions are equal when decimals are taken for what they say exactly and i for the imaginary
    unit."""
    try:
        a, b = (_exact(one) for one in (ours, theirs))
        if a.free_symbols != b.free_symbols:
            return False
        difference = sympy.simplify(a - b)
        return bool(difference.equals(0))
    except Exception:
        return False


#: Digits to which two values are worked out, and in how many of them they have to agree.
_DIGITS, _AGREED = 80, 50


def _differ(ours: Any, theirs: Any) -> bool:
    """Whether two values that were taken for the same are not: math-verify compares to twelve places, by which
    2^-80 would be 2^-81. Each part is worked out to many more, its letters at a few places."""
    try:
        pairs = _parts(ours, theirs)
        return any(_are_apart(one, other) for one, other in pairs)
    except Exception:  # what cannot be worked out cannot be told apart so
        return False


def _parts(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    """The expressions of which two values of the same build consist, in pairs; nothing where the builds differ."""
    if isinstance(ours, sympy.FiniteSet) and isinstance(theirs, sympy.FiniteSet):
        # In an order that does not depend on how a member is written.
        rows = [sorted(one.args, key=_place) for one in (ours, theirs)]
    elif isinstance(ours, sympy.MatrixBase) and isinstance(theirs, sympy.MatrixBase):
        rows = [[*one] for one in (ours, theirs)]
    elif isinstance(ours, sympy.Eq) and isinstance(
        theirs, sympy.Eq
    ):  # equal equations need not have equal sides
        return [(ours.rhs, theirs.rhs)] if ours.lhs == theirs.lhs and ours.lhs.is_Symbol else []
    elif isinstance(ours, sympy.Expr) and isinstance(theirs, sympy.Expr):
        return [(ours, theirs)]
    elif type(ours) is type(theirs) and ours.args:
        rows = [[*one.args] for one in (ours, theirs)]
    else:
        return []
    if len(rows[0]) != len(rows[1]):
        return []
    return [pair for one, other in zip(*rows, strict=True) for pair in _parts(one, other)]


def _place(value: Any) -> tuple[Any, ...]:
    number = sympy.N(value, _DIGITS)
    return (0, *number.as_real_imag()) if number.is_number else (1, str(value))


def _are_apart(one: Any, other: Any) -> bool:
    letters = sorted({*one.free_symbols, *other.free_symbols}, key=str)
    named = {
        letter: {"i": sympy.I, "e": sympy.E}.get(str(letter), sympy.Rational(7 + 4 * place, 5))
        for place, letter in enumerate(letters)
    }
    a, b = (sympy.N(side.subs(named).doit(), _DIGITS) for side in (one, other))
    if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
        return False
    apart, size = abs(a - b), max(abs(a), abs(b))
    return bool(apart > size * sympy.Rational(1, 10) ** _AGREED)


def _exact(value: Any) -> Any:
    names = {one: sympy.I if str(one) == "i" else sympy.Symbol(str(one)) for one in value.free_symbols}
    return sympy.nsimplify(value.subs(names).doit(), rational=True)


def main() -> None:
    """Answer line by line until the input ends."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", flush=True)
    for line in sys.stdin:
        given, right = json.loads(line)
        try:
            print(json.dumps(same(given, right)), flush=True)
        except BaseException:  # whatever a hostile expression does, the next one is answered
            print("false", flush=True)


if __name__ == "__main__":
    main()
