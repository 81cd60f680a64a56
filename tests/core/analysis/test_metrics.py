"""Statistics against references and by their properties."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from scipy.stats import binomtest

from core.analysis.metrics import (
    ClusteredShare,
    Mean,
    PairedDifference,
    clustered_difference,
    clustered_share,
    cohen_kappa,
    decision_entropy,
    decision_margin,
    difference_over_tasks,
    entropy,
    holm,
    kl_divergence,
    margin,
    mcnemar_p,
    mean_over_seeds,
    mean_p,
    p_over_tasks,
    paired_score_interval,
    share_over_tasks,
    wilson_interval,
)
from core.episode import Decision, Role


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (1, 3), (575, 1000), (1, 1)])
def test_wilson_agrees_with_scipy(successes: int, n: int) -> None:
    reference = binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert wilson_interval(0, 0) == (0.0, 1.0)  # it says nothing about nothing


def paired_difference(only_a: int, only_b: int, n: int) -> PairedDifference:
    """B minus A over `n` shared tasks, of which `only_a` went right for A alone and `only_b` for B alone."""
    return PairedDifference(
        *difference_over_tasks([-1.0, 1.0, 0.0], [only_a, only_b, n - only_a - only_b]), n
    )


def test_paired_difference_is_b_minus_a_with_an_interval_like_that_of_resampled_tasks() -> None:
    outcomes = [-1] * 10 + [1] * 30 + [0] * 160
    rng = random.Random(0)
    means = sorted(sum(rng.choices(outcomes, k=200)) / 200 for _ in range(4000))
    result = paired_difference(10, 30, 200)
    assert result.difference == pytest.approx(0.1)
    assert result.low == pytest.approx(means[100], abs=0.01)
    assert result.high == pytest.approx(means[3900], abs=0.01)


def test_a_few_tasks_that_came_out_alike_are_no_certainty() -> None:
    assert paired_difference(0, 0, 12).low < -0.15
    assert paired_difference(0, 12, 12).low < 0.9
    assert share_over_tasks([0.5], [12], 24)[1] < 0.4
    assert difference_over_tasks([], []) == (0.0, -1.0, 1.0)
    assert share_over_tasks([], [], 0) == (0.0, 0.0, 1.0)


def test_mcnemar_known_values() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(5, 5) == 1.0
    assert mcnemar_p(0, 10) == pytest.approx(2 / 1024)
    assert mcnemar_p(3, 9) == mcnemar_p(9, 3)


def test_entropy_is_in_nats() -> None:
    assert entropy([0.25] * 4) == pytest.approx(math.log(4))
    assert entropy([1.0, 0.0]) == 0.0


def test_margin_respects_the_mask() -> None:
    assert margin([1.0, 5.0, 3.0]) == 2.0
    assert margin([1.0, 5.0, 3.0], [True, False, True]) == 2.0
    assert margin([1.0, 5.0, 3.5], [True, False, True]) == 2.5
    assert margin([1.0, 5.0], [False, True]) == math.inf


def test_decision_margin_is_that_of_the_closer_choice() -> None:
    decision = Decision(
        "a",
        Role.WORKER,
        model_logits=(4.0, 1.0),
        role_logits=(2.0, 1.5, 0.0),
        model_probs=(0.9, 0.1),
        role_probs=(1, 0, 0),
    )
    assert decision_margin(decision) == 0.5
    assert decision_entropy(decision) == pytest.approx(entropy([0.9, 0.1]))


def test_without_a_head_or_a_choice_there_is_no_margin() -> None:
    assert decision_margin(Decision("a", Role.WORKER)) is None
    assert decision_entropy(Decision("a", Role.WORKER)) is None
    forced = Decision("a", Role.WORKER, (1.0, 2.0), (1.0,), model_mask=(True, False), role_mask=(True,))
    assert decision_margin(forced) is None


def test_kl_divergence() -> None:
    assert kl_divergence([0.5, 0.5], [0.5, 0.5]) == 0.0
    assert kl_divergence([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kl_divergence([0.5, 0.5], [1.0, 0.0]) == math.inf


def test_an_interval_over_seeds_knows_the_chance_of_tasks_and_of_seeds() -> None:
    rng = np.random.default_rng(0)
    same = (rng.random((1, 400)) < 0.5).repeat(3, axis=0).astype(float)
    tasks_only = mean_over_seeds(same)
    assert tasks_only.mean == pytest.approx(same.mean())
    half = (tasks_only.high - tasks_only.low) / 2
    assert half == pytest.approx(1.96 * math.sqrt(0.25 / 400), rel=0.02)  # equal seeds tell nothing new
    apart = same.copy()
    apart[0], apart[1] = 0.0, 1.0
    wide = mean_over_seeds(apart)
    assert wide.high - wide.low > 0.5
    assert wide.within(0.0, 1.0) == Mean(wide.mean, 0.0, 1.0)
    apart[0, :200] = np.nan  # missing is no zero
    assert mean_over_seeds(apart).mean == pytest.approx(np.nanmean(apart))
    assert math.isnan(mean_over_seeds(np.full((3, 3), np.nan)).mean)


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_have_no_interval_over_seeds(seeds: int) -> None:
    found = mean_over_seeds(np.eye(seeds, 50))
    assert found.mean == pytest.approx(1 / 50)
    assert not found.has_interval
    assert not found.within(0.0, 1.0).has_interval


def _covered(simulate: Callable[[np.random.Generator], bool], times: int) -> float:
    rng = np.random.default_rng(0)
    return sum(simulate(rng) for _ in range(times)) / times


#: Nominal 95 %. Of 2,000 simulations the share itself is known to within a point nineteen times in twenty; of half as
#: many, where one takes long, to within 1.4 points.
COVERAGE = (0.93, 0.97)
TIMES, FEWER = 2000, 1000


@pytest.mark.parametrize(
    ("seeds", "tasks", "spread"),
    [(3, 100, 0.0), (5, 200, 0.1), (3, 400, 0.4)],
    ids=["seeds alike", "a little apart", "far apart"],
)
def test_intervals_over_seeds_cover_what_they_promise(seeds: int, tasks: int, spread: float) -> None:
    """Tasks differ in difficulty, seeds in skill (on the scale of logits); the truth is the mean over all of both."""
    everyone = np.random.default_rng(1).normal(0.3, math.hypot(2.0, spread), 400_000)
    truth = float(np.mean(1 / (1 + np.exp(-everyone))))

    def simulate(rng: np.random.Generator) -> bool:
        logits = 0.3 + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, 2.0, (1, tasks))
        found = mean_over_seeds((rng.random((seeds, tasks)) < 1 / (1 + np.exp(-logits))).astype(float))
        return found.low <= truth <= found.high

    assert COVERAGE[0] <= _covered(simulate, FEWER) <= COVERAGE[1]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("tasks", [20, 60, 400])
def test_intervals_of_shares_cover_what_they_promise(share: float, tasks: int) -> None:
    """Turns of one task fall together: each task has its own chance, and one to nine turns."""

    def simulate(rng: np.random.Generator) -> bool:
        counts = rng.integers(1, 10, tasks)
        hits = rng.binomial(counts, rng.beta(2 * share, 2 * (1 - share), tasks))
        low, high = ClusteredShare.of(hits, counts).ci95
        return low <= share <= high

    expected = share * tasks
    most = COVERAGE[1] if expected >= 2 else 1.0  # of one or two events it can be nothing but careful
    assert COVERAGE[0] <= _covered(simulate, TIMES) <= most


@pytest.mark.parametrize("tasks", [12, 100])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_accuracies_with_repeats_cover_what_they_promise(share: float, tasks: int) -> None:
    """Each task is played five times, and has its own chance to come out right."""

    def simulate(rng: np.random.Generator) -> bool:
        shares = rng.binomial(5, rng.beta(2 * share, 2 * (1 - share), tasks)) / 5
        _, low, high = share_over_tasks(shares.tolist(), [1] * tasks, 5 * tasks)
        return low <= share <= high

    assert COVERAGE[0] <= _covered(simulate, TIMES) <= COVERAGE[1] + 0.005


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_wilsons_interval_covers_what_it_promises(share: float) -> None:
    def simulate(rng: np.random.Generator) -> bool:
        low, high = wilson_interval(int(rng.binomial(200, share)), 200)
        return low <= share <= high

    assert COVERAGE[0] <= _covered(simulate, TIMES) <= COVERAGE[1]


def test_wilsons_interval_of_ten_covers_what_it_promises_on_average() -> None:
    """At single shares that of so few lies between 0.9 and 0.99, because only eleven outcomes can be."""

    def simulate(rng: np.random.Generator) -> bool:
        share = rng.random()
        low, high = wilson_interval(int(rng.binomial(10, share)), 10)
        return low <= share <= high

    assert COVERAGE[0] <= _covered(simulate, TIMES) <= COVERAGE[1]


@pytest.mark.parametrize("tasks", [12, 24, 60, 150])
@pytest.mark.parametrize(("gains", "losses"), [(0.2, 0.1), (0.4, 0.3), (0.6, 0.1), (0.05, 0.02)])
def test_paired_differences_cover_what_they_promise(tasks: int, gains: float, losses: float) -> None:
    """B is right where A is wrong on a share of the tasks, and wrong where A is right on another."""

    def simulate(rng: np.random.Generator) -> bool:
        gained, lost, _ = (int(n) for n in rng.multinomial(tasks, [gains, losses, 1 - gains - losses]))
        found = paired_difference(lost, gained, tasks)
        return found.low <= gains - losses <= found.high

    most = (
        COVERAGE[1] if tasks >= 60 else 1.0
    )  # of a handful of tasks that differ it can be nothing but careful
    assert COVERAGE[0] <= _covered(simulate, TIMES) <= most


@pytest.mark.parametrize("tasks", [12, 120])
def test_differences_with_repeats_cover_what_they_promise(tasks: int) -> None:
    """Each task is played five times by both; B has half a chance more on the scale of logits."""
    skill = np.random.default_rng(1).normal(0.0, 1.5, 400_000)
    truth = float(np.mean(1 / (1 + np.exp(-skill - 0.5)) - 1 / (1 + np.exp(-skill))))

    def simulate(rng: np.random.Generator) -> bool:
        of_task = rng.normal(0.0, 1.5, tasks)
        a, b = (rng.binomial(5, 1 / (1 + np.exp(-of_task - gain))) / 5 for gain in (0.0, 0.5))
        _, low, high = difference_over_tasks((b - a).tolist(), [1] * tasks)
        return low <= truth <= high

    assert COVERAGE[0] <= _covered(simulate, TIMES) <= (COVERAGE[1] if tasks > 12 else 1.0)


@pytest.mark.parametrize("tasks", [40, 100])
def test_differences_of_forks_cover_what_they_promise(tasks: int) -> None:
    """Pairs that share an episode fall together."""

    def simulate(rng: np.random.Generator) -> bool:
        a, b = rng.beta(1, 1, tasks), rng.beta(1.5, 1, tasks)
        pairs = rng.random((tasks, 3, 2)) < np.stack([a, b], axis=1)[:, None]
        found = clustered_difference([[(won, lost) for won, lost in each] for each in pairs.tolist()])
        return found.low <= 0.1 <= found.high

    assert COVERAGE[0] <= _covered(simulate, 400) <= COVERAGE[1]


@pytest.mark.parametrize("seeds", [3, 5])
def test_differences_over_seeds_cover_what_they_promise(seeds: int) -> None:
    """Two policies on the same tasks and seeds; the second is better, and both depend on their seed."""
    skill = np.random.default_rng(1).normal(0.0, 2.0, 400_000)
    gain = np.random.default_rng(2).normal(0.0, 0.4, (2, 400_000))
    truth = float(np.mean(1 / (1 + np.exp(-skill - 0.5 - gain[0])) - 1 / (1 + np.exp(-skill - gain[1]))))

    def simulate(rng: np.random.Generator) -> bool:
        task, own = rng.normal(0.0, 2.0, (1, 200)), rng.normal(0.0, 0.4, (2, seeds, 1))
        a, b = (1 / (1 + np.exp(-task - own[k] - 0.5 * k)) for k in (0, 1))
        drawn = rng.random((2, seeds, 200))
        found = mean_over_seeds((drawn[1] < b).astype(float) - (drawn[0] < a))
        return found.low <= truth <= found.high

    assert COVERAGE[0] <= _covered(simulate, FEWER) <= COVERAGE[1]


def test_means_of_tokens_over_seeds_cover_what_they_promise() -> None:
    """Counts of tokens are skewed: their logarithm is normal, over tasks and over seeds."""
    truth = math.exp(5 + (0.7**2 + 0.1**2 + 0.3**2) / 2)

    def simulate(rng: np.random.Generator) -> bool:
        logs = 5 + rng.normal(0, 0.1, (3, 1)) + rng.normal(0, 0.7, (1, 400)) + rng.normal(0, 0.3, (3, 400))
        found = mean_over_seeds(np.exp(logs))
        return found.low <= truth <= found.high

    assert COVERAGE[0] <= _covered(simulate, FEWER) <= COVERAGE[1]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_shares_of_forks_cover_what_they_promise(share: float) -> None:
    """Children of one turn fall together: each turn has its own chance, and eight children."""

    def simulate(rng: np.random.Generator) -> bool:
        chances = rng.beta(2 * share, 2 * (1 - share), 60)
        _, low, high = clustered_share((rng.random((60, 8)) < chances[:, None]).tolist())
        return low <= share <= high

    assert COVERAGE[0] <= _covered(simulate, FEWER) <= COVERAGE[1]


def test_cohens_kappa_covers_what_it_promises() -> None:
    """Two reviewers of 150 items who agree on 80 %: a kappa of 0.6."""

    def simulate(rng: np.random.Generator) -> bool:
        found = cohen_kappa(rng.multinomial(150, [0.4, 0.1, 0.1, 0.4]).reshape(2, 2).tolist())
        assert found.low is not None
        assert found.high is not None
        return found.low <= 0.6 <= found.high

    assert COVERAGE[0] <= _covered(simulate, TIMES) <= COVERAGE[1]


def test_a_few_pairs_that_agree_prove_nothing() -> None:
    found = paired_score_interval(8, 0, 0, 0)
    assert found.difference == 0.0
    assert found.low == pytest.approx(-found.high)
    assert found.high > 0.3
    assert paired_score_interval(0, 0, 8, 0).low > 0
    assert paired_score_interval(0, 0, 0, 0) == PairedDifference(0.0, -1.0, 1.0, 0)
    mirrored = paired_score_interval(3, 1, 5, 2)
    assert paired_score_interval(3, 5, 1, 2).low == pytest.approx(-mirrored.high)


@pytest.mark.parametrize("p", [(0.3, 0.1, 0.3, 0.3), (0.7, 0.05, 0.05, 0.2), (0.05, 0.05, 0.05, 0.85)])
def test_the_paired_interval_covers_the_truth_with_few_pairs(p: tuple[float, ...]) -> None:
    draws = np.random.default_rng(5).multinomial(10, p, size=600)
    ends = [paired_score_interval(*map(int, draw)) for draw in draws]
    covered = np.mean([one.low <= p[2] - p[1] <= one.high for one in ends])
    assert covered > 0.93  # with ten pairs, of which whole numbers come, it can be nothing but careful


def test_clusters_widen_the_interval_and_never_narrow_it() -> None:
    won, lost = [(False, True)] * 4, [(True, False)] * 4
    alike = clustered_difference([won[:2] + lost[:2]] * 4)
    apart = clustered_difference([won, lost, won, lost])
    assert (alike.difference, apart.difference, apart.n) == (0.0, 0.0, 16)
    assert apart.high > alike.high > 0
    assert clustered_difference([won, []]) == paired_score_interval(0, 0, 4, 0)
    assert clustered_difference([won[:1], lost]).difference == 0.0  # each episode counts once
    assert clustered_share([[True] * 4, [False] * 4])[1:] == (0.0, 1.0)
    assert clustered_share([[True, False]])[1:] == wilson_interval(1, 2)
    assert clustered_share([]) == (0.0, 0.0, 1.0)


def test_a_mean_over_seeds_has_the_p_at_which_its_interval_would_end_at_zero() -> None:
    draws = np.random.default_rng(3)
    for seeds, effect in ((5, 0.02), (5, 0.2), (3, 0.1), (3, 0.3)):
        by_seed = draws.normal(effect, 0.03, seeds)[:, None] + draws.normal(0, 0.4, (seeds, 400))
        found = mean_over_seeds(by_seed)
        p = mean_p(found, list(by_seed.mean(axis=1)))
        assert (p < 0.05) is (found.low > 0 or found.high < 0)
        # Moved until its interval ends at 0, it is at the very edge.
        edge = Mean(found.mean - found.low, 0.0, found.high - found.low)
        assert mean_p(edge, list(by_seed.mean(axis=1))) == pytest.approx(0.05, rel=0.01)
    whole = draws.normal(0, 1, (6, 50))
    assert math.isnan(mean_p(mean_over_seeds(whole[:1]), list(whole[:1].mean(axis=1))))
    # Where tasks have no part in it, it is Student's t.
    shifts = np.array([0.11, 0.2, 0.05, 0.16])
    alone = mean_over_seeds(np.repeat(shifts[:, None], 1000, axis=1))
    t = shifts.mean() / (shifts.std(ddof=1) / 2)
    assert mean_p(alone, list(shifts)) == pytest.approx(2 * scipy.stats.t.sf(t, 3), rel=0.2)


def test_the_p_of_a_difference_over_tasks_says_what_its_interval_says() -> None:
    for ahead, behind in ((60, 40), (70, 40), (50, 50), (5, 95)):
        counts = [ahead, behind, 1000 - ahead - behind]
        found = Mean(*difference_over_tasks([1.0, -1.0, 0.0], counts))
        p = p_over_tasks(found, 1000)
        assert (p < 0.05) is (found.low > 0 or found.high < 0)
        assert p == pytest.approx(mcnemar_p(ahead, behind), abs=0.03)
        edge = Mean(found.mean, 0.0, found.high - found.low)
        assert p_over_tasks(edge, 1000) == pytest.approx(0.05, rel=1e-6)


def test_holm_allows_for_all_comparisons() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.04]) == [True]
    assert holm([0.001, math.nan, 0.2]) == [True, False, False]
    assert holm([]) == []
