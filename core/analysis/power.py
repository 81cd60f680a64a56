"""How many pairs of plays show a difference, before they are played."""

from __future__ import annotations

import math
from statistics import NormalDist

#: How often a difference that is there shall be seen: the usual power of a test.
POWER = 0.8


def pairs_to_see(difference: float) -> int:
    """How many pairs show a `difference` of two shares (0 to 1) with probability POWER, at 95 % confidence.

    The sample size of McNemar's test (Connor 1987) where it is largest: shares around one half, and pairs whose two
    outcomes have nothing to do with each other. Equal random draws mostly make it fewer. ValueError outside 0 to 1."""
    if not 0 < difference < 1:
        raise ValueError(f"A difference of two shares lies between 0 and 1, not {difference}.")
    differ = (1 + difference**2) / 2  # the share of pairs whose two outcomes differ
    sure, seen = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(POWER)
    reach = sure * math.sqrt(differ) + seen * math.sqrt(differ - difference**2)
    return math.ceil((reach / difference) ** 2)


def difference_seen(pairs: int) -> float:
    """The smallest difference, in whole hundredths, that so many `pairs` show with probability POWER; 1 where they show
    none."""
    return next((points / 100 for points in range(1, 100) if pairs_to_see(points / 100) <= pairs), 1.0)
