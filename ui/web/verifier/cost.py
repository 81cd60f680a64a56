"""Parts of the page Verifier & cost about what was spent, what fewer turns would do, and roles kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.analysis.metrics import ClusteredShare
from core.episode import Role
from storage.analysis.budgets import AtBudget, accuracy_by_budget
from storage.analysis.costs import PLANNER, PolicyCost, Spending, planning, spending_by, together
from storage.analysis.routing import counted_episodes, pool_order
from storage.analysis.verdicts import (
    MOST_PLANS,
    Rates,
    RoleCompliance,
    ThinkerPlan,
    TurnGroup,
    role_compliance,
    thinker_plans,
    with_lapse,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import NEUTRAL_COLOUR, label, model_colour, one_line, percent
from ui.presentation.words import cost_words, per_solved, role_word, setting_words, share_words
from ui.web.kit import state
from ui.web.kit.buttons import button
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.clicks import picked
from ui.web.kit.figures import horizontal_bars, literal
from ui.web.kit.matrix import ROLES, MatrixCell, matrix
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.checkpoints import like_chance
from ui.web.pickers.scope import Scope, ScopeSide, behind_table
from ui.web.verifier.figures import accuracy_by_budget_figure, covers_most, price_and_accuracy

_pool_order = cached(pool_order)
_planning = cached(planning)


@cached
def _by_budget(store: Store, where: EpisodeFilter) -> list[AtBudget]:
    return accuracy_by_budget(store, *counted_episodes(store, where))


_MOST_ASTRAY = 50
_SOLVED = text("Solved", help="With 95 % interval")


def with_interval(share: ClusteredShare) -> str:
    """A share with its 95 % interval, as tables say it: `34.0 % (26 to 43)`."""
    if share.value is None:
        return "–"
    return share_words(share.value, share.ci95)


def cost_part(
    store: Store, scope: Scope, groups: Sequence[Sequence[TurnGroup]], costs: Sequence[Sequence[PolicyCost]]
) -> None:
    """What a solved problem cost, by policy, role and model."""
    found = [one for of in costs for one in of]
    in_dollars = any(one.cost_usd for one in found)
    unknown = [one for one in found if one.cost_usd is None]
    st.subheader("What does a solved problem cost?")
    if in_dollars and unknown:
        st.caption(
            f"{len(unknown)} of these policies had replies without a known price: they have no price here."
        )
    _cost_table(scope, costs)
    if same := like_chance(store, [one.policy for one in found], scope.say):
        st.caption(label(same, 600))
    st.subheader("Do policies that cost more solve more?", help=define("Frontier"))
    st.caption(
        "Each mark is a policy. The dotted line joins those that no other beats in both price and share solved. "
        "Click a mark for its episodes."
        + (" The axis of prices need not begin at zero." if len(found) > 1 else "")
    )
    _frontier(scope, found, in_dollars)
    st.subheader("Where does it go?")
    for side, of in zip(scope.sides, groups, strict=True):
        if scope.compared:
            st.markdown(f"**{side.title}**")
        plans = list(_planning(store, side.where).values())
        _where_it_goes(side.letter, of, plans, _pool_order(store, side.where), in_dollars)


def _cost_table(scope: Scope, costs: Sequence[Sequence[PolicyCost]]) -> None:
    """A row per policy and side, best first; among equals the one that took fewer tokens."""
    rows = [(side, one) for side, of in zip(scope.sides, costs, strict=True) for one in of]
    found = [one for _, one in rows]
    rows.sort(key=lambda row: (-(row[1].accuracy.value or 0.0), row[1].tokens / row[1].n))
    row_table(
        {
            "policy": text("Policy", pinned=True, help=define("Alone")),
            "solved": _SOLVED,
            "n": number("Episodes", "localized"),
            "dollars": "Cost per solved",
            "tokens": number("Tokens per solved", "%.0f"),
            "seconds": number("Seconds per solved", "%.2f"),
            "turns": number("Turns", "%.2f", help="Mean per episode"),
            "false": text("Wrong among accepted", help=define("Wrong among accepted")),
            "open": link("Episodes", "List"),
        },
        [
            (
                named(one, scope, found),
                with_interval(one.accuracy),
                one.n,
                per_solved(one.cost_usd, one.right),
                one.per_solved(one.tokens),
                one.per_solved(one.latency_s),
                one.turns / one.n,
                with_interval(one.false_accept),
                side.episodes(one.expression, policy=one.policy),
            )
            for side, one in rows[:200]
        ],
        key="costs",
        at_most=12,
        height=420,
    )


def named(one: PolicyCost, scope: Scope, found: Sequence[PolicyCost]) -> str:
    """A policy's name, with its setting where it was played under several."""
    name = scope.say(one.policy)
    if one.setting is None:
        return name
    others = [other.setting for other in found if other.policy == one.policy and other.setting]
    return f"{name}, {setting_words(one.setting, others)}"


def _frontier(scope: Scope, found: Sequence[PolicyCost], in_dollars: bool) -> None:
    names = {one.token: named(one, scope, found) for one in found}
    clicked = picked(
        price_and_accuracy(found, names.__getitem__, in_dollars=in_dollars),
        key="frontier",
        alt="; ".join(f"{names[one.token]} {percent(one.accuracy.value)}" for one in found[:12]),
    )
    chosen = next((one for one in found if clicked and one.token == str(clicked[0])), None)
    if chosen is not None:
        state.go("episodes", **scope.sides[0].listed(chosen.expression, policy=chosen.policy))


def _where_it_goes(
    letter: str,
    groups: Sequence[TurnGroup],
    plans: Sequence[Spending],
    models: Sequence[str],
    in_dollars: bool,
) -> None:
    """What a side, known by its letter, spent by role and by model, and on the `plans` of whole workflows: together
    what its episodes consumed."""
    by_role = spending_by(groups, lambda one: role_word(one.role))
    by_model = spending_by(groups, lambda one: one.model)
    known = None not in [*(one.cost_usd for one in groups), *(one.cost_usd for one in plans)]
    unit = "dollars" if in_dollars and known else "tokens"
    planned = together(plans)
    if planned and planned.tokens:  # a fixed workflow takes none
        by_role, by_model = by_role | {PLANNER: planned}, by_model | {PLANNER: planned}
    grey = [NEUTRAL_COLOUR] * len(by_role)
    colours = [model_colour(name, models) for name in by_model]
    left, right = st.columns(2, gap="large")
    with left:
        _shares("role", letter, unit, by_role, [literal(name, 24) for name in by_role], grey)
    with right:
        _shares("model", letter, unit, by_model, [literal(name, 24) for name in by_model], colours)


def _shares(
    words: str,
    letter: str,
    unit: str,
    found: Mapping[str, Spending],
    names: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Each role's or model's share of what was spent, and what a reply of it takes."""
    amounts = [one.cost_usd or 0.0 if unit == "dollars" else one.tokens for one in found.values()]
    shares = [amount / (sum(amounts) or 1.0) for amount in amounts]
    st.markdown(f"**By {words}**, share of {unit}")
    plot(
        horizontal_bars(shares, names, colours, [percent(share) for share in shares], f"share of {unit}"),
        key=f"spend_{words}{letter}",
        small=True,
        alt=f"Share of {unit} by {words}: " + ", ".join(found),
    )
    row_table(
        {
            words: words.capitalize(),
            "replies": number(
                "Replies",
                "localized",
                help="Turns in which a model was asked; of a planner: the workflows that it wrote",
            ),
            "tokens": number("Tokens per reply", "%.0f"),
            "dollars": "Cost",
            "seconds": number("Seconds per reply", "%.3f"),
        },
        [
            (
                one_line(name, 40),
                one.n,
                one.tokens_per_reply,
                cost_words(one.cost_usd),
                one.seconds_per_reply,
            )
            for name, one in found.items()
        ],
        key=f"spend_rows_{words}{letter}",
        at_most=1000,
    )


# Turn budget


def budget_part(store: Store, scope: Scope) -> None:
    """Accuracy and spend by turn budget."""
    st.subheader("What would a smaller turn budget have done?")
    st.caption(
        "Recorded episodes, cut after so many turns: what stood as the answer then counts. An episode that a Verifier "
        "had ended earlier counts as it ended. No model is asked."
    )
    curves = [
        (f"{side.letter} · {side.name}" if side.letter else side.name, _by_budget(store, side.where))
        for side in scope.sides
    ]
    if not any(curve for _, curve in curves):
        nothing_here("These episodes have no turns.")
        return
    plot(
        accuracy_by_budget_figure(curves),
        key="by_budget",
        small=True,
        alt="; ".join(
            f"{name}: " + ", ".join(f"{one.budget} turns {percent(one.accuracy)}" for one in curve)
            for name, curve in curves
        ),
    )
    if not all(covers_most(one, curve) for _, curve in curves for one in curve):
        st.caption(
            "Hollow marks: there not all episodes tell, because some had a smaller budget of their own. Such a point "
            "is about other episodes than the one before it: choose one policy or run to compare like with like."
        )
    _budget_table(curves)


def _budget_table(curves: Sequence[tuple[str, Sequence[AtBudget]]]) -> None:
    which = "Episodes that tell: one that ran into its own smaller budget says nothing about a larger one"
    row_table(
        {
            "side": "Policy",
            "budget": "Turn budget",
            "solved": _SOLVED,
            "n": number("Episodes", "localized", help=which),
            "turns": number("Turns per episode", "%.2f"),
            "tokens": number("Tokens per episode", "%.0f"),
            "dollars": "Cost per episode",
        },
        [
            (
                one_line(name, 40),
                one.budget,
                with_interval(one.right),
                one.n,
                one.turns / one.n,
                one.tokens / one.n,
                cost_words(None if one.cost_usd is None else one.cost_usd / one.n),
            )
            for name, curve in curves
            for one in curve
        ],
        key="budget_rows",
        at_most=1000,
    )


# Roles kept


def roles_part(
    store: Store, scope: Scope, groups: Sequence[Sequence[TurnGroup]], rates: Sequence[Rates]
) -> None:
    """Who kept to what its role asks for."""
    st.subheader("Do the models keep to their roles?")
    st.caption(
        "Of the turns in which a model was asked, the share whose reply had what its role asks for: a Thinker a "
        "readable plan, a Worker an answer, a Verifier one clear verdict. A missing plan, answer or verdict is the "
        "model's fault, not the coordinator's."
    )
    for side, of, shares in zip(scope.sides, groups, rates, strict=True):
        if scope.compared:
            st.markdown(f"**{side.title}**")
        _compliance(side, role_compliance(of, shares), _pool_order(store, side.where))
    _refrained(store, scope)


def _compliance(side: ScopeSide, found: Sequence[RoleCompliance], order: Sequence[str]) -> None:
    by_cell = {(one.role, one.model): one for one in found}
    models = [name for name in order if any(one.model == name for one in found)]
    plot(
        matrix(
            [[_compliance_cell(by_cell.get((role, name)), role, name) for name in models] for role in ROLES],
            [role_word(role) for role in ROLES],
            [literal(name, 14) for name in models],
            ink(),
            axes=("role", "model"),
            most=1.0,
        ),
        key=f"kept{side.letter}",
        small=True,
        alt="; ".join(f"{one.model} as {one.role} {with_interval(one.compliant)}" for one in found),
    )
    row_table(
        {
            "model": "Model",
            "role": "Role",
            "kept": text("Kept to it", help="With 95 % interval"),
            "turns": number("Turns", "localized", help="Those in which a model was asked"),
            "failed": number("No reply at all"),
            "open": link("Where it did not", "List"),
        },
        [
            (
                one_line(one.model, 40),
                role_word(one.role),
                with_interval(one.compliant),
                one.compliant.n,
                one.failed,
                side.episodes(with_lapse(one.model, one.role)) if one.compliant.k < one.compliant.n else None,
            )
            for one in sorted(found, key=lambda one: one.compliant.value or 0.0)
        ],
        key=f"kept_rows{side.letter}",
        at_most=12,
        height=390,
        placeholder="–",
    )


def _refrained(store: Store, scope: Scope) -> None:
    """Whether Thinkers kept to planning, read from what they said when somebody asks."""
    st.subheader("Did Thinkers refrain from answering?")
    st.caption(
        "A Thinker is asked for a plan. It strays when its reply can be read as a Worker's answer or as a Verifier's "
        f"verdict. That is found by reading what was said: the newest {MOST_PLANS:,} replies at most."
    )
    if state.param("plans") is None:
        read = partial(state.set_params, plans="read")
        button("Read what Thinkers said", "read_plans", read, icon="psychology")
        return
    for side in scope.sides:
        if scope.compared:
            st.markdown(f"**{side.title}**")
        _plans(thinker_plans(store, side.where), scope, f"plans{side.letter}")


def _plans(found: Sequence[ThinkerPlan], scope: Scope, key: str) -> None:
    if not found:
        nothing_here("No Thinker has said anything here.", ":material/psychology:")
        return
    gave: dict[str, Counter[str]] = {}
    for one in found:
        gave.setdefault(one.model, Counter())[one.breach or "plan"] += 1
    shares = {
        name: ClusteredShare.counted((one.task, not one.breach) for one in found if one.model == name)
        for name in gave
    }
    row_table(
        {
            "model": "Model",
            "kept": text("Kept to planning", help="With 95 % interval"),
            "answer": number("Gave an answer", "localized"),
            "verdict": number("Gave a verdict", "localized"),
            "read": number("Replies read", "localized"),
        },
        [
            (
                one_line(name, 40),
                with_interval(shares[name]),
                gave[name]["answer"],
                gave[name]["verdict"],
                shares[name].n,
            )
            for name in sorted(gave, key=lambda name: (shares[name].value or 0.0, name))
        ],
        key=f"{key}_rows",
        at_most=1000,
        alt="How often each model as a Thinker kept to planning",
    )
    astray = [one.turn for one in found if one.breach][:_MOST_ASTRAY]
    if astray:
        st.markdown("**Turns in which a Thinker strayed**, the newest first")
        behind_table(astray, scope, key)


def _compliance_cell(one: RoleCompliance | None, role: Role, name: str) -> MatrixCell:
    words = f"{literal(name, 30)} as {role_word(role)}"
    if one is None:
        return MatrixCell(None, "", f"{words}: never")
    return MatrixCell(
        one.compliant.value,
        f"{100 * (one.compliant.value or 0.0):.0f}",
        f"{words}: {one.compliant.k:,} of {one.compliant.n:,} turns",
    )
