"""Shares whose observations come in clusters, such as the turns of one task, added up by the database."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from core.analysis.metrics import ClusteredShare
from storage.rows.schema import episode

#: A share of rows: those that meet the first condition, of those that meet the second (None: of all).
Share = tuple[ColumnElement[bool], ColumnElement[bool] | None]


def read_shares(
    connection: Connection,
    rows: Select[Any],
    keys: Sequence[ColumnElement[Any]],
    *shares: Share,
    cluster: ColumnElement[Any] = episode.c.task_key,
) -> dict[tuple[Any, ...], list[ClusteredShare]]:
    """These shares of a query's rows (whatever it selects), for each combination of keys; rows of one `cluster` fall
    together. One query."""
    named = [key.label(f"key_{place}") for place, key in enumerate(keys)]
    counted = [
        (func.count() if met is None else count_if(met)).label(f"count_{place}")
        for place, met in enumerate(chain.from_iterable(shares))
    ]
    clusters = rows.with_only_columns(*named, *counted, maintain_column_froms=True)
    found = clusters.group_by(*named, cluster).subquery()
    n, columns = len(named), list(found.c)
    sums = chain.from_iterable(map(_sums, columns[n::2], columns[n + 1 :: 2]))
    query = select(*columns[:n], *sums).group_by(*columns[:n])
    return {tuple(row[:n]): _to_shares(row[n:]) for row in connection.execute(query)}


def _sums(hits: ColumnElement[Any], counts: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """The fields of a `ClusteredShare`, over rows that are one cluster each with `hits` of `counts`."""
    return [
        func.sum(hits),
        func.sum(counts),
        func.sum(case((counts > 0, 1), else_=0)),
        func.sum(hits * hits),
        func.sum(hits * counts),
        func.sum(counts * counts),
    ]


_FIELDS = 6
#: The share of no rows.
NOTHING = ClusteredShare(*[0] * _FIELDS)


def _to_shares(sums: Sequence[Any]) -> list[ClusteredShare]:
    fields = [int(value) for value in sums]
    return [ClusteredShare(*fields[start : start + _FIELDS]) for start in range(0, len(fields), _FIELDS)]


def count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """How many rows meet a condition."""
    return func.sum(case((condition, 1), else_=0))
