"""A month of traffic with limits, on a small scale: the books agree, and what is wrong in them is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.bench import month
from ui.endpoint.ledger import Ceiling, Ledger


@pytest.mark.integration
@pytest.mark.parametrize("each", [1, 3])
def test_every_book_says_the_same(each: int) -> None:
    found = month.measure(requests=90, keys=6, at_once=6, each=each, restarts=1, days=0.5)
    assert found["mismatches"] == {}
    assert sum(found["outcomes"].values()) == 90
    assert found["outcomes"]["answered"] > 10
    assert sum(found["refused"].values()) > 10
    assert found["in_store"] == 90 - found["outcomes"].get("not admitted", 0)
    assert found["stored_usd"] == pytest.approx(found["billed_usd"], abs=2e-6)
    assert found["billed_usd"] > 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda allows: lambda *a: allows(*a) if not hash(a[1]) % 3 else Ceiling("key", 0.001), "refus"),
        (
            lambda allows: lambda self, *a: allows(self, a[0], replace(a[1], key=None), *a[2:]),
            "beyond the limit",
        ),
    ],
)
def test_a_wrong_ledger_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any], words: str
) -> None:
    """One refuses what fits, the other forgets whose the request is."""
    monkeypatch.setattr(Ledger, "allows", wrong(Ledger.allows))
    found = month.measure(requests=60, keys=3, at_once=4, restarts=0, days=0.5)
    assert any(words in name for name in found["not_kept"])
