"""What requests cost beside the best single model, and what each tier solves of tasks whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from core.analysis.metrics import Mean, wilson_interval
from core.evolution.fitness import EpisodeStatistics
from core.play.policies import SINGLE
from storage.analysis.defaults import validated_checkpoints
from storage.analysis.requests import (
    FEWEST_CALLS,
    Beside,
    BestSingle,
    Call,
    Request,
    added_up,
    beside_single,
    best_single,
    single_calls,
)
from storage.analysis.standings import PolicySide, figures, policies_with_episodes, setting_under, sides_of
from storage.store import Store
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Code,
    Column,
    Estimate,
    Estimates,
    Kind,
    Line,
    Mark,
    Table,
)
from ui.answers.comparison import compared
from ui.answers.requests.course import by_tier, percentile
from ui.answers.requests.subject import best_of, equals, listed, rated, requests
from ui.presentation.comparison import difference_words
from ui.presentation.theme import percent
from ui.presentation.words import dollars, several, share_words

#: What tells which model of a pool is the best alone.
_TUNE = "trinity tune --pool pool.toml --tasks tasks.jsonl --max-cost 20"
#: Decimals of the US dollars of one request.
_PLACES = 6
#: So many settings under which a policy was played are looked at.
_MOST_SETTINGS = 4
#: A validation says more than a comparison on fewer tasks.
_FEW_TASKS = 20
_NOT_SHOWN = "What this does not show is whether its answers would have been as good."


class _Tier(NamedTuple):
    """The requests of a tier, and what they spent beside the best single model."""

    name: str
    found: Sequence[Request]
    beside: Beside


def cost(asked: Asked) -> Answer | None:
    """What requests cost, and what the best single model would have cost in their place."""
    over = requests(asked).over
    if not over:
        return None
    question = "What did they cost, and what would the best single model have cost?"
    pool, best = over[-1].setting.pool, best_of(asked)
    counted = [one for one in over if one.setting.pool == pool and one.cost_usd is not None]
    notes: list[Block] = [_HOW]
    if left := sum(one.setting.pool != pool for one in over):
        notes.append(f"Left out: {several(left, 'request')} of another pool, or at other prices.")
    if left := sum(one.setting.pool == pool and one.cost_usd is None for one in over):
        notes.append(
            f"Left out: {several(left, 'request')} whose cost is not known: broken off, or without a price."
        )
    if not counted:
        return Answer("cost", question, "No price of these requests is known.", [], notes)
    in_dollars, own_run = any(one.cost_usd for one in counted), asked.read(single_calls, best) if best else []
    found = [
        _Tier(group.name, group.found, _beside(group.found, best, own_run, in_dollars))
        for group in by_tier(counted)
    ]
    said, more = _cost_words(found, best, in_dollars)
    return Answer("cost", question, said, [_cost_table(asked, found, in_dollars), *more], notes)


_HOW = (
    "All requests that are over count, failed ones too. The best single model is the one that solved most in the run "
    "in which most models of this pool played alone. What it would have cost, had it been asked each request once, is "
    "estimated in each tier for itself: by its first call as a Worker in each request that has one, less what the "
    "tokens of earlier turns in its prompt cost, as alone it would have been sent the request and no more. In a tier "
    f"in which there are fewer than {FEWEST_CALLS} such calls its answers are taken to be as long as in its own run, "
    "to prompts as long as those of these requests. The 95 % interval draws requests, and those answers, anew."
)


def _beside(
    found: Sequence[Request], best: BestSingle | None, own_run: Sequence[Call], in_dollars: bool
) -> Beside:
    return beside_single(found, best.model if best else "", own_run, in_dollars=in_dollars)


def _cost_words(
    found: Sequence[_Tier], best: BestSingle | None, in_dollars: bool
) -> tuple[str, Sequence[Block]]:
    """The answer in sentences, and what is to be done where it cannot be told."""
    n, total = sum(one.beside.n for one in found), sum(one.beside.n * one.beside.each for one in found)
    took = (
        f"{several(n, 'request')} {_spent(total, in_dollars)} in all, {_plainly(total / n, in_dollars)} each."
    )
    said = took if in_dollars else f"{took} These models are free, so tokens are compared."
    if best is None:
        why = "Which model of this pool is the best alone was not measured, so nothing is known to compare it with."
        return f"{said} {why}", [Code(_TUNE)]
    alone_solved = percent(best.right / best.n)
    known = f"{best.model}, the best single model (alone it solved {alone_solved} of {best.n:,} tasks)"
    told = [one for one in found if one.beside.saved is not None]
    if not told:
        why = "it was a Worker in too few of them, and too few of its answers are recorded"
        return f"{said} What {known}, would have cost is not known: {why}.", []
    n = sum(one.beside.n for one in told)
    alone = sum(one.beside.n * (one.beside.alone or 0.0) for one in told)
    saved = added_up([one.beside for one in told])
    assert saved is not None
    of = f"all {n:,}" if len(told) == len(found) else f"the {n:,} of {' and '.join(one.name for one in told)}"
    calls = sum(one.beside.calls for one in told if not one.beside.by_run)
    rests = [f"{several(calls, 'call')} of it in these requests"] * bool(calls)
    rests += [f"the length of its answers in run {best.run}"] * any(one.beside.by_run for one in told)
    return (
        f"{said}\n{known}, asked once, would have cost about {_plainly(alone / n, in_dollars)} each, by "
        f"{' and '.join(rests)}. For {of} that is {_saved_words(saved, alone, in_dollars)}\n{_NOT_SHOWN}"
    ), []


def _spent(amount: float, in_dollars: bool) -> str:
    return f"{'cost' if in_dollars else 'took'} {_plainly(amount, in_dollars)}"


def _plainly(amount: float, in_dollars: bool) -> str:
    """An amount in words; what costs less than a cent has more decimals."""
    if not in_dollars:
        return f"{amount:,.0f} tokens"
    return f"${amount:.6f}" if 0 < amount < 0.01 else dollars(amount)


def _saved_words(saved: Mean, alone: float, in_dollars: bool) -> str:
    """Whether it was saved or lost, how much, and whether that could be luck."""
    if saved.low <= 0 <= saved.high:
        both = f"{_signed(saved.low, in_dollars)} to {_signed(saved.high, in_dollars)}"
        return f"too close to tell (saved in all, 95 %: {both})."
    word = "saved" if saved.mean > 0 else "lost"
    ends = sorted((abs(saved.low), abs(saved.high)))
    between = f"95 %: {_plainly(ends[0], in_dollars)} to {_plainly(ends[1], in_dollars)}"
    times = (alone - saved.mean) / alone if alone else 0.0
    part = (
        f"{times:.1f} times as much"
        if times >= 2
        else f"{100 * abs(1 - times):.0f} % {'more' if times > 1 else 'less'}"
    )
    return f"{_plainly(abs(saved.mean), in_dollars)} {word} in all ({part}; {between})."


def _signed(amount: float, in_dollars: bool) -> str:
    sign = "−" if amount < 0 else "+"
    return f"{sign}{_plainly(abs(amount), in_dollars)}"


def _cost_table(asked: Asked, found: Sequence[_Tier], in_dollars: bool) -> Table:
    unit = ", USD" if in_dollars else ", tokens"

    def amount(key: str, words: str, get: Callable[[_Tier], float | None], help: str = "") -> Column:
        def whole(one: _Tier) -> int | None:
            value = get(one)
            return None if value is None else round(value)

        if in_dollars:
            return Column(key, words + unit, "number", get, help, _PLACES)
        return Column(key, words + unit, "count", whole, help)

    def ends(one: _Tier) -> str:
        of = one.beside.saved
        return "" if of is None else f"{_signed(of.low, in_dollars)} to {_signed(of.high, in_dollars)}"

    def in_all(one: _Tier) -> str:
        of = one.beside.saved_in_all
        return "" if of is None else _signed(of.mean, in_dollars)

    return Table.of(
        found,
        Column("name", "Model asked for", get=lambda one: one.name),
        Column("requests", "Requests", "count", lambda one: one.beside.n),
        amount("total", "In all", lambda one: one.beside.n * one.beside.each),
        amount("each", "Each", lambda one: one.beside.each),
        amount("alone", "Best single model", lambda one: one.beside.alone, "What it would have cost each"),
        Column("calls", "By calls", "count", lambda one: one.beside.calls, "In which it was a Worker"),
        Column("by", "Estimated by", get=_by),
        Column("saved_words", "Saved in all", get=in_all, help="Minus: lost"),
        Column("between", "Saved each, 95 %", get=ends),
        Column("saved", "", "data", lambda one: one.beside.saved and one.beside.saved.mean),
        Column(
            "saved_ci95",
            "",
            "data",
            lambda one: one.beside.saved and [one.beside.saved.low, one.beside.saved.high],
        ),
        Column("open", "Episodes", "link", lambda one: listed(asked, equals("tier", one.name))),
        key="tiers_cost",
    )


def _by(one: _Tier) -> str:
    if one.beside.saved is None:
        return ""
    return "its answers in its own run" if one.beside.by_run else "these calls"


# What tiers are worth


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a policy on tasks whose answers are known: its accuracy and, where there is one, the best single
    model's on the same `tasks`; cost (US dollars) and seconds of a question. `difference` is paired, None where it is
    not; `to` compares both in full."""

    tasks: int
    accuracy: Estimate
    single: Estimate | None = None
    single_name: str = ""
    difference: Estimate | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    turns: int | None = None
    to: Address | None = None


class _Played(NamedTuple):
    """What a tier plays, by its newest request."""

    name: str
    found: Sequence[Request]
    policy: str
    policies: int  # that it has played in this time
    budget: int
    measured: Measured | None


def tiers(asked: Asked) -> Answer | None:
    """What each tier plays, and what that solves beside the best single model."""
    found, best = requests(asked).found, best_of(asked)
    if not found:
        return None
    played = []
    for group in by_tier(found):
        last = group.found[-1]
        known = asked.read(measured, last.policy, last.setting.turn_budget, last.setting.pool)
        policies = len({one.policy for one in group.found})
        played.append(
            _Played(group.name, group.found, last.policy, policies, last.setting.turn_budget, known)
        )
    lines = [
        Line(f"{one.name}: {asked.say(one.policy)}", one.measured.accuracy, Mark(to=_marked(asked, one)))
        for one in played
        if one.measured
    ]
    lines += _singles(played, best)
    blocks: list[Block] = [Estimates(lines, "tasks solved", key="solved")] if lines else []
    blocks.append(_tiers_table(asked, played))
    if any(one.measured is None for one in played) or best is None:
        blocks.append(Code(_TUNE, "What measures it"))
    notes: list[Block] = [
        "What a tier plays is what its newest request was decided by. That policy, and the best single model, were "
        "played on tasks whose answers are known: they are compared on the tasks that both finished, and the 95 % "
        "interval of the difference is over these tasks. They may be other questions than those that clients ask; the "
        "measured policy chose among all models of its pool, with the turn budget that stands beside, which a tier "
        "need not do. Of a checkpoint that has been played nowhere else, the validation of its evolution is told, "
        "which cannot be paired. Rated right is what clients said."
    ]
    said = "\n".join(_tier_words(asked, one, best) for one in played)
    return Answer("tiers", "What is each tier worth?", said, blocks, notes)


def _singles(played: Sequence[_Played], best: BestSingle | None) -> list[Line]:
    """The best single models that the tiers are compared with, each on the tasks of its comparison."""
    known = {
        (of.single_name, of.single): of.to for one in played if (of := one.measured) and of.single is not None
    }
    lines = [
        Line(
            f"{name} alone, on the same tasks",
            single,
            Mark(to=to or Address("episodes", {"policy": f"{SINGLE}{name}"})),
            plain=True,
        )
        for (name, single), to in known.items()
        if single is not None
    ]
    if not lines and best is not None and any(one.policy != best.policy for one in played):
        alone = Estimate(best.right / best.n, wilson_interval(best.right, best.n), best.right, best.n)
        lines.append(Line(f"{best.model} alone", alone, Mark(to=_of_run(best)), plain=True))
    return lines


def _marked(asked: Asked, one: _Played) -> Address:
    if one.measured and one.measured.to:
        return one.measured.to
    return listed(asked, equals("tier", one.name))


def _of_run(best: BestSingle) -> Address:
    return Address("episodes", {"run": best.run, "policy": best.policy})


def measured(store: Store, policy: str, budget: int, pool: str) -> Measured | None:
    """What is known of a policy of a pool, best with this turn budget; None for nothing."""
    best, played = best_single(store, pool), policies_with_episodes(store)

    def sides(name: str) -> list[PolicySide]:
        of_pool = [one for one in sides_of(played, name) if setting_under(played, one).pool == pool]
        return of_pool[:_MOST_SETTINGS]

    if best is not None and policy == best.policy:
        alone = Estimate(best.right / best.n, wilson_interval(best.right, best.n), best.right, best.n)
        return _with_use(
            store, PolicySide(policy, best.run), Measured(best.n, alone), best.setting.turn_budget
        )
    own = sides(policy)
    pairs = [
        (found, side, base)
        for base in (sides(best.policy) if best else ())
        for side, (found, _) in zip(own, compared(store, base, own), strict=True)
        if found.n
    ]
    if pairs:
        found, side, base = max(
            pairs, key=lambda one: (setting_under(played, one[1]).turn_budget == budget, one[0].n)
        )
        if found.n < _FEW_TASKS and (of_evolution := _validated(store, policy)):
            return of_evolution
        over = found.difference
        made = Measured(
            found.n,
            Estimate(found.accuracy_b, found.ci95_b),
            Estimate(found.accuracy_a, found.ci95_a),
            best.model if best else "",
            Estimate(over.difference, (over.low, over.high)),
            to=Address("checkpoints", {"c": f"{base.token},{side.token}"}),
        )
        return _with_use(store, side, made, setting_under(played, side).turn_budget)
    if own:
        side = min(own, key=lambda one: setting_under(played, one).turn_budget != budget)
        [of] = figures(store, [side])
        share = Estimate(
            of.summary.accuracy,
            wilson_interval(of.summary.correct, of.summary.n),
            of.summary.correct,
            of.summary.n,
        )
        return _with_use(store, side, Measured(of.tasks, share), setting_under(played, side).turn_budget)
    return _validated(store, policy)


def _with_use(store: Store, side: PolicySide, of: Measured, turns: int) -> Measured:
    """The same with what a question took."""
    [found] = figures(store, [side])
    usd, n = found.summary.cost_usd, found.summary.n
    each = None if usd is None or not n else usd / n
    return replace(of, cost_usd=each, seconds=found.summary.latency_s, turns=turns)


def _validated(store: Store, policy: str) -> Measured | None:
    """What an evolution's validation found of its checkpoint."""
    own = [one for one in store.checkpoints.list() if one.id == policy]
    known = next((one for one in validated_checkpoints(store, own) if one.id == policy), None)
    if known is None:
        return None
    made = Measured(known.result.n, _estimate(known.result), turns=known.turns)
    if known.single is None:
        return made
    return replace(made, single=_estimate(known.single[1]), single_name=known.single[0].split(" ", 1)[0])


def _estimate(of: EpisodeStatistics) -> Estimate:
    return Estimate(of.accuracy, of.interval, of.right, of.n)


def _tier_words(asked: Asked, one: _Played, best: BestSingle | None) -> str:
    known, name = one.measured, f"{one.name} plays {asked.say(one.policy)}"
    if known is None or known.accuracy.value is None or known.accuracy.ci95 is None:
        return f"{name}: what that solves was never measured with this pool."
    solved = share_words(known.accuracy.value, known.accuracy.ci95)
    if best is not None and one.policy == best.policy:
        return f"{name}, the best single model: it solved {solved} of {known.tasks:,} tasks."
    said = f"{name}: it solved {solved} of {known.tasks:,} tasks"
    single, over = known.single, known.difference
    if single is None or single.value is None or single.ci95 is None:
        return f"{said}; what the best single model solves of them was not played."
    said += f", the best single model, {known.single_name}, {share_words(single.value, single.ci95)}"
    if over is None or over.value is None or over.ci95 is None:
        return f"{said}."
    low, high = over.ci95
    judged = "that is more" if low > 0 else "that is less" if high < 0 else "too close to tell"
    return f"{said}: {judged}, {difference_words(over.value, over.ci95)} points."


def _tiers_table(asked: Asked, played: Sequence[_Played]) -> Table:
    def of(name: str) -> Callable[[_Played], Any]:
        return lambda one: getattr(one.measured, name, None)

    def known(key: str, words: str, kind: Kind, name: str, help: str = "", places: int = 0) -> Column:
        return Column(key, words, kind, of(name), help, places)

    def took(one: _Played) -> float | None:
        return percentile([request.whole_s for request in one.found if request.whole_s is not None], 50)

    def cost_each(one: _Played) -> float | None:
        costs = [
            request.cost_usd for request in one.found if request.is_over and request.cost_usd is not None
        ]
        return sum(costs) / len(costs) if costs else None

    return Table.of(
        played,
        Column("name", "Model asked for", get=lambda one: one.name),
        Column("policy", "Plays", get=lambda one: asked.say(one.policy)),
        Column("policy_id", "Policy", "id", lambda one: one.policy),
        Column(
            "policies",
            "Policies",
            "count",
            lambda one: one.policies,
            "That decided its requests in this time",
        ),
        known("tasks", "Tasks", "count", "tasks", "On which it was measured"),
        known("accuracy", "Solved", "estimate", "accuracy"),
        known("single_name", "Best single model", "words", "single_name"),
        known("single", "That solved", "estimate", "single", "On the same tasks"),
        known("difference", "Difference", "difference", "difference", "Paired, over the same tasks"),
        known("cost_usd", "A task, USD", "number", "cost_usd", "What it cost", _PLACES),
        Column("served_usd", "A request, USD", "number", cost_each, "What it cost", _PLACES),
        known("seconds", "Seconds of a task", "number", "seconds", "Of its calls", 2),
        Column("served_s", "Seconds of a request", "number", took, "Half took no longer", 2),
        known("turns", "Turns, measured", "count", "turns", "The turn budget"),
        Column(
            "budget",
            "Turns, served",
            "count",
            lambda one: one.budget,
            "The turn budget of its newest request",
        ),
        Column("right", "Rated right", "estimate", lambda one: rated(one.found)),
        Column("compared", "Compare", "link", of("to"), link="In full"),
        Column("open", "Episodes", "link", lambda one: listed(asked, equals("tier", one.name))),
        key="worth",
    )
