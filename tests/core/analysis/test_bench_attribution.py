"""The figures of the attribution benchmark: over tasks, however many checkpoints and turns read one."""

from __future__ import annotations

import pytest

from tests.bench.attribution import over_tasks


def test_turns_of_one_task_count_once() -> None:
    mean, low, high = over_tasks([1, 1, 1, 1, 0, 0], ["a", "a", "a", "a", "b", "c"])
    assert mean == pytest.approx(1 / 3, abs=1e-4)
    assert low < 0 < mean < 1 < high, "three tasks tell little"
    assert over_tasks([1, 0] * 50, [str(place) for place in range(100)])[0] == 0.5
