"""Alignment of two episodes and the outcome table of two policies."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.comparison import GAP, Alignment, AlignmentRow, TurnKey, align
from core.episode import Role
from tests.tables import compare_counts

W, T, V = Role.WORKER, Role.THINKER, Role.VERIFIER


def moves(text: str) -> list[TurnKey]:
    """'T.a W.b' as moves."""
    letters = {"W": W, "T": T, "V": V}
    return [TurnKey(word[2:], letters[word[0]]) for word in text.split()]


def cost(alignment: Alignment) -> int:
    """What the rule charges for all rows."""
    return sum(row.cost for row in alignment.rows)


def test_equal_episodes_align_without_cost_or_divergence() -> None:
    alignment = align(moves("T.a W.b V.c"), moves("T.a W.b V.c"))
    assert alignment.rows == (AlignmentRow(0, 0, 0), AlignmentRow(1, 1, 0), AlignmentRow(2, 2, 0))
    assert alignment.first_divergence is None


def test_an_extra_turn_becomes_a_gap_and_the_rest_stays_aligned() -> None:
    alignment = align(moves("T.a W.b V.c"), moves("W.b V.c"))
    assert alignment.rows == (AlignmentRow(0, None, 3), AlignmentRow(1, 0, 0), AlignmentRow(2, 1, 0))
    assert alignment.first_divergence == 0


def test_another_model_in_the_same_role_costs_one() -> None:
    alignment = align(moves("W.a V.c"), moves("W.b V.c"))
    assert [row.cost for row in alignment.rows] == [1, 0]
    assert alignment.first_divergence == 0


def test_the_same_model_in_another_role_costs_two() -> None:
    assert align(moves("W.a"), moves("T.a")).rows == (AlignmentRow(0, 0, 2),)


def test_turns_with_nothing_in_common_are_not_paired() -> None:
    assert align(moves("W.a"), moves("T.b")).rows == (AlignmentRow(0, None, GAP), AlignmentRow(None, 0, GAP))


def test_texts_break_ties() -> None:
    short = [TurnKey("a", W, "answer 7")]
    long = [TurnKey("a", W, "answer 3"), TurnKey("a", W, "answer 7")]
    assert align(short, long).rows == (AlignmentRow(None, 0, 3), AlignmentRow(0, 1, 0))
    assert align(short, long[::-1]).rows == (AlignmentRow(0, 0, 0), AlignmentRow(None, 1, 3))


def test_empty_episodes() -> None:
    assert align([], []).rows == ()
    assert align([], moves("W.a")).rows == (AlignmentRow(None, 0, 3),)


def test_two_hundred_turns_align_at_once() -> None:
    many = [TurnKey("abc"[i % 3], (W, T, V)[i % 3], f"reply {i}") for i in range(200)]
    assert cost(align(many, many[1:])) == 3


move = st.builds(TurnKey, st.sampled_from("ab"), st.sampled_from([W, T, V]), st.just(""))


@settings(deadline=None)
@given(st.lists(move, max_size=5), st.lists(move, max_size=5))
def test_the_cost_is_the_least_possible(a: list[TurnKey], b: list[TurnKey]) -> None:
    @lru_cache(None)
    def least(i: int, j: int) -> int:
        options = []
        if i < len(a):
            options.append(3 + least(i + 1, j))
        if j < len(b):
            options.append(3 + least(i, j + 1))
        if i < len(a) and j < len(b) and (a[i].model == b[j].model or a[i].role == b[j].role):
            options.append((a[i].role != b[j].role) * 2 + (a[i].model != b[j].model) + least(i + 1, j + 1))
        return min(options, default=0)

    alignment = align(a, b)
    assert cost(alignment) == least(0, 0)
    assert [row.a for row in alignment.rows if row.a is not None] == list(range(len(a)))
    assert [row.b for row in alignment.rows if row.b is not None] == list(range(len(b)))


def test_comparison_of_counts() -> None:
    result = compare_counts(50, 10, 30, 10, key="k")
    assert (result.accuracy_a, result.accuracy_b) == (0.6, 0.8)
    assert result.difference.difference == pytest.approx(0.2)
    assert result.p < 0.01
    assert result.ci95_b[0] < 0.8 < result.ci95_b[1]


def test_nothing_shared_has_no_accuracy_and_p_one() -> None:
    result = compare_counts(0, 0, 0, 0, key="k")
    assert result.accuracy_a is None
    assert result.p == 1.0
