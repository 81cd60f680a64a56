"""How many pairs show a difference, by the interval that the product prints."""

from __future__ import annotations

import numpy as np
import pytest

from core.analysis.metrics import clustered_difference
from core.analysis.power import POWER, difference_seen, pairs_to_see


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
