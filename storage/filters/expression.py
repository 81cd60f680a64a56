"""The filter language: one boolean expression over episodes, their turns and labels, parsed to a frozen tree.

    correct == False and turns > 4 and any(turn.role == "verifier" and turn.verdict == "ACCEPT")
    labels == 0 or any(label.name == "quality" and label.value != "good")

    either     := both ("or" both)*                       both := no ("and" no)*        no := "not" no | test
    test       := "(" either ")" | "any(" either ")" | "all(" either ")" | 'search("words")' | operand tail*
    tail       := ("==" | "!=" | "<" | "<=" | ">" | ">=") operand          chains read as in mathematics
                | ["not"] "in" (field | "(" value ("," value)* ")")        "text" in question, "low_margin" in flags
    operand    := field | value | "count(" [either] ")"
    value      := "text" | 'text' | number | True | False | None

Nothing is ever evaluated: `storage/filters/parser.py` reads it, and the tree compiles to SQL in
`storage/filters/episode_filter.py`.
What stands in the bracket of any, all and count says what they go over: the turns of an episode by its `turn.`
fields, or its labels by its `label.` fields; of the labels, those that count (`storage/shelves/labels.py`).

A test is either true or false. An unknown value (None) equals None only, so `!=` finds it; it is neither smaller
nor larger than anything; and `not` gives exactly the other episodes. `all(...)` holds where there is nothing
to go over. Texts are equal letter by letter, and are searched (`in`) without regard to capitals. `search` is the
search box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias
from unicodedata import east_asian_width

from core.errors import ConfigError
from storage.filters.vocabulary import FIELDS, Field, Many

Sign = Literal["==", "!=", "<", "<=", ">", ">="]
Value: TypeAlias = str | int | float | bool | None

_EXCERPT = 100  # characters of a long expression that an error shows


# The tree


@dataclass(frozen=True, slots=True)
class Name:
    name: str

    @property
    def field(self) -> Field:
        return FIELDS[self.name]


@dataclass(frozen=True, slots=True)
class _OfMany:
    of: Node
    over: Many = "turn"


class Count(_OfMany):
    """How many of the episode's turns, or labels, pass a test."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Two operands and a sign; the left one is never a plain value. Times are Unix seconds."""

    left: Name | Count
    sign: Sign
    right: Name | Count | Value


@dataclass(frozen=True, slots=True)
class Among:
    left: Name
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Holds:
    """A text holds a part, or a set a member."""

    left: Name
    part: str


@dataclass(frozen=True, slots=True)
class Search:
    words: str


@dataclass(frozen=True, slots=True)
class _Joined:
    parts: tuple[Node, ...]


class Every(_Joined):
    """All parts hold."""


class Either(_Joined):
    """At least one part holds."""


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


class AnyOf(_OfMany):
    """At least one of the episode's turns, or labels, passes the test."""


class AllOf(_OfMany):
    """None of the episode's turns, or labels, fails the test."""


Node: TypeAlias = Compare | Among | Holds | Search | Every | Either | Not | AnyOf | AllOf
Operand: TypeAlias = Name | Count | Value


class ExpressionError(ConfigError):
    """A filter expression that cannot be read: one sentence, and where. `column` counts from 1."""

    def __init__(self, source: str, column: int, sentence: str) -> None:
        super().__init__(f"Column {column} of the filter: {sentence}")
        self.source, self.column, self.sentence = source, column, sentence

    @property
    def pointer(self) -> str:
        """The expression with a caret under the column; a long one only around it."""
        line = re.sub(r"\s", " ", self.source)
        first = max(0, min(self.column - 1 - _EXCERPT // 2, len(line) - _EXCERPT))
        shown = ("…" if first else "") + line[first : first + _EXCERPT]
        before = shown[: self.column - 1 - first + (1 if first else 0)]
        width = sum(2 if east_asian_width(letter) in "WF" else 1 for letter in before)
        return f"{shown}{'…' if first + _EXCERPT < len(line) else ''}\n{' ' * width}^"


def join_nodes(kind: type[Every] | type[Either], parts: Sequence[Node]) -> Node:
    """One node of all the parts, none of which is of the same kind."""
    if len(parts) == 1:
        return parts[0]
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    return kind(tuple(flat))


def field_names(node: Node | Operand) -> set[str]:
    match node:
        case Name(name):
            return {name}
        case Every(parts) | Either(parts):
            return set().union(*map(field_names, parts))
        case Not(part) | AnyOf(part) | AllOf(part) | Count(part) | Among(part) | Holds(part):
            return field_names(part)
        case Compare(left, _, right):
            return field_names(left) | field_names(right)
        case _:
            return set()


def write_expression(node: Node) -> str:
    within = "not in" if isinstance(node, Not) else "in"
    match node:
        case Every(parts):
            return " and ".join(_bracketed(part, Either) for part in parts)
        case Either(parts):
            return " or ".join(write_expression(part) for part in parts)
        case Among(left, values) | Not(Among(left, values)):
            listed = ", ".join(write_value(one, left) for one in values)
            return f"{left.name} {within} ({listed})"
        case Holds(left, part) | Not(Holds(left, part)):
            return f"{write_value(part)} {within} {left.name}"
        case Not(part):
            return f"not {_bracketed(part, Either, Every)}"
        case Search(words):
            return f"search({write_value(words)})"
        case AnyOf(of, _):
            return f"any({write_expression(of)})"
        case AllOf(of, _):
            return f"all({write_expression(of)})"
        case Compare(left, sign, right):
            return f"{write_value(left)} {sign} {write_value(right, left)}"


def write_value(value: Operand, of: Operand = None) -> str:
    """A field, a count or a value as it is written; `of` is the field it is compared with."""
    match value:
        case Name(name):
            return name
        case Count(node, _):
            return f"count({write_expression(node)})"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case float() if isinstance(of, Name) and of.field.kind == "time":
            return f'"{datetime.fromtimestamp(value, UTC).isoformat()}"'
        case _:
            return repr(value)


def _bracketed(node: Node, *kinds: type[Node]) -> str:
    return f"({write_expression(node)})" if isinstance(node, kinds) else write_expression(node)
