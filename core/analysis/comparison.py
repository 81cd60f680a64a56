"""Compares two episodes turn by turn, and two policies over the tasks they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.analysis.metrics import (
    PairedDifference,
    difference_over_tasks,
    share_over_tasks,
    sign_flip_p,
)
from core.episode import Role

#: What it costs to pair two turns. Turns that share neither model nor role are never paired.
SAME, ROLE_ONLY, MODEL_ONLY, GAP = 0, 1, 2, 3

#: What an alignment does, in one sentence for newcomers, and the exact rule.
RULE_IN_SHORT = "Turns that match stand side by side; a turn without a match on the other side faces a gap."
RULE = (
    "Turns are aligned by dynamic programming. Side by side costs 0 with the same model and role, "
    "1 with only the role the same, 2 with only the model the same; a gap costs 3. "
    "Among equally cheap alignments the closest texts win."
)

#: Only this many characters of a reply count for the text distance: ties need a hint, not a proof.
TEXT_CUT = 4000


@dataclass(frozen=True, slots=True)
class TurnKey:
    """What alignment looks at in one turn."""

    model: str
    role: Role
    text: str = ""


@dataclass(frozen=True, slots=True)
class AlignmentRow:
    """One line of an alignment: the turn indices of A and B, None for a gap, and what pairing them cost."""

    a: int | None
    b: int | None
    cost: int

    @property
    def same_choice(self) -> bool:
        return self.cost == SAME


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two episodes laid side by side, in order; every turn stands in exactly one row."""

    rows: tuple[AlignmentRow, ...]
    first_divergence: int | None  # index of the first row whose choices differ, None when there is none


def align(a: Sequence[TurnKey], b: Sequence[TurnKey]) -> Alignment:
    """The cheapest alignment of two episodes' turns under RULE (Needleman and Wunsch 1970)."""
    words_a, words_b = [_words(move.text) for move in a], [_words(move.text) for move in b]
    # best[i, j]: the cheapest (cost, text distance, preference, rows) of aligning a[i:] with b[j:].
    best: dict[tuple[int, int], tuple[int, float, int, tuple[AlignmentRow, ...]]] = {}
    best[len(a), len(b)] = 0, 0.0, 0, ()
    for i in range(len(a), -1, -1):
        for j in range(len(b), -1, -1):
            options = []
            if i < len(a) and j < len(b) and (cost := _pair_cost(a[i], b[j])) is not None:
                row, distance = AlignmentRow(i, j, cost), _distance(words_a[i], words_b[j])
                rest = best[i + 1, j + 1]
                options.append((rest[0] + cost, rest[1] + distance, 1, (row, *rest[3])))
            if i < len(a):
                rest = best[i + 1, j]
                options.append((rest[0] + GAP, rest[1], 2, (AlignmentRow(i, None, GAP), *rest[3])))
            if j < len(b):
                rest = best[i, j + 1]
                options.append((rest[0] + GAP, rest[1], 3, (AlignmentRow(None, j, GAP), *rest[3])))
            if options:
                best[i, j] = min(options, key=lambda option: option[:3])
    rows = best[0, 0][3]
    divergence = next((index for index, row in enumerate(rows) if not row.same_choice), None)
    return Alignment(rows, divergence)


def _pair_cost(a: TurnKey, b: TurnKey) -> int | None:
    """What pairing costs, None when nothing is shared."""
    if a.role == b.role:
        return SAME if a.model == b.model else ROLE_ONLY
    return MODEL_ONLY if a.model == b.model else None


def _words(text: str) -> frozenset[str]:
    return frozenset(text[:TEXT_CUT].split())


def _distance(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard distance of two word sets, in 0 to 1."""
    union = len(a | b)
    return 1 - len(a & b) / union if union else 0.0


@dataclass(frozen=True, slots=True)
class MatchedTasks:
    """`tasks` tasks that A played `n_a` times and got right `right_a` times, and B `n_b` and `right_b` times."""

    n_a: int
    right_a: int
    n_b: int
    right_b: int
    tasks: int

    @property
    def difference(self) -> float:
        """B's share of right episodes minus A's, in -1 to 1."""
        return self.right_b / self.n_b - self.right_a / self.n_a


def is_solved(right: int, n: int) -> bool:
    """Does a task count as solved? By more than half of its episodes."""
    return 2 * right > n


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two policies over the `n` tasks they share: counts, paired difference (B minus A) and its p.

    A task counts in the 2x2 table as `is_solved` says; difference, accuracies and p take every episode, those of one
    task always together, so that repeats are no new evidence."""

    n: int
    both: int
    a_only: int
    b_only: int
    neither: int
    difference: PairedDifference
    p: float
    exact: bool  # p is the exact McNemar p; else of random sign flips by task
    episodes_a: int
    episodes_b: int
    differing: int  # tasks with unequal shares of right episodes
    ci95_a: tuple[float, float]
    ci95_b: tuple[float, float]
    accuracy_a: float | None  # mean over shared tasks; None when nothing is shared
    accuracy_b: float | None

    @property
    def repeats(self) -> bool:
        """Did either side play a task more than once?"""
        return max(self.episodes_a, self.episodes_b) > self.n


def compare(matched: Sequence[MatchedTasks], *, key: str) -> Comparison:
    """The paired statistics of tasks that two policies share; `key` seeds the signs that are flipped."""
    cells = {(a, b): 0 for a in (True, False) for b in (True, False)}
    for one in matched:
        cells[is_solved(one.right_a, one.n_a), is_solved(one.right_b, one.n_b)] += one.tasks
    values, tasks = _merged([(one.difference, one.tasks) for one in matched])
    n, unequal = sum(tasks), {value: count for value, count in zip(values, tasks, strict=True) if value}
    a = accuracy_over_tasks([(one.n_a, one.right_a, one.tasks) for one in matched])
    b = accuracy_over_tasks([(one.n_b, one.right_b, one.tasks) for one in matched])
    return Comparison(
        n=n,
        both=cells[True, True],
        a_only=cells[True, False],
        b_only=cells[False, True],
        neither=cells[False, False],
        difference=PairedDifference(*difference_over_tasks(values, tasks), n),
        p=sign_flip_p(values, tasks, key=key),
        exact=len({abs(value) for value, count in unequal.items() if count}) < 2,
        episodes_a=sum(one.n_a * one.tasks for one in matched),
        episodes_b=sum(one.n_b * one.tasks for one in matched),
        differing=sum(unequal.values()),
        ci95_a=a[1:],
        ci95_b=b[1:],
        accuracy_a=a[0] if n else None,
        accuracy_b=b[0] if n else None,
    )


def accuracy_over_tasks(played: Sequence[tuple[int, int, int]]) -> tuple[float, float, float]:
    """The mean over tasks of the share of right episodes, with its 95 % interval, from (episodes, right, tasks)."""
    shares, tasks = _merged([(right / episodes, count) for episodes, right, count in played])
    return share_over_tasks(shares, tasks, sum(episodes * count for episodes, _, count in played))


def _merged(counted: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Equal values put together, least first; what draws from them does not depend on the order they came in."""
    found = Counter[float]()
    for value, tasks in counted:
        found[round(value, 12)] += tasks
    return sorted(found), [found[value] for value in sorted(found)]
