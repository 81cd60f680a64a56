"""What could be won with the models of an outcome table: simple rules and upper bounds, chosen on some tasks and
measured on others. Measured on the tasks that it was chosen on a rule flatters itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import difference_over_tasks, share_over_tasks
from core.outcomes.matrix import Flags, Floats, Ints, Outcomes

#: Whoever asks until two agree asks no more models than this.
MOST_ASKED = 6


@dataclass(frozen=True, eq=False)
class Rule:
    """A way to use the models, as it did on each measured task: `right` (0 to 1), `calls`, and `toll` as in Outcomes
    (NaN where unknown), all [tasks]. `says`: what was chosen. `bound`: it reads the grades, which no policy can."""

    key: str
    right: Floats
    calls: Floats
    toll: Mapping[str, Floats]
    says: str = ""
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A rule's accuracy over `n` tasks, its difference to the best single model's (None: it is that one), both with
    their 95 % interval, and its calls, tokens and USD per question (None: unknown)."""

    key: str
    accuracy: float
    ci95: tuple[float, float]
    n: int
    difference: tuple[float, float, float] | None
    calls: float
    tokens: float | None
    cost: float | None
    says: str = ""
    bound: bool = False


@dataclass(frozen=True, eq=False)
class _Pool:
    """The models and tasks that rules are taught with and measured on: `strength` [models] and `by_domain` [domains,
    models] are accuracies on the `learned` tasks, `order` has the strongest first; models are counted among `voters`,
    and `tasks` are those that are measured."""

    of: Outcomes
    voters: Ints
    tasks: Ints
    learned: Ints
    strength: Floats
    by_domain: Floats
    order: Ints

    @property
    def share(self) -> Floats:
        return self.of.share[np.ix_(self.tasks, self.voters)]

    def column(self, chosen: NDArray[Any], values: Floats) -> Floats:
        """The value of the model that is chosen for each task."""
        found: Floats = values[np.arange(len(self.tasks)), chosen]
        return found

    def toll(self, name: str) -> Floats:
        return self.of.toll[name][np.ix_(self.tasks, self.voters)]

    def one_call(self, key: str, chosen: Ints, says: str, *, bound: bool = False) -> Rule:
        """A rule that asks one model a task."""
        toll = {name: self.column(chosen, self.toll(name)) for name in self.of.toll}
        right = self.column(chosen, self.share)
        return Rule(key, right, np.ones(len(self.tasks)), toll, says, bound)

    def all_called(self, key: str, right: Floats, says: str = "", *, bound: bool = False) -> Rule:
        """A rule that asks every model."""
        toll = {name: self.toll(name).sum(axis=1) for name in self.of.toll}
        return Rule(key, right, np.full(len(self.tasks), float(len(self.voters))), toll, says, bound)

    def name(self, voter: int) -> str:
        return self.of.models[int(self.voters[voter])]


def rules(of: Outcomes, learned: Flags, measured: Flags) -> list[Measured]:
    """What simple rules do on the `measured` tasks that all voters answered, chosen on the `learned` ones: each model
    alone, the best one first, then the best per domain, votes, asking until two agree, the cheapest right one and the
    oracle. Nothing where one of the two has no such task."""
    pool = _pool(of, learned & of.shared, measured & of.shared)
    if pool is None:
        return []
    best, *others = pool.order.tolist()
    single = pool.one_call("best_single", _all(pool, best), pool.name(best))
    found = [
        single,
        *(pool.one_call(f"single:{pool.name(one)}", _all(pool, one), "") for one in others),
        _per_domain(pool),
        *((*_votes(pool), *_agreements(pool)) if of.comparable and len(pool.voters) > 2 else ()),
        *_bounds(pool),
    ]
    return [_measured(of, one, single) for one in found]


def _pool(of: Outcomes, learned: Flags, measured: Flags) -> _Pool | None:
    if not (learned.any() and measured.any()):
        return None
    share = of.share[:, of.voters]
    strength = share[learned].mean(axis=0)
    by_domain = np.array(
        [
            share[which].mean(axis=0) if (which := learned & (of.domain == i)).any() else strength
            for i in range(len(of.domains))
        ]
    )
    order = np.argsort(-strength, kind="stable")
    return _Pool(of, of.voters, np.flatnonzero(measured), np.flatnonzero(learned), strength, by_domain, order)


def _all(pool: _Pool, voter: int) -> Ints:
    return np.full(len(pool.tasks), voter, np.int64)


def _per_domain(pool: _Pool) -> Rule:
    best = pool.by_domain.argmax(axis=1)
    taken = Counter(best.tolist())
    says = ", ".join(f"{pool.name(voter)} in {n}" for voter, n in taken.most_common())
    return pool.one_call("best_per_domain", best[pool.of.domain[pool.tasks]], says)


def _votes(pool: _Pool) -> list[Rule]:
    """The answer that most models gave, and that with the most weight: the log odds of being right (Nitzan and Paroush
    1982), none below zero. Among equals the strongest model's answer stands."""
    strength = pool.strength.clip(0.01, 0.99)
    weights = np.log(strength / (1 - strength)).clip(min=0.0)
    return [
        pool.all_called("majority", _stands(pool, np.ones(len(pool.voters)))),
        pool.all_called("weighted_vote", _stands(pool, weights)),
    ]


def _stands(pool: _Pool, weights: Floats) -> Floats:
    """Whether the answer with the most weight is right [tasks]."""
    cut = np.ix_(pool.tasks, pool.voters)
    group, right = pool.of.group[cut], pool.of.first[cut] == 1
    rank = np.empty(len(pool.voters))
    rank[pool.order] = np.arange(len(pool.voters))
    ballots = weights + 1e-6 * 0.5 ** (1 + rank)
    n, most = len(pool.tasks), int(group.max(initial=-1)) + 1
    if most == 0:
        return np.zeros(n)
    row, voter = np.nonzero(group >= 0)
    place = row * most + group[row, voter]
    votes = np.bincount(place, ballots[voter], n * most).reshape(n, most)
    good = np.bincount(place, right[row, voter], n * most).reshape(n, most) > 0
    found: Floats = good[np.arange(n), votes.argmax(axis=1)].astype(np.float64)
    return found


def _agreements(pool: _Pool) -> list[Rule]:
    """Ask in order of strength, over all or in each domain, until two answers are the same; that one stands, else the
    first model's. How many are asked at most is what did best on the learned tasks."""
    by_domain = np.argsort(-pool.by_domain, axis=1, kind="stable")
    orders = {"agree": np.tile(pool.order, (len(pool.of.domains), 1)), "agree_per_domain": by_domain}
    taught, found = replace(pool, tasks=pool.learned), []
    for key, order in orders.items():
        tried = range(2, min(MOST_ASKED, len(pool.voters)) + 1)
        best = max(tried, key=lambda most: float(_until_two(taught, key, order, most).right.mean()))
        found.append(_until_two(pool, key, order, best))
    return found


def _until_two(pool: _Pool, key: str, order: Ints, most: int) -> Rule:
    """Ask at most so many models of each task in the order of its domain [domains, models]."""
    asked = order[pool.of.domain[pool.tasks], :most]
    rows = np.arange(len(pool.tasks))
    voters = pool.voters[asked]
    group = pool.of.group[pool.tasks[:, None], voters]
    right = pool.of.first[pool.tasks[:, None], voters] == 1
    calls, stands = np.full(len(rows), most), np.zeros(len(rows), np.int64)
    open_ = np.ones(len(rows), bool)
    for place in range(1, most):
        same = (group[:, :place] == group[:, [place]]).any(axis=1) & (group[:, place] >= 0) & open_
        calls[same], stands[same] = place + 1, place
        open_ &= ~same
    paid = np.arange(most) < calls[:, None]
    toll = {
        name: np.where(paid, values[pool.tasks[:, None], voters], 0.0).sum(axis=1)
        for name, values in pool.of.toll.items()
    }
    says = f"at most {most}"
    return Rule(key, right[rows, stands].astype(np.float64), calls.astype(np.float64), toll, says)


def _bounds(pool: _Pool) -> list[Rule]:
    """What only whoever knows the grades could do: the cheapest model that is right, and any model that is; of several
    samples also the model that other samples of the same task say is best."""
    share = pool.share
    oracle = pool.one_call("oracle", share.argmax(axis=1), "any model that is right", bound=True)
    found = [oracle]
    basis = next(
        (name for name in ("cost", "tokens") if np.isfinite(pool.toll(name)).all()),
        None,
    )
    if basis is not None:
        price = pool.toll(basis)
        right = share == share.max(axis=1, keepdims=True)
        nobody = ~(share > 0).any(axis=1, keepdims=True)
        cheapest = np.where(right | nobody, price, np.inf).argmin(axis=1)
        found.insert(0, pool.one_call("cheapest_right", cheapest, f"by {basis}", bound=True))
    crossed = _crossed(pool)
    return [*found, *([] if crossed is None else [crossed])]


def _crossed(pool: _Pool) -> Rule | None:
    """The model that is best on one half of a task's samples, measured on the other half, and the other way round;
    where several are, the strongest. None where some task has not two samples of each model."""
    if pool.of.by_parts:
        return None
    cut = np.ix_(pool.tasks, pool.voters)
    halves = [(right[cut], graded[cut]) for right, graded in pool.of.halves]
    if any((graded == 0).any() for _, graded in halves):
        return None
    shares = [right / graded for right, graded in halves]
    chosen = [np.argmax(share + 1e-6 * pool.strength, axis=1) for share in shares]
    right = (pool.column(chosen[0], shares[1]) + pool.column(chosen[1], shares[0])) / 2
    toll = {
        name: (pool.column(chosen[0], pool.toll(name)) + pool.column(chosen[1], pool.toll(name))) / 2
        for name in pool.of.toll
    }
    says = "chosen on half of a task's samples, measured on the other half"
    return Rule("oracle_cross_fitted", right, np.ones(len(pool.tasks)), toll, says, bound=True)


def _measured(of: Outcomes, rule: Rule, single: Rule) -> Measured:
    values, tasks = np.unique(rule.right.round(12), return_counts=True)
    several = bool(((values > 0) & (values < 1)).any())
    n = len(rule.right)
    # Shares between 0 and 1 are of several samples: the interval is then over tasks.
    mean, low, high = share_over_tasks(values.tolist(), tasks.tolist(), n + 1 if several else n)
    difference = None
    if rule is not single:
        steps, counts = np.unique((rule.right - single.right).round(12), return_counts=True)
        difference = difference_over_tasks(steps.tolist(), counts.tolist())
    spent = {name: float(values.mean()) for name, values in rule.toll.items()}
    known = {name: value if np.isfinite(value) else None for name, value in spent.items()}
    calls = float(rule.calls.mean())
    of_question = calls, known["tokens"], known["cost"]
    return Measured(rule.key, mean, (low, high), n, difference, *of_question, rule.says, rule.bound)
