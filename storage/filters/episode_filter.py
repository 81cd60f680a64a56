"""Which episodes a list shows: a frozen filter that travels in a URL, and filter expressions as SQL.

A tree becomes one condition on `episode`, for SQLite and PostgreSQL. SQL knows three truths, the language two: an
unknown test counts as false, and so it does below a `not`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from sqlalchemy import ColumnElement, Select, and_, exists, false, func, literal, not_, or_, select, true
from sqlalchemy.sql.expression import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from core.episode import EndReason, Role, Status
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
    field_names,
    join_nodes,
    write_expression,
)
from storage.filters.parser import LONGEST_EXPRESSION, parse_expression
from storage.filters.vocabulary import (
    BY_HAND,
    IS_FORK,
    IS_MEASURED,
    IS_MIXED,
    IS_OWN_RECORD,
    IS_SAMPLE,
    Many,
    is_current,
)
from storage.rows import search
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode, label, turn
from storage.rows.summaries import EPISODE_FLAGS, SavedView

_SIGNS: dict[Sign, Callable[[Any, Any], ColumnElement[bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def condition(node: Node, dialect: str) -> ColumnElement[bool]:
    """The condition that the tree holds; false or unknown where it does not."""
    match node:
        case Not(AnyOf() | AllOf() | Search() as part):  # never unknown
            return ~condition(part, dialect)
        case Not(part):
            return ~func.coalesce(condition(part, dialect), false())
        case Every(parts):
            return and_(*(condition(part, dialect) for part in parts))
        case Either(parts):
            return or_(*(condition(part, dialect) for part in parts))
        case AnyOf(of, over):
            return exists(_many(of, over, dialect))
        case AllOf(of, over):
            return ~exists(_many(Not(of), over, dialect))
        case Search(words):
            match = search.matching(words, dialect)
            return true() if match is None else match
        case Among(left, values):
            return _among(left, values, dialect)
        case Holds(left, part):
            return _contains(left, part, dialect)
        case Compare(left, sign, right):
            return _compared(left, sign, right, dialect)


def _many(of: Node, over: Many, dialect: str) -> Select[Any]:
    """The episode's turns, or labels that count, for which the test holds."""
    table = turn if over == "turn" else label
    counted = [is_current()] if over == "label" else []
    return (
        select(table.c.idx)
        .where(table.c.episode_id == episode.c.id, condition(of, dialect), *counted)
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
            counted = _many(of, over, dialect).with_only_columns(func.count())
            return counted.correlate(episode).scalar_subquery()
        case _:
            return literal(value)


def _nullable(value: Operand) -> bool:
    return isinstance(value, Name) and value.field.nullable


def _compared(left: Operand, sign: Sign, right: Operand, dialect: str) -> ColumnElement[bool]:
    a = _operand(left, dialect)
    if right is None:
        return a.is_(None) if sign == "==" else a.is_not(None)
    if isinstance(right, bool):
        return a.is_(right) if sign == "==" else a.is_not(right)
    b, unknown = _operand(right, dialect), (_nullable(left), _nullable(right))
    if sign == "==" and all(unknown):
        return a.is_not_distinct_from(b)
    if sign == "!=" and any(unknown):
        return a.is_distinct_from(b)
    return _SIGNS[sign](a, b)


def _among(left: Name, values: tuple[Any, ...], dialect: str) -> ColumnElement[bool]:
    column = _column(left, dialect)
    within = column.in_([value for value in values if value is not None])
    return or_(within, column.is_(None)) if None in values else within


def _contains(left: Name, part: str, dialect: str) -> ColumnElement[bool]:
    column = _column(left, dialect)
    if left.name == "flags":
        return column.op("&")(flag_bits([part])) != 0
    if left.field.kind == "set":  # words between commas
        return (literal(",") + column + ",").contains(f",{part},", autoescape=True)
    return column.icontains(part, autoescape=True)


_OUTCOMES: dict[str, bool | None] = {"right": True, "wrong": False, "none": None}
#: The fields that take one of a few values.
CHOICES: dict[str, tuple[str, ...]] = {
    "correct": tuple(_OUTCOMES),
    "end_reason": tuple(EndReason),
    "status": tuple(Status),
    "flag": EPISODE_FLAGS,
    "role": tuple(Role),
    "forks": ("with", "only", "without"),
    "samples": ("with", "only", "without"),
}
#: Whoever asks about one of these means the episodes that it names, forks and samples or not.
_TELLS: dict[Literal["forks", "samples"], set[str]] = {
    "forks": {"purpose", "fork", "measured", "evolution", "parent", "fork_turn", "run", "id"},
    "samples": {"purpose", "sample", "parent", "run", "id"},
}
#: The fields that name who decided an episode.
_DECIDERS = ("policy", "checkpoint", "generation")
_NUMBERS = ("generation", "min_turns", "max_turns")
_LONGEST = 200
_MOST = 10**6  # nothing has as many turns or generations, and no database refuses the number


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """All conditions must hold; None means "any". Values come from `Facets`, so they can be clicked together.

    `correct` is "right", "wrong" or "none"; `model` and `role` match episodes with at least one such turn
    (the same turn when both are given); `text` is searched in questions and replies; `q` is an expression of the
    filter language (`storage/filters/expression.py`).

    `policy`, `checkpoint` and `generation` match the plays that this policy decided throughout: what a person took a
    turn of, or a second policy, is nobody's, unless the filter asks for just that (`mixed`, or its flags).

    A fork carries turns of another episode and is no play of its own: forks are left out unless `forks` says "with" or
    "only", or the filter names a run or asks for them itself (`fork == True`, `parent`, an id). "without" leaves out
    live plays, those of evolutions and decisions taken by hand as well, as totals do (`for_totals`).

    Samples, the runs that came with the program, are left out as soon as there is an episode of one's own that could
    stand in their place: one that the filter's policy played in a recorded run, which a fork, a live play or a request
    is not; in totals one that they count. `samples` and the names of a run or an episode say otherwise.
    """

    run: str | None = None
    policy: str | None = None
    checkpoint: str | None = None
    generation: int | None = None
    family: str | None = None
    task: str | None = None
    correct: str | None = None
    end_reason: str | None = None
    status: str | None = None
    flag: str | None = None
    min_turns: int | None = None
    max_turns: int | None = None
    model: str | None = None
    role: str | None = None
    text: str | None = None
    forks: str | None = None
    samples: str | None = None
    q: str | None = None

    def to_query(self) -> dict[str, str]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> EpisodeFilter:
        """The filter a URL asks for; unknown keys and unusable values are ignored: stale links open.

        An unreadable `q` is kept: what it asks for is unknown, so the list has to say so.
        """
        found: dict[str, str | int] = {}
        for field in fields(cls):
            value = query.get(field.name, "")
            if field.name == "q" and value.strip():
                found["q"] = value[: LONGEST_EXPRESSION + 1]
            elif not value or len(value) > _LONGEST:
                continue
            elif field.name in _NUMBERS:
                if value.isascii() and value.isdecimal() and len(value) < 7:
                    found[field.name] = int(value)
            elif value in CHOICES.get(field.name, (value,)):
                found[field.name] = value
        return cls(**found)  # type: ignore[arg-type]  # numbers and texts sorted above

    def without(self, *names: str) -> EpisodeFilter:
        return replace(self, **dict.fromkeys(names))

    def narrow(self, q: str) -> EpisodeFilter:
        """Those of its episodes for which the expression `q` holds as well. ExpressionError for an unreadable one."""
        return replace(
            self,
            q=q
            if self.q is None
            else write_expression(join_nodes(Every, [parse_expression(self.q), parse_expression(q)])),
        )


#: Every episode there is.
WHOLE_STORE = EpisodeFilter(forks="with", samples="with")


def conditions(where: EpisodeFilter, dialect: str) -> list[ColumnElement[bool]]:
    """The filter as conditions on `episode`. A value that nothing can match gives a false condition.

    ExpressionError for a `q` that cannot be read.
    """
    if any(getattr(where, name) not in (None, *choices) for name, choices in CHOICES.items()):
        return [false()]
    nodes = _nodes(where)
    found = [condition(node, dialect) for node in nodes]
    if is_silent(where, "forks", nodes):
        found.append(not_(IS_FORK))
    if is_silent(where, "samples", nodes):
        found.append(or_(not_(IS_SAMPLE), not_(has_own(where))))
    return found


def is_silent(
    where: EpisodeFilter, of: Literal["forks", "samples"], nodes: Sequence[Node] | None = None
) -> bool:
    """Whether the filter says nothing of forks, so that none is shown, or of samples, so that one's own episodes come
    in their place. ExpressionError for an unreadable `q`; `nodes` are those of a filter that was read before."""
    said = _nodes(where) if nodes is None else nodes
    return getattr(where, of) is None and not any(field_names(node) & _TELLS[of] for node in said)


def has_own(where: EpisodeFilter) -> ColumnElement[bool]:
    """Whether there is an episode of one's own that the filter's policy played in a recorded run, so that samples are
    set aside. Where the filter takes only what totals count, it is such a one: no page is left empty by the rule."""
    own: list[ColumnElement[bool]] = [IS_OWN_RECORD]
    own += [
        episode.c[column] == value
        for column, value in (
            ("policy", where.policy),
            ("checkpoint_id", where.checkpoint),
            ("generation", where.generation),
        )
        if value is not None
    ]
    if _by_one(where):
        own.append(not_(IS_MIXED))
    if where.forks == "without":
        own.append(IS_MEASURED)
    return exists(select(episode.c.id).where(*own).correlate(None))


def for_totals(where: EpisodeFilter) -> EpisodeFilter:
    """The filter as totals take it: where it leaves forks out it also leaves out what a person took a hand in, unless
    it asks for just that. Lists of what a total counts use it too. ExpressionError for an unreadable `q`."""
    return (
        replace(where, forks="without") if is_silent(where, "forks") and where.flag not in BY_HAND else where
    )


def _by_one(where: EpisodeFilter) -> bool:
    named = any(getattr(where, name) is not None for name in _DECIDERS)
    asked = parse_expression(where.q) if where.q is not None else None
    return named and where.flag not in BY_HAND and not (asked and "mixed" in field_names(asked))


def as_expression(where: EpisodeFilter) -> str:
    """The whole filter as one expression; empty when it is open. ExpressionError for an unreadable `q`."""
    nodes = _nodes(where)
    if where.forks == "with" and not any(field_names(node) & _TELLS["forks"] for node in nodes):
        nodes.append(Among(Name("fork"), (True, False)))  # true of every episode, and asks for forks
    if where.samples == "with":
        nodes.append(Among(Name("sample"), (True, False)))
    return write_expression(join_nodes(Every, nodes)) if nodes else ""


def filter_of_address(query: Mapping[str, str], view: SavedView | None) -> EpisodeFilter:
    """What an address asks for: its own conditions, and those of the view it names.

    ExpressionError when either cannot be read."""
    where = EpisodeFilter.from_query(query)
    if where.q is not None:
        parse_expression(where.q)  # a mistake in it is shown by its own columns
    if view is None:
        return where
    saved = EpisodeFilter.from_query(view.query)
    parts = [parse_expression(part) for part in (as_expression(saved), where.q) if part]
    part = write_expression(join_nodes(Every, parts)) if parts else None
    return replace(where, q=part, forks=where.forks or saved.forks, samples=where.samples or saved.samples)


def _nodes(where: EpisodeFilter) -> list[Node]:
    """Each field that is set, said in the filter language, and what the expression itself says."""
    found: list[Node] = [
        Compare(Name(name), "==", value)
        for name in ("run", "policy", "checkpoint", "generation", "family", "task", "end_reason", "status")
        if (value := getattr(where, name)) is not None
    ]
    if _by_one(where):
        found.append(Compare(Name("mixed"), "==", False))
    if where.correct is not None:
        found.append(Compare(Name("correct"), "==", _OUTCOMES[where.correct]))
    if where.forks == "only":
        found.append(Compare(Name("fork"), "==", True))
    if where.forks == "without":
        found.append(Compare(Name("measured"), "==", True))
    if where.samples in ("only", "without"):
        found.append(Compare(Name("sample"), "==", where.samples == "only"))
    if where.flag is not None:
        found.append(Holds(Name("flags"), where.flag))
    if where.min_turns is not None and where.min_turns == where.max_turns:
        found.append(Compare(Name("turns"), "==", min(where.min_turns, _MOST)))
    else:
        for sign, limit in ((">=", where.min_turns), ("<=", where.max_turns)):
            if limit is not None:
                found.append(Compare(Name("turns"), cast(Sign, sign), min(limit, _MOST)))
    of_turn: list[Node] = [
        Compare(Name(f"turn.{name}"), "==", value)
        for name, value in (("model", where.model), ("role", where.role))
        if value is not None
    ]
    if of_turn:
        found.append(AnyOf(join_nodes(Every, of_turn)))
    if where.text is not None and search.terms(where.text):
        found.append(Search(where.text))
    if where.q is not None:
        found.append(parse_expression(where.q))
    return found
