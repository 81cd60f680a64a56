"""SIGKILL at random moments to what spends money: no ceiling is exceeded by more than the calls that were under way, no
recorded reply is paid for twice, and the store stays whole. The full figure is taken with 50 kills each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ui.cli.spending import AT_ONCE, CALL_USD, Bill, killed_runs, killed_servers

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("TRINITY_KILLS", "4"))


@pytest.mark.parametrize("killed", [killed_runs, killed_servers])
def test_killed_it_spends_its_ceiling_and_what_was_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: Callable[..., Bill]
) -> None:
    bill = killed(tmp_path, monkeypatch, KILLS)
    assert bill.recorded_usd <= bill.ceiling_usd
    assert sum(bill.lost) > 0  # some kills came in the middle of calls
    assert max(bill.lost) <= 2 * AT_ONCE  # some replies had come and were not recorded yet
    assert bill.paid_usd <= bill.ceiling_usd + CALL_USD * sum(bill.lost)
    assert bill.asked_again == 0
    assert bill.integrity == {"ok"}
