"""What a run may cost, as a form asks for it."""

from __future__ import annotations

import streamlit as st

from core.errors import BudgetError
from ui.presentation.theme import label
from ui.presentation.words import dollars
from ui.runs.spending import Price, check_ceiling


def spending(asked: Price, preset: float | None, *, key: str = "max_cost") -> tuple[float | None, str]:
    """For models that cost money: the most it can cost and the ceiling, `preset` unless changed; and what
    has to be done before anything may be spent, empty when nothing."""
    most = asked.most
    if not asked.is_paid:
        return None, ""
    cost = "an unknown cost" if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    st.warning(
        f"These models cost money: up to {most.calls:,} calls, {label(cost)}.", icon=":material/payments:"
    )
    try:
        check_ceiling(asked.specs, 0.0)
    except BudgetError as error:
        return None, str(error)
    ceiling = st.number_input(
        "Spend at most, USD",
        min_value=0.0,
        value=preset,
        step=0.1,
        key=key,
        help="No call is made that could go beyond it; the run then waits until you raise it.",
    )
    return ceiling, "" if ceiling is not None else "Say first what may be spent at most."
