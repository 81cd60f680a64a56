"""The paper's tables say how many differences they state, which hold among all of them, and on which seeds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from core.analysis.metrics import Mean
from ui.runs.paper.results import Differences, file_of, on_fewer_seeds, seeds_words, shipped
from ui.runs.paper.tables import COUNTED, TABLES, RowResult

ROOT = Path(__file__).parents[3]
TABLE = TABLES["2"]


def row(key: str, values: list[float], against: Mean | None) -> RowResult:
    reference = TABLE.reference
    assert reference is not None
    return RowResult(
        row=key,
        measure="accuracy",
        label=TABLE.row(key).label,
        value=Mean(0.5, 0.4, 0.6),
        against={reference.key: against} if against else {},
        by_family={},
        by_seed=dict(enumerate(values)),
        seeds=tuple(range(len(values))),
    )


def test_a_difference_over_fewer_seeds_says_so_and_what_the_reference_has_there() -> None:
    reference = TABLE.reference
    assert reference is not None
    unknown = Mean(0.01, math.nan, math.nan)
    found = [
        row(reference.key, [0.2, 0.4, 0.9], None),
        row("evolved:svf", [0.3, 0.32], unknown),
        row("evolved:no-thinker", [0.0, 0.2, 0.7], Mean(-0.2, -0.3, -0.1)),
    ]
    assert [seeds_words(TABLE, one, found) for one in found] == ["", "2 seeds", ""]
    assert on_fewer_seeds(TABLE, found) == [
        "A difference marked “2 seeds” is to the reference's 30.0 % on seeds 0 and 1 alone."
    ]
    differences = Differences.of([(TABLE, found)])
    assert [differences.mark(TABLE, one) for one in found] == ["", "", "yes"]
    assert differences.words("this table") == "", "one alone needs no correction"


def test_of_many_differences_fewer_hold_together_than_one_by_one() -> None:
    reference = TABLE.reference
    assert reference is not None
    others = [one.key for one in TABLE.rows if one.key != reference.key][:5]
    base = [0.40, 0.42, 0.44, 0.41]
    found = [row(reference.key, base, None)]
    for place, key in enumerate(others):
        values = [one - 0.1 + 0.01 * (seed % 2) for seed, one in enumerate(base)]
        # The first interval is clear of 0; the others hardly, or not.
        low = (-0.12, -0.19, -0.19, -0.25, -0.25)[place]
        found.append(row(key, values, Mean(-0.095, low, -0.19 - low)))
    differences = Differences.of([(TABLE, found)])
    marks = [differences.mark(TABLE, one) for one in found[1:]]
    assert marks == ["yes", "no", "no", "no", "no"]
    assert differences.column == "holds among 5"
    assert differences.words("this table") == (
        "5 differences to a reference are stated in this table. Taken alone, 1 of their intervals leave out 0; "
        "allowing for all 5 (Holm's correction, 5 % for all together), 1 hold."
    )


@pytest.fixture(scope="module")
def whole() -> Differences:
    results = shipped()
    assert results is not None
    measured = [
        one for one in TABLES.values() if one.measure not in COUNTED and file_of(one) == "results.json"
    ]
    return Differences.of((one, results.outcomes(one)) for one in measured)


def test_readme_says_what_holds_of_the_shipped_differences(whole: Differences) -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    alone = sum(p < 0.05 for p in whole.ps.values())
    assert f"{len(whole.ps)} differences" in text
    assert f"{alone} leave out 0 one by one" in text
    assert f"and {len(whole.held)} hold" in text
    pairs = {(row, reference) for row, reference, _ in whole.held}
    # Each conclusion that README draws from a difference, and whether it holds among all.
    assert ("single:1", "trained:default") in pairs
    assert ("random-workflow", "trained:default") in pairs
    assert {(name, "trained:default") for name in whole_names(whole)} <= pairs
    assert ("single:1", "evolved:default") not in pairs
    assert ("router", "evolved:default") not in pairs


def whole_names(whole: Differences) -> list[str]:
    return [row for row, reference, _ in whole.ps if row.startswith("workflow:")]
