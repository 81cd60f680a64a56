"""Keyset paging: opaque cursors, capped counts, both directions, whatever the order."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, select, tuple_

from storage.rows.mapping import Rows
from storage.rows.summaries import COUNT_CAP, CappedCount, Page

T = TypeVar("T")


@dataclass(frozen=True)
class Keyset:
    """An order over rows: `key` (never NULL) then `id` decide every tie."""

    key: ColumnElement[Any]
    id: ColumnElement[str]
    descending: bool

    def ordered(self, query: Select[Any], backwards: bool) -> Select[Any]:
        """The query in this order, or in the opposite one."""
        if self.descending is not backwards:
            return query.order_by(self.key.desc(), self.id.desc())
        return query.order_by(self.key.asc(), self.id.asc())

    def beyond(self, cursor: tuple[Any, Any], backwards: bool) -> ColumnElement[bool]:
        """The rows after the cursor, a key and an id or expressions for them, in this order, or before it."""
        here, there = tuple_(self.key, self.id), tuple_(*cursor)
        return here < there if self.descending is not backwards else here > there


def encode_cursor(value: float, row_id: str) -> str:
    """A cursor for a URL."""
    return base64.urlsafe_b64encode(json.dumps([value, row_id]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> tuple[float, str] | None:
    """Inverse of `encode_cursor`; None for anything else, so that a damaged link shows the first page."""
    if not cursor or len(cursor) > 200:
        return None
    try:
        value, row_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return (float(value), row_id) if math.isfinite(value) and isinstance(row_id, str) else None
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None


def count_capped(connection: Connection, matching: Select[Any], cap: int = COUNT_CAP) -> CappedCount:
    """How many rows match, up to `cap`."""
    capped = matching.limit(cap + 1).subquery()
    n = connection.execute(select(func.count()).select_from(capped)).scalar_one()
    return CappedCount(min(n, cap), n > cap)


def read_page(
    connection: Connection,
    rows: Select[Any],
    keyset: Keyset,
    total: CappedCount,
    to_item: Callable[[Rows], T],
    *,
    after: str | None,
    before: str | None,
    last: bool,
    limit: int,
) -> Page[T]:
    """One page of `rows`: the first, the last, or the one next to a cursor. One query.

    `rows` must select the keyset's columns as "page_key" and "id".
    """
    forward, backward = decode_cursor(after), decode_cursor(before)
    backwards = forward is None and (last or backward is not None)
    cursor = forward or (None if last else backward)
    if cursor is not None:
        rows = rows.where(keyset.beyond(cursor, backwards))
    found: Sequence[Rows] = (
        connection.execute(keyset.ordered(rows, backwards).limit(limit + 1)).mappings().all()
    )
    more, found = len(found) > limit, found[:limit]
    if backwards:
        found = found[::-1]
    has_previous = more if backwards else cursor is not None
    has_next = cursor is not None if backwards else more
    cursors = [encode_cursor(row["page_key"], row["id"]) for row in (*found[:1], *found[-1:])]
    return Page(
        items=tuple(to_item(row) for row in found),
        total=total,
        next=cursors[-1] if has_next and cursors else None,
        previous=cursors[0] if has_previous and cursors else None,
    )
