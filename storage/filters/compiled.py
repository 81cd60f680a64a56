"""Filter expressions as SQL: a tree becomes one condition on `episode`, for SQLite and PostgreSQL.

SQL knows three truths, the language two. So a `not` is carried down to the single tests, each of which knows its
exact opposite, and what remains are ands and ors, where an unknown counts as false as a reader expects.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, false, func, literal, or_, select, true
from sqlalchemy.sql.expression import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from storage.filters.current_labels import is_current
from storage.filters.expression import (
    AllOf,
    Among,
    AnyOf,
    Compare,
    Count,
    Either,
    Every,
    Holds,
    Name,
    Node,
    Not,
    Operand,
    Search,
    Sign,
)
from storage.filters.vocabulary import Many
from storage.rows import search
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode, label, turn

_SIGNS: dict[Sign, Callable[[Any, Any], ColumnElement[bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE: dict[Sign, Sign] = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def condition(node: Node, dialect: str, holds: bool = True) -> ColumnElement[bool]:
    """The condition "the tree holds", or with `holds=False` its exact opposite."""
    match node:
        case Not(part):
            return condition(part, dialect, not holds)
        case Every(parts) | Either(parts):
            join = and_ if isinstance(node, Every) is holds else or_
            return join(*(condition(part, dialect, holds) for part in parts))
        case AnyOf(of, over):
            found = exists(_many(of, over, dialect, True))
            return found if holds else ~found
        case AllOf(of, over):
            failing = exists(_many(of, over, dialect, False))
            return ~failing if holds else failing
        case Search(words):
            match = search.matching(words, dialect)
            match = true() if match is None else match
            return match if holds else ~match
        case Among(left, values):
            return _among(left, values, dialect, holds)
        case Holds(left, part):
            return _contains(left, part, dialect, holds)
        case Compare(left, sign, right):
            return _compared(left, sign, right, dialect, holds)


def _many(of: Node, over: Many, dialect: str, holds: bool) -> Select[Any]:
    """The episode's turns, or labels that count, for which the test holds, or fails."""
    table = turn if over == "turn" else label
    counted = [is_current()] if over == "label" else []
    return (
        select(table.c.idx)
        .where(table.c.episode_id == episode.c.id, condition(of, dialect, holds), *counted)
        .correlate(episode)
    )


def _column(name: Name, dialect: str) -> ColumnElement[Any]:
    column = name.field.column
    return column if name.field.of is None else by_episode(column, dialect)


def by_episode(column: ColumnElement[Any], dialect: str) -> ColumnElement[Any]:
    """A column of a turn or a label by which none is looked up: they are to be found by their episodes. SQLite, which
    keeps no statistics, would go over all turns of a model for each episode (a plus keeps it from the column's
    indexes)."""
    if dialect != "sqlite":
        return column
    return UnaryExpression(column, operator=custom_op("+"), type_=column.type)


def _operand(value: Operand, dialect: str) -> ColumnElement[Any]:
    match value:
        case Name():
            return _column(value, dialect)
        case Count(of, over):
            counted = _many(of, over, dialect, True).with_only_columns(func.count())
            return counted.correlate(episode).scalar_subquery()
        case _:
            return literal(value)


def _nullable(value: Operand) -> bool:
    return isinstance(value, Name) and value.field.nullable


def _compared(left: Operand, sign: Sign, right: Operand, dialect: str, holds: bool) -> ColumnElement[bool]:
    a = _operand(left, dialect)
    if right is None:
        return a.is_(None) if (sign == "==") is holds else a.is_not(None)
    b = _operand(right, dialect)
    if sign in ("==", "!="):
        equal = (sign == "==") is holds
        if isinstance(right, bool):
            return a.is_(right) if equal else a.is_not(right)
        if _nullable(right) or (_nullable(left) and isinstance(right, Name | Count)):
            return a.is_not_distinct_from(b) if equal else a.is_distinct_from(b)
        if equal:
            return a == b
        return or_(a != b, a.is_(None)) if _nullable(left) else a != b
    if holds:
        return _SIGNS[sign](a, b)
    unknown = [side.is_(None) for side, value in ((a, left), (b, right)) if _nullable(value)]
    return or_(_SIGNS[_OPPOSITE[sign]](a, b), *unknown)


def _among(left: Name, values: tuple[Any, ...], dialect: str, holds: bool) -> ColumnElement[bool]:
    column = _column(left, dialect)
    known = [value for value in values if value is not None]
    within = column.in_(known) if known else false()
    if holds:
        return or_(within, column.is_(None)) if None in values else within
    outside = column.not_in(known) if known else true()
    if None in values:
        return and_(outside, column.is_not(None))
    return or_(outside, column.is_(None)) if left.field.nullable else outside


def _contains(left: Name, part: str, dialect: str, holds: bool) -> ColumnElement[bool]:
    column = _column(left, dialect)
    if left.name == "flags":
        carried = column.op("&")(flag_bits([part]))
        return carried != 0 if holds else carried == 0
    if left.field.kind == "set":  # words between commas
        found = (literal(",") + column + ",").contains(f",{part},", autoescape=True)
        return found if holds else ~found
    found = column.icontains(part, autoescape=True)
    if holds:
        return found
    return or_(~found, column.is_(None)) if left.field.nullable else ~found
