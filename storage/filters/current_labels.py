"""Which labels are current: the last of one author under one name at one place, unless it withdraws the label."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select

from storage.rows.schema import label

#: Labels that agree in these replace each other.
_KEY = ("episode_id", "idx", "span_start", "span_end", "name", "author")


def is_current() -> ColumnElement[bool]:
    """The condition on `label` that a row is current: it withdraws nothing, and no later one replaces it."""
    later = label.alias("later")
    replaced = exists(
        select(later.c.id).where(
            *(later.c[one].is_not_distinct_from(label.c[one]) for one in _KEY),
            or_(later.c.at > label.c.at, and_(later.c.at == label.c.at, later.c.id > label.c.id)),
        )
    )
    return and_(label.c.value != "", ~replaced)


def current_labels(*where: ColumnElement[bool]) -> Select[Any]:
    """The current rows among those that meet `where`: conditions on episode, name and author."""
    order = func.row_number().over(
        partition_by=[label.c[one] for one in _KEY],
        order_by=[label.c.at.desc(), label.c.id.desc()],
    )
    ranked = select(label, order.label("place")).where(*where).subquery()
    return (
        select(ranked)
        .where(ranked.c.place == 1, ranked.c.value != "")
        .order_by(ranked.c.episode_id, ranked.c.at, ranked.c.id)
    )
