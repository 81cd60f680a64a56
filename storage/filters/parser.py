"""Reads a filter expression: tokens, then one method for each line of the grammar of `storage/filters/expression.py`.

Every mistake is one sentence with the column it stands at and, where there is one, the likeliest meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from math import isfinite
from typing import Literal, cast, get_args

from storage.filters.expression import (
    AllOf,
    Among,
    AnyOf,
    Compare,
    Count,
    Either,
    Every,
    ExpressionError,
    Holds,
    Name,
    Node,
    Not,
    Operand,
    Search,
    Sign,
    Value,
    join_nodes,
    write_value,
)
from storage.filters.vocabulary import ALIASES, FIELDS, Field, Many
from storage.rows import search

LONGEST_EXPRESSION = 20_000  # characters: some hundreds of episode ids
DEEPEST = 24  # brackets and nots within each other
MOST_TESTS = 100
_MIRRORED: dict[Sign, Sign] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}
_WORDS = ("and", "or", "not", "in", "any", "all", "count", "search", *_CONSTANTS)
_KINDS = {
    "text": 'text: write it in quotes, such as "{}"',
    "number": "a number",
    "truth": "True, False or None",
    "time": 'a time: write a date in quotes, such as "2026-11-05" or "2026-11-05 14:30"',
}


def parse_expression(source: str) -> Node:
    if len(source) > LONGEST_EXPRESSION:
        raise ExpressionError(
            source,
            LONGEST_EXPRESSION + 1,
            f"it is longer than {LONGEST_EXPRESSION:,} characters: ask for less at once.",
        )
    return _Parser(source).expression()


# Reading

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    |(?P<sign>==|!=|<=|>=|[<>()\[\],])""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_INSTEAD = {
    "=": "write == to compare.",
    "&": "write and between two conditions.",
    "|": "write or between two conditions.",
    "!": "write not before a condition, or != between two values.",
    **dict.fromkeys("“”‘", 'write straight quotes, such as "ACCEPT".'),
    **dict.fromkeys("\"'", "this text has no closing quote."),
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # number, text, name, sign, end
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind in ("name", "sign") else ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text if self.kind == "text" else f"“{self.text}”"


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(self._tokens())
        self.here = 0
        self.depth = 0
        self.tests = 0
        # None outside any, all, count; there: what its fields belong to, empty before the first is named
        self.over: Many | Literal[""] | None = None

    def fault(self, at: int | _Token, sentence: str) -> ExpressionError:
        column = 1 + (at.at if isinstance(at, _Token) else at)
        return ExpressionError(self.source, column, sentence)

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.source):
            found = _TOKEN.match(self.source, at)
            if found is None:
                sign = self.source[at]
                shown = f"“{sign}”" if sign.isprintable() else "this invisible character"
                raise self.fault(
                    at, _INSTEAD.get(sign, f"{shown} means nothing here: texts stand in quotes.")
                )
            if found.lastgroup == "text" and (bad := re.search(r"[\x00-\x1f\ud800-\udfff]", found[0])):
                raise self.fault(at + bad.start(), "a text cannot hold this invisible character.")
            if found.lastgroup != "space":
                yield _Token(str(found.lastgroup), found[0], at)
            at = found.end()
        yield _Token("end", "", len(self.source))

    @property
    def next(self) -> _Token:
        return self.tokens[self.here]

    def take(self) -> _Token:
        self.here += 1
        return self.tokens[self.here - 1]

    def accept(self, *words: str) -> _Token | None:
        return self.take() if self.next.word in words else None

    def expect(self, word: str, where: str) -> None:
        if not self.accept(word):
            raise self.fault(self.next, f"{where}, not {self.next}: write {word} here.")

    def expression(self) -> Node:
        if self.next.kind == "end":
            raise self.fault(0, "it is empty: write a condition such as correct == False.")
        node = self.either()
        token = self.next
        if token.word in (")", "]"):
            raise self.fault(token, f"{token} closes a bracket that was never opened.")
        if token.kind != "end":
            raise self.fault(token, f"{token} cannot follow here: put and or or between two conditions.")
        return node

    def either(self) -> Node:
        return self._joined("or", Either, self.both)

    def both(self) -> Node:
        return self._joined("and", Every, self.no)

    def _joined(self, word: str, kind: type[Every] | type[Either], part: Callable[[], Node]) -> Node:
        parts = [part()]
        while self.accept(word):
            parts.append(part())
        return join_nodes(kind, parts)

    def no(self) -> Node:
        token = self.next
        if not self.accept("not"):
            return self.test()
        self._deeper(token.at)
        found = Not(self.no())
        self.depth -= 1
        return found

    def _one_more(self, at: int) -> None:
        self.tests += 1
        if self.tests > MOST_TESTS:
            raise self.fault(at, f"more than {MOST_TESTS} conditions: ask for less at once.")

    def _deeper(self, at: int) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.fault(at, f"brackets and nots stand more than {DEEPEST} deep: split the condition.")

    def test(self) -> Node:
        token = self.next
        if self.accept("("):
            self._deeper(token.at)
            node = self.either()
            self.expect(")", f"the bracket of column {token.at + 1} must be closed")
            self.depth -= 1
            return node
        if self.accept("any"):
            return AnyOf(*self.of_many(token))
        if self.accept("all"):
            return AllOf(*self.of_many(token))
        if self.accept("search"):
            return self.searched()
        return self.tails(token)

    def of_many(self, word: _Token) -> tuple[Node, Many]:
        """The bracket after any, all or count, and whether it asks about turns or labels."""
        self._one_more(word.at)
        if self.over is not None:
            raise self.fault(word, f"{word} cannot stand inside another any, all or count.")
        self.expect("(", f"{word.text} asks about turns or labels in a bracket")
        self._deeper(word.at)
        self.over = ""
        node, over = self.either(), cast(Many | Literal[""], self.over)
        if not over:
            raise self.fault(
                word,
                f'{word} must ask something of a turn or a label, such as {word.text}(turn.role == "verifier").',
            )
        self.over = None
        self.expect(")", f"the bracket of {word.text} must be closed")
        self.depth -= 1
        return node, over

    def searched(self) -> Node:
        self.expect("(", "search takes words in a bracket")
        token = self.take()
        words = _unquoted(token.text) if token.kind == "text" else ""
        if not search.terms(words):
            raise self.fault(token, 'search needs words in quotes, such as search("prime number").')
        self.expect(")", "the bracket of search must be closed")
        return Search(words)

    def tails(self, token: _Token) -> Node:
        """A bare truth field, a comparison, a chain of comparisons, or a membership."""
        left, parts = self.operand(), []
        while True:
            at = self.next.at
            self._one_more(at)
            sign, no = self.accept(*get_args(Sign)), None
            if sign is None and self.next.word == "not" and self.tokens[self.here + 1].word == "in":
                no = self.take()
            if sign is not None:
                right_token = self.next
                right = self.operand()
                parts.append(self.compared(token, left, cast(Sign, sign.text), at, right_token, right))
                token, left = right_token, right
            elif self.accept("in"):
                node = self.member(token, left)
                parts.append(Not(node) if no else node)
                break
            else:
                break
        if parts:
            return join_nodes(Every, parts)
        if isinstance(left, Name) and left.field.kind == "truth":
            return Compare(left, "==", True)
        raise self.fault(self.next, f"{token} must be compared with something, such as {_example(left)}.")

    def operand(self) -> Operand:
        token = self.take()
        if token.word == "count":
            if self.over is None and [one.word for one in self.tokens[self.here :][:2]] == ["(", ")"]:
                self.here += 2
                return Name("turns")
            return Count(*self.of_many(token))
        if token.kind == "number":
            return self.number(token)
        if token.kind == "text":
            return _unquoted(token.text)
        if token.kind == "name":
            return _CONSTANTS[token.word] if token.word in _CONSTANTS else self.name(token)
        raise self.fault(token, f"a field or a value is missing before {token}.")

    def number(self, token: _Token) -> int | float:
        value = float(token.text)
        if not isfinite(value):
            raise self.fault(token, "this number is too large.")
        is_integer = token.text.lstrip("-").isdecimal() and abs(value) < 2**62
        return int(token.text) if is_integer else value

    def name(self, token: _Token) -> Name:
        name = ALIASES.get(token.word, token.word)
        if name not in FIELDS:
            raise self.fault(token, self._unknown(token))
        if (of := FIELDS[name].of) is not None:
            if self.over is None:
                raise self.fault(token, f"{token} belongs to a {of}: write any({token.text} ...) around it.")
            if self.over not in ("", of):
                raise self.fault(
                    token,
                    f"{token} belongs to a {of}, and this bracket asks about a {self.over}: close it first.",
                )
            self.over = of
        return Name(name)

    def _unknown(self, token: _Token) -> str:
        word = token.word
        if word in _WORDS:
            return f"{token} cannot stand here: a field or a value is missing before it."
        for of in (self.over,) if self.over else get_args(Many):
            if f"{of}.{word}" in FIELDS:
                where = ", in any(...)" if self.over is None else ""
                return f"there is no field {token}: did you mean {of}.{word}{where}?"
        if near := get_close_matches(word, _CONSTANTS, 1, 0.75):
            return f"there is no field {token}: did you mean {near[0].capitalize()}?"
        if near := get_close_matches(word, [*FIELDS, *ALIASES, *_WORDS], 1, 0.6):
            return f"there is no field {token}: did you mean {near[0]}?"
        return f'there is no field {token}: a text stands in quotes, "{token.text}".'

    # What fits what

    def compared(
        self, token: _Token, left: Operand, sign: Sign, at: int, right_token: _Token, right: Operand
    ) -> Node:
        if not isinstance(left, Name | Count):
            if not isinstance(right, Name | Count):
                raise self.fault(token, "one side of a comparison must be a field.")
            left, right, sign, right_token = right, left, _MIRRORED[sign], token
        kind = "number" if isinstance(left, Count) else left.field.kind
        shown = "count(...)" if isinstance(left, Count) else left.name
        if kind == "set":
            raise self.fault(
                at, f'{shown} holds several words: write "{FIELDS[shown].choices[0]}" in {shown}.'
            )
        if sign not in ("==", "!=") and kind not in ("number", "time"):
            raise self.fault(at, f"{shown} is neither large nor small: compare it with == or !=.")
        if isinstance(right, Name | Count):
            other = "number" if isinstance(right, Count) else right.field.kind
            if other != kind and {other, kind} != {"text", "choice"}:
                raise self.fault(right_token, f"{right_token} and {shown} are of different kinds.")
            return Compare(left, sign, right)
        if right is None and sign not in ("==", "!="):
            raise self.fault(right_token, "None is neither large nor small: compare with == or !=.")
        if isinstance(left, Count):
            if isinstance(right, bool) or not isinstance(right, int | float):
                raise self.fault(right_token, "count(...) is a number.")
            return Compare(left, sign, right)
        return Compare(left, sign, self.fitting(left.field, right_token, right))

    def fitting(self, field: Field, token: _Token, value: Value) -> Value:
        """The value as the field stores it; a mistake when it cannot be one of its values."""
        if value is None:
            return None
        if field.kind == "choice" or (field.kind == "truth" and isinstance(value, str)):
            spelt = field.spellings.get(value.lower()) if isinstance(value, str) else None
            if spelt is None:
                raise self.fault(token, self._no_choice(field, token, value))
            return spelt if field.kind == "choice" else spelt == "right"
        if field.kind == "time" and isinstance(value, str):
            return self.time(token, value)
        fits = {
            "text": isinstance(value, str),
            "number": isinstance(value, int | float) and not isinstance(value, bool),
            "truth": isinstance(value, bool),
        }
        if not fits.get(field.kind, False):
            raise self.fault(token, f"{field.name} is {_KINDS[field.kind].format(value)}.")
        return value

    def _no_choice(self, field: Field, token: _Token, value: Value) -> str:
        near = get_close_matches(str(value).lower(), [*field.spellings], 1, 0.6)
        if near and isinstance(value, str):
            return f'{field.name} is never {token}: did you mean "{field.spellings[near[0]]}"?'
        if field.kind == "truth":
            return f"{field.name} is True, False or None, not {token}."
        return f"{field.name} is one of {', '.join(field.choices)}, not {token}."

    def time(self, token: _Token, value: str) -> float:
        try:
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise self.fault(
                token, f'{token} is no date: write one such as "2026-11-05" or "2026-11-05 14:30".'
            ) from error

    def member(self, token: _Token, left: Operand) -> Node:
        """What follows `in`: a bracket of values, or a text or set that holds the left side."""
        opening = self.accept("(", "[")
        if opening is None:
            return self.held(token, left)
        if not isinstance(left, Name) or left.field.kind == "set":
            raise self.fault(token, "a single field must stand before in (...).")
        closing, values = (")" if opening.text == "(" else "]"), []
        while True:
            at = self.next
            value = self.operand()
            if isinstance(value, Name | Count):
                raise self.fault(at, f"only values can stand in the bracket, not {at}.")
            values.append(self.fitting(left.field, at, value))
            if not self.accept(","):
                break
        self.expect(closing, "the bracket of in must be closed")
        return Among(left, tuple(values))

    def held(self, token: _Token, part: Operand) -> Node:
        holder_token = self.next
        holder = self.operand()
        if not isinstance(holder, Name) or holder.field.kind not in ("text", "set"):
            raise self.fault(
                holder_token, "after in stands a bracket of values, or a field that holds text or flags."
            )
        if not isinstance(part, str):
            raise self.fault(token, 'before in must stand a text in quotes, such as "prime" in question.')
        if holder.field.kind == "set":
            member = holder.field.spellings.get(part.lower())
            if member is None:
                raise self.fault(token, self._no_choice(holder.field, token, part))
            part = member
        return Holds(holder, part)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _example(left: Operand) -> str:
    if not isinstance(left, Name):
        return f"{write_value(left)} < turns" if isinstance(left, int | float) else "correct == False"
    value: Value = {"number": 4, "time": "2026-11-05", "truth": True}.get(left.field.kind)  # type: ignore[assignment]
    if left.field.kind == "set":
        return f'"{left.field.choices[0]}" in {left.name}'
    return f"{left.name} == {write_value(value or next(iter(left.field.choices), '...'))}"
