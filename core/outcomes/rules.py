"""Rules that anybody can write down, chosen by what every model makes of tasks: whom to ask, in which order, until
when, and whose answer stands.

Each is chosen on the outcomes of evolve tasks (strengths) and validation tasks (its settings, TRIALS of them at most);
how it then comes out is reckoned here from the same numbers, as it is played by the policies of `core.outcomes.asking`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from core.outcomes.lessons import TRIALS, Known, S, best_setting

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]

#: Of so many models at most an agreement cascade asks. Not of two, where there are more: the first one's answer stands
#: whatever the second one says, whose call would be paid for nothing.
ASKED = (3, 4, 5, 6)
#: So many tasks of a family weigh as much as all tasks together in how strong a model is there.
SHRINKAGE = (0.0, 10.0, 30.0, 100.0)
#: Chances at which an answer counts as sure.
SURE = (
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.825,
    0.85,
    0.875,
    0.9,
    0.92,
    0.94,
    0.95,
    0.96,
    0.97,
    0.98,
    0.99,
)
#: Chances of the first answer from which on nobody else is asked; by the first of them that never happens.
ALONE = (np.inf, *reversed(SURE))
#: Chances nearer to 0 and 1 are not believed.
_LEAST = 0.02


P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Came:
    """What a rule came to, arrays by task: `right` (NaN where no model could be asked), the `calls` that it took, and
    the slot whose answer stands (-1 without one). Over several samples `right` and `calls` are means, and the answer
    is the one that stands in the first."""

    right: Numbers
    calls: Numbers | Places
    stands: Places

    @property
    def accuracy(self) -> float:
        return float(np.nanmean(self.right))

    @property
    def score(self) -> tuple[float, float]:
        """Accuracy, and of equals fewer calls."""
        return self.accuracy, -float(self.calls.mean())


def mean_over_samples(arrays: Sequence[Numbers | Places]) -> Numbers:
    """The mean of arrays [tasks], of those in which it is known; NaN where none is."""
    stacked = np.array(arrays, np.float64)
    n = np.isfinite(stacked).sum(axis=0)
    mean: Numbers = np.where(n > 0, np.nansum(stacked, axis=0) / np.maximum(n, 1), np.nan)
    return mean


def _on_each_sample(rule: Callable[Concatenate[Known, P], Came]) -> Callable[Concatenate[Known, P], Came]:
    """The mean of what a rule that compares answers comes to on each sample: whether those who agree are right is a
    matter of the sample in which they do."""

    @wraps(rule)
    def over_samples(known: Known, /, *args: P.args, **settings: P.kwargs) -> Came:
        each = [rule(one, *args, **settings) for one in known.each]
        if len(each) == 1:
            return each[0]
        right, calls = (
            mean_over_samples(arrays) for arrays in ([c.right for c in each], [c.calls for c in each])
        )
        return Came(right, calls, each[0].stands)

    return over_samples


def strengths(known: Known) -> Numbers:
    """The share of tasks that each model solves [models]; 0 for one that none is known of."""
    solved, n = np.nansum(known.right, axis=0), np.isfinite(known.right).sum(axis=0)
    share: Numbers = solved / np.maximum(n, 1)
    return share


def strengths_by_family(known: Known, families: Sequence[str], shrinkage: float) -> dict[str, Numbers]:
    """The same by family [models], drawn to the overall share as if by `shrinkage` tasks of it."""
    overall, of = strengths(known), np.array(families)
    found = {}
    for family in dict.fromkeys(families):
        own = known.right[of == family]
        n = np.isfinite(own).sum(axis=0)
        total = np.nansum(own, axis=0) + shrinkage * overall
        # One task's weight at least: a model that was never seen in a family is as strong as it is overall.
        found[family] = np.where(n + shrinkage > 0, total / np.maximum(n + shrinkage, 1e-9), overall)
    return found


def tried_by_family(right: Numbers, families: Sequence[str]) -> tuple[Numbers, dict[str, Numbers]]:
    """The share that each candidate solved of the tasks [tasks, candidates] that it was tried on, over all and by
    family, without any shrinkage; -1 for one that was tried on nothing."""

    def shares(own: Numbers) -> Numbers:
        n = np.isfinite(own).sum(axis=0)
        return np.where(n > 0, np.nansum(own, axis=0) / np.maximum(n, 1), -1.0)

    of = np.array(families)
    return shares(right), {family: shares(right[of == family]) for family in sorted({*families})}


def scores_of(overall: Numbers, by_family: Mapping[str, Numbers], families: Sequence[str]) -> Numbers:
    """The strengths for each task [tasks, models]; of a family that was never seen, those overall."""
    if not families:
        return np.zeros((0, len(overall)))
    return np.array([by_family.get(family, overall) for family in families])


def scores_for(known: Known, families: Sequence[str], asked: Sequence[str], shrinkage: float) -> Numbers:
    """The same by what is known of tasks of these `families`, for tasks of the families that are `asked`; those overall
    where `shrinkage` is infinite."""
    by_family = {} if np.isinf(shrinkage) else strengths_by_family(known, families, shrinkage)
    return scores_of(strengths(known), by_family, asked)


def order_by(scores: Numbers) -> Places:
    """The slots from the highest score down [..., models]; of equals the first."""
    order: Places = np.argsort(-scores, axis=-1, kind="stable")
    return order


def asked_first(known: Known, order: Places) -> Places:
    """An order for each task [tasks, models], with those last that cannot be asked about it."""
    order = np.broadcast_to(order, known.right.shape)
    absent = np.take_along_axis(np.isnan(known.right), order, axis=1)
    moved: Places = np.take_along_axis(order, np.argsort(absent, axis=1, kind="stable"), axis=1)
    return moved


def right_of(known: Known, stands: Places, asked: NDArray[np.bool_]) -> Numbers:
    """Whether the answers are right that stand; no answer is wrong, and without anybody to ask nothing is known."""
    own = np.take_along_axis(known.right, np.maximum(stands, 0)[:, None], axis=1)[:, 0]
    right: Numbers = np.where(stands >= 0, own, np.where(asked, 0.0, np.nan))
    return right


@_on_each_sample
def until_two_agree(known: Known, order: Places, most: int) -> Came:
    """Models in order ([models], or [tasks, models]) until two give the same answer, at most so many; else the first
    answer stands."""
    order = asked_first(known, order)
    n, width = order.shape
    most = min(most, width)
    group = np.take_along_axis(known.group, order, axis=1)[:, :most]
    able = np.isfinite(known.right).sum(axis=1)
    first = np.argmax(group >= 0, axis=1)
    place = np.where((group >= 0).any(axis=1), first, -1)
    calls, open_ = np.minimum(able, most), np.ones(n, bool)
    for k in range(1, most):
        same = (group[:, :k] == group[:, k : k + 1]) & (group[:, k : k + 1] >= 0)
        now = same.any(axis=1) & open_
        place, calls = np.where(now, same.argmax(axis=1), place), np.where(now, k + 1, calls)
        open_ &= ~now
    slot = np.take_along_axis(order, np.maximum(place, 0)[:, None], axis=1)[:, 0]
    stands = np.where(place >= 0, slot, -1)
    return Came(right_of(known, stands, able > 0), calls, stands)


def first_if_sure(known: Known, order: Places, came: Came, chance: Numbers, sure: float) -> Came:
    """The answer of the first model in order where its chance [tasks, models] is `sure` or more; without an answer, and
    elsewhere, what a cascade in this order came to."""
    first = asked_first(known, order)[:, :1]
    own, likely, answer = (
        np.take_along_axis(array, first, axis=1)[:, 0] for array in (known.right, chance, known.group)
    )
    stops = (likely >= sure) & (answer >= 0)
    calls, stands = np.where(stops, 1, came.calls), np.where(stops, first[:, 0], came.stands)
    return Came(np.where(stops, own, came.right), calls, stands)


def fewest_calls(trials: Mapping[S, Came], plain: Came) -> S:
    """The setting that takes the fewest calls among those that get no fewer of the same tasks right than the plain
    rule; of equals the one that gets most right, then the first."""
    lost = {setting: float(np.nansum(plain.right - came.right)) for setting, came in trials.items()}
    allowed = [setting for setting in trials if round(lost[setting], 9) <= 0]
    return min(allowed, key=lambda one: (trials[one].calls.mean(), lost[one]))


def until_likely(known: Known, order: Places, chances: Sequence[Numbers], sure: float) -> Came:
    """Models in order, as many as there are `chances`, until one agrees with the answer that stands, or one of theirs
    has the chance `sure`; else the likeliest stands. `chances`: when one was asked, when two were, ..., how likely each
    model's answer is right [tasks, models]; NaN where nobody knows."""
    order = asked_first(known, order)
    n, tasks = len(order), np.arange(len(order))
    able = np.isfinite(known.right).sum(axis=1)
    stands, calls, open_ = np.full(n, -1), np.minimum(able, len(chances)), able > 0
    for k, chance in enumerate(chances, start=1):
        slots = order[:, :k]
        likely = np.where(np.take_along_axis(known.group, slots, axis=1) >= 0, 0.0, -1.0)
        likely += np.nan_to_num(np.take_along_axis(chance, slots, axis=1)) * (likely >= 0)
        newest = known.group[tasks, slots[:, -1]]
        agrees = (stands >= 0) & (newest >= 0) & (newest == known.group[tasks, np.maximum(stands, 0)])
        stands = np.where(open_ & (stands < 0) & (newest >= 0), slots[:, -1], stands)
        best = likely.argmax(axis=1)
        top = likely[tasks, best]
        ends = open_ & (agrees | (top >= sure) | (k >= calls))
        chosen = ends & ~agrees & (top > 0)
        stands = np.where(chosen, slots[tasks, best], stands)
        calls, open_ = np.where(ends, k, calls), open_ & ~ends
    return Came(right_of(known, stands, able > 0), calls, stands)


@_on_each_sample
def weighted_vote(known: Known, order: Places, weights: Numbers, voters: int) -> Came:
    """The answer of most weight among the first so many in order; of equals the one that came first. Weights [models],
    or [tasks, models]."""
    order = asked_first(known, order)[:, :voters]
    group = np.take_along_axis(known.group, order, axis=1)
    weight = np.take_along_axis(np.broadcast_to(weights, known.right.shape), order, axis=1)
    able = np.isfinite(known.right).sum(axis=1)
    same = (group[:, :, None] == group[:, None, :]) & (group >= 0)[:, None, :]
    # Rounded, so that which of two equal sums is larger does not hang on the order of their parts.
    total = np.where(group >= 0, np.round((same * weight[:, None, :]).sum(axis=2), 9), -np.inf)
    place = total.argmax(axis=1)
    slot = np.take_along_axis(order, place[:, None], axis=1)[:, 0]
    stands = np.where((group >= 0).any(axis=1), slot, -1)
    return Came(right_of(known, stands, able > 0), np.minimum(able, voters), stands)


def log_odds(strength: Numbers) -> Numbers:
    """How much a voter of this strength weighs: the logarithm of its odds of being right."""
    believed = np.clip(strength, _LEAST, 1 - _LEAST)
    weight: Numbers = np.log(believed / (1 - believed))
    return weight


#: How a rule comes out with these scores [tasks, models] and a number of models: in order of the scores.
Played = Callable[[Known, Numbers, int], Came]


def agreement(known: Known, scores: Numbers, most: int) -> Came:
    """Until two agree."""
    return until_two_agree(known, order_by(scores), most)


def vote(known: Known, scores: Numbers, voters: int) -> Came:
    """Every vote weighs the same."""
    return weighted_vote(known, order_by(scores), np.ones(len(known.models)), voters)


def vote_by_odds(known: Known, scores: Numbers, voters: int) -> Came:
    """A vote weighs what its model's strength says."""
    return weighted_vote(known, order_by(scores), log_odds(scores), voters)


def settings_of(
    play: Played, models: int, by_family: bool, number: int | None = None
) -> list[tuple[float, int]]:
    """What is tried of a rule: a shrinkage (infinite: models are as strong as they are overall) and how many models are
    asked, which a `number` settles."""
    drawn_to = SHRINKAGE if by_family else (np.inf,)
    asked = [n for n in ASKED if n <= models] or [models]
    if play is not agreement:
        asked = [*range(1, models + 1)][-(TRIALS // len(drawn_to)) :]
    return [(drawn, n) for drawn in drawn_to for n in (asked if number is None else [number])]


def chosen_setting(
    play: Played, validation: Known, score: Callable[[float], Numbers], settings: Sequence[tuple[float, int]]
) -> tuple[float, int]:
    """The setting that does best on validation tasks, with their scores by shrinkage [tasks, models], which evolve
    tasks taught."""
    scores = {drawn: score(drawn) for drawn in {drawn for drawn, _ in settings}}
    return best_setting(settings, lambda one: play(validation, scores[one[0]], one[1]).score)


@_on_each_sample
def until_sure(known: Known, order: Places, strength: Numbers, options: Places, sure: float) -> Came:
    """Models in order until naive Bayes gives an answer this chance, else all of them; the likeliest one stands.

    `strength` [models] or [tasks, models] is the chance that a model is right, whatever the others say; a wrong one is
    any of the other `options` [tasks] alike."""
    order = asked_first(known, order)
    n, width = order.shape
    group = np.take_along_axis(known.group, order, axis=1)
    chance = np.take_along_axis(np.broadcast_to(strength, known.right.shape), order, axis=1)
    weight = option_weight(chance, options[:, None])
    able = np.isfinite(known.right).sum(axis=1)
    place, calls, open_ = np.full(n, -1), np.minimum(able, width), np.ones(n, bool)
    for k in range(1, width + 1):
        seen = group[:, :k]
        same = (seen[:, :, None] == seen[:, None, :]) & (seen >= 0)[:, None, :]
        total = np.where(seen >= 0, np.round((same * weight[:, None, :k]).sum(axis=2), 9), -np.inf)
        best = total.argmax(axis=1)
        has = (seen >= 0).any(axis=1)
        place = np.where(open_ & has, best, place)
        again = (same & np.tri(k, k, -1, dtype=bool)).any(axis=2)
        fresh = (seen >= 0) & ~again  # each answer counted once, at its first place
        likely = np.where(fresh, np.exp(np.minimum(total, 500)), 0.0)
        unseen = np.maximum(options - fresh.sum(axis=1), 0)
        top = np.exp(np.minimum(np.take_along_axis(total, best[:, None], axis=1)[:, 0], 500))
        now = open_ & has & (top / (likely.sum(axis=1) + unseen) >= sure) & (k <= able)
        calls = np.where(now, k, calls)
        open_ &= ~now
    slot = np.take_along_axis(order, np.maximum(place, 0)[:, None], axis=1)[:, 0]
    stands = np.where(place >= 0, slot, -1)
    return Came(right_of(known, stands, able > 0), calls, stands)


def option_weight(chance: Numbers, options: Places) -> Numbers:
    """By how much (a logarithm) a voter's answer is likelier than any other one of so many options."""
    believed = np.clip(chance, _LEAST, 1 - _LEAST)
    weight: Numbers = np.log(believed * np.maximum(options - 1, 1) / (1 - believed))
    return weight


def chosen_cascade(known: Known, turn_budget: int) -> tuple[str, ...]:
    """The models and the judge, last, of the cascade (`core.play.policies.cascade_policy`) that does best, where a
    judge accepts an answer that is the same as its own: for each judge the models are chosen one after the other among
    the others, each the best one after those before it."""
    n_models = len(known.models)
    best: tuple[float, tuple[int, ...]] = (-1.0, ())
    for judge in range(n_models):
        team: tuple[int, ...] = ()
        while 2 * len(team) < turn_budget:
            trials = [(*team, model) for model in range(n_models) if model not in (*team, judge)]
            if not trials:
                break
            team = max(trials, key=lambda trial: _of_cascade(known, judge, trial).accuracy)
        best = max(best, (_of_cascade(known, judge, team).accuracy, (*team, judge)))
    return tuple(known.models[slot] for slot in best[1])


@_on_each_sample
def _of_cascade(known: Known, judge: int, team: Sequence[int]) -> Came:
    """What a cascade comes to: the first answer of the team that is the judge's own, else the last one that was
    given."""
    accepted = (known.group == known.group[:, [judge]]) & (known.group >= 0)
    stands = np.full(len(known.right), -1)
    over = np.zeros(len(stands), bool)
    for slot in team:
        answered = ~over & (known.group[:, slot] >= 0)
        stands = np.where(answered, slot, stands)
        over |= answered & accepted[:, slot]
    able = np.isfinite(known.right).sum(axis=1)
    return Came(right_of(known, stands, able > 0), able, stands)
