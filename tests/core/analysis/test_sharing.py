"""How many calls episodes share: in the middle of what is certain, and the same way back."""

from __future__ import annotations

import itertools
import random

import pytest

from core.analysis.sharing import calls_made, options_of, reached


def test_one_episode_shares_nothing_and_equal_ones_share_all() -> None:
    assert calls_made(1, 3.5, 5, 7.0) == pytest.approx(3.5)
    assert calls_made(40, 3.5, 5, 1.0) == pytest.approx(5, rel=0.01)
    assert calls_made(40, 3.5, 5, 1e12) == pytest.approx(140)
    assert reached(5, 5) == pytest.approx([1, 1, 1, 1, 1])
    assert reached(1, 5) == pytest.approx([1, 0, 0, 0, 0], abs=1e-9)


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
