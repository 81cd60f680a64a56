"""The head's arithmetic: equation 5, two softmaxes, masks before them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.coordinator.head import logits, softmax, split
from core.errors import ConfigError

rng = np.random.default_rng(0)


def test_logits_are_rows_times_state() -> None:
    states, head = rng.normal(size=(4, 6)), rng.normal(size=(10, 6))
    expected = [[float(sum(w * h)) for w in head] for h in states]
    np.testing.assert_allclose(logits(states, head), expected, atol=1e-12)


def test_models_come_first_and_roles_last() -> None:
    models, roles = split(np.arange(10.0), 7)
    assert models.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert roles.tolist() == [7, 8, 9]
    with pytest.raises(ConfigError, match="10 rows, not 11"):
        split(np.zeros(11), 7)


@given(st.lists(st.floats(-800, 800), min_size=2, max_size=9), st.data())
def test_a_masked_choice_has_probability_exactly_zero(z: list[float], data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(z), max_size=len(z)).filter(any))
    p = softmax(np.array(z), mask)
    assert p.sum() == pytest.approx(1)
    assert all(p[i] == 0 for i, allowed in enumerate(mask) if not allowed)
    # masking is the same as never having had the choice
    np.testing.assert_allclose(p[np.array(mask)], softmax(np.array(z)[np.array(mask)]))


def test_a_mask_that_forbids_everything_or_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="Every choice is masked"):
        softmax(np.zeros(3), (False, False, False))
    with pytest.raises(ConfigError, match="2 entries for 3 choices"):
        softmax(np.zeros(3), (True, False))
