"""What a generation came to: the fitness of its candidates, the mean binary reward of their episodes with missing ones
left out, and what its run keeps of how they played and what it took (no torch)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from core.analysis.metrics import ClusteredShare, wilson_interval
from core.episode import EndReason, Episode, Flag, Role
from core.learning import joined, statistics_json, statistics_of_json


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


def _by_pair(stored: Any) -> Any:
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
    shares: Annotated[
        Mapping[tuple[str, Role], float], BeforeValidator(_by_pair), PlainSerializer(joined)
    ] = field(default_factory=dict)
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
    how far the learner reaches after it. Calls to models and decisions, with the encoder's forwards for them and the
    seconds that these took, `reading_s`, are counted over this generation, without those of its validation; None where
    its run did not keep them. `next_tasks` is the next generation's `tasks_per_candidate`; `label_episodes`, of
    generation 0 only, were played for labels; `distances` are the candidates' from where the learner stood, in step
    sizes; `steps` and `mean_state`, of generation 0 only, are what was surveyed of the encoder: the first step of every
    block of the vector, and a packed vector (`search.Survey`); `validation` is of the distribution mean on held-apart
    tasks, when due. `controls` are what the last generation is put beside, by name."""

    best: float = 0.0
    mean: float = 0.0
    median: float = 0.0
    sigma: float = 0.0
    calls: int | None = None
    calls_saved: int | None = None
    decisions: int | None = None
    forwards: float | None = None
    reading_s: float | None = None
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


def rewards(episodes: Sequence[Episode]) -> NDArray[np.float64]:
    """Reward of each episode, NaN where it is missing."""
    return np.array([np.nan if episode.reward is None else episode.reward for episode in episodes])


def mean_reward(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the last axis without the missing ones; NaN where all are missing."""
    known = np.isfinite(values)
    counts = known.sum(axis=-1)
    totals = np.where(known, values, 0.0).sum(axis=-1)
    result: NDArray[np.float64] = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    return result


def further_terms(
    episodes: Sequence[Episode], turn_budget: int, *, diversity: float, turn_cost: float
) -> float:
    """What the released run adds to a candidate's mean reward (trinity.md 1.7): `diversity` times the entropy, in
    nats, of the models chosen over all its episodes, less `turn_cost` times a quarter of (N - 1) / turn budget for
    N choices in all. Missing episodes are left out; 0 without any other."""
    chosen = Counter(turn.decision.model for one in episodes if one.reward is not None for turn in one.turns)
    n = sum(chosen.values())
    if n == 0:
        return 0.0
    shares = np.array(list(chosen.values())) / n
    entropy = float(-(shares * np.log(shares)).sum())
    return diversity * entropy - turn_cost * ((n - 1) / turn_budget) / 4


def statistics_of(episodes: Sequence[Episode]) -> EpisodeStatistics:
    """Accuracy, turns, accepts and selection shares of played episodes, the missing ones only counted."""
    finished = [one for one in episodes if one.reward is not None]
    picks = Counter((turn.decision.model, turn.decision.role) for one in finished for turn in one.turns)
    turns = sum(picks.values())
    return EpisodeStatistics(
        accuracy=float(mean_reward(rewards(finished))),
        n=len(finished),
        missing=len(episodes) - len(finished),
        turns_mean=turns / max(len(finished), 1),
        accept_rate=sum(one.end_reason is EndReason.ACCEPTED for one in finished) / max(len(finished), 1),
        shares={pair: count / turns for pair, count in sorted(picks.items())},
        noticed=_notice(episodes),
        error=ClusteredShare.counted((one.task.id, one.reward == 1) for one in finished).standard_error,
    )


def _notice(episodes: Iterable[Episode]) -> tuple[NoticedTurns, ...]:
    """All turns of the episodes, counted by model, role and flags."""
    alike = Counter(
        (turn.decision.model, turn.decision.role, turn.flags) for one in episodes for turn in one.turns
    )
    return tuple(NoticedTurns(*what, n) for what, n in sorted(alike.items()))


def label_weights(solved: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each model is each question's label [models, questions], from the share of repeats it solved (NaN: 0)."""
    known = np.nan_to_num(solved)
    best = (known == known.max(axis=0)) & (known > 0)
    weights: NDArray[np.float64] = best / np.maximum(best.sum(axis=0), 1)
    return weights
