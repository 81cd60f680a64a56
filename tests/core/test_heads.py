"""Heads: equation 5 and its variants, published sizes, two softmaxes, masks before them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ConfigError
from core.heads import HeadKind, LowRankHead, TurnAwareHead, head_of, product, softmax, split

rng = np.random.default_rng(0)


def test_logits_are_rows_times_state() -> None:
    states, head = rng.normal(size=(4, 6)), rng.normal(size=(10, 6))
    expected = [[float(sum(w * h)) for w in head] for h in states]
    np.testing.assert_allclose(product(states, head), expected, atol=1e-12)


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


#: trinity.md 1.3, for 7 models and 1,024 numbers: the paper's table 6, and the turn-aware head of the authors' code.
PUBLISHED: dict[HeadKind, int] = {
    "linear": 10_240,
    "low-rank": 20_680,
    "sparse": 11_266,
    "block-diagonal-2": 5_120,
    "block-diagonal-10": 1_024,
    "turn-aware": 11_260,
}


@pytest.mark.parametrize(("kind", "size"), PUBLISHED.items())
def test_heads_have_their_published_sizes(kind: HeadKind, size: int) -> None:
    head = head_of(kind, 7, 1024)
    assert head.size == size == len(head.initial())
    assert head.argmax is (kind == "block-diagonal-10")


@pytest.mark.parametrize("kind", PUBLISHED)
@pytest.mark.parametrize("width", [1024, 96, 37])
def test_a_state_has_the_same_logits_alone_and_in_a_batch(kind: HeadKind, width: int) -> None:
    head = head_of(kind, 7, width)
    vector = (head.initial() + rng.normal(size=head.size)).astype(np.float32)
    states, turns = rng.normal(size=(5, width)), [0, 1, 2, 3, 4]
    together = head.logits(states, vector, turns)
    assert together.shape == (5, 10)
    alone = [head.logits(states[k : k + 1], vector, turns[k : k + 1])[0] for k in range(5)]
    np.testing.assert_array_equal(together, alone)


def test_every_number_of_a_block_diagonal_head_acts_on_its_own_block_only() -> None:
    head = head_of("block-diagonal-10", 7, 23)
    states = rng.normal(size=(1, 23))
    seen = np.array([head.logits(states, one, [0])[0] != 0 for one in np.eye(head.size)])
    assert seen.sum(axis=1).tolist() == [1] * 23
    assert seen.sum(axis=0).tolist() == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]


def test_a_low_rank_head_is_not_at_rest_where_it_begins() -> None:
    head = head_of("low-rank", 7, 1024)
    assert isinstance(head, LowRankHead)
    assert head.rank == 20
    z = head.logits(rng.normal(size=(50, 1024)), head.initial(), [0] * 50)
    assert z.std() > 0.5


@pytest.mark.parametrize("kind", get_args(HeadKind))
def test_a_neutral_start_prefers_nothing_and_can_be_left(kind: HeadKind) -> None:
    head = head_of(kind, 7, 64)
    states = rng.normal(size=(20, 64))
    assert not head.logits(states, head.neutral(), [0] * 20).any()
    step = head.neutral() + 1e-2 * rng.normal(size=head.size)
    assert head.logits(states, step, [0] * 20).std(axis=0).min() > 0


def test_a_sparse_head_reads_the_best_scored_half_and_any_other_number_is_nothing_to_it() -> None:
    head = head_of("sparse", 7, 40)
    vector = head.initial()
    vector[: 10 * 40] = 1.0
    scores = vector[400:440]
    read = set(np.argsort(-scores)[:20].tolist())
    for number in range(40):
        z = head.logits(np.eye(40)[number : number + 1], vector, [0])
        assert (z != 0).all() if number in read else (z == 0).all()
    total = head.logits(np.ones((1, 40)), vector, [0])
    assert total == pytest.approx(np.full((1, 10), 20.0))  # alpha sums to k
    vector[-1] = 800.0
    assert np.count_nonzero(head.logits(np.eye(40), vector, [0] * 40)[:, 0]) == 1  # at least one


def test_only_the_turn_aware_head_knows_the_turn() -> None:
    state = np.tile(rng.normal(size=(1, 96)), (5, 1))
    for kind in PUBLISHED:
        head = head_of(kind, 7, 96)
        z = head.logits(state, head.initial() + rng.normal(size=head.size), [0, 1, 2, 3, 4])
        assert np.ptp(z, axis=0).any() == isinstance(head, TurnAwareHead)


def test_heads_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="no head 'convex': choose linear, low-rank"):
        head_of("convex", 7, 96)
    with pytest.raises(ConfigError, match="block for each of 10 logits, more than 8 numbers"):
        head_of("block-diagonal-10", 7, 8)
