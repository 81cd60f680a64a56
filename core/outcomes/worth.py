"""What could be won with the models of an outcome table: the rules of `core.outcomes.rules` under the names of the
policies that play them, and upper bounds, chosen on some tasks and measured on others. Measured on the tasks that it
was chosen on a rule flatters itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from core.analysis.metrics import holm, share_over_tasks
from core.outcomes.lessons import Known
from core.outcomes.matrix import Flags, Floats, Ints, Outcomes, Paired, compared
from core.outcomes.rules import (
    Played,
    agreement,
    asked_first,
    chosen_setting,
    mean_over_samples,
    order_by,
    scores_for,
    scores_of,
    settings_of,
    strengths,
    tried_by_family,
    vote,
    vote_by_odds,
)

#: How the keys of single models begin.
SINGLE = "single:"
#: The rules that compare answers, and whether by family, by the names of their policies.
COMPARING: Mapping[str, tuple[Played, bool]] = {
    "vote": (vote, False),
    "weighted-vote": (vote_by_odds, False),
    "agree": (agreement, False),
    "agree:family": (agreement, True),
}


@dataclass(frozen=True, eq=False)
class Rule:
    """A way to use the models, as it did on each measured task: `right` (0 to 1, NaN where it has nobody to ask),
    `calls`, and `toll` as in Outcomes (NaN where unknown), all [tasks]. `says`: what was chosen. `bound`: it reads the
    grades, which no policy can."""

    key: str
    right: Floats
    calls: Floats
    toll: Mapping[str, Floats]
    says: str = ""
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A rule's accuracy over the `n` tasks that it has somebody to ask about, with its 95 % interval; its difference to
    the best single model (None: it is that one), and whether that `holds` also when all such rules, or all single
    models, are allowed for (Holm; False for a bound); its calls, tokens and USD per question (None: unknown)."""

    key: str
    accuracy: float
    ci95: tuple[float, float]
    n: int
    difference: Paired | None
    calls: float
    tokens: float | None
    cost: float | None
    says: str = ""
    bound: bool = False
    holds: bool = False

    @property
    def is_single(self) -> bool:
        """Whether it is a model that is not the best single one."""
        return self.key.startswith(SINGLE)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some tasks of a table: what is known of them, and their families."""

    known: Known
    families: list[str]

    @staticmethod
    def of(table: Outcomes, tasks: Flags) -> _Part:
        arrays = table.share, table.group, table.toll["tokens"], table.toll["cost"]
        families = [table.domains[i] for i in table.domain[tasks].tolist()]
        return _Part(Known(table.models, *arrays).of_samples(table.samples).of(tasks), families)

    def rule(
        self, key: str, order: Ints, calls: Ints | Floats, right: Floats, says: str, *, bound: bool = False
    ) -> Rule:
        """A rule that makes so many calls in order [tasks, models]."""
        paid = np.arange(order.shape[1]) < calls[:, None]
        toll = {
            name: np.where(paid, np.take_along_axis(values, order, axis=1), 0.0).sum(axis=1)
            for name, values in (("tokens", self.known.tokens), ("cost", self.known.cost))
        }
        return Rule(key, right, calls.astype(np.float64), toll, says, bound)

    def one_call(self, key: str, chosen: Ints, says: str = "", *, bound: bool = False) -> Rule:
        """A rule that asks one model a task."""
        right = self.known.right[np.arange(len(chosen)), chosen]
        return self.rule(key, chosen[:, None], np.ones_like(chosen), right, says, bound=bound)


def rules(of: Outcomes, evolve: Flags, validation: Flags, measured: Flags) -> list[Measured]:
    """What rules do on the `measured` tasks, taught and chosen on the others as the policies of their names are: the
    best single model and each of the others, the best of each domain, votes, asking until two agree, the cheapest right
    one and the oracle. Nothing where one of the three has no answered task."""
    if not all(np.isfinite(of.share[tasks]).any() for tasks in (evolve, validation, measured)):
        return []
    on = _Part.of(of, measured)
    strength = strengths(_Part.of(of, evolve | validation).known)
    order = order_by(strength)
    best = next(int(one) for one in order if one in of.contenders)
    single = on.one_call("best_single", np.full(len(on.families), best), of.models[best])
    others = [one for one in order.tolist() if one != best]
    found = [
        single,
        *(on.one_call(f"{SINGLE}{of.models[one]}", np.full(len(on.families), one)) for one in others),
        _by_family(_Part.of(of, evolve | validation), on),
    ]
    if of.comparable and len(of.models) > 2:
        found += [_comparing(key, of, evolve, validation, on) for key in COMPARING]
    found += _bounds(of, measured, on, strength)
    return _allowed_for([_measured(one, single, of.by_parts) for one in found])


def _allowed_for(found: list[Measured]) -> list[Measured]:
    """The same, each rule with whether it differs by more than luck among the rules that read no grade, each single
    model among the single models."""
    ps = {one.key: one.difference.p for one in found if one.difference is not None and not one.bound}
    held: dict[str, bool] = {}
    for single in (True, False):
        keys = [key for key in ps if key.startswith(SINGLE) is single]
        held |= dict(zip(keys, holm([ps[key] for key in keys]), strict=True))
    return [replace(one, holds=held.get(one.key, False)) for one in found]


def _by_family(taught: _Part, on: _Part) -> Rule:
    """As `core.evolution.rules.table_by_family` chooses."""
    overall, table = tried_by_family(taught.known.right, taught.families)
    scores = scores_of(overall, table, on.families)
    taken = Counter(on.known.models[int(own.argmax())] for own in table.values())
    says = ", ".join(f"{name} in {n}" for name, n in taken.most_common())
    return on.one_call("by-family", asked_first(on.known, order_by(scores))[:, 0], says)


def _comparing(key: str, of: Outcomes, evolve: Flags, validation: Flags, on: _Part) -> Rule:
    play, by_family = COMPARING[key]
    taught, tried = _Part.of(of, evolve), _Part.of(of, validation)
    drawn, n = chosen_setting(
        play,
        tried.known,
        lambda drawn: scores_for(taught.known, taught.families, tried.families, drawn),
        settings_of(play, len(of.models), by_family),
    )
    both = _Part.of(of, evolve | validation)
    scores = scores_for(both.known, both.families, on.families, drawn)
    order = asked_first(on.known, order_by(scores))
    came = [play(one, scores, n) for one in on.known.each]
    each = [on.rule(key, order, one.calls, one.right, f"at most {n} model{'s' * (n > 1)}") for one in came]
    right, calls = (
        mean_over_samples(arrays) for arrays in ([r.right for r in each], [r.calls for r in each])
    )
    toll = {name: np.mean([one.toll[name] for one in each], axis=0) for name in each[0].toll}
    return replace(each[0], right=right, calls=calls, toll=toll)


def _bounds(of: Outcomes, measured: Flags, on: _Part, strength: Floats) -> list[Rule]:
    """What only whoever knows the grades could do: the cheapest model that is right, and any model that is; of several
    samples also the model that other samples of the same task say is best."""
    there = np.isfinite(on.known.right)
    share = np.where(there, on.known.right, -1.0)
    found = [on.one_call("oracle", share.argmax(axis=1), "any model that is right", bound=True)]
    for basis, price in (("cost", on.known.cost), ("tokens", on.known.tokens)):
        if np.isfinite(price[there]).all():
            best = share.max(axis=1, keepdims=True)
            cheapest = np.where(there & ((share == best) | (best <= 0)), price, np.inf).argmin(axis=1)
            found.insert(0, on.one_call("cheapest_right", cheapest, f"by {basis}", bound=True))
            break
    crossed = _crossed(of, measured, on, strength)
    return [*found, *([] if crossed is None else [crossed])]


def _crossed(of: Outcomes, measured: Flags, on: _Part, strength: Floats) -> Rule | None:
    """The model that is best on one half of a task's samples, measured on the other half, and the other way round;
    where several are, the strongest. None where some task has not two samples of each model that answered it."""
    halves = [(right[measured], graded[measured]) for right, graded in of.halves]
    if of.by_parts or any(((graded == 0) & np.isfinite(on.known.right)).any() for _, graded in halves):
        return None
    shares = [np.where(graded > 0, right / np.maximum(graded, 1), np.nan) for right, graded in halves]
    chosen = [np.argmax(np.nan_to_num(share, nan=-1.0) + 1e-6 * strength, axis=1) for share in shares]
    rows = np.arange(len(chosen[0]))
    right = (shares[1][rows, chosen[0]] + shares[0][rows, chosen[1]]) / 2
    one, other = (on.one_call("", own).toll for own in chosen)
    toll = {name: (one[name] + other[name]) / 2 for name in one}
    says = "chosen on half of a task's samples, measured on the other half"
    return Rule("oracle_cross_fitted", right, np.ones(len(rows)), toll, says, bound=True)


def _measured(rule: Rule, single: Rule, by_parts: bool) -> Measured:
    there = np.isfinite(rule.right)
    values, tasks = np.unique(rule.right[there].round(12), return_counts=True)
    several = bool(((values > 0) & (values < 1)).any())
    n = int(there.sum())
    # Shares between 0 and 1 are of several samples: the interval is then over tasks.
    mean, low, high = share_over_tasks(values.tolist(), tasks.tolist(), n + 1 if several else n)
    difference = None if rule is single else compared(single.right, rule.right, by_parts, rule.key)
    calls, tokens, cost = (
        float(spent[there].mean()) if n and np.isfinite(spent[there]).all() else None
        for spent in (rule.calls, rule.toll["tokens"], rule.toll["cost"])
    )
    return Measured(
        rule.key, mean, (low, high), n, difference, calls or 0.0, tokens, cost, rule.says, rule.bound
    )
