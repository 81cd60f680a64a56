"""Whether an ending was luck: looking after every play does not make errors likelier than is said."""

from __future__ import annotations

import numpy as np
import pytest

from core.analysis import luck
from core.analysis.luck import AT_A_LOOK, ERROR, MOST_PLAYS, Told, chances, enough, error_rate, told


def test_the_error_rate_is_what_is_said_and_no_laxer_look_would_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert error_rate() == pytest.approx(0.0493, abs=5e-5)
    assert error_rate() < ERROR
    monkeypatch.setattr(luck, "AT_A_LOOK", AT_A_LOOK + 0.0004)
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
        found = [told(row) for row in (drawn.random((4_000, MOST_PLAYS)) < p).tolist()]
        shares = [
            sum(one is not None and one.right is right for one in found) / 4_000 for right in (True, False)
        ]
        assert shares == pytest.approx(chances(p), abs=0.02)


def test_a_clear_case_needs_eight_plays_and_a_close_one_is_left_open() -> None:
    assert [enough(n) for n in (1, 7, 8, 12, 20, 40)] == [2, 8, 8, 11, 16, 29]
    assert told([True] * 7) is None
    assert told([True] * 8) == Told(True, 8)
    assert told([False] * 8) == Told(False, 8)
    assert told([True, False] * 20) is None
    assert told([]) is None


def test_what_was_told_stands() -> None:
    assert told([False] * 8 + [True] * 32) == Told(False, 8)


def test_no_more_plays_are_looked_at_than_the_error_is_worked_out_for() -> None:
    assert told([True, False] * 20 + [True] * 30) is None
