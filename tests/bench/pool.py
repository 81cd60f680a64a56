"""A pool of seven models on a good server and on a faulty one: time against the permitted rate, money against what was
to be expected, and right answers that could not be read.

    trinity bench pool [--tasks 30] [--per-second 10] [--json]

Every command is a process of its own, and the server counts. The ideal is what the permitted rate and the calls that
may be in flight allow for the answered calls. A fault that is no refusal takes a request of the permitted rate and has
to be asked again: `ratio with repeats` is to the ideal of these calls too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.builders.own_models import MODELS
from tests.journeys.engineer import ALL, Engineer, Said, engineer, truth

COMMON = ("--pool", "pool.toml", "--tasks", "tasks.jsonl", "--max-cost", 50)
STEPS: dict[str, tuple[object, ...]] = {
    "first look": ("run", *COMMON, "--n", 10, "--policy", "random"),
    "random team": ("run", *COMMON, "--policy", "random"),
    "each model alone": ("run", *COMMON, "--n", 10, "--policy", "single:*"),
    "evolution": (
        *("evolve", *COMMON, "--encoder", "pocket", "--no-controls", "--validation", 16),
        *("--generations", 2, "--population", 6, "--replicates", 6, "--validate-every", 2),
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="trinity bench pool", description=__doc__)
    parser.add_argument("--tasks", type=int, default=30, help="tasks of each of four families")
    parser.add_argument("--per-second", type=float, default=10.0, help="requests that the server permits")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    found = {
        name: _measured(chosen.tasks, chosen.per_second, faulty=name == "faulty")
        for name in ("good", "faulty")
    }
    if chosen.json:
        print(json.dumps(found))
        return
    for name, of in found.items():
        for step, figures in of["steps"].items():
            told = ", ".join(f"{what.replace('_', ' ')} {value}" for what, value in figures.items())
            print(f"{name} server, {step}: {told}")
        print(f"{name} server: faults {of['faults']}; right answers not read {of['unreadable']}")


def _measured(tasks: int, per_second: float, *, faulty: bool) -> dict[str, Any]:
    """The figures of every step, and of all of them together."""
    with (
        tempfile.TemporaryDirectory() as folder,
        engineer(Path(folder), each=tasks, per_second=per_second, faulty=faulty) as me,
    ):
        steps, episodes = {}, []
        for name, command in STEPS.items():
            said = me.trinity(*command)
            steps[name] = _figures(me, said, per_second)
            episodes += me.played(said.run)
        known = truth(me.team, episodes)
        return {
            "steps": steps,
            "faults": dict(Counter(call.fault for call in me.team.calls if call.fault)),
            "unreadable": {
                one.name: f"{known.unreadable[one.name]} of {known.right[one.name]}" for one in MODELS
            },
        }


def _figures(me: Engineer, said: Said, per_second: float) -> dict[str, Any]:
    answered = [call for call in said.calls if call.answered]
    busy = sum(call.seconds for call in answered)
    took = max(call.at + call.seconds for call in said.calls) - min(call.at for call in said.calls)
    ideal = max(len(answered) / per_second, busy / ALL)
    let_through = sum(not call.fault.startswith("429") for call in said.calls)
    expected = said.expected_usd if "To expect" in said.err else None
    return {
        "seconds": round(took, 1),
        "ideal": round(ideal, 1),
        "ratio": round(took / ideal, 2),
        "ratio_with_repeats": round(took / max(let_through / per_second, busy / ALL), 2),
        "calls": len(said.calls),
        "answered": len(answered),
        "in_flight": round(busy / took, 2),
        "allowed": round(min(ALL, per_second * busy / len(answered)), 2),
        "billed_usd": round(said.billed_usd, 4),
        "recorded_usd": round(me.spent_usd(said.run), 4),
        "expected_usd": expected,
        "bound_usd": said.bound_usd,
        "exit": said.code,
    }


if __name__ == "__main__":
    main()
