"""Choices in bulk are those taken one by one, rounding never turns a sure one, and who agrees is counted right."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from core.analysis.agreement import (
    NEVER,
    Picks,
    Situations,
    agreement,
    confusion,
    divergence_by_turn,
    first_differences,
    picks,
)
from core.analysis.head_lens import (
    likeliest_choices,
    rounding,
    sampled_choices,
)
from core.analysis.metrics import ClusteredShare, exact_interval, kl_divergence
from core.draws import draw_index
from core.heads import HeadKind, head_of, softmax

MODELS = 4


def test_each_choice_is_by_its_own_row_and_draws_as_decisions_do() -> None:
    rng = np.random.default_rng(0)
    logits, errors = rng.normal(size=(300, 5)), rng.uniform(0, 0.2, size=(300, 5))
    logits[:40] = 0.0  # nothing preferred
    allowed = rng.random((300, 5)) < 0.6
    allowed[~allowed.any(axis=1), 2] = True
    u = rng.random(300)
    many, drawings = likeliest_choices(logits, errors, allowed), sampled_choices(logits, errors, u, allowed)
    for row in range(300):
        own = slice(row, row + 1)
        one = likeliest_choices(logits[own], errors[own], allowed[own]).first
        assert (many.places[row], bool(many.unsure[row])) == (one.place, one.unsure)
        assert math.isclose(many.leads[row], one.lead, abs_tol=1e-12)
        best = max(np.flatnonzero(allowed[row]), key=lambda place: logits[row][place])
        assert one.place == best
        assert drawings.places[row] == draw_index(softmax(logits[row], allowed[row].tolist()), float(u[row]))
        other = sampled_choices(
            logits[own], np.where(allowed[own], errors[own], 0.0), u[own], allowed[own]
        ).first
        assert drawings.places[row] == other.place
        if allowed[row].sum() > 1:
            assert bool(drawings.unsure[row]) == other.unsure
    assert 0 < many.unsure.sum() < 300
    assert 0 < drawings.unsure.sum() < 300


@pytest.mark.parametrize("kind", get_args(HeadKind))
def test_a_sure_choice_is_never_turned_by_keeping_states_in_half_precision(kind: str) -> None:
    rng = np.random.default_rng(1)
    head = head_of(kind, MODELS, 48)
    states = rng.normal(size=(400, 48)).astype(np.float32)
    vector = head.initial() + rng.normal(size=head.size) * 0.05
    kept, turns = states.astype("<f2").astype(np.float64), [0, 1, 2, 3] * 100
    at = Situations(
        np.repeat(np.arange(100), 4),
        np.repeat(np.arange(100), 4),
        np.array(turns),
        np.ones((400, MODELS), bool),
        np.ones((400, 3), bool),
        np.where(rng.random((400, 1)) < 0.5, rng.random((400, 2)), np.nan),
    )
    exact, near = head.logits(states, vector, turns), head.logits(kept, vector, turns)
    errors = rounding(head, kept, vector)
    assert (np.abs(exact - near) <= errors).all()
    truth, seen = picks(exact, np.zeros_like(exact), at), picks(near, errors, at)
    assert (truth.pairs == seen.pairs)[~seen.unsure].all()
    assert seen.unsure.mean() < 0.3


def test_what_a_checkpoint_never_chooses_and_what_a_turn_forbids_is_never_picked() -> None:
    z = np.tile([3.0, 2.0, 1.0, 0.0, 0.0, 2.0, 1.0], (2, 1))
    models = np.array([[True, True, True, True], [True, False, False, False]])
    order = np.arange(2)
    at = Situations(order, order, order, models, np.ones((2, 3), bool), np.full((2, 2), np.nan))
    found = picks(z, np.zeros_like(z), at, ((False, True, True, True), (True, False, True)))
    # Of the second turn nothing is left that both allow: the checkpoint's own mask stands.
    assert found.slots.tolist() == [1, 1]
    assert found.roles.tolist() == [2, 2]
    assert found.model_probs[0][0] == 0.0


def _picks(pairs: list[int], unsure: list[bool], tilt: float) -> Picks:
    slots, roles = np.divmod(np.array(pairs), 3)
    model = softmax(np.tile([tilt, 0.0], (len(pairs), 1)))
    return Picks(slots, roles, np.array(unsure), model, softmax(np.zeros((len(pairs), 3))))


def test_too_close_counts_neither_way_and_leaves_the_first_parting_uncertain() -> None:
    # Episode 0 parts at turn 2; 1 perhaps at turn 1, surely at 2; 2 never; 3 perhaps; 4 lacks its first turn.
    episodes = np.array([0, 0, 1, 1, 2, 2, 3, 4])
    indices = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    a = _picks([0, 1, 2, 3, 4, 5, 0, 1], [False] * 8, 1.0)
    b = _picks([0, 2, 0, 4, 4, 5, 1, 2], [False, False, True, False, False, False, True, False], -1.0)
    at = Situations(
        episodes, episodes % 2, indices, np.ones((8, 2), bool), np.ones((8, 3), bool), np.full((8, 2), np.nan)
    )
    found = agreement(a, b, at)
    assert found.rate == 3 / 6
    assert int(found.differs.sum()) == 3
    parted = first_differences(found, np.array([2, 2, 2, 1, 2]))
    assert parted.turns.tolist() == [1, 1, NEVER, NEVER, 1]
    assert parted.sure.tolist() == [True, False, True, False, False]
    assert not first_differences(found, np.array([2, 2, 3, 1, 2])).sure[2]  # a third turn could not be judged
    counts = confusion(a, b, found.called)
    assert counts.sum() == 6
    assert counts[1, 2] == 2  # of both episodes 0 and 4
    assert counts[0, 1] == 0  # too close
    p, q = a.model_probs[0], b.model_probs[0]
    by_turn = divergence_by_turn(found)
    assert [one.n for one in by_turn] == [4, 4]
    assert math.isclose(by_turn[0].mean, kl_divergence(p, q))
    assert found.where(episodes == 2).rate == 1.0


def test_turns_of_one_task_count_for_less_than_as_many_tasks() -> None:
    rng = np.random.default_rng(2)
    alike = ClusteredShare.of(np.array([10.0, 0.0] * 10), np.full(20, 10.0)).ci95
    mixed = ClusteredShare.of(rng.binomial(10, 0.5, 20).astype(float), np.full(20, 10.0)).ci95
    assert alike[1] - alike[0] > 2 * (mixed[1] - mixed[0])
    low, high = exact_interval(20, 20)
    assert ClusteredShare.of(np.full(20, 10.0), np.full(20, 10.0)).ci95 == (low, high)
    assert ClusteredShare.of(np.zeros(0), np.zeros(0)).ci95 == (0.0, 1.0)
