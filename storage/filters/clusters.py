"""Shares whose observations come in clusters, such as the turns of one task, added up by the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, func

from core.analysis.metrics import ClusteredShare


def cluster_sums(hits: ColumnElement[Any], counts: ColumnElement[Any]) -> list[ColumnElement[Any]]:
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


def to_share(sums: Sequence[Any]) -> ClusteredShare:
    """The share of a row of `cluster_sums`."""
    return ClusteredShare(*map(int, sums))


def to_shares(sums: Sequence[Any]) -> list[ClusteredShare]:
    """The shares of a row of several `cluster_sums`, one after the other."""
    return [to_share(sums[start : start + _FIELDS]) for start in range(0, len(sums), _FIELDS)]


def count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """How many rows meet a condition."""
    return func.sum(case((condition, 1), else_=0))
