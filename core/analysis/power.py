"""How many plays it takes to see a difference, or to tell an ending from luck, and how many calls plays of one task
share.

Luck: an episode is played again and again until it can be told if it ends right more often than wrong. One may look
after every play. So that looking often does not make errors likelier, each look asks for more than a test that is made
once: it stops where a fair coin would show so many of one side, or more, with a probability of `AT_A_LOOK` at most
(constant nominal levels, Pocock 1977). Over all looks a coin is then taken for unfair with a probability of `ERROR` at
most, as a test works out exactly; for an episode that ends right less often than a coin, to be told the contrary is
rarer still.

Calls: episodes with the same chances begin alike and part where their choices do. If every turn's choice were among so
many equally likely ones, after a turn so many pasts would be possible, after the next one their square; a call is made
once for every past that some episode has come to. One number of choices so says how alike a generation's candidates
play, whatever their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from statistics import NormalDist

#: The most plays of one episode.
MOST_PLAYS = 40
#: What the probability of a false statement stays below.
ERROR = 0.05
#: One-sided probability, under a fair coin, of what a single look may stop at.
AT_A_LOOK = 0.0075


@dataclass(frozen=True, slots=True)
class LuckVerdict:
    """That an episode ends `right` more often than wrong, or wrong more often than right; told after `n` plays."""

    right: bool
    n: int


def luck_verdict(outcomes: Sequence[bool]) -> LuckVerdict | None:
    """What can be told by these plays, in the order that they were planned in; None: not yet. What was told once
    stands, whatever later plays come to."""
    right = 0
    for n, outcome in enumerate(outcomes[:MOST_PLAYS], start=1):
        right += outcome
        if max(right, n - right) >= enough(n):
            return LuckVerdict(2 * right > n, n)
    return None


@cache
def enough(n: int) -> int:
    """How many of `n` plays have to end alike for it to be told; n + 1: no number is enough."""
    tail, count = 0.0, n + 1
    while (tail := tail + comb(n, count - 1) / 2**n) <= AT_A_LOOK:
        count -= 1
    return count


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


#: Choices beyond which hardly a call is shared, and below which nearly all are.
MOST_OPTIONS, FEWEST_OPTIONS = 1e4, 1.0 + 1e-6
_STEPS = 60  # halvings of an interval


def reach_by_turn(calls: float, turns: int) -> list[float]:
    """The share of episodes that come to each turn where they make `calls` on average and at most one in a turn, and
    end after every turn with the same chance."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(middle**turn for turn in range(turns)) < calls:
            low = middle
        else:
            high = middle
    return [high**turn for turn in range(turns)]


def calls_made(episodes: float, calls: float, turns: int, options: float) -> float:
    """How many calls are really made of the `episodes` * `calls` that so many episodes of one task ask for."""
    made = 0.0
    for turn, share in enumerate(reach_by_turn(calls, turns)):
        here, pasts = episodes * share, max(options, FEWEST_OPTIONS) ** (turn + 1)
        met = pasts * (1 - (1 - 1 / pasts) ** here) if pasts < 1e12 else here
        made += min(here, met)
    return made


def options_of(share_made: float, episodes: float, calls: float, turns: int) -> float:
    """Among how many choices these episodes chose, when this share of their calls was made."""
    low, high = FEWEST_OPTIONS, MOST_OPTIONS
    asked = episodes * sum(reach_by_turn(calls, turns))
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if calls_made(episodes, calls, turns, middle) < share_made * asked:
            low = middle
        else:
            high = middle
    return high
