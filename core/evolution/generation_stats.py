"""What a generation came to besides its fitness, as its run keeps it: how it played and what it took (no torch)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from core.analysis.metrics import wilson_interval
from core.episode import Flag, Role
from core.statistics_json import joined, statistics_json, statistics_of_json


@dataclass(frozen=True, slots=True)
class Step:
    """The first step size of one block of the vector, and the standard deviation of the logits it causes."""

    step_size: float
    logit_spread: float


class NoticedTurns(NamedTuple):
    """`n` turns of one model in one role that carry the same flags."""

    model: str
    role: Role
    flags: tuple[Flag, ...]
    n: int


def _parted(stored: Any) -> Any:
    """Shares by (model, role) of those by `MODEL ROLE`; a model's name may hold blanks."""
    return {
        tuple(key.rsplit(" ", 1)) if isinstance(key, str) else key: share
        for key, share in dict(stored).items()
    }


@dataclass(frozen=True, slots=True)
class EpisodeStatistics:
    """What `n` episodes came to, besides those `missing`. `shares` maps (model, role) to its share of all
    turns. `error` is the accuracy's standard error, all episodes of one task drawn together; `noticed` are all of
    their turns by what was noticed about them. NaN and nothing for what is not known."""

    accuracy: float = math.nan
    n: int = 0
    missing: int = 0
    turns_mean: float = math.nan
    accept_rate: float = math.nan
    shares: Annotated[Mapping[tuple[str, Role], float], BeforeValidator(_parted), PlainSerializer(joined)] = (
        field(default_factory=dict)
    )
    error: float = math.nan
    noticed: tuple[NoticedTurns, ...] = ()

    @property
    def right(self) -> int:
        """How many of the `n` episodes ended right."""
        return round(self.accuracy * self.n) if self.n else 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy."""
        return wilson_interval(self.right, self.n)


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """`best`, `mean` and `median` are of the candidates' fitness, of generation 0 its validation's accuracy; `sigma` is
    how far the learner reaches after it. Calls to models and decisions, with the encoder's forwards for them, are
    counted over this generation, without those of its validation; None where its run did not keep them. `next_tasks` is
    the next generation's `tasks_per_candidate`; `label_episodes`, of generation 0 only, were played for labels;
    `distances` are the candidates' from where the learner stood, in step sizes; `steps` and `mean_state`, of generation
    0 only, are what was surveyed of the encoder: the first step of every block of the vector, and a packed vector
    (`search.Survey`); `validation` is of the distribution mean on held-apart tasks, when due. `controls` are what the
    last generation is put beside, by name."""

    best: float = 0.0
    mean: float = 0.0
    median: float = 0.0
    sigma: float = 0.0
    calls: int | None = None
    calls_saved: int | None = None
    decisions: int | None = None
    forwards: float | None = None
    next_tasks: int | None = None
    label_episodes: int | None = None
    distances: tuple[float, ...] = ()
    steps: Mapping[str, Step] = field(default_factory=dict)
    mean_state: str = ""
    episodes: EpisodeStatistics | None = None
    validation: EpisodeStatistics | None = None
    controls: Mapping[str, EpisodeStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> GenerationStats:
        """Inverse of `to_json`."""
        return statistics_of_json(GenerationStats, stored)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, without what is open."""
        return statistics_json(GenerationStats, self)
