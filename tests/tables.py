"""Paired statistics of 2x2 tables that tests write down, every task played once."""

from __future__ import annotations

from core.analysis.comparison import Comparison, MatchedTasks, compare


def compare_counts(both: int, a_only: int, b_only: int, neither: int, *, key: str) -> Comparison:
    """The paired statistics of a 2x2 table, every task played once; `key` seeds the signs that are flipped."""
    cells = ((1, 1, both), (1, 0, a_only), (0, 1, b_only), (0, 0, neither))
    return compare([MatchedTasks(1, a, 1, b, tasks) for a, b, tasks in cells], key=key)
