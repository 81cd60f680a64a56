"""What an iteration of learning came to, as its run keeps it and its pages show it (no torch)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.episode import EndReason, Episode, Status
from core.workflow import PlanFault, Topology


@dataclass(frozen=True, slots=True)
class PlanStatistics:
    """What `n` episodes came to, besides those `missing`. Shares are between 0 and 1 and NaN where nothing counts.

    `right` and `readable` are shares of the n episodes. The others are about those whose plan could be read:
    `steps_mean`; `topologies`, the share of each shape; `models`, by (place of the step from 0, model), the share of
    the plans with such a step that give it to the model; `subtasks` likewise by (place, first word). `faults` counts
    the plans that could not be read by their reason. `tokens` are the pool's, in and out. `families` holds the same for
    the episodes of each family of tasks."""

    n: int
    missing: int = 0
    right: float = math.nan
    readable: float = math.nan
    steps_mean: float = math.nan
    topologies: Mapping[Topology, float] = field(default_factory=dict)
    models: Mapping[tuple[int, str], float] = field(default_factory=dict)
    subtasks: Mapping[tuple[int, str], float] = field(default_factory=dict)
    faults: Mapping[PlanFault, int] = field(default_factory=dict)
    tokens: int = 0
    families: Mapping[str, PlanStatistics] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; pairs as `PLACE NAME`, and without what is not known."""
        found: dict[str, Any] = {
            "n": self.n,
            "missing": self.missing,
            "right": self.right,
            "readable": self.readable,
            "steps_mean": self.steps_mean,
            "topologies": {shape.value: share for shape, share in self.topologies.items()},
            "models": {f"{place} {name}": share for (place, name), share in self.models.items()},
            "subtasks": {f"{place} {word}": share for (place, word), share in self.subtasks.items()},
            "faults": {fault.value: count for fault, count in self.faults.items()},
            "tokens": self.tokens,
            "families": {name: one.to_json() for name, one in self.families.items()},
        }
        return {name: value for name, value in found.items() if value == value and value != {}}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> PlanStatistics:
        """Inverse of `to_json`."""
        return cls(
            n=int(stored["n"]),
            missing=int(stored.get("missing", 0)),
            right=float(stored.get("right", math.nan)),
            readable=float(stored.get("readable", math.nan)),
            steps_mean=float(stored.get("steps_mean", math.nan)),
            topologies={Topology(name): float(share) for name, share in stored.get("topologies", {}).items()},
            models=_pairs(stored.get("models", {})),
            subtasks=_pairs(stored.get("subtasks", {})),
            faults={PlanFault(name): int(count) for name, count in stored.get("faults", {}).items()},
            tokens=int(stored.get("tokens", 0)),
            families={name: cls.of(one) for name, one in stored.get("families", {}).items()},
        )


#: So many plans tell at each validation how many can be read that are written without a grammar.
FREE_PLANS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationStats:
    """One finished iteration; number 0 is the start, which has validation alone.

    `reward_mean` is over the rollouts that are not missing; `signal` the share of groups whose rewards differ, without
    which nothing is learned; `rollouts` what the rollouts came to. `entropy` and `divergence`, which is from the
    planner it began as and NaN without anchors, are means over the updates (nats per chosen token); `loss` and
    `gradient` (norm before it is cut) are the last update's. `written_tokens` are the planner's own; `calls` were made
    to the pool and `calls_saved` shared with an equal one, both without validation's. `free` is the share of readable
    plans when no grammar forces their form, of a small sample at each validation. `seconds` are of the wall, without
    validation's."""

    index: int
    reward_mean: float = math.nan
    signal: float = math.nan
    rollouts: PlanStatistics | None = None
    validation: PlanStatistics | None = None
    learning_rate: float = math.nan
    loss: float = math.nan
    entropy: float = math.nan
    divergence: float = math.nan
    gradient: float = math.nan
    free: float = math.nan
    written_tokens: int = 0
    calls: int = 0
    calls_saved: int = 0
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, without what is not known."""
        found = {name: getattr(self, name) for name in (*_NUMBERS, *_COUNTS)}
        known: dict[str, Any] = {name: value for name, value in found.items() if value == value}
        for name in _PARTS:
            if (one := getattr(self, name)) is not None:
                known[name] = one.to_json()
        return known

    @classmethod
    def stats_of(cls, stored: Mapping[str, Any]) -> IterationStats:
        """Inverse of `to_json`."""
        found: dict[str, Any] = {name: float(stored.get(name, math.nan)) for name in _NUMBERS}
        found |= {name: int(stored.get(name, 0)) for name in _COUNTS}
        found |= {name: PlanStatistics.of(stored[name]) for name in _PARTS if name in stored}
        return IterationStats(**found)


_NUMBERS = (
    "reward_mean",
    "signal",
    "learning_rate",
    "loss",
    "entropy",
    "divergence",
    "gradient",
    "free",
    "seconds",
)
_PARTS = ("rollouts", "validation")
_COUNTS = ("index", "written_tokens", "calls", "calls_saved")


def statistics_of(episodes: Sequence[Episode], *, by_family: bool = True) -> PlanStatistics:
    """What played episodes came to, those that are missing only counted."""
    known = [one for one in episodes if one.status is Status.FINISHED]
    plans = [plan for one in known for plan in one.plans[-1:]]
    flows = [plan.workflow for plan in plans if plan.workflow is not None]
    families: dict[str, PlanStatistics] = {}
    if by_family:
        for family in sorted({one.task.family for one in episodes}):
            own = [one for one in episodes if one.task.family == family]
            families[family] = statistics_of(own, by_family=False)
    shapes = Counter(flow.topology for flow in flows)
    names = {id(plan.workflow): one.models for one in known for plan in one.plans}
    usages = [turn.reply.usage for one in known for turn in one.turns]
    return PlanStatistics(
        n=len(known),
        missing=len(episodes) - len(known),
        right=_share(sum(one.correct is True for one in known), len(known)),
        readable=_share(sum(one.end_reason is EndReason.COMPLETED for one in known), len(known)),
        steps_mean=_share(sum(map(len, flows)), len(flows)),
        topologies={shape: count / len(flows) for shape, count in sorted(shapes.items())},
        models=_by_place(
            (place, names[id(flow)][slot]) for flow in flows for place, slot in enumerate(flow.models)
        ),
        subtasks=_by_place(
            (place, _word(text)) for flow in flows for place, text in enumerate(flow.subtasks)
        ),
        faults=dict(sorted(Counter(plan.fault for plan in plans if plan.fault is not None).items())),
        tokens=sum(usage.tokens_in + usage.tokens_out for usage in usages),
        families=families,
    )


def _by_place(pairs: Iterable[tuple[int, str]]) -> dict[tuple[int, str], float]:
    """The share of each pair among those of its place."""
    counts = Counter(pairs)
    totals: Counter[int] = Counter()
    for (place, _), count in counts.items():
        totals[place] += count
    return {pair: count / totals[pair[0]] for pair, count in sorted(counts.items())}


def _pairs(stored: Mapping[str, Any]) -> dict[tuple[int, str], float]:
    found = {}
    for pair, share in stored.items():
        place, _, name = pair.partition(" ")
        found[int(place), name] = float(share)
    return found


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan


def _word(subtask: str) -> str:
    """The first word of a subtask, in lower case."""
    return subtask.split()[0].lower().strip(".:,")
