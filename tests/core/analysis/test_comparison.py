"""Alignment of two episodes and the outcome table of two policies."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.comparison import Alignment, AlignmentRow, TurnKey, align
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


@pytest.mark.parametrize(
    ("a", "b", "rows"),
    [
        ("T.a W.b V.c", "T.a W.b V.c", [(0, 0, 0), (1, 1, 0), (2, 2, 0)]),
        ("T.a W.b V.c", "W.b V.c", [(0, None, 3), (1, 0, 0), (2, 1, 0)]),  # an extra turn is a gap
        ("W.a V.c", "W.b V.c", [(0, 0, 1), (1, 1, 0)]),  # another model in the same role
        ("W.a", "T.a", [(0, 0, 2)]),  # the same model in another role
        ("W.a", "T.b", [(0, None, 3), (None, 0, 3)]),  # nothing in common: not paired
        ("", "W.a", [(None, 0, 3)]),
        ("", "", []),
    ],
)
def test_turns_are_aligned_by_the_rule(
    a: str, b: str, rows: list[tuple[int | None, int | None, int]]
) -> None:
    found = align(moves(a), moves(b))
    assert found.rows == tuple(AlignmentRow(*row) for row in rows)
    assert found.first_divergence == next((i for i, (_, _, paid) in enumerate(rows) if paid), None)


def test_texts_break_ties() -> None:
    short = [TurnKey("a", W, "answer 7")]
    long = [TurnKey("a", W, "answer 3"), TurnKey("a", W, "answer 7")]
    assert align(short, long).rows == (AlignmentRow(None, 0, 3), AlignmentRow(0, 1, 0))
    assert align(short, long[::-1]).rows == (AlignmentRow(0, 0, 0), AlignmentRow(None, 1, 3))


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
    nothing_shared = compare_counts(0, 0, 0, 0, key="k")
    assert (nothing_shared.accuracy_a, nothing_shared.p) == (None, 1.0)
