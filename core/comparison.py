"""Compares two episodes turn by turn, and two policies over the tasks they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.episode import Role
from core.metrics import PairedDifference, mcnemar_p, paired_difference, wilson_interval

#: What it costs to put two turns side by side. Turns that share neither model nor role are never paired.
SAME, ROLE_ONLY, MODEL_ONLY, GAP = 0, 1, 2, 3

#: The rule in words, shown wherever an alignment is.
RULE = (
    "Turns are aligned by dynamic programming. Side by side costs 0 with the same model and role, "
    "1 with only the role the same, 2 with only the model the same; a gap costs 3. "
    "Among equally cheap alignments the closest texts win."
)

#: Only this many characters of a reply count for the text distance: ties need a hint, not a proof.
TEXT_CUT = 4000


@dataclass(frozen=True, slots=True)
class Move:
    """What alignment looks at in one turn."""

    model: str
    role: Role
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an alignment: the turn indices of A and B, None for a gap, and what pairing them cost."""

    a: int | None
    b: int | None
    cost: int

    @property
    def same_choice(self) -> bool:
        """Both played the same model in the same role."""
        return self.cost == SAME


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two episodes laid side by side, in order; every turn stands in exactly one row."""

    rows: tuple[Row, ...]
    first_divergence: int | None  # index of the first row whose choices differ, None when there is none


def align(a: Sequence[Move], b: Sequence[Move]) -> Alignment:
    """The cheapest alignment of two episodes' turns under RULE (Needleman and Wunsch 1970)."""
    words_a, words_b = [_words(move.text) for move in a], [_words(move.text) for move in b]
    # best[i][j]: cheapest (cost, text distance) of aligning a[i:] with b[j:], and the step taken first.
    best: dict[tuple[int, int], tuple[int, float, str]] = {(len(a), len(b)): (0, 0.0, "")}
    for i in range(len(a), -1, -1):
        for j in range(len(b), -1, -1):
            options: list[tuple[int, float, str]] = []
            if i < len(a) and j < len(b) and (cost := _pair_cost(a[i], b[j])) is not None:
                rest = best[i + 1, j + 1]
                options.append((rest[0] + cost, rest[1] + _distance(words_a[i], words_b[j]), "1:pair"))
            if i < len(a):
                options.append((best[i + 1, j][0] + GAP, best[i + 1, j][1], "2:a"))
            if j < len(b):
                options.append((best[i, j + 1][0] + GAP, best[i, j + 1][1], "3:b"))
            if options:
                best[i, j] = min(options)
    rows: list[Row] = []
    i = j = 0
    while step := best[i, j][2]:
        if step == "1:pair":
            cost = _pair_cost(a[i], b[j])
            rows.append(Row(i, j, GAP if cost is None else cost))
            i, j = i + 1, j + 1
        elif step == "2:a":
            rows.append(Row(i, None, GAP))
            i += 1
        else:
            rows.append(Row(None, j, GAP))
            j += 1
    divergence = next((index for index, row in enumerate(rows) if not row.same_choice), None)
    return Alignment(tuple(rows), divergence)


def _pair_cost(a: Move, b: Move) -> int | None:
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
class Comparison:
    """Two policies over the tasks they share: counts, paired difference (B minus A) and exact McNemar p."""

    n: int
    both: int
    a_only: int
    b_only: int
    neither: int
    difference: PairedDifference
    p: float

    @property
    def accuracy_a(self) -> float | None:
        """A's share of shared tasks; None when nothing is shared."""
        return (self.both + self.a_only) / self.n if self.n else None

    @property
    def accuracy_b(self) -> float | None:
        """B's share of shared tasks; None when nothing is shared."""
        return (self.both + self.b_only) / self.n if self.n else None

    @property
    def ci95_a(self) -> tuple[float, float]:
        """Wilson interval of A's accuracy."""
        return wilson_interval(self.both + self.a_only, self.n)

    @property
    def ci95_b(self) -> tuple[float, float]:
        """Wilson interval of B's accuracy."""
        return wilson_interval(self.both + self.b_only, self.n)


def compare_counts(both: int, a_only: int, b_only: int, neither: int, *, key: str) -> Comparison:
    """The paired statistics of a 2x2 table; `key` seeds the bootstrap."""
    n = both + a_only + b_only + neither
    return Comparison(
        n,
        both,
        a_only,
        b_only,
        neither,
        paired_difference(a_only, b_only, n, key=key),
        mcnemar_p(a_only, b_only),
    )
