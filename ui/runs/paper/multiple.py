"""How many differences the paper's tables state at once, which hold when all are allowed for, and on which seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.analysis.metrics import holm, mean_p
from ui.presentation.comparison import enumerated
from ui.presentation.theme import percent
from ui.runs.paper.outcomes import RowResult
from ui.runs.paper.table import Table

#: A difference: the row, the row that it is put against, and what is measured.
Pair = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Differences:
    """The p of every difference that has an interval (1 where that holds 0), and which hold among all of them (Holm
    1979)."""

    ps: dict[Pair, float]
    held: frozenset[Pair]

    @classmethod
    def of(cls, tables: Iterable[tuple[Table, Sequence[RowResult]]]) -> Differences:
        """Of several tables; a difference that stands in two of them is one."""
        ps: dict[Pair, float] = {}
        for table, found in tables:
            for one in found:
                pair, difference = _pair(table, one), one.against
                if pair is None or difference is None or not difference.has_interval or pair in ps:
                    continue
                # An interval that holds 0 has a p above 0.05, which never holds among several.
                differs = difference.low > 0 or difference.high < 0
                ps[pair] = mean_p(difference, _differences(table, one, found)) if differs else 1.0
        held = holm(list(ps.values()))
        return cls(ps, frozenset(pair for pair, holds in zip(ps, held, strict=True) if holds))

    def mark(self, table: Table, one: RowResult) -> str:
        """Whether a row's difference holds: `yes`, `no`; empty where there is none, or no interval."""
        pair = _pair(table, one)
        return "" if pair is None or pair not in self.ps else "yes" if pair in self.held else "no"

    @property
    def column(self) -> str:
        """What a column of marks is called."""
        return f"holds among {len(self.ps)}"

    def words(self, where: str) -> str:
        """How many there are and what survives, two sentences; empty for fewer than two. `where` they stand."""
        n, alone = len(self.ps), sum(p < 0.05 for p in self.ps.values())
        if n < 2:
            return ""
        return (
            f"{n} differences to a reference are stated in {where}. Taken alone, {alone} of their intervals leave out "
            f"0; allowing for all {n} (Holm's correction, 5 % for all together), {len(self.held)} hold."
        )


def _pair(table: Table, one: RowResult) -> Pair | None:
    reference = table.reference
    if reference is None or one.against is None:
        return None
    return one.row.key, reference.key, table.measure


def _reference(table: Table, found: Sequence[RowResult]) -> RowResult | None:
    key = table.reference.key if table.reference else None
    return next((one for one in found if one.row.key == key), None)


def _shared(one: RowResult, reference: RowResult) -> list[int]:
    return [seed for seed in one.by_seed if seed in reference.by_seed]


def _differences(table: Table, one: RowResult, found: Sequence[RowResult]) -> list[float]:
    """Seed by seed."""
    reference = _reference(table, found)
    if reference is None:
        return []
    return [one.by_seed[seed] - reference.by_seed[seed] for seed in _shared(one, reference)]


def seeds_words(table: Table, one: RowResult, found: Sequence[RowResult]) -> str:
    """`2 seeds` for a difference that is over fewer seeds than the reference has; else empty."""
    reference = _reference(table, found)
    if reference is None or one.against is None:
        return ""
    n = len(_shared(one, reference))
    return f"{n} seed{'' if n == 1 else 's'}" if 0 < n < len(reference.by_seed) else ""


def on_fewer_seeds(table: Table, found: Sequence[RowResult]) -> list[str]:
    """What the reference has on those seeds, sentences: two means side by side then differ by something else."""
    reference = _reference(table, found)
    if reference is None:
        return []
    marks = {
        tuple(_shared(one, reference)): words for one in found if (words := seeds_words(table, one, found))
    }
    said = []
    for seeds, words in sorted(marks.items()):
        mean = math.fsum(reference.by_seed[seed] for seed in seeds) / len(seeds)
        value = f"{mean:,.0f}" if table.measure == "tokens" else percent(mean)
        named = f"seed{'' if len(seeds) == 1 else 's'} {enumerated([str(one) for one in seeds])}"
        said.append(f"A difference marked “{words}” is to the reference's {value} on {named} alone.")
    return said
