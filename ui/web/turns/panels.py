"""What stands beside a turn: the decision and the panels that look at it again, one at a time, named in the address."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from core.errors import TrinityError
from ui.presentation.theme import label
from ui.presentation.words import policy_name
from ui.web.kit import state
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import checkpoint_of, generation_of
from ui.web.turns.decision import DecisionContext, decision_panel, recomputation
from ui.web.turns.recording import Recording
from ui.web.turns.what_if import leave_out_panel, neighbours_panel, other_checkpoint_panel
from ui.web.turns.why import why_panel
from ui.web.turns.workflow import chosen_by

Panel = Callable[[DecisionContext], None]
#: What can stand beside a turn, as the address says it -> its words and what draws it, in the order of their keys.
PANELS: dict[str, tuple[str, Panel | None]] = {
    "decision": ("Decision", None),
    "why": ("Why", why_panel),
    "other": ("Other checkpoint", other_checkpoint_panel),
    "without": ("Leave out", leave_out_panel),
    "near": ("Neighbours", neighbours_panel),
}


def turn_panel(recording: Recording, index: int) -> None:
    """The panel that the address names, its tabs above and below it whether the turn can be recomputed."""
    # A planner wrote a workflow's steps before any was played: no choice is there to be looked into.
    shown = "decision" if recording.episode.plans else _tabs()
    decision = recording.decision(index)
    panel = PANELS[shown][1]
    if panel is None or decision is None:
        decision_panel(
            decision,
            recording.models,
            key="decision",
            by=decider_words(recording, index),
            planned=chosen_by(recording.episode, index) if recording.episode.plans else "",
            proposed=recording.overruled(index),
        )
    if decision is None:
        return
    if not decision.model_logits or not decision.role_logits:
        if panel is not None:
            st.caption("This policy has no head and no logits: only a checkpoint's turns can be looked into.")
        return
    try:
        context = DecisionContext(
            recording, index, decision, checkpoint_of(recording.store, recording.decided_by(index))
        )
        if panel is not None:
            panel(context)
        recomputation(context)
    except TrinityError as error:
        st.error(label(str(error), 400), icon=":material/error:")


def decider_words(recording: Recording, index: int) -> str | None:
    """The policy that decided a turn, in words, of an episode in which several did."""
    if not recording.episode.deciders:
        return None
    name = recording.decided_by(index)
    return policy_name(name, generation_of(recording.store).get(name))


def _tabs() -> str:
    """One button per panel; its key is its place."""
    named = state.param("panel") or ""
    shown = named if named in PANELS else "decision"
    with st.container(horizontal=True, gap="xsmall", key="tools_panels"):
        for place, (name, (words, _)) in enumerate(PANELS.items(), 1):
            show = partial(state.set_params, panel=None if name == "decision" else name)
            look = "secondary" if name == shown else "tertiary"
            tool(words, f"panel_{name}", show, shortcut=str(place), type=look)
    return shown
