"""How far reviewers agree beyond chance: Cohen's kappa for two, Krippendorff's alpha for any number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa of two reviewers over `n` items: 1 is full agreement, 0 what chance would give. `kappa` and its
    interval are None where chance alone agrees on everything, so that kappa is not defined."""

    kappa: float | None
    low: float | None
    high: float | None
    observed: float  # share of items with the same value
    n: int


def cohen_kappa(counts: Sequence[Sequence[int]]) -> Kappa:
    """Kappa (Cohen 1960) of a square table: items that the first reviewer gave value i and the second value j.

    The 95 % interval is the large-sample one (Fleiss, Cohen and Everitt 1969), held within [-1, 1]."""
    n = sum(map(sum, counts))
    if n == 0:
        return Kappa(None, None, None, 0.0, 0)
    shares = [[count / n for count in row] for row in counts]
    rows = [sum(row) for row in shares]
    columns = [sum(column) for column in zip(*shares, strict=True)]
    observed = sum(shares[i][i] for i in range(len(shares)))
    expected = sum(row * column for row, column in zip(rows, columns, strict=True))
    if math.isclose(expected, 1.0):
        return Kappa(None, None, None, observed, n)
    kappa = (observed - expected) / (1 - expected)
    size = range(len(shares))
    agreeing = sum(shares[i][i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in size)
    differing = (1 - kappa) ** 2 * sum(
        shares[i][j] * (columns[i] + rows[j]) ** 2 for i in size for j in size if i != j
    )
    variance = agreeing + differing - (kappa - expected * (1 - kappa)) ** 2
    half = NormalDist().inv_cdf(0.975) * math.sqrt(max(variance, 0.0) / n) / (1 - expected)
    return Kappa(kappa, max(-1.0, kappa - half), min(1.0, kappa + half), observed, n)


def krippendorff_alpha(items: Sequence[Sequence[str]]) -> float | None:
    """Alpha of values without order (Krippendorff 2011): each item holds its reviewers' values, however many there
    are.

    None where fewer than two values were compared, or where all are the same."""
    compared = [Counter(values) for values in items if len(values) > 1]
    totals = sum(compared, Counter[str]())
    n = totals.total()
    chance = n * n - sum(count * count for count in totals.values())
    if chance == 0:
        return None
    disagreeing = sum(
        (found.total() ** 2 - sum(count * count for count in found.values())) / (found.total() - 1)
        for found in compared
    )
    return 1 - (n - 1) * disagreeing / chance
