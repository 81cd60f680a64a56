"""How many calls to models episodes share that are played on one task with the same chances: those with the same past.

Episodes begin alike and part where their choices do. If every turn's choice were among so many equally likely ones,
after a turn so many pasts would be possible, after the next one their square; a call is made once for every past that
some episode has come to. One number of choices so says how alike a generation's candidates play, whatever their number.
"""

from __future__ import annotations

#: Choices beyond which hardly a call is shared, and below which nearly all are.
MOST_OPTIONS, FEWEST_OPTIONS = 1e4, 1.0 + 1e-6
_STEPS = 60  # halvings of an interval


def reached(calls: float, turns: int) -> list[float]:
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
    for turn, share in enumerate(reached(calls, turns)):
        here, pasts = episodes * share, max(options, FEWEST_OPTIONS) ** (turn + 1)
        met = pasts * (1 - (1 - 1 / pasts) ** here) if pasts < 1e12 else here
        made += min(here, met)
    return made


def options_of(share_made: float, episodes: float, calls: float, turns: int) -> float:
    """Among how many choices these episodes chose, when this share of their calls was made."""
    low, high = FEWEST_OPTIONS, MOST_OPTIONS
    asked = episodes * sum(reached(calls, turns))
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if calls_made(episodes, calls, turns, middle) < share_made * asked:
            low = middle
        else:
            high = middle
    return high
