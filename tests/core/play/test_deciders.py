"""Who decides which turn, told by an episode's policy and its deciders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.play.policy import decider_at, deciders_of_fork, deciders_with


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
