"""Statistics of outcomes and decisions: intervals, paired tests, entropy, margin and divergence, and how far reviewers
agree beyond chance (Cohen's kappa for two, Krippendorff's alpha for any number)."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import Decision

#: Of every interval here.
CONFIDENCE = 0.95
#: In how many parts the distribution of an estimated variance is summed up, and how often a reach is halved.
PLACES, HALVINGS = 200, 30
#: A p below 10 to minus so much is said to be that.
LEAST_P_POWER, _P_HALVINGS = 9.0, 18

#: Fewer seeds than this have no interval over seeds: in simulations that of two covered as little as 89 %.
FEWEST_SEEDS = 3
#: Random sign flips: a p of 0.05 is found to within 0.0014 nineteen times in twenty.
SIGN_FLIPS = 100_000


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """B's accuracy minus A's over the same tasks, with its 95 % interval."""

    difference: float
    low: float
    high: float
    n: int


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson 1927); (0, 1) when nothing was observed."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At 0 and n successes one end is exact; floating point must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def difference_over_tasks(values: Sequence[float], tasks: Sequence[int]) -> tuple[float, float, float]:
    """The mean over tasks of a difference in -1 to 1, `tasks[i]` of them with `values[i]`, and its interval.

    A task counts once, however often it was played. The interval is Student's, after two tasks were added: half a one
    at -1, half a one at 1, one at 0 (Agresti and Min 2005, who add them to a table of pairs). So a few tasks that all
    came out alike do not pass for certainty. (0, -1, 1) without tasks."""
    n = sum(tasks)
    if n == 0:
        return 0.0, -1.0, 1.0
    total = sum(v * count for v, count in zip(values, tasks, strict=True))
    squares = 1.0 + sum(v * v * count for v, count in zip(values, tasks, strict=True))
    centre = total / (n + 2)
    half = student_reach(n + 1) * math.sqrt((squares / (n + 2) - centre**2) / (n + 2))
    return total / n, max(-1.0, centre - half), min(1.0, centre + half)


def share_over_tasks(
    shares: Sequence[float], tasks: Sequence[int], episodes: int
) -> tuple[float, float, float]:
    """The mean over tasks of a share, `tasks[i]` of them with `shares[i]`, played `episodes` times in all, and its
    interval: Wilson's where each was played once, else `_interval_of_clusters`. (0, 0, 1) without tasks."""
    n = sum(tasks)
    mean = sum(v * count for v, count in zip(shares, tasks, strict=True)) / max(n, 1)
    if episodes == n:
        return mean, *wilson_interval(round(mean * n), n)
    squares = sum((v - mean) ** 2 * count for v, count in zip(shares, tasks, strict=True))
    error = math.sqrt(squares / (n - 1) / n) if n > 1 else math.nan
    return mean, *_interval_of_clusters(mean, error, n, episodes)


def exact_interval(successes: float, n: float) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper and Pearson 1934), which covers at least what it promises; `n` need
    not be a whole number."""
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes >= n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return low, high


def _interval_of_clusters(share: float, error: float, clusters: int, n: int) -> tuple[float, float]:
    """The interval of a share of `n` observations in clusters, with its standard error by clusters.

    The exact one, of as many independent observations as the clusters are worth (Korn and Graubard 1998, with their
    correction for few clusters); where all or none hit, of as many as there are clusters. One cluster alone is taken
    as it is: then the share is that cluster's own. In simulations it covers 93 to 97 %, also of rare things."""
    effective = float(n if clusters == 1 else clusters)
    if 0 < share < 1:
        if clusters > 1 and error > 0:
            few = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) / student_reach(clusters - 1)
            effective = few**2 * share * (1 - share) / error**2
        effective = min(float(n), max(1.0, effective))
    return exact_interval(share * effective, effective)


def paired_score_interval(both: int, only_a: int, only_b: int, neither: int) -> PairedDifference:
    """B minus A over paired outcomes with the hybrid score interval (Newcombe 1998, method 10), good for few pairs."""
    n = both + only_a + only_b + neither
    if n == 0:
        return PairedDifference(0.0, -1.0, 1.0, 0)
    right_a, right_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson_interval(x, n) for x in (right_a, right_b))
    a, b = right_a / n, right_b / n
    margins = right_a * (n - right_a) * right_b * (n - right_b)
    together = float(both * neither - only_a * only_b)
    if together > 0:  # the continuity correction of his method 10
        together = max(0.0, together - n / 2)
    phi = together / math.sqrt(margins) if margins else 0.0
    down = (b - low_b, high_a - a)
    up = (high_b - b, a - low_a)
    below, above = (math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y)) for x, y in (down, up))
    return PairedDifference(b - a, max(-1.0, b - a - below), min(1.0, b - a + above), n)


def clustered_difference(clusters: Sequence[Sequence[tuple[bool, bool]]]) -> PairedDifference:
    """B minus A over pairs (right for A, right for B) that come in clusters: the mean over clusters.

    Pairs of one cluster share an episode, so the interval is Student's over the clusters' means, yet never
    narrower than that of as many independent pairs. One cluster alone is taken as it is. `n` counts pairs."""
    filled = [cluster for cluster in clusters if cluster]
    counts = Counter(pair for cluster in filled for pair in cluster)
    table = [counts[pair] for pair in ((True, True), (True, False), (False, True), (False, False))]
    single = paired_score_interval(*table)
    if len(filled) < 2:
        return single
    means = [sum(b - a for a, b in cluster) / len(cluster) for cluster in filled]
    mean, low, high = _over_clusters(means, single.difference, single.low, single.high)
    return PairedDifference(mean, max(-1.0, low), min(1.0, high), single.n)


def clustered_share(clusters: Sequence[Sequence[bool]]) -> tuple[float, float, float]:
    """(share, low, high) of what is right, over clusters, with the interval of
    `clustered_difference`; (0, 0, 1) when nothing was observed."""
    filled = [cluster for cluster in clusters if cluster]
    right, n = sum(sum(cluster) for cluster in filled), sum(len(cluster) for cluster in filled)
    low, high = wilson_interval(right, n)
    if len(filled) < 2:
        return (right / n if n else 0.0), low, high
    means = [sum(cluster) / len(cluster) for cluster in filled]
    mean, low, high = _over_clusters(means, right / n, low, high)
    return mean, max(0.0, low), min(1.0, high)


def _over_clusters(
    means: Sequence[float], pooled: float, low: float, high: float
) -> tuple[float, float, float]:
    """The mean of clusters' means with Student's interval, at least as wide as the one around the pooled mean."""
    mean = float(np.mean(means))
    half = student_reach(len(means) - 1) * float(np.std(means, ddof=1)) / math.sqrt(len(means))
    shift = mean - pooled  # clusters of unequal size
    return mean, min(mean - half, low + shift), max(mean + half, high + shift)


def student_reach(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors Student's interval reaches to either side, with so many degrees of freedom."""
    from scipy.special import stdtrit  # here, because importing scipy takes longer than all the rest

    return float(stdtrit(freedom, 0.5 + confidence / 2))


@cache
def _shares_of_variance(freedom: int) -> NDArray[np.float64]:
    """What a variance may be of its estimate with so many degrees of freedom, [PLACES], each equally likely."""
    from scipy.special import gammaincinv

    places = (np.arange(PLACES) + 0.5) / PLACES
    return np.asarray(freedom / (2 * gammaincinv(freedom / 2, places)))


def _reach(estimated: float, known: float, freedom: int, confidence: float = CONFIDENCE) -> float:
    """How far 95 % of a normal variable reach to either side, whose variance is `known` plus one that was `estimated`
    with few degrees of freedom: Student's t where nothing is known."""
    from scipy.special import ndtr, ndtri

    spreads = np.sqrt(estimated * _shares_of_variance(freedom) + known)
    if not spreads.any():
        return 0.0
    low = 0.0
    outside = 1 - confidence
    far = max(2.0, -float(ndtri(outside / 2)))
    high = (
        student_reach(freedom, confidence) * math.sqrt(estimated)
        + far * math.sqrt(known)
        + float(spreads.min())
    )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = 2 * float(ndtr(-middle / spreads).sum()) / PLACES
        low, high = (middle, high) if beyond > outside else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % interval over what was drawn: tasks, or seeds and tasks. NaN for what cannot be told."""

    mean: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether there was enough to tell how far chance reaches."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, least: float, most: float) -> Mean:
        """The same with an interval that ends where the values themselves end; NaN stays."""
        if not self.has_interval:
            return self
        return Mean(self.mean, max(least, self.low), min(most, self.high))


def mean_over_seeds(outcomes: NDArray[np.float64]) -> Mean:
    """The mean of `outcomes` [seeds, tasks] (NaN: missing): right or wrong, or the difference of two policies.

    Seeds and tasks are both drawn by chance and crossed: every seed plays the same tasks. The mean's variance is
    (seeds' mean square + tasks' mean square - that of the rest) / (seeds x tasks), by the analysis of variance. Of few
    seeds the first is hardly known. The interval is the mean of two: Satterthwaite's (1946), which covers 92 to 96 % in
    simulations, and the generalized one (Weerahandi 1993), which covers 94 to 98 %; together it is 93 to 97 %, for
    shares as for differences. Fewer than `FEWEST_SEEDS` tell too little about their own chance, and have none."""
    known = np.isfinite(outcomes)
    if not known.any():
        return Mean(math.nan, math.nan, math.nan)
    mean = float(outcomes[known].mean())
    whole = outcomes[:, known.all(axis=0)]  # a task that some seed lacks says nothing about the variance
    seeds, tasks = whole.shape
    if seeds < FEWEST_SEEDS or tasks < 2:
        return Mean(mean, math.nan, math.nan)
    of_seeds, of_tasks, centre = whole.mean(axis=1), whole.mean(axis=0), whole.mean()
    rest = whole - of_seeds[:, None] - of_tasks + centre
    by_seed = tasks * float(((of_seeds - centre) ** 2).sum()) / (seeds - 1)
    by_task = seeds * float(((of_tasks - centre) ** 2).sum()) / (tasks - 1)
    by_both = float((rest**2).sum()) / ((seeds - 1) * (tasks - 1))
    of_tasks_alone = max(0.0, by_task - by_both)
    variance = by_seed + of_tasks_alone
    spread = by_seed**2 / (seeds - 1)
    if of_tasks_alone:
        spread += by_task**2 / (tasks - 1) + by_both**2 / ((seeds - 1) * (tasks - 1))
    freedom = max(seeds - 1.0, variance**2 / spread) if spread else seeds - 1.0
    reaches = student_reach(freedom) * math.sqrt(variance), _reach(by_seed, of_tasks_alone, seeds - 1)
    half = sum(reaches) / 2 / math.sqrt(seeds * tasks)
    return Mean(mean, mean - half, mean + half)


def mean_p(found: Mean, by_seed: Sequence[float]) -> float:
    """The two-sided p of a mean that `mean_over_seeds` found: what is left to 1 of the confidence at which its interval
    would end at 0. NaN without an interval. `by_seed`: each seed's own mean, which tells how much of the interval is
    due to seeds; the rest is due to tasks."""
    seeds = len(by_seed)
    if not found.has_interval or seeds < 2:
        return math.nan
    of_seeds = float(np.var(by_seed, ddof=1)) / seeds
    half = (found.high - found.low) / 2
    of_tasks = _solved(lambda variance: _half(of_seeds, variance, seeds - 1, CONFIDENCE) - half, half**2)
    if half <= 0:
        return 0.0 if found.mean else 1.0
    # On the scale of logarithms, as p may be very small.
    exponent = _solved(
        lambda power: _half(of_seeds, of_tasks, seeds - 1, 1 - 10**-power) - abs(found.mean), LEAST_P_POWER
    )
    return float(10**-exponent)


def p_over_tasks(found: Mean, tasks: int) -> float:
    """The two-sided p of a difference that `difference_over_tasks` found over so many tasks: what is left to 1 of the
    confidence at which its interval would end at 0."""
    from scipy.special import stdtr  # here, because importing scipy takes longer than all the rest

    centre, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    return float(2 * stdtr(tasks + 1, -abs(centre) / half * student_reach(tasks + 1)))


def _half(of_seeds: float, of_tasks: float, freedom: int, confidence: float) -> float:
    """How far `mean_over_seeds` reaches to either side, of the variances of a mean due to seeds and to tasks."""
    variance = of_seeds + of_tasks
    satterthwaite = min(1e9, freedom * (variance / of_seeds) ** 2) if of_seeds else 1e9
    student = student_reach(max(freedom, satterthwaite), confidence) * math.sqrt(variance)
    return (student + _reach(of_seeds, of_tasks, freedom, confidence)) / 2


def _solved(rises: Callable[[float], float], high: float) -> float:
    """Where a function that rises from 0 to `high` is 0, or the end that is nearer to it."""
    low = 0.0
    for _ in range(_P_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) > 0 else (middle, high)
    return (low + high) / 2


def holm(ps: Sequence[float], level: float = 0.05) -> list[bool]:
    """Which of several comparisons hold when all of them are allowed for (Holm 1979): with this, the chance that any of
    them is luck is `level` at most. NaN never holds."""
    order = sorted((i for i, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    held = [False] * len(ps)
    for place, i in enumerate(order):
        if ps[i] > level / (len(order) - place):
            break
        held[i] = True
    return held


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Exact two-sided McNemar p: how likely chance splits the discordant tasks so unevenly (McNemar 1947)."""
    n, ways, fewer = only_a + only_b, 1, 0
    for i in range(min(only_a, only_b) + 1):  # in whole numbers, so that no flip is too many
        fewer += ways
        ways = ways * (n - i) // (i + 1)
    return min(1.0, 2 * fewer / (1 << n))


def sign_flip_p(values: Sequence[float], tasks: Sequence[int], *, key: str) -> float:
    """Two-sided p of paired differences, `tasks[i]` tasks with `values[i]`, if each task's sides could be swapped.

    Where all differences are equally large this is the exact McNemar test. Where repeats make some larger than
    others, signs are drawn at random (Fisher 1935) `SIGN_FLIPS` times, a task's episodes always together."""
    sizes: dict[float, list[int]] = {}
    for value, count in zip(values, tasks, strict=True):
        if value and count:
            sizes.setdefault(round(abs(value), 12), [0, 0])[value > 0] += count
    if len(sizes) < 2:
        return mcnemar_p(*next(iter(sizes.values()), (0, 0)))
    digest = hashlib.sha256(f"sign-flip/{key}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    totals = np.zeros(SIGN_FLIPS)
    for size, (down, up) in sizes.items():
        totals += size * (2.0 * rng.binomial(down + up, 0.5, size=SIGN_FLIPS) - (down + up))
    seen = abs(sum(size * (up - down) for size, (down, up) in sizes.items()))
    # The data themselves are one of the ways to swap, so that p is never 0 (Phipson and Smyth 2010).
    return float((1 + np.count_nonzero(np.abs(totals) >= seen - 1e-9)) / (1 + SIGN_FLIPS))


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

    The joint log probability is a sum, so the runner-up changes whichever of the two is closer."""
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


@dataclass(frozen=True, slots=True)
class ClusteredShare:
    """`k` of `n` observations that come in clusters, such as the turns or episodes of one task.

    The last three are sums over clusters: of k squared, of k times n, of n squared. They are all that the interval
    needs, so that a database can add them up."""

    k: int
    n: int
    clusters: int
    squared_k: int
    k_times_n: int
    squared_n: int

    @classmethod
    def counted(cls, observations: Iterable[tuple[Hashable, bool]]) -> ClusteredShare:
        """From (cluster, whether it counts as one of the `k`), one by one."""
        hits: Counter[Hashable] = Counter()
        counts: Counter[Hashable] = Counter()
        for cluster, hit in observations:
            counts[cluster] += 1
            hits[cluster] += hit
        return cls.of(np.array([hits[one] for one in counts]), np.array(list(counts.values())))

    @classmethod
    def of(cls, hits: NDArray[Any], counts: NDArray[Any]) -> ClusteredShare:
        """`hits[i]` of the `counts[i]` observations of cluster i; whole numbers."""
        sums = (hits.sum(), counts.sum(), (counts > 0).sum(), hits @ hits, hits @ counts, counts @ counts)
        return cls(*(int(one) for one in sums))

    @property
    def value(self) -> float | None:
        """The share, in 0 to 1; None of nothing."""
        return self.k / self.n if self.n else None

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % interval; (0, 1) of nothing. Wilson's where every cluster has one observation, which then are
        independent; `_interval_of_clusters` otherwise."""
        if not self.n or self.squared_n == self.n:
            return wilson_interval(self.k, self.n)
        return _interval_of_clusters(self.k / self.n, self.standard_error, self.clusters, self.n)

    @property
    def standard_error(self) -> float:
        """Of the share, clusters drawn anew; NaN for fewer than two."""
        if self.clusters < 2:
            return math.nan
        share = self.k / self.n
        squares = self.squared_k - 2 * share * self.k_times_n + share**2 * self.squared_n
        return math.sqrt(max(0.0, squares) * self.clusters / (self.clusters - 1)) / self.n


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa of two reviewers over `n` items: 1 is full agreement, 0 what chance would give. `kappa` and its
    interval are None where chance alone agrees on everything, so that kappa is not defined."""

    kappa: float | None
    low: float | None
    high: float | None
    observed: float  # share of items with the same value
    n: int


def cohen_kappa(counts: Sequence[Sequence[int]]) -> Kappa:
    """Kappa (Cohen 1960) of a square table: items that the first reviewer gave value i and the second value j.

    The 95 % interval is the large-sample one (Fleiss, Cohen and Everitt 1969), held within [-1, 1]."""
    n = sum(map(sum, counts))
    if n == 0:
        return Kappa(None, None, None, 0.0, 0)
    shares = [[count / n for count in row] for row in counts]
    rows = [sum(row) for row in shares]
    columns = [sum(column) for column in zip(*shares, strict=True)]
    observed = sum(shares[i][i] for i in range(len(shares)))
    expected = sum(row * column for row, column in zip(rows, columns, strict=True))
    if math.isclose(expected, 1.0):
        return Kappa(None, None, None, observed, n)
    kappa = (observed - expected) / (1 - expected)
    size = range(len(shares))
    agreeing = sum(shares[i][i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in size)
    differing = (1 - kappa) ** 2 * sum(
        shares[i][j] * (columns[i] + rows[j]) ** 2 for i in size for j in size if i != j
    )
    variance = agreeing + differing - (kappa - expected * (1 - kappa)) ** 2
    half = NormalDist().inv_cdf(0.975) * math.sqrt(max(variance, 0.0) / n) / (1 - expected)
    return Kappa(kappa, max(-1.0, kappa - half), min(1.0, kappa + half), observed, n)


def krippendorff_alpha(items: Sequence[Sequence[str]]) -> float | None:
    """Alpha of values without order (Krippendorff 2011): each item holds its reviewers' values, however many there
    are.

    None where fewer than two values were compared, or where all are the same."""
    compared = [Counter(values) for values in items if len(values) > 1]
    totals = sum(compared, Counter[str]())
    n = totals.total()
    chance = n * n - sum(count * count for count in totals.values())
    if chance == 0:
        return None
    disagreeing = sum(
        (found.total() ** 2 - sum(count * count for count in found.values())) / (found.total() - 1)
        for found in compared
    )
    return 1 - (n - 1) * disagreeing / chance
