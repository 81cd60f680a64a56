"""Which labels are current: the last of one author under one name at one place, unless it withdraws the label."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select

from storage.rows.schema import label


def is_current() -> ColumnElement[bool]:
    """The condition on `label` that a row is current: it withdraws nothing, and no later one replaces it."""
    later = label.alias("later")
    same = ("episode_id", "idx", "span_start", "span_end", "name", "author")
    replaced = exists(
        select(later.c.id).where(
            *(later.c[one].is_not_distinct_from(label.c[one]) for one in same),
            or_(later.c.at > label.c.at, and_(later.c.at == label.c.at, later.c.id > label.c.id)),
        )
    )
    return and_(label.c.value != "", ~replaced)


def current_labels(*where: ColumnElement[bool]) -> Select[Any]:
    """The current rows among those that meet `where`: conditions on episode, name and author."""
    order = func.row_number().over(
        partition_by=[
            label.c.episode_id,
            label.c.idx,
            label.c.span_start,
            label.c.span_end,
            label.c.name,
            label.c.author,
        ],
        order_by=[label.c.at.desc(), label.c.id.desc()],
    )
    ranked = select(label, order.label("place")).where(*where).subquery()
    return (
        select(ranked)
        .where(ranked.c.place == 1, ranked.c.value != "")
        .order_by(ranked.c.episode_id, ranked.c.at, ranked.c.id)
    )
