"""The policies that need no coordinator: what they choose, how often, under which mask; and who decides which turn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from core.draws import derive_seed, draw_index, uniform
from core.episode import ROLE_ORDER, Decide, Decision, Role, Transcript
from core.errors import ConfigError
from core.play.policies import (
    PLAN_WORK_CHECK,
    CyclePolicy,
    Policy,
    PolicyPerRequest,
    RandomPolicy,
    cycle_policy,
    decider_at,
    deciders_of_fork,
    deciders_with,
    override_decision,
    single_policy,
)

MODELS = ("ann", "bob", "cid")
POLICIES: tuple[Policy, ...] = (
    RandomPolicy(MODELS),
    cycle_policy("random-model", MODELS, PLAN_WORK_CHECK),
    single_policy("bob", MODELS),
    cycle_policy("round-robin", MODELS, PLAN_WORK_CHECK),
    PolicyPerRequest("each", MODELS, lambda asked: POLICIES[asked.index % 3]),
)


def request(
    key: str = "0/t/0", index: int = 0, models: tuple[bool, ...] = (), roles: tuple[bool, ...] = ()
) -> Decide:
    return Decide(Transcript("q"), index, key, model_mask=models, role_mask=roles)


class TestEveryPolicy:
    @pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{type(policy).__name__} {policy.id}")
    def test_is_pure_and_blind_to_its_batch(self, policy: Policy) -> None:
        requests = [request(f"1/{k}/{k % 5}", k % 5) for k in range(50)]
        together = policy.decide(requests)
        assert together == policy.decide(requests)
        assert together == [policy.decide([one])[0] for one in requests]
        assert together[::-1] == policy.decide(requests[::-1])
        assert isinstance(policy, Policy)
        assert policy.models == MODELS

    @pytest.mark.parametrize("policy", POLICIES[:2] + POLICIES[3:4], ids=lambda policy: policy.id)
    def test_keeps_to_the_mask(self, policy: Policy) -> None:
        roles = (True, True, False)
        for decision in policy.decide(
            [request(f"1/{k}/0", k, models=(True, False, True), roles=roles) for k in range(60)]
        ):
            assert decision.model in ("ann", "cid")
            assert decision.role is not Role.VERIFIER
            assert decision.role_mask == roles


class TestRandom:
    def test_is_uniform_over_pairs(self) -> None:
        decisions = RandomPolicy(MODELS).decide([request(f"0/{k}/0") for k in range(9_000)])
        counts = Counter((decision.model, decision.role) for decision in decisions)
        assert len(counts) == 9
        assert chisquare(list(counts.values())).pvalue > 0.001

    def test_states_its_probabilities(self) -> None:
        decision = RandomPolicy(MODELS).decide([request(models=(True, False, True))])[0]
        assert decision.model_probs == (0.5, 0.0, 0.5)
        assert decision.role_probs == pytest.approx((1 / 3,) * 3)


class TestCycles:
    def test_single_plays_one_model_through_its_roles(self) -> None:
        policy = single_policy("bob", MODELS, (Role.WORKER, Role.VERIFIER))
        turns = policy.decide([request(index=k) for k in range(5)])
        assert policy.id == "single:bob"
        assert [turn.model for turn in turns] == ["bob"] * 5
        assert [turn.role for turn in turns] == [Role.WORKER, Role.VERIFIER] * 2 + [Role.WORKER]
        assert not turns[0].sampled

    def test_round_robin_takes_models_in_slot_order(self) -> None:
        turns = cycle_policy("round-robin", MODELS, PLAN_WORK_CHECK).decide(
            [request(index=k) for k in range(4)]
        )
        assert [turn.model for turn in turns] == ["ann", "bob", "cid", "ann"]

    def test_a_masked_role_is_left_out_of_the_cycle(self) -> None:
        turns = single_policy("ann", MODELS).decide(
            [request(index=k, roles=(True, False, True)) for k in range(4)]
        )
        assert [turn.role for turn in turns] == [Role.WORKER, Role.VERIFIER] * 2

    def test_an_unknown_model_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="'eve'.*ann, bob, cid"):
            single_policy("eve", MODELS)
        with pytest.raises(ConfigError, match="at least one"):
            CyclePolicy(MODELS, ())

    def test_a_mask_that_leaves_nothing_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="single:bob"):
            single_policy("bob", MODELS).decide([request(models=(True, False, True))])


class TestOverride:
    def test_keeps_what_the_policy_thought(self) -> None:
        [plain] = RandomPolicy(MODELS).decide([request()])
        turned = override_decision(plain, ("cid", Role.THINKER), MODELS)
        assert (turned.model, turned.role, turned.origin) == ("cid", Role.THINKER, "override")
        assert turned.model_probs == plain.model_probs

    def test_an_unknown_model_is_refused(self) -> None:
        [plain] = RandomPolicy(MODELS).decide([request()])
        with pytest.raises(ConfigError, match="'eve'"):
            override_decision(plain, ("eve", Role.WORKER), MODELS)


class TestDraws:
    def test_a_key_draws_the_same_forever(self) -> None:
        # Recorded runs resume by these numbers: a change here breaks every stored seed.
        expected = [0.16441050396696144, 0.2895200100429314, 0.02335401095243761]
        assert uniform("a", 3).tolist() == expected
        assert derive_seed((1, "x")) == 7021146057026646219

    @given(st.text(), st.integers(1, 20))
    def test_more_numbers_begin_with_the_fewer(self, key: str, n: int) -> None:
        assert np.array_equal(uniform(key, n + 1)[:n], uniform(key, n))
        assert ((uniform(key, n) >= 0) & (uniform(key, n) < 1)).all()

    @given(
        st.lists(st.floats(0, 1), min_size=1, max_size=10).filter(lambda p: sum(p) > 1e-6),
        st.floats(0, 1, exclude_max=True),
    )
    def test_nothing_impossible_is_picked(self, probabilities: list[float], u: float) -> None:
        assert probabilities[draw_index(probabilities, u)] > 0

    def test_picks_follow_the_probabilities(self) -> None:
        wanted = np.array([0.5, 0.2, 0.0, 0.3])
        counts = np.bincount([draw_index(wanted, u) for u in uniform("many", 10_000)], minlength=4)
        assert counts[2] == 0
        assert np.abs(counts / 10_000 - wanted).max() < 0.02


def test_roles_are_in_head_order() -> None:
    decision: Decision = RandomPolicy(MODELS).decide([request(roles=(False, False, True))])[0]
    assert decision.role is ROLE_ORDER[2] is Role.VERIFIER


def test_from_a_turn_on_another_policy_decides_until_the_next_change() -> None:
    once = deciders_with("a", {}, 2, "b")
    twice = deciders_with("a", once, 4, "c")
    assert [decider_at("a", twice, turn) for turn in range(6)] == ["a", "a", "b", "b", "c", "c"]
    assert deciders_with("a", twice, 4, "b") == once  # the last choice counts
    assert deciders_with("a", twice, 2, "a") == {}  # and nobody in the end leaves no trace


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc"))),
    st.integers(0, 7),
    st.sampled_from("abc"),
)
def test_a_fork_says_of_every_turn_what_its_parent_said(
    asked: list[tuple[int, str]], index: int, goes_on: str
) -> None:
    told: dict[int, str] = {}
    for turn, policy in asked:
        told = deciders_with("a", told, turn, policy)
    child = deciders_of_fork("a", told, index, goes_on)
    assert [decider_at(goes_on, child, turn) for turn in range(index)] == [
        decider_at("a", told, turn) for turn in range(index)
    ]
    assert {decider_at(goes_on, child, turn) for turn in range(index, 9)} == {goes_on}
