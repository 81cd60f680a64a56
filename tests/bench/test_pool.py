"""The figures of `trinity bench pool`: of one step, and of all steps of a server together."""

from __future__ import annotations

import pytest

from tests.bench.pool import Times


def test_the_whole_journey_is_measured_against_the_sum_of_what_its_steps_had_to_take() -> None:
    first, second = Times(12.0, 10.0, 12.0), Times(36.0, 20.0, 24.0)
    assert first.figures() == {"seconds": 12.0, "ideal": 10.0, "ratio": 1.2, "ratio_with_repeats": 1.0}
    whole = Times.together([first, second]).figures()
    assert whole == {"seconds": 48.0, "ideal": 30.0, "ratio": 1.6, "ratio_with_repeats": pytest.approx(1.33)}
