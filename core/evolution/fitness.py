"""Fitness: the mean binary reward of a policy's episodes, missing ones left out, and other statistics of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import ClusteredShare
from core.draws import derive_seed
from core.episode import EndReason, Episode, Protocol, Task
from core.evolution.generation_stats import EpisodeStatistics, NoticedTurns


def episodes_of(
    tasks: Sequence[Task],
    models: Sequence[str],
    *,
    seed: int,
    turn_budget: int,
    prefix: str,
    protocol: Protocol = Protocol.PAPER,
) -> list[Episode]:
    """One unplayed episode per task, for measuring and not for keeping; `seed` decides all that is random.

    A task that comes again is played with other chances."""
    seen: Counter[str] = Counter()
    episodes = []
    for index, task in enumerate(tasks):
        again = seen[task.id]
        seen[task.id] += 1
        episodes.append(
            Episode(
                id=f"{prefix}-{index}",
                run_id="",
                task=task,
                policy=prefix,
                models=tuple(models),
                protocol=protocol,
                turn_budget=turn_budget,
                seed=derive_seed((seed, "again", again)) if again else seed,
            )
        )
    return episodes


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
        noticed=_noticed(episodes),
        error=ClusteredShare.counted((one.task.id, one.reward == 1) for one in finished).standard_error,
    )


def _noticed(episodes: Iterable[Episode]) -> tuple[NoticedTurns, ...]:
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
