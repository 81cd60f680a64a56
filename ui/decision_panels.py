"""The decision of one turn: why this model in this role, in words, as bars, as a grid and in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from core.episode import ROLE_ORDER, Decision, Role
from ui.components.decision_chart import decision_chart
from ui.figures import share
from ui.glossary import define, explain
from ui.odds import options, undecided
from ui.theme import ROLE_LOOKS, label, one_line


@dataclass(frozen=True, slots=True)
class Alternative:
    """A pair that was not chosen: its probability and by how many nats the chosen pair was ahead of it."""

    model: str
    role: Role
    p: float
    margin: float


def alternatives(decision: Decision, models: Sequence[str], top: int = 3) -> list[Alternative]:
    """The likeliest pairs that were not chosen, best first; a negative margin means the choice was
    behind it."""
    if not decision.model_probs or not decision.role_probs:
        return []
    pairs = {
        (model, role): p_model * p_role
        for model, p_model in zip(models, decision.model_probs, strict=False)
        for role, p_role in zip(ROLE_ORDER, decision.role_probs, strict=False)
    }
    mine = pairs.pop((decision.model, decision.role), 0.0)
    ranked = sorted(pairs.items(), key=lambda pair: -pair[1])[:top]
    return [
        Alternative(model, role, p, math.log(mine / p) if mine > 0 else -math.inf)
        for (model, role), p in ranked
        if p > 0
    ]


def choice_in_words(decision: Decision, models: Sequence[str]) -> str:
    """How the choice came about, as markdown: sampled or argmax, likely or lucky, or taken by hand."""
    chosen = pair_words(decision.model, decision.role)
    p = _joint_p(decision, models, decision.model, decision.role)
    if decision.origin == "override":
        aside = _would_have(decision, models)
        return f":blue[:material/front_hand:] **{chosen}** was chosen **by hand**{aside}."
    if decision.origin == "suggested_role":
        return f"The Thinker of the turn before asked for this role: **{chosen}**."
    if not decision.model_probs:
        return f"**{chosen}** was chosen **without a head**: this policy has no logits and no probabilities."
    if not decision.role_probs:
        drawn = share(max(decision.model_probs))
        return (
            f"**{chosen}**: the model **drawn at random**, every allowed one at {drawn}, the role by a cycle."
        )
    if not decision.argmax_model:
        return f"**Drawn at random**: **{chosen}**, like every allowed pair at {share(p)}."
    same = (decision.argmax_model, decision.argmax_role) == (decision.model, decision.role)
    if not decision.sampled:
        return f"**Argmax**: **{chosen}** is the likeliest pair at {share(p)}."
    if same:
        return f"**Sampled**, and it drew the likeliest pair: **{chosen}** at {share(p)}."
    return f"**Sampled**: it drew **{chosen}** at {share(p)}{_would_have(decision, models)}."


def _would_have(decision: Decision, models: Sequence[str]) -> str:
    if not decision.argmax_model or decision.argmax_role is None:
        return ""
    p = _joint_p(decision, models, decision.argmax_model, decision.argmax_role)
    return f"; argmax would have been **{pair_words(decision.argmax_model, decision.argmax_role)}** at {share(p)}"


def pair_words(model: str, role: Role) -> str:
    """`Worker on atlas`, foreign text escaped."""
    return f"{ROLE_LOOKS[role].word} on {label(model, 40)}"


def _joint_p(decision: Decision, models: Sequence[str], model: str, role: Role) -> float:
    if model not in models or not decision.model_probs or not decision.role_probs:
        return 0.0
    return decision.model_probs[list(models).index(model)] * decision.role_probs[ROLE_ORDER.index(role)]


def decision_panel(
    decision: Decision | None, models: Sequence[str], *, key: str, by: str | None = None
) -> None:
    """Why this model in this role: both softmaxes, the joint grid, the runners-up and the numbers. `by` is the policy
    that decided, told where the episode had several."""
    if decision is None:
        st.caption("No decision is stored for this turn.")
        return
    if by is not None:
        st.markdown(f":blue-badge[:material/swap_horiz: decided by {label(by, 60)}]")
    st.markdown(choice_in_words(decision, models), help=explain("Softmax", "Argmax and sampling"))
    if not decision.model_probs or not decision.role_probs:
        st.caption(
            "Fixed models and cycles of roles are chosen by rule. Episodes of a checkpoint show softmaxes and logits."
        )
        return
    slots = tuple(models)
    said = one_line(f"{ROLE_LOOKS[decision.role].word} on {decision.model} was chosen", 100)
    decision_chart(
        *options(decision, slots),
        key=f"{key}_chart",
        what=f"Probability of each model and of each role. {said}.",
    )
    st.caption(
        "Grid: joint probability of model and role in percent; full ring: chosen, dotted ring: argmax.",
        help=define("Joint grid"),
    )
    if decision.argmax_model:
        _runners_up(decision, slots)
    if decision.model_logits:
        # Closed, it costs a step nothing.
        with st.expander("Logits", key=f"{key}_logits", on_change="rerun") as numbers:
            if numbers.open:
                st.caption(define("Logit"))
                _numbers(decision, slots)


def undecided_panel(models: Sequence[str], *, key: str) -> None:
    """The place of the first decision, before there is one: it keeps its room, and charts are ready when it comes."""
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


def _runners_up(decision: Decision, models: tuple[str, ...]) -> None:
    rows = [
        f"| {ROLE_LOOKS[o.role].shape} {pair_words(o.model, o.role)} | {share(o.p)} | {o.margin:+.2f} |"
        for o in alternatives(decision, models)
    ]
    if rows:
        st.markdown("\n".join(["| Instead of it | p | choice ahead by |", "|:--|--:|--:|", *rows]))
        st.caption(
            "Ahead by: difference of log-probabilities in nats; below zero the draw went against the odds."
        )


def _numbers(decision: Decision, models: tuple[str, ...]) -> None:
    names = [*(label(name, 40) for name in models), *(ROLE_LOOKS[role].word for role in ROLE_ORDER)]
    logits = [*decision.model_logits, *decision.role_logits]
    probs = [*decision.model_probs, *decision.role_probs]
    rows = [
        f"| {name} | {logit:+.4f} | {p:.4f} |" for name, logit, p in zip(names, logits, probs, strict=False)
    ]
    st.markdown("\n".join(["| | logit | p |", "|:--|--:|--:|", *rows]))
    if decision.hidden_state:
        st.caption(
            f"Read from a hidden state of {len(decision.hidden_state) // 2:,} numbers, kept as float16."
        )
