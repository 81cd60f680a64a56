"""Who decides which turn, told by an episode's policy and its notes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.deciders import DECIDERS, carried, changed, changes, decider


def test_from_a_turn_on_another_policy_decides_until_the_next_change() -> None:
    meta = changed("a", {"generation": "3"}, 2, "b")
    meta = changed("a", meta, 4, "c")
    assert [decider("a", meta, turn) for turn in range(6)] == ["a", "a", "b", "b", "c", "c"]
    assert meta["generation"] == "3"
    assert changed("a", meta, 4, "b") == changed("a", {"generation": "3"}, 2, "b")  # the last choice counts
    assert changed("a", meta, 2, "a") == {"generation": "3"}  # and nobody in the end leaves no trace


def test_what_a_stranger_wrote_changes_nothing() -> None:
    for told in ("", "[]", "7", '{"x": "b"}', "{"):
        assert changes({DECIDERS: told}) == {}
        assert decider("a", {DECIDERS: told}, 3) == "a"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc"))),
    st.integers(0, 7),
    st.sampled_from("abc"),
)
def test_a_fork_says_of_every_turn_what_its_parent_said(
    asked: list[tuple[int, str]], index: int, goes_on: str
) -> None:
    meta: dict[str, str] = {}
    for turn, policy in asked:
        meta = changed("a", meta, turn, policy)
    child = carried("a", meta, index, goes_on)
    assert [decider(goes_on, child, turn) for turn in range(index)] == [
        decider("a", meta, turn) for turn in range(index)
    ]
    assert {decider(goes_on, child, turn) for turn in range(index, 9)} == {goes_on}
