"""What an iteration of learning came to, as its run keeps it and its pages show it (no torch)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from core.episode import EndReason, Episode, Status
from core.learning import joined, statistics_json, statistics_of_json
from core.workflow import PlanFault, Topology


def _by_pair(stored: Any) -> Any:
    """Shares by (place, name) of those by `PLACE NAME`."""
    return {
        tuple(key.split(" ", 1)) if isinstance(key, str) else key: share
        for key, share in dict(stored).items()
    }


#: Shares by (place of a step from 0, name).
ByPlace = Annotated[Mapping[tuple[int, str], float], BeforeValidator(_by_pair), PlainSerializer(joined)]


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
    models: ByPlace = field(default_factory=dict)
    subtasks: ByPlace = field(default_factory=dict)
    faults: Mapping[PlanFault, int] = field(default_factory=dict)
    tokens: int = 0
    families: Mapping[str, PlanStatistics] = field(default_factory=dict)


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
        return statistics_json(IterationStats, self)

    @classmethod
    def stats_of(cls, stored: Mapping[str, Any]) -> IterationStats:
        """Inverse of `to_json`."""
        return statistics_of_json(IterationStats, stored)


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
            (place, text.split()[0].lower().strip(".:,"))
            for flow in flows
            for place, text in enumerate(flow.subtasks)
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


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan
