"""What is promised about faults and kills, measured: deadlines, cut streams, retries, lost episodes and ceilings.

Each figure stands beside what is promised. What takes longest are the kills: about a second for each that spends money,
a third of one for each of a writer.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice, product
from pathlib import Path
from typing import Annotated

import pytest

from tests.bench._frame import Figures, percentile, run, say
from tests.core.pool.faults import (
    CUTS,
    TEXT,
    TIMEOUT_S,
    End,
    accepted,
    broken_promises,
    cuts,
    faults,
    meet,
)  # fmt: skip
from tests.storage.killing import killed_writers
from tests.ui.cli.spending import Bill, killed_runs, killed_servers

#: What is promised of the figures of these names: the most that each may be.
PROMISED: dict[str, float] = {
    "overshoot_max_ms": 100.0,
    "accepted_in_part": 0,
    "broken_promises": 0,
    "calls_over_ideal": 1.1,
    "lost": 0,
    "not_whole": 0,
    "over_ceiling_usd": 0.0,
    "paid_unrecorded_usd": 0.0,
    "asked_again": 0,
}
#: Calls at once while deadlines are measured: what is measured is the client, not how it shares the processor.
AT_ONCE = 2


def measure(
    trials: Annotated[int, "calls to servers that drip"] = 100,
    kills: Annotated[int, "of processes that record"] = 200,
    spending_kills: Annotated[int, "of runs, and of servers, that spend"] = 50,
    only: Annotated[str, "by commas: deadline, cuts, faults, writers, runs, servers"] = "",
) -> Figures:
    """The figures of every part, what is promised of them, and what is not kept."""
    parts: dict[str, Callable[[], Figures]] = {
        "deadline": lambda: _deadline(trials),
        "cuts": _cuts,
        "faults": _faults,
        "writers": lambda: _writers(kills),
        "runs": lambda: _spending(killed_runs, spending_kills),
        "servers": lambda: _spending(killed_servers, spending_kills),
    }
    wanted = [one for one in only.split(",") if one] or [*parts]
    if unknown := [one for one in wanted if one not in parts]:
        raise ValueError(f"there is no part '{unknown[0]}': choose from {', '.join(parts)}")
    found: dict[str, Figures] = {}
    for part in wanted:
        began = time.monotonic()
        found[part] = {**parts[part](), "seconds": round(time.monotonic() - began, 1)}
        say(f"{part}: {found[part]['seconds']} s")
    broken = [
        f"{part}: {name}"
        for part, figures in found.items()
        for name, value in figures.items()
        if value > PROMISED.get(name, value)
    ]
    return {"measured": found, "promised": PROMISED, "not_kept": broken}


def _deadline(trials: int) -> Figures:
    """How much later than its deadline a call to a server that drips, or keeps silent, is given up."""
    slow = [one for streamed in (False, True) for one in faults(streamed) if one.end is End.LATE]
    calls = meet([(one, True) for one in islice(cycle(slow), trials)], at_once=AT_ONCE)
    late = sorted(1000 * (call.took_s - TIMEOUT_S) for call in calls)
    return {
        "trials": len(calls),
        "overshoot_p50_ms": percentile(50, late),
        "overshoot_p95_ms": percentile(95, late),
        "overshoot_max_ms": round(late[-1], 1),
        "too_early": sum(call.reply.latency_s < TIMEOUT_S for call in calls),
        "broken_promises": sum(len([*broken_promises(call)]) for call in calls),
    }


def _cuts() -> Figures:
    """Answers that are cut before each of their bytes, in every way: how many of them were taken for a reply."""
    tried = whole = part = 0
    for mode, streamed in product(CUTS, (False, True)):
        cut = cuts(mode, streamed)
        replies = accepted(cut, streamed)
        tried += len(cut)
        whole += sum(reply.text == TEXT for reply in replies)
        part += sum(reply.text != TEXT for reply in replies)
    return {"streams": tried, "accepted_in_part": part, "accepted_whole": whole}


def _faults() -> Figures:
    """Every fault, once and at every try: what did not end as it should, and the requests beside the ideal."""
    calls = [call for one in (False, True) for call in meet(product(faults(one), (False, True)))]
    passing = [call for call in calls if not call.lasting]
    ideal = sum(call.ideal_requests for call in passing)
    return {
        "faults": len(calls),
        "broken_promises": sum(len([*broken_promises(call)]) for call in calls),
        "calls_over_ideal": round(sum(call.requests for call in passing) / ideal, 3),
    }


def _writers(kills: int) -> Figures:
    """Processes that record and are killed: acknowledged episodes, turns and replies that are not stored."""
    with tempfile.TemporaryDirectory() as folder:
        found = killed_writers(Path(folder) / "trinity.db", kills)
    return {
        "kills": 2 * (kills // 2),
        "acknowledged": len(found.acknowledged),
        "acknowledged_episodes": found.episodes,
        "lost": len(found.lost),
        "not_whole": sum(said != "ok" for said in found.integrity),
    }


def _spending(killed: Callable[[Path, pytest.MonkeyPatch, int], Bill], kills: int) -> Figures:
    """Commands that spend money and are killed near a ceiling: what was paid beyond it, and more than was
    recorded."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        bill = killed(Path(folder), patch, kills)
    return {
        "kills": bill.kills,
        "ceiling_usd": bill.ceiling_usd,
        "recorded_usd": round(bill.recorded_usd, 2),
        "paid_usd": round(bill.paid_usd, 2),
        "over_ceiling_usd": round(bill.over_usd, 2),
        "paid_unrecorded_usd": round(max(0.0, bill.paid_usd - bill.recorded_usd), 2),
        "lost_at_most_in_a_kill": max(bill.lost, default=0),
        "asked_again": bill.asked_again,
        "not_whole": len(bill.integrity - {"ok"}),
    }


if __name__ == "__main__":
    run(measure, promised=PROMISED)
