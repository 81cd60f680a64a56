"""Pool: how each model has been answering, what it costs in which role, and what would happen without it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from core.episode import Flag
from core.errors import TrinityError
from core.pocket import MODELS
from core.settings import POCKET_POOL
from storage.analysis.calls import ModelHealth, model_health
from storage.analysis.costs import PLANNER, Spending, planning, spending_by, together
from storage.analysis.reply_faults import LOUD, ReplyFaults, reply_faults
from storage.analysis.verdicts import TurnGroup, VerdictOutcome, turn_groups
from storage.store import Store
from ui.answers.asked import Asked, Side
from ui.answers.worth import without
from ui.presentation.theme import label, one_line, percent
from ui.presentation.words import ago, cost_words, role_word
from ui.runs import wiring
from ui.web.analysis.draw import draw, draw_measured
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.figures import ROLES, MatrixCell, literal, matrix, plot
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.scope import scope_bar

_health = cached(model_health)
_groups = cached(turn_groups)
_planning = cached(planning)
#: Verifier turns that judged an answer.
_JUDGED = (
    VerdictOutcome.ACCEPTED_RIGHT,
    VerdictOutcome.ACCEPTED_WRONG,
    VerdictOutcome.REVISED_RIGHT,
    VerdictOutcome.REVISED_WRONG,
)


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Pool")
    st.caption(
        "How each model has been answering, what it costs in which role, and what would happen without it."
    )
    scope = scope_bar(store, everything=True)
    found = [_health(store, side.where) for side in scope.sides]
    if not any(found):
        nothing_here("No model was asked in these episodes.", ":material/filter_alt_off:")
        with st.container(horizontal=True):
            state.page_link("pool", "All episodes", icon=":material/dns:")
            state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    for side, of in zip(scope.sides, found, strict=True):
        if scope.compared:
            st.markdown(f"**{label(side.title, 60)}**")
        _side(store, side, of)
    # A turn that was played again and again in forks would weigh as often on which model is missed.
    missed = without(_measured(scope))
    draw(missed, "pool")
    draw_measured([missed], "pool")
    _links(scope)


def _measured(scope: Asked) -> Asked:
    """The same sides without forks, live plays and requests, unless these alone are asked for."""
    return replace(
        scope,
        sides=tuple(
            replace(side, where=replace(side.where, forks="without")) if side.where.forks == "with" else side
            for side in scope.sides
        ),
    )


def _side(store: Store, side: Side, found: Sequence[ModelHealth]) -> None:
    # A reply that was reused, no model was asked for; turns that forks carry are not among them.
    groups = [one for one in _groups(store, side.where) if Flag.REUSED not in one.flags]
    plans = _planning(store, side.where, of_pool=True)
    lapses = {one.model: one for one in reply_faults(groups)}
    for one in found:
        _warn(one, lapses.get(one.model))
    st.subheader("How have they been answering?")
    now = time.time()
    spent = spending_by(groups, lambda group: group.model)
    spent |= {name: summed for name in plans if (summed := together([plans[name], *_found(spent, name)]))}
    row_table(
        {
            "model": text("Model", pinned=True),
            "calls": number("Calls", "localized"),
            "p50": number("Median, seconds", "%.2f"),
            "p95": number("p95, seconds", "%.2f", help="95 of 100 calls took no longer"),
            "errors": text("Errors", help="Calls that failed, or could not be made at all"),
            "no answer": text("No answer", help="As a Worker, of its replies"),
            "no plan": text("No plan", help="As a Thinker, of its replies"),
            "no verdict": text("No verdict", help="As a Verifier, of its replies"),
            "cut": text("Cut", help="Replies that hit their token limit"),
            "accepts": text("Accepts", help="As a Verifier: of the answers it judged"),
            "cost": "Cost",
            "last": "Last asked",
            "open": link("Episodes", "List"),
        },
        [
            (
                one_line(one.model, 60),
                one.calls,
                one.latency_p50_s,
                one.latency_p95_s,
                percent(one.error_share) if one.failed + one.lost else "none",
                *(
                    _share(lapses.get(one.model), kind)
                    for kind in ("no answer", "no plan", "no verdict", "cut")
                ),
                _accepts(groups, one.model),
                cost_words(spent[one.model].cost_usd) if one.model in spent else "",
                ago(one.last, now),
                state.href("episodes", **side.listed(f'any(turn.model == "{one.model}")').params),
            )
            for one in found
        ],
        key=f"pool_health{side.letter}",
        height=420,
    )
    if unasked := sum(one.n for one in groups if not one.asked):
        or_plan = ", or a plan that it wrote" if plans else ""
        st.caption(
            f"A call is a turn at which the model was asked{or_plan}. {unasked:,} more turn{'s' * (unasked > 1)} of "
            "Verifiers came before any answer: no model is asked then."
        )
    _where_it_goes(side, groups, plans, [one.model for one in found])


def _found(spent: Mapping[str, Spending], name: str) -> list[Spending]:
    return [spent[name]] if name in spent else []


def _warn(one: ModelHealth, lapses: ReplyFaults | None) -> None:
    """What is wrong with a model, in a sentence each."""
    if one.lost:
        st.warning(
            f"**{label(one.model, 30)}** could not be asked {one.lost:,} time{'s' if one.lost > 1 else ''}: those "
            "episodes are missing.",
            icon=":material/cloud_off:",
        )
    if one.model in _specialists():
        return  # what a pocket specialist cannot do is part of its world, no setting mends it
    loud = [name for name in (lapses.loud if lapses else ()) if name not in ("refused", "failed")]
    if loud and lapses:
        shares = ", ".join(f"{name} in {percent(lapses.shares[name].value)}" for name in loud)
        st.warning(
            f"**{label(one.model, 30)}** often gives replies that cannot be read ({shares}). Above {percent(LOUD)} "
            "look at its replies and its settings.",
            icon=":material/unknown_document:",
        )


def _specialists() -> set[str]:
    """The names that are pocket models here."""
    try:
        hosted = {
            spec.name for spec in wiring.pool_specs(wiring.settings().pool) if spec.provider != POCKET_POOL
        }
    except TrinityError:
        hosted = set()
    return {*MODELS} - hosted


def _share(lapses: ReplyFaults | None, kind: str) -> str:
    share = lapses.shares[kind] if lapses else None
    if share is None or not share.n:
        return "–"
    return percent(share.value) if share.k else "none"


def _accepts(groups: Sequence[TurnGroup], model: str) -> str:
    judged = [one for one in groups if one.model == model and one.judgement in _JUDGED]
    n = sum(one.n for one in judged)
    accepted = (VerdictOutcome.ACCEPTED_RIGHT, VerdictOutcome.ACCEPTED_WRONG)
    return percent(sum(one.n for one in judged if one.judgement in accepted) / n) if n else "–"


def _where_it_goes(
    side: Side, groups: Sequence[TurnGroup], plans: Mapping[str, Spending], models: Sequence[str]
) -> None:
    """Tokens, or dollars where any are known, by model and role, and of models that plan workflows for `plans`."""
    rows = [*(role_word(role) for role in ROLES), *[PLANNER] * bool(plans)]
    spent: dict[tuple[str, str], Spending | None] = {
        (model, role_word(role)): spending_by(
            [one for one in groups if (one.model, one.role) == (model, role)], lambda group: group.model
        ).get(model)
        for model in models
        for role in ROLES
    }
    spent |= {(model, PLANNER): plans.get(model) for model in models}
    in_dollars = any(one and one.cost_usd for one in spent.values())
    st.subheader("Where does it go?")
    unit = "dollars" if in_dollars else "tokens"
    st.caption(f"Share of {unit}, by role and model.")

    def amount(model: str, row: str) -> float:
        one = spent[model, row]
        return 0.0 if one is None else float(one.cost_usd or 0.0) if in_dollars else float(one.tokens)

    total = sum(amount(*place) for place in spent) or 1.0
    cells = [
        [
            MatrixCell(
                amount(model, row) / total,
                percent(amount(model, row) / total),
                f"{literal(model, 30)} as {row}: {percent(amount(model, row) / total)} of {unit}",
            )
            for model in models
        ]
        for row in rows
    ]
    plot(
        matrix(
            cells,
            rows,
            [literal(one, 14) for one in models],
            ink(),
            axes=("role", "model"),
        ),
        key=f"pool_spend{side.letter}",
        alt=f"Share of {unit} by model and role",
    )


def _links(scope: Asked) -> None:
    with st.container(horizontal=True):
        failed = scope.sides[0].listed(status="missing").params
        state.page_link("episodes", "Episodes that failed", icon=":material/table_rows:", **failed)
        state.page_link("routing", "Who is called in which role", icon=":material/route:")
        state.page_link("settings", "Tiers and keys of the endpoint", icon=":material/api:", part="endpoint")


if __name__ == "__main__":
    state.run(show)
