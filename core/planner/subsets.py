"""Random subsets of a pool: a planner that sees them learns to do without a model (no torch)."""

from __future__ import annotations

from core.draws import uniform


def random_subset(key: str, n: int, least: int = 2) -> tuple[int, ...]:
    """`least` to `n` - 1 of n slots, each number of them equally likely, in order, drawn by `key`; all of them where
    there are not more than `least`."""
    draws = uniform(key, n + 1)
    size = n if n <= least else least + int(draws[0] * (n - least))
    order = sorted(range(n), key=lambda slot: float(draws[1 + slot]))
    return tuple(sorted(order[:size]))
