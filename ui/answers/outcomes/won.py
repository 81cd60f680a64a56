"""What could be won with the models of an outcome table: simple rules and upper bounds, and accuracy against cost with
every policy that was played on its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.analysis.metrics import holm
from core.episode import Flag
from core.outcomes.matrix import Paired, compared
from core.outcomes.worth import SINGLE, Measured, rules
from core.tasks.sets import FOLDS, OUTCOMES_PREFIX
from storage.analysis.costs import PolicyCost, policy_costs, solved_by_task
from storage.analysis.costs import frontier as unbeaten
from storage.analysis.verdicts import turn_groups
from storage.filters.episode_filter import EpisodeFilter
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
    Line,
    Mark,
    Point,
    Points,
    Table,
    Way,
)
from ui.answers.outcomes.folds import FAR
from ui.answers.outcomes.subject import luck, luck_words, matrix, points, viewed
from ui.presentation.comparison import enumerated
from ui.presentation.theme import one_line, percent
from ui.presentation.words import several, share_words
from ui.runs.plans import known_plan
from ui.runs.settings.batch import BatchPlan

#: What no policy plays under this name -> its words. The others have their policies' names.
RULES = {
    "best_single": "Best single model",
    "cheapest_right": "Cheapest right model (upper bound)",
    "oracle": "Oracle (upper bound)",
    "oracle_cross_fitted": "Oracle, cross-fitted",
}
#: The runs that are looked through for policies, the newest.
_MOST_RUNS = 500
#: The rules that `summary` names -> their keys.
_SUMMED = {
    "best_single": "best_single",
    "best_per_domain": "by-family",
    "majority": "vote",
    "weighted_vote": "weighted-vote",
    "oracle": "oracle",
}


def measured(asked: Asked) -> list[Measured]:
    """The rules as they did on the test split, taught on evolve and chosen on validation tasks."""
    of = matrix(asked)
    return rules(of, of.of("evolve"), of.of("validation"), of.of("test"))


def in_sample(asked: Asked) -> dict[str, Measured]:
    """The rules taught, chosen and measured on all tasks, by key."""
    of = matrix(asked)
    everything = of.of("all")
    return {one.key: one for one in rules(of, everything, everything, everything)}


def rule_words(key: str) -> str:
    """A rule's name."""
    return RULES.get(key) or key.removeprefix(SINGLE)


def won(asked: Asked) -> Answer:
    """What simple rules come to on the test split."""
    found, flattered = measured(asked), in_sample(asked)
    question = "What could be won by asking more than one model?"
    if not found:
        return Answer(
            "won",
            question,
            "This table is too small: one of its splits has no question that a model answered.",
        )
    shown = [one for one in found if not one.is_single]
    lines = [
        Line(
            rule_words(one.key),
            _estimate(asked, one),
            faint=one.bound,
        )
        for one in shown
    ]
    of = matrix(asked)
    table = Table.of(
        [*shown, *(one for one in found if one.is_single)],
        Column("name", "Rule", get=lambda one: rule_words(one.key)),
        Column("rule", "Key", "id", lambda one: one.key),
        Column(
            "difference",
            "Lead",
            "difference",
            _difference,
            "Over the best single model, in points, over the questions of both.",
        ),
        Column(
            "holds",
            "Luck?",
            get=lambda one: luck(None if one.difference is None or one.bound else one.holds),
            help="When all rules, or all single models, are allowed for (Holm)",
        ),
        Column("accuracy", "Accuracy", "estimate", lambda one: Estimate(one.accuracy, one.ci95)),
        Column("calls", "Calls", "number", lambda one: one.calls, "Per question", 2),
        Column("tokens", "Tokens", "number", lambda one: one.tokens, "Per question, in and out"),
        Column("cost_usd", "Cost", "usd", lambda one: one.cost, "US dollars per question"),
        Column(
            "p",
            "p",
            "p",
            lambda one: one.difference.p if one.difference and not one.bound else None,
            "Of this comparison by itself",
        ),
        Column(
            "chosen",
            "Chosen",
            get=lambda one: one.says,
            help="What it does, on the strength of other questions",
        ),
        Column(
            "flattered",
            "If chosen on the same",
            "share",
            lambda one: flattered[one.key].accuracy if one.key in flattered else None,
            "The accuracy when the rule is chosen and measured on all questions at once: that flatters it",
        ),
        key="rules",
    )
    out = [name for i, name in enumerate(of.models) if i not in of.contenders]
    several_rules = several(len(_rules(found)), "rule")
    notes: list[Block] = [
        "Each rule is chosen on the evolve and validation splits and measured on the test split of fold "
        f"{viewed(asked).fold}, over the questions that a model which it may ask has answered; its difference to the "
        "best single model is over those of both. It has the name of the policy that plays it (trinity run --policy) "
        "and is chosen as that one is. Chosen and measured on the same questions a rule flatters itself.",
        "Which rule does best is read from the test questions on which it is measured. So a lead counts as more than "
        f"luck where it holds when all {several_rules} are allowed for, that of a single model when all single models "
        "are (Holm's correction, 5 % for all together); the interval and p in the table are of one comparison.",
        "by-family: the model that was best on the domain's evolve and validation questions. agree: models in order of "
        "strength, with :family in each domain's own, until two give the same answer, which stands, else the first "
        "one's. vote: the most frequent answer, of equals the strongest model's; weighted-vote: each weighs the log "
        "odds of its model. A model without a row is passed over. Answers are compared by first samples.",
        "The upper bounds read the grades, so no policy can reach them: of many models one is right by chance. With "
        "several samples the cross-fitted oracle chooses a model on half of a question's samples and is measured on "
        "the other half, which takes that luck out.",
    ]
    notes += [f"Too few answers to be the best single model: {', '.join(out)}."] * bool(out)
    notes += ["The answers of this table cannot be compared, so nothing can vote."] * (not of.comparable)
    return Answer(
        "won",
        question,
        _won_words(asked, found),
        [Estimates(lines, "answered right, 95 % interval", zoomed=True), table],
        notes,
        term="Oracle",
        ways=[Way("What these rules do", Address("glossary", {"word": "rules"}))],
    )


def _rules(found: Sequence[Measured]) -> list[Measured]:
    """The rules that read no grade and are no single model."""
    return [one for one in found if one.difference is not None and not one.bound and not one.is_single]


def _difference(one: Measured) -> Estimate | None:
    return _paired(one.difference)


def _paired(lead: Paired | None) -> Estimate | None:
    return None if lead is None else Estimate(lead.difference, lead.ci95)


def _estimate(asked: Asked, one: Measured) -> Estimate:
    if matrix(asked).by_parts:
        return Estimate(one.accuracy, one.ci95)
    return Estimate(one.accuracy, one.ci95, round(one.accuracy * one.n), one.n)


def _won_words(asked: Asked, found: Sequence[Measured]) -> str:
    by_key = {one.key: one for one in found}
    single, oracle = by_key["best_single"], by_key["oracle"]
    share, n = share_words(single.accuracy, single.ci95), f"{single.n:,} test questions"
    came = f"scores {share} in {n}" if matrix(asked).by_parts else f"is right in {share} of {n}"
    said = [f"The best single model on evolve and validation questions, {single.says}, {came}."]
    others = [one for one in found if one.is_single]
    ahead = [one for one in others if one.difference and one.difference.difference > 0]
    if ahead:
        best = max(ahead, key=_lead)
        said[0] += f" There {rule_words(best.key)} has {_over_single(best, 'it', len(others), 'model')}."
    if tried := _rules(found):
        best = max(tried, key=_lead)
        of_rules = (
            f"the {several(len(tried), 'rule')} that read no grade" if len(tried) > 1 else "the one rule"
        )
        said.append(
            f"Of {of_rules} “{rule_words(best.key)}” does best on these questions, with {best.calls:.2f} calls a "
            f"question: {_over_single(best, 'the best single model', len(tried), 'rule')}."
            if _lead(best) > 0
            else f"None of {of_rules} is ahead of it."
        )
    said.append(
        f"No choice among these models can pass {percent(oracle.accuracy)}, where any of them is right."
    )
    if viewed(asked).on not in ("all", "test"):
        said[-1] += " Rules are measured on test questions, whichever are counted elsewhere."
    return "\n".join(said)


def _lead(one: Measured) -> float:
    return one.difference.difference if one.difference else 0.0


def _over_single(one: Measured, whom: str, among: int, what: str) -> str:
    """Its lead over the best single model, and whether that is luck among so many."""
    assert one.difference is not None
    lead = one.difference
    return (
        f"{points(lead.difference, lead.ci95)} over {whom}, {percent(lead.b)} against {percent(lead.a)} on the "
        f"{lead.n:,} questions of both: {luck_words(one.holds, lead.p, several(among, what) if among > 1 else '')}"
    )


# Accuracy against cost


@dataclass(frozen=True, slots=True)
class Played:
    """A policy as a run played it on a table's tasks; `calls` are the replies that were paid. `of`: fold and split;
    `solved`: the share of each task's episodes that came to the right answer, by the task's id; `lead`: over the best
    single model on those tasks, and whether it `holds` when all policies are allowed for."""

    run: str
    policy: str
    of: str
    cost: PolicyCost
    calls: int
    solved: Mapping[str, float]
    lead: Paired | None = None
    holds: bool | None = None


def played(store: Store, name: str) -> list[Played]:
    """The policies that finished runs on the recorded models of this table have played."""
    found = []
    for run in store.runs.list(kind="run", limit=_MOST_RUNS):
        plan = known_plan(run)
        if not isinstance(plan, BatchPlan) or table_of(plan.pool) != name:
            continue
        fold = plan.tasks.partition("@")[2] or "0"
        of = f"fold {fold}, {plan.split}" if table_of(plan.tasks) == name else plan.tasks
        for one in policy_costs(store, EpisodeFilter(run=run.id)):
            its = EpisodeFilter(run=run.id, policy=one.policy)
            groups = turn_groups(store, its)
            calls = sum(group.n for group in groups if group.asked and Flag.REUSED not in group.flags)
            solved = solved_by_task(store, its)
            found.append(Played(run.id, one.policy, one_line(of, 60), one, calls, solved))
    return found


def table_of(spec: str) -> str | None:
    """The table that a pool or task set names; None for another one."""
    return spec.removeprefix(OUTCOMES_PREFIX).partition("@")[0] if spec.startswith(OUTCOMES_PREFIX) else None


def frontier(asked: Asked) -> Answer:
    """Accuracy against cost: the rules and every policy that was played."""
    name = viewed(asked).table.card.name
    alone = [one for one in measured(asked) if not one.bound]
    ran = asked.read(played, name)
    in_dollars = bool(alone) and all(one.cost is not None for one in alone)
    unit = "US dollars per question" if in_dollars else "calls per question"
    marks: dict[str, tuple[float, Estimate, str, Mark]] = {}
    same = f"fold {viewed(asked).fold}, test", max((one.n for one in alone), default=0)
    others: set[str] = set()
    singles: set[str] = set()
    for one in alone:
        spent = one.cost if in_dollars else one.calls
        estimate = _estimate(asked, one)
        words = rule_words(one.key) if one.key != "best_single" else one.says
        key = f"{len(marks):03}"
        marks[key] = (spent or 0.0, estimate, words, Mark())
        singles |= {key} if one.is_single else set()
    for policy in ran:
        of = policy.cost
        paid = None if in_dollars and of.cost_usd is None else (of.cost_usd if in_dollars else policy.calls)
        if of.n and paid is not None:
            words = f"{asked.say(policy.policy)} ({of.n:,} questions, {policy.of})"
            key = f"{len(marks):03}"
            others |= {key} if (policy.of, of.n) != same else set()
            marks[key] = (
                paid / of.n,
                Estimate.of(of.accuracy),
                words,
                Mark(to=_episodes(policy)),
            )
    best = unbeaten(
        (key, spent, estimate.value or 0.0)
        for key, (spent, estimate, *_) in marks.items()
        if key not in others
    )
    least = max((estimate.value or 0.0 for _, estimate, *_ in marks.values()), default=0.0) - FAR
    drawn = [
        Point(spent, estimate, words, words, stands_out=key in best, mark=mark)
        for key, (spent, estimate, words, mark) in marks.items()
        if key in best or key not in singles or (estimate.value or 0.0) >= least
    ]
    blocks: list[Block] = [Points(drawn, (unit, "answered right"), zoomed=True)] if drawn else []
    if ran:
        blocks.append(_policies(asked, ran))
    blocks.append(Code(_command(asked), "Play policies on the test questions", "command"))
    kept = enumerated([marks[key][2] for key in best])
    said = f"No rule or policy here is both cheaper and better than {kept}." if drawn else "Nothing to draw."
    if far := len(marks) - len(drawn):
        said += f" {several(far, 'model')} below {percent(least)} {'is' if far == 1 else 'are'} not drawn."
    if others:
        who = several(len(others), "policy", "policies")
        said += (
            f" {who} played other questions than the rules: drawn in grey, and below each against the best single "
            "model on its own questions."
        )
    said += "" if ran else " No policy has been played on these questions yet: the command below plays some."
    return Answer(
        "frontier",
        "What does accuracy cost?",
        said,
        blocks,
        [
            "The dotted line joins those than which no other is both cheaper and better. Policies are those of runs on "
            "these recorded models, each on the questions that its run played, and only one that played the "
            "same questions as the rules is put against them; a reply that is used again in an episode costs nothing.",
            *(["The table has no prices for all models, so calls stand in their place."] * (not in_dollars)),
        ],
        term="Frontier",
    )


def _beside_best_single(asked: Asked, ran: Sequence[Played]) -> list[Played]:
    """The same, each with its lead over the best single model by what that one is recorded to have answered to the very
    questions that the policy played. None where they share none, or replies are graded by parts."""
    of, places = matrix(asked), viewed(asked).table.task_index
    best = next((one for one in measured(asked) if one.key == "best_single"), None)
    if best is None or of.by_parts:
        return [*ran]
    found = []
    for one in ran:
        right = np.full(len(of.share), np.nan)
        shared = {places[task]: share for task, share in one.solved.items() if task in places}
        right[[*shared]] = [*shared.values()]
        lead = compared(
            of.share[:, of.models.index(best.says)], right, of.by_parts, f"{one.run} {one.policy}"
        )
        found.append(replace(one, lead=lead if lead.n else None))
    compare = [one.lead.p for one in found if one.lead]
    held = iter(holm(compare))
    return [replace(one, holds=next(held)) if one.lead else one for one in found]


def _policies(asked: Asked, ran: Sequence[Played]) -> Table:
    return Table.of(
        sorted(_beside_best_single(asked, ran), key=lambda one: (one.of, -(one.cost.accuracy.value or 0.0))),
        Column("name", "Policy", get=lambda one: asked.say(one.policy)),
        Column("policy", "Id", "id", lambda one: one.policy),
        Column("run", "Run", get=lambda one: one.run),
        Column("on", "On", get=lambda one: one.of),
        Column("accuracy", "Accuracy", "estimate", lambda one: one.cost.accuracy),
        Column(
            "lead",
            "Lead",
            "difference",
            lambda one: _paired(one.lead),
            "Over the best single model, in points, on the very questions that were played",
        ),
        Column(
            "holds",
            "Luck?",
            get=lambda one: luck(one.holds),
            help="When all policies of this table are allowed for (Holm)",
        ),
        Column(
            "calls", "Calls", "number", lambda one: one.calls / one.cost.n, "Paid replies per question", 2
        ),
        Column(
            "tokens", "Tokens", "number", lambda one: one.cost.tokens / one.cost.n or None, "Per question"
        ),
        Column("cost_usd", "Cost", "usd", _cost_of, "US dollars per question"),
        Column("open", "Episodes", "link", _episodes),
        title="Policies played",
        key="policies",
    )


def _cost_of(one: Played) -> float | None:
    return None if one.cost.cost_usd is None else one.cost.cost_usd / one.cost.n


def _episodes(one: Played) -> Address:
    return Address("episodes", {"run": one.run, "policy": one.policy})


def _command(asked: Asked) -> str:
    of = viewed(asked)
    tasks = f"{OUTCOMES_PREFIX}{of.table.card.name}" + f"@{of.fold}" * bool(of.fold)
    pool = f"{OUTCOMES_PREFIX}{of.table.card.name}"
    return f"trinity run --pool {pool} --tasks {tasks} --split test --policy 'single:*' --policy random"


# For programs


def summary(asked: Asked) -> dict[str, Any]:
    """The figures of a table by fixed names: each model's accuracy and coverage on the counted tasks; rules on the test
    split, chosen on the others (`measured_on` says where), and chosen and measured on all tasks (`on_all_tasks`)."""
    of, view = matrix(asked), viewed(asked)
    tasks = of.of(view.on)
    n = max(int(tasks.sum()), 1)
    models, found = [], {one.key: one for one in measured(asked)}
    for model, name in enumerate(of.models):
        rate = of.accuracy(tasks, model)
        models.append({"name": name, "accuracy": rate.value, "ci95": rate.ci95, "replies": rate.n})
    flattered = in_sample(asked)
    single = found.get("best_single")
    return {
        "table": view.table.card.known_as,
        "models": models,
        **{name: found[key].accuracy if key in found else None for name, key in _SUMMED.items()},
        "best_single_model": single and single.says,
        "coverage": {
            name: float((of.rows[tasks, model] > 0).sum() / n) for model, name in enumerate(of.models)
        },
        "measured_on": {
            "split": "test",
            "fold": view.fold,
            "folds": FOLDS,
            "questions": max((one.n for one in found.values()), default=0),
            "chosen_on": ["evolve", "validation"],
        },
        "on_all_tasks": {
            name: flattered[key].accuracy if key in flattered else None for name, key in _SUMMED.items()
        },
    }
