"""How many plays show a difference or tell an ending from luck, and how many calls they share."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import numpy as np
import pytest

from core.analysis import power
from core.analysis.metrics import clustered_difference
from core.analysis.power import (
    AT_A_LOOK,
    ERROR,
    MOST_PLAYS,
    POWER,
    LuckVerdict,
    calls_made,
    difference_seen,
    enough,
    luck_verdict,
    options_of,
    pairs_to_see,
    reach_by_turn,
)


@pytest.mark.parametrize("difference", [0.25, 0.3, 0.4, 0.5])
def test_so_many_pairs_show_the_difference_about_as_often_as_is_said(difference: float) -> None:
    generator = np.random.default_rng(1)
    pairs, drawn, seen = pairs_to_see(difference), 1_000, 0
    for _ in range(drawn):
        before = generator.random(pairs) < 0.5 - difference / 2
        after = generator.random(pairs) < 0.5 + difference / 2
        found = clustered_difference([[(bool(a), bool(b)) for a, b in zip(before, after, strict=True)]])
        seen += found.low > 0
    assert POWER - 0.03 < seen / drawn < POWER + 0.12


def test_the_smallest_difference_is_the_inverse() -> None:
    for pairs in (5, 8, 16, 64):
        smallest = difference_seen(pairs)
        assert pairs_to_see(smallest) <= pairs < pairs_to_see(smallest - 0.01)
    assert difference_seen(1) == 1.0
    for outside in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            pairs_to_see(outside)


def chances(p: float) -> tuple[float, float]:
    """How probable it is to be told that an episode ends right, and that it ends wrong, more often than not, when it
    ends right with probability `p`. Exact: the sum over all courses of MOST_PLAYS plays."""
    going_on = {0: 1.0}  # how many ended right -> the probability of courses in which nothing is told yet
    is_right = is_wrong = 0.0
    for n in range(1, MOST_PLAYS + 1):
        after: defaultdict[int, float] = defaultdict(float)
        for right, share in going_on.items():
            after[right + 1] += share * p
            after[right] += share * (1 - p)
        is_right += sum(share for right, share in after.items() if right >= enough(n))
        is_wrong += sum(share for right, share in after.items() if n - right >= enough(n))
        going_on = {right: share for right, share in after.items() if max(right, n - right) < enough(n)}
    return is_right, is_wrong


def error_rate() -> float:
    """How often something is told of an episode that ends right just as often as wrong."""
    return sum(chances(0.5))


def test_the_error_rate_is_what_is_said_and_no_laxer_look_would_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert error_rate() == pytest.approx(0.0493, abs=5e-5)
    assert error_rate() < ERROR
    monkeypatch.setattr(power, "AT_A_LOOK", AT_A_LOOK + 0.0004)
    enough.cache_clear()
    assert error_rate() > ERROR
    monkeypatch.undo()
    enough.cache_clear()


def test_each_way_of_being_wrong_is_half_of_it_at_most() -> None:
    for p in (0.05, 0.2, 0.35, 0.5):
        right, wrong = chances(p)
        assert right <= ERROR / 2, "said to end right more often than not, which it does not"
        assert (right, wrong) == pytest.approx(chances(1 - p)[::-1])
        assert right + wrong <= 1 + 1e-12


def test_what_is_worked_out_is_what_happens() -> None:
    drawn = np.random.default_rng(7)
    for p in (0.5, 0.75):
        found = [luck_verdict(row) for row in (drawn.random((4_000, MOST_PLAYS)) < p).tolist()]
        shares = [
            sum(one is not None and one.right is right for one in found) / 4_000 for right in (True, False)
        ]
        assert shares == pytest.approx(chances(p), abs=0.02)


def test_a_clear_case_needs_eight_plays_and_a_close_one_is_left_open() -> None:
    assert [enough(n) for n in (1, 7, 8, 12, 20, 40)] == [2, 8, 8, 11, 16, 29]
    assert luck_verdict([True] * 7) is None
    assert luck_verdict([True] * 8) == LuckVerdict(True, 8)
    assert luck_verdict([False] * 8) == LuckVerdict(False, 8)
    assert luck_verdict([True, False] * 20) is None
    assert luck_verdict([]) is None
    assert luck_verdict([False] * 8 + [True] * 32) == LuckVerdict(False, 8), "what was told stands"
    assert luck_verdict([True, False] * 20 + [True] * 30) is None, (
        "no more plays than the error is worked out for"
    )


def test_one_episode_shares_nothing_and_equal_ones_share_all() -> None:
    assert calls_made(1, 3.5, 5, 7.0) == pytest.approx(3.5)
    assert calls_made(40, 3.5, 5, 1.0) == pytest.approx(5, rel=0.01)
    assert calls_made(40, 3.5, 5, 1e12) == pytest.approx(140)
    assert reach_by_turn(5, 5) == pytest.approx([1, 1, 1, 1, 1])
    assert reach_by_turn(1, 5) == pytest.approx([1, 0, 0, 0, 0], abs=1e-9)


@pytest.mark.parametrize(("episodes", "options"), [(6, 21), (24, 21), (24, 3), (96, 3)])
def test_it_is_what_drawn_episodes_share_on_average(episodes: int, options: int) -> None:
    dice, made = random.Random(1), 0
    for _ in range(200):
        pasts = set()
        for _ in range(episodes):
            past: tuple[int, ...] = ()
            for turn in itertools.count():
                past = (*past, dice.randrange(options))
                pasts.add(past)
                if turn == 4 or dice.random() > 0.8:
                    break
        made += len(pasts)
    calls = sum(0.8**turn for turn in range(5))
    assert calls_made(episodes, calls, 5, options) == pytest.approx(made / 200, rel=0.03)


@pytest.mark.parametrize("options", [1.2, 2.7, 8, 30])
@pytest.mark.parametrize("episodes", [6, 16, 96])
def test_from_a_share_the_choices_are_found_again(options: float, episodes: int) -> None:
    share = calls_made(episodes, 4.0, 5, options) / (4.0 * episodes)
    assert options_of(share, episodes, 4.0, 5) == pytest.approx(options, rel=1e-3)


def test_shares_that_cannot_be_are_taken_for_the_nearest() -> None:
    assert options_of(1.0, 16, 4.0, 5) > 1e3
    assert options_of(0.0, 16, 4.0, 5) == pytest.approx(1.0, abs=1e-3)
    assert options_of(0.5, 1, 4.0, 5) == pytest.approx(1.0, abs=1e-3)
