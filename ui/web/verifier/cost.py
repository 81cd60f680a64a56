"""Parts of the page Verifier & cost about what was spent, what fewer turns would do, and roles kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from core.episode import Role
from storage.analysis.budgets import AtBudget, accuracy_by_budget
from storage.analysis.routing import counted_episodes, pool_order
from storage.analysis.verdicts import (
    MOST_PLANS,
    PolicyCost,
    Proportion,
    RoleCompliance,
    ThinkerPlan,
    TurnGroup,
    role_compliance,
    spending_by,
    thinker_plans,
    with_lapse,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import NEUTRAL_COLOUR, label, model_colour, one_line, percent
from ui.presentation.words import cost_words, per_solved, role_word
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.figures import literal
from ui.web.kit.matrix import ROLES, MatrixCell, matrix
from ui.web.kit.widgets import ink, nothing_here, table
from ui.web.pickers.checkpoints import like_chance
from ui.web.pickers.scope import Scope, behind_table
from ui.web.verifier.figures import accuracy_by_budget_figure, covers_most, price_and_accuracy, spend_bars

_pool_order = cached(pool_order)


@cached
def _by_budget(store: Store, where: EpisodeFilter) -> list[AtBudget]:
    return accuracy_by_budget(store, *counted_episodes(store, where))


_MOST_ASTRAY = 50


def _count(title: str) -> ColumnConfig:
    return st.column_config.NumberColumn(title, format="localized")


#: Columns of several tables.
SOLVED = st.column_config.TextColumn("Solved", help="With 95 % interval")
EPISODES, TURNS = _count("Episodes"), _count("Turns")


def with_interval(share: Proportion) -> str:
    """A share with its 95 % interval, as tables say it: `34.0 % (26 to 43)`."""
    if not share.n:
        return "–"
    low, high = share.ci95
    return f"{percent(share.value)} ({100 * low:.0f} to {100 * high:.0f})"


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
    st.subheader("Is the dearer one better?", help=define("Frontier"))
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
        _where_it_goes(of, _pool_order(store, side.where), in_dollars)


def _cost_table(scope: Scope, costs: Sequence[Sequence[PolicyCost]]) -> None:
    """A row per policy and side, best first; among equals the one that took fewer tokens."""
    rows = [(side, one) for side, of in zip(scope.sides, costs, strict=True) for one in of]
    rows = sorted(rows, key=lambda row: (-(row[1].accuracy.value or 0.0), row[1].tokens / row[1].n))[:200]
    table(
        {
            "policy": (
                st.column_config.TextColumn("Policy", pinned=True, help=define("Alone")),
                [scope.say(one.policy) for _, one in rows],
            ),
            "solved": (SOLVED, [with_interval(one.accuracy) for _, one in rows]),
            "n": (EPISODES, [one.n for _, one in rows]),
            "dollars": ("Cost per solved", [per_solved(one.cost_usd, one.right) for _, one in rows]),
            "tokens": (
                st.column_config.NumberColumn("Tokens per solved", format="%.0f"),
                [one.per_solved(one.tokens) for _, one in rows],
            ),
            "seconds": (
                st.column_config.NumberColumn("Seconds per solved", format="%.2f"),
                [one.per_solved(one.latency_s) for _, one in rows],
            ),
            "turns": (
                st.column_config.NumberColumn("Turns", format="%.2f", help="Mean per episode"),
                [one.turns / one.n for _, one in rows],
            ),
            "false": (
                st.column_config.TextColumn("Wrong among accepted", help=define("Wrong among accepted")),
                [with_interval(one.false_accept) for _, one in rows],
            ),
            "open": (
                st.column_config.LinkColumn("Episodes", display_text="List"),
                [side.episodes(policy=one.policy) for side, one in rows],
            ),
        },
        key="costs",
        at_most=12,
        height=420,
    )


def _frontier(scope: Scope, found: Sequence[PolicyCost], in_dollars: bool) -> None:
    unit = "US dollars" if in_dollars else "tokens"
    event = plot(
        price_and_accuracy(
            found,
            (lambda one: None if one.cost_usd is None else one.cost_usd / one.n)
            if in_dollars
            else (lambda one: one.tokens / one.n),
            unit,
            scope.say,
        ),
        key="frontier",
        small=True,
        on_select="rerun",
        selection_mode="points",
        alt="; ".join(f"{scope.say(one.policy)} {percent(one.accuracy.value)}" for one in found[:12]),
    )
    if points := event["selection"]["points"]:
        data = points[0].get("customdata")
        if data:
            state.go("episodes", **scope.sides[0].listed(policy=str(data[0])))


def _where_it_goes(groups: Sequence[TurnGroup], models: Sequence[str], in_dollars: bool) -> None:
    by_role, by_model = (
        spending_by(groups, lambda one: one.role.value),
        spending_by(groups, lambda one: one.model),
    )
    known = in_dollars and all(one.cost_usd is not None for one in by_model.values())
    unit = "dollars" if known else "tokens"

    def amount(one: Any) -> float:
        return float(one.cost_usd if known else one.tokens)

    for column, words, found, names, colours in zip(
        st.columns(2, gap="large"),
        ("role", "model"),
        (by_role, by_model),
        ([role_word(Role(name)) for name in by_role], [literal(name, 24) for name in by_model]),
        ([NEUTRAL_COLOUR] * len(by_role), [model_colour(name, models) for name in by_model]),
        strict=True,
    ):
        with column:
            st.markdown(f"**By {words}**, share of {unit}")
            plot(
                spend_bars(found, amount, names, colours),
                key=f"spend_{words}_{id(groups)}",
                small=True,
                alt=f"Share of {unit} by {words}: " + ", ".join(found),
            )
            table(
                {
                    words: (words.capitalize(), [one_line(name, 40) for name in found]),
                    "turns": (TURNS, [one.n for one in found.values()]),
                    "tokens": (
                        st.column_config.NumberColumn("Tokens per turn", format="%.0f"),
                        [one.tokens / one.n for one in found.values()],
                    ),
                    "dollars": ("Cost", [cost_words(one.cost_usd) for one in found.values()]),
                    "seconds": (
                        st.column_config.NumberColumn("Seconds per turn", format="%.3f"),
                        [one.latency_s / one.n for one in found.values()],
                    ),
                },
                key=f"spend_rows_{words}_{id(groups)}",
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
        (
            f"{side.letter} · {side.name}" if side.letter else side.name,
            _by_budget(store, side.where),
        )
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
    rows = [(name, one) for name, curve in curves for one in curve]
    table(
        {
            "side": ("Policy", [one_line(name, 40) for name, _ in rows]),
            "budget": ("Turn budget", [one.budget for _, one in rows]),
            "solved": (SOLVED, [with_interval(Proportion(one.correct, one.n)) for _, one in rows]),
            "n": (
                st.column_config.NumberColumn(
                    "Episodes",
                    format="localized",
                    help="Episodes that tell: one that ran into its own smaller budget says nothing about a larger one",
                ),
                [one.n for _, one in rows],
            ),
            "turns": (
                st.column_config.NumberColumn("Turns per episode", format="%.2f"),
                [one.turns / one.n for _, one in rows],
            ),
            "tokens": (
                st.column_config.NumberColumn("Tokens per episode", format="%.0f"),
                [one.tokens / one.n for _, one in rows],
            ),
            "dollars": (
                "Cost per episode",
                [cost_words(None if one.cost_usd is None else one.cost_usd / one.n) for _, one in rows],
            ),
        },
        key="budget_rows",
        at_most=1000,
    )


# Roles kept


def roles_part(store: Store, scope: Scope, groups: Sequence[Sequence[TurnGroup]]) -> None:
    """Who kept to what its role asks for."""
    st.subheader("Do the models keep to their roles?")
    st.caption(
        "Share of turns whose reply had what its role asks for: a Thinker a readable plan, a Worker an answer, a "
        "Verifier one clear verdict. A reply that lacks it looks like bad routing and is not."
    )
    for side, of in zip(scope.sides, groups, strict=True):
        if scope.compared:
            st.markdown(f"**{side.title}**")
        kept = {(one.role, one.model): one for one in role_compliance(of)}
        models = [name for name in _pool_order(store, side.where) if any(key[1] == name for key in kept)]
        cells = [[_kept_cell(kept.get((role, name)), role, name) for name in models] for role in ROLES]
        plot(
            matrix(
                cells,
                [role_word(role) for role in ROLES],
                [literal(name, 14) for name in models],
                ink(),
                most=1.0,
            ),
            key=f"kept{side.letter}",
            small=True,
            alt="; ".join(
                f"{name} as {role} {with_interval(one.compliant)}" for (role, name), one in kept.items()
            ),
        )
        least = sorted(kept.values(), key=lambda one: one.compliant.value or 0.0)
        table(
            {
                "model": ("Model", [one_line(one.model, 40) for one in least]),
                "role": ("Role", [role_word(one.role) for one in least]),
                "kept": (
                    st.column_config.TextColumn("Kept to it", help="With 95 % interval"),
                    [with_interval(one.compliant) for one in least],
                ),
                "turns": (TURNS, [one.compliant.n for one in least]),
                "failed": (st.column_config.NumberColumn("No reply at all"), [one.failed for one in least]),
                "open": (
                    st.column_config.LinkColumn("Where it did not", display_text="List"),
                    [
                        side.episodes(with_lapse(one.model, one.role))
                        if one.compliant.k < one.compliant.n
                        else None
                        for one in least
                    ],
                ),
            },
            key=f"kept_rows{side.letter}",
            at_most=12,
            height=390,
            placeholder="–",
        )
    _refrained(store, scope)


def _refrained(store: Store, scope: Scope) -> None:
    """Whether Thinkers kept to planning, read from what they said when somebody asks."""
    st.subheader("Did Thinkers refrain from answering?")
    st.caption(
        "A Thinker is asked for a plan. It strays when its reply can be read as a Worker's answer or as a Verifier's "
        f"verdict. That is found by reading what was said: the newest {MOST_PLANS:,} replies at most."
    )
    if state.param("plans") is None:
        st.button(
            "Read what Thinkers said",
            key="read_plans",
            icon=":material/psychology:",
            on_click=state.set_params,
            kwargs={"plans": "read"},
        )
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
    shares = {name: Proportion(counts["plan"], counts.total()) for name, counts in gave.items()}
    models = sorted(gave, key=lambda name: (shares[name].value or 0.0, name))
    table(
        {
            "model": ("Model", [one_line(name, 40) for name in models]),
            "kept": (
                st.column_config.TextColumn("Kept to planning", help="With 95 % interval"),
                [with_interval(shares[name]) for name in models],
            ),
            "answer": (_count("Gave an answer"), [gave[name]["answer"] for name in models]),
            "verdict": (_count("Gave a verdict"), [gave[name]["verdict"] for name in models]),
            "read": (_count("Replies read"), [shares[name].n for name in models]),
        },
        key=f"{key}_rows",
        at_most=1000,
        alt="How often each model as a Thinker kept to planning",
    )
    astray = [one.turn for one in found if one.breach][:_MOST_ASTRAY]
    if astray:
        st.markdown("**Turns in which one strayed**, the newest first")
        behind_table(astray, scope, key)


def _kept_cell(one: RoleCompliance | None, role: Role, name: str) -> MatrixCell:
    words = f"{literal(name, 30)} as {role_word(role)}"
    if one is None:
        return MatrixCell(None, "", f"{words}: never")
    return MatrixCell(
        one.compliant.value,
        f"{100 * (one.compliant.value or 0.0):.0f}",
        f"{words}: {one.compliant.k:,} of {one.compliant.n:,} turns",
    )
