"""Whether an ending was luck: an episode is played again and again until it can be told if it ends right more often
than wrong, with a bound on how often that is told wrongly.

One may look after every play. So that looking often does not make errors likelier, each look asks for more than a test
that is made once: it stops where a fair coin would show so many of one side, or more, with a probability of `AT_A_LOOK`
at most (constant nominal levels, Pocock 1977). Over all looks a coin is then taken for unfair with a probability of
`error_rate()`, worked out exactly and not approximated; for an episode that ends right less often than a coin, to be
told the contrary is rarer still.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

#: The most plays of one episode.
MOST_PLAYS = 40
#: What `error_rate` stays below.
ERROR = 0.05
#: One-sided probability, under a fair coin, of what a single look may stop at.
AT_A_LOOK = 0.0075


@dataclass(frozen=True, slots=True)
class Told:
    """That an episode ends `right` more often than wrong, or wrong more often than right; told after `n` plays."""

    right: bool
    n: int


def told(outcomes: Sequence[bool]) -> Told | None:
    """What can be told by these plays, in the order that they were planned in; None: not yet. What was told once
    stands, whatever later plays come to."""
    right = 0
    for n, outcome in enumerate(outcomes[:MOST_PLAYS], start=1):
        right += outcome
        if max(right, n - right) >= enough(n):
            return Told(2 * right > n, n)
    return None


@cache
def enough(n: int) -> int:
    """How many of `n` plays have to end alike for it to be told; n + 1: no number is enough."""
    tail, count = 0.0, n + 1
    while (tail := tail + comb(n, count - 1) / 2**n) <= AT_A_LOOK:
        count -= 1
    return count


def chances(p: float) -> tuple[float, float]:
    """How probable it is to be told that an episode ends right, and that it ends wrong, more often than not, when it
    ends right with probability `p`. Exact: the sum over all courses of MOST_PLAYS plays."""
    going_on = {0: 1.0}  # how many ended right -> the probability of courses in which nothing is told yet
    is_right = is_wrong = 0.0
    for n in range(1, MOST_PLAYS + 1):
        reached: defaultdict[int, float] = defaultdict(float)
        for right, share in going_on.items():
            reached[right + 1] += share * p
            reached[right] += share * (1 - p)
        is_right += sum(share for right, share in reached.items() if right >= enough(n))
        is_wrong += sum(share for right, share in reached.items() if n - right >= enough(n))
        going_on = {right: share for right, share in reached.items() if max(right, n - right) < enough(n)}
    return is_right, is_wrong


def error_rate() -> float:
    """How often something is told of an episode that ends right just as often as wrong."""
    return sum(chances(0.5))
