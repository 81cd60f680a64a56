"""Statistics of outcomes and decisions: intervals, paired tests, entropy, margin and divergence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from core.episode import Decision

#: Bootstrap resamples: the interval's ends move by less than a tenth of their width between keys.
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """B's accuracy minus A's over the same tasks, with a percentile bootstrap interval."""

    difference: float
    low: float
    high: float
    n: int


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson 1927); (0, 1) when nothing was observed."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At 0 and n successes one end is exact; floating point must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def paired_difference(
    only_a: int, only_b: int, n: int, *, key: str, confidence: float = 0.95
) -> PairedDifference:
    """B minus A over `n` shared tasks, of which `only_a` went right for A alone and `only_b` for B alone.

    The same `key` gives the same interval.
    """
    found = over_tasks(
        [-1.0, 1.0, 0.0], [only_a, only_b, n - only_a - only_b], key=key, confidence=confidence
    )
    return PairedDifference(*found, n)


def over_tasks(
    values: Sequence[float], tasks: Sequence[int], *, key: str, confidence: float = 0.95
) -> tuple[float, float, float]:
    """The mean over tasks, `tasks[i]` of them with `values[i]`, and its percentile bootstrap interval.

    Tasks are drawn with replacement, each with all of its episodes, so that repeats of one task count as no more
    than one task. That is one multinomial draw over the values, so no per-task data is needed. (0, -1, 1) without
    tasks."""
    n = sum(tasks)
    if n == 0:
        return 0.0, -1.0, 1.0
    digest = hashlib.sha256(f"bootstrap/{key}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    means = rng.multinomial(n, [count / n for count in tasks], size=RESAMPLES) @ np.asarray(values) / n
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return sum(v * count for v, count in zip(values, tasks, strict=True)) / n, float(low), float(high)


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """A mean over seeds and tasks with a percentile bootstrap interval that draws both anew."""

    mean: float
    low: float
    high: float


def over_seeds(outcomes: NDArray[np.float64], *, key: str, confidence: float = 0.95) -> OverSeeds:
    """The mean of `outcomes` [seeds, tasks] (NaN: missing): right or wrong, or the difference of two policies.

    Tasks are drawn with replacement, and so are seeds, so that the interval knows both chances; three seeds tell
    little about theirs. The same `key` gives the same interval."""
    known = np.isfinite(outcomes)
    if not known.any():
        return OverSeeds(math.nan, math.nan, math.nan)
    seeds, tasks = outcomes.shape
    digest = hashlib.sha256(f"over-seeds/{key}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES // 5).astype(float)
    of_tasks = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES // 5).astype(float)
    values = np.where(known, outcomes, 0.0)
    totals = np.einsum("rs,rs->r", of_seeds, of_tasks @ values.T)
    counts = np.einsum("rs,rs->r", of_seeds, of_tasks @ known.T.astype(float))
    means = totals[counts > 0] / counts[counts > 0]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return OverSeeds(float(values.sum() / known.sum()), float(low), float(high))


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Exact two-sided McNemar p: how likely chance splits the discordant tasks so unevenly (McNemar 1947)."""
    if only_a + only_b == 0:
        return 1.0
    from scipy.stats import binomtest  # here, because importing scipy.stats takes longer than all the rest

    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def entropy(probs: Sequence[float]) -> float:
    """Shannon entropy in nats."""
    return -sum(p * math.log(p) for p in probs if p > 0)


def margin(logits: Sequence[float], mask: Sequence[bool] = ()) -> float:
    """The largest logit minus the second largest the mask allows; infinite when there is no second."""
    allowed = sorted((x for x, ok in zip(logits, mask, strict=True) if ok) if mask else logits, reverse=True)
    return allowed[0] - allowed[1] if len(allowed) > 1 else math.inf


def decision_entropy(decision: Decision) -> float | None:
    """Entropy (nats) of the joint choice of model and role, drawn independently; None without a head."""
    if not decision.model_probs or not decision.role_probs:
        return None
    return entropy(decision.model_probs) + entropy(decision.role_probs)


def decision_margin(decision: Decision) -> float | None:
    """How far the best (model, role) is ahead of the runner-up, in logits; None without a head.

    The joint log probability is a sum, so the runner-up changes whichever of the two is closer.
    """
    if not decision.model_logits or not decision.role_logits:
        return None
    nearest = min(
        margin(decision.model_logits, decision.model_mask), margin(decision.role_logits, decision.role_mask)
    )
    return nearest if math.isfinite(nearest) else None


def kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    """KL(p || q) in nats; infinite where q forbids what p allows."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        if a > 0:
            total += a * math.log(a / b) if b > 0 else math.inf
    return max(total, 0.0)
