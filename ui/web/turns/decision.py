"""The decision of one turn: why this model in this role, in words, as bars, as a grid and in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.analysis.overruled import Pair
from core.episode import ROLE_ORDER, Decision, Role
from ui.presentation.glossary import define, explain
from ui.presentation.odds import alternatives, choice_words, options, undecided
from ui.presentation.theme import ROLE_STYLES, label, one_line, percent
from ui.presentation.words import pair_words
from ui.web.components.decision_chart import decision_chart
from ui.web.kit.text import markdown_table


def choice_markdown(decision: Decision, models: Sequence[str], proposed: Pair | None = None) -> str:
    """How the choice came about, as markdown. `proposed` as in `choice_words`."""
    hand = ":blue[:material/front_hand:] " if decision.origin == "override" else ""
    return hand + choice_words(decision, models, lambda text: f"**{label(text)}**", proposed=proposed)


def decision_panel(
    decision: Decision | None,
    models: Sequence[str],
    *,
    key: str,
    by: str | None = None,
    planned: str = "",
    proposed: Pair | None = None,
) -> None:
    """Why this model in this role: both softmaxes, the joint grid, the runners-up and the numbers. `by` is the policy
    that decided, shown where several decided the episode; `planned`: why the model is this one, where the turn is a
    step of a workflow; `proposed`: what a person overruled, where it is known."""
    if decision is None:
        st.caption("No decision is stored for this turn.")
        return
    if planned:
        pair = label(pair_words(decision.role, decision.model), 60)
        st.markdown(f"**{pair}**: {planned}")
        st.caption(
            "A step has no probabilities of its own: nothing was chosen from what the steps before it said."
        )
        return
    if by is not None:
        st.markdown(f":blue-badge[:material/swap_horiz: decided by {label(by, 60)}]")
    st.markdown(choice_markdown(decision, models, proposed), help=explain("Softmax", "Argmax and sampling"))
    if not decision.model_probs or not decision.role_probs:
        st.caption(
            "Fixed models and cycles of roles are chosen by rule. Episodes of a checkpoint show softmaxes and logits."
        )
        return
    chosen = one_line(pair_words(decision.role, decision.model), 90)
    decision_chart(
        *options(decision, models, proposed=proposed),
        key=f"{key}_chart",
        what=f"Probability of each model and of each role. {chosen} was chosen.",
    )
    dashed = " dashed ring: proposed," if proposed is not None else ""
    st.caption(
        f"Grid: joint probability of model and role in percent; full ring: chosen,{dashed} dotted ring: argmax.",
        help=define("Joint grid"),
    )
    if decision.argmax_model:
        _runners_up(decision, models)
    if decision.model_logits:
        # Closed, it costs a step nothing.
        with st.expander("Logits", key=f"{key}_logits", on_change="rerun") as numbers:
            if numbers.open:
                st.caption(define("Logit"))
                _numbers(decision, models)


def undecided_panel(models: Sequence[str], *, key: str, heading: bool = True) -> None:
    """The place of a decision, before there is one: as large as the decision, so that nothing moves then."""
    if heading:
        st.markdown("**Decision**")
        st.caption(
            "Which model will be asked first, and in which role? It shows here once the coordinator has decided."
        )
    nothing = Decision(
        "", ROLE_ORDER[0], model_probs=(0.0,) * len(models), role_probs=(0.0,) * len(ROLE_ORDER)
    )
    decision_chart(
        *(undecided(side) for side in options(nothing, models)),
        key=f"{key}_chart",
        what="Every model and every role; nothing is decided yet.",
    )


def _runners_up(decision: Decision, models: Sequence[str]) -> None:
    rows = [
        (pair_markdown(other.role, other.model), percent(other.p), f"{other.margin:+.2f}")
        for other in alternatives(decision, models)
    ]
    if rows:
        markdown_table(("Instead of it", "p", "choice ahead by"), rows, "lrr")
        st.caption(
            "Ahead by: difference of log-probabilities; below zero the pair was likelier than what was chosen."
        )


def pair_markdown(role: Role, model: str) -> str:
    """A role on a model with the role's shape, as markdown."""
    return f"{ROLE_STYLES[role].shape} {label(pair_words(role, model), 60)}"


def _numbers(decision: Decision, models: Sequence[str]) -> None:
    names = [*(label(name, 40) for name in models), *(ROLE_STYLES[role].word for role in ROLE_ORDER)]
    logits = [*decision.model_logits, *decision.role_logits]
    probs = [*decision.model_probs, *decision.role_probs]
    rows = [(name, f"{logit:+.4f}", f"{p:.4f}") for name, logit, p in zip(names, logits, probs, strict=False)]
    markdown_table(("", "logit", "p"), rows, "lrr")
    if decision.hidden_state:
        st.caption(
            f"Read from a hidden state of {len(decision.hidden_state) // 2:,} numbers, kept as float16."
        )
