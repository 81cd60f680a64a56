"""A pool of seven models on a good server and on a faulty one: time against the permitted rate, money against what was
to be expected, and right answers that could not be read.

Every command is a process of its own, and the server counts. `seconds` are from a step's first call to the end of its
last. `ideal` is what the permitted rate and the calls that may be in flight allow for the answered calls: the longer of
answered calls / permitted rate and seconds of answering / calls in flight.

`ratio` is seconds / ideal: what faults cost is in it. A fault that is no refusal takes a request of the permitted rate
and has to be asked again; `ratio_with_repeats` is seconds / the ideal of all requests that the server let through, such
repeats included: what remains is our own waiting. The promise, 1.2 times the ideal of the permitted rate, is of the
whole journey: `whole` has the seconds of all steps of a server together, the sum of their ideals, for a command begins
when the one before it has ended, and both ratios of these sums.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tests.bench._frame import Figures, run
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


def measure(
    tasks: Annotated[int, "tasks of each of four families"] = 30,
    per_second: Annotated[float, "requests that the server permits"] = 10.0,
) -> Figures:
    """The figures of the good server and of the faulty one."""
    return {name: _measured(tasks, per_second, faulty=name == "faulty") for name in ("good", "faulty")}


def _measured(tasks: int, per_second: float, *, faulty: bool) -> Figures:
    """The figures of every step, and of all of them together."""
    with (
        tempfile.TemporaryDirectory() as folder,
        engineer(Path(folder), each=tasks, per_second=per_second, faulty=faulty) as me,
    ):
        steps, times, episodes = {}, [], []
        for name, command in STEPS.items():
            said = me.trinity(*command)
            times.append(Times.of(said, per_second))
            steps[name] = times[-1].figures() | _figures(me, said, per_second)
            episodes += me.played(said.run)
        known = truth(me.team, episodes)
        return {
            "steps": steps,
            "whole": Times.together(times).figures(),
            "faults": dict(Counter(call.fault for call in me.team.calls if call.fault)),
            "unreadable": {
                one.name: f"{known.unreadable[one.name]} of {known.right[one.name]}" for one in MODELS
            },
        }


@dataclass(frozen=True, slots=True)
class Times:
    """How long a step took, and how long it had to take for its answered calls, and for these with the repeats that
    faults made necessary; all in seconds."""

    seconds: float
    ideal: float
    ideal_with_repeats: float

    @classmethod
    def of(cls, said: Said, per_second: float) -> Times:
        """Of one command's calls."""
        answered = [call for call in said.calls if call.answered]
        flying = sum(call.seconds for call in answered) / ALL
        let_through = sum(not call.fault.startswith("429") for call in said.calls)
        return cls(
            max(call.at + call.seconds for call in said.calls) - min(call.at for call in said.calls),
            max(len(answered) / per_second, flying),
            max(let_through / per_second, flying),
        )

    @classmethod
    def together(cls, steps: Sequence[Times]) -> Times:
        """Of steps that follow each other: none can begin before the one before it has ended."""
        return cls(
            sum(one.seconds for one in steps),
            sum(one.ideal for one in steps),
            sum(one.ideal_with_repeats for one in steps),
        )

    def figures(self) -> dict[str, float]:
        """Rounded, with both ratios."""
        return {
            "seconds": round(self.seconds, 1),
            "ideal": round(self.ideal, 1),
            "ratio": round(self.seconds / self.ideal, 2),
            "ratio_with_repeats": round(self.seconds / self.ideal_with_repeats, 2),
        }


def _figures(me: Engineer, said: Said, per_second: float) -> Figures:
    """A step's calls and what they cost."""
    answered = [call for call in said.calls if call.answered]
    busy = sum(call.seconds for call in answered)
    took = Times.of(said, per_second).seconds
    expected = said.expected_usd if "To expect" in said.err else None
    return {
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
    run(measure)
