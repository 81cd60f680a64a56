"""What stands beside a turn: the decision and the panels that look at it again, one at a time, named in the address."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.deciders import changes
from core.errors import TrinityError
from ui import state
from ui.decision_panels import decision_panel
from ui.kept_heads import born, checkpoint_of
from ui.lens_panels import Seen, badge, head_lens
from ui.recording import Recording
from ui.theme import label
from ui.what_if_panels import near_by, other_checkpoint, without_a_model
from ui.widgets import who

Panel = Callable[[Seen], None]
#: What can stand beside a turn, as the address says it -> its words and what draws it, in the order of their keys.
PANELS: dict[str, tuple[str, Panel | None]] = {
    "decision": ("Decision", None),
    "head": ("Head lens", head_lens),
    "other": ("Other checkpoint", other_checkpoint),
    "without": ("Leave out", without_a_model),
    "near": ("Neighbours", near_by),
}


def beside_turn(recording: Recording, index: int) -> None:
    """The panel that the address names, its tabs above and below it whether the turn can be recomputed."""
    shown = _tabs()
    decision = recording.decision(index)
    panel = PANELS[shown][1]
    if panel is None or decision is None:
        decision_panel(decision, recording.models, key="decision", by=one_of_several(recording, index))
    if decision is None:
        return
    if not decision.model_logits or not decision.role_logits:
        if panel is not None:
            st.caption("This policy has no head and no logits: only a checkpoint's turns can be looked into.")
        return
    try:
        seen = Seen(recording, index, decision, checkpoint_of(recording.store, recording.decided_by(index)))
        if panel is not None:
            panel(seen)
        badge(seen)
    except TrinityError as error:
        st.error(label(str(error), 400), icon=":material/error:")


def one_of_several(recording: Recording, index: int) -> str | None:
    """The policy that decided a turn, in words, of an episode in which several did."""
    if not changes(recording.episode.meta):
        return None
    name = recording.decided_by(index)
    return who(name, born(recording.store).get(name))


def _tabs() -> str:
    """One button per panel; its key is its place."""
    asked = state.param("panel") or "decision"
    shown = asked if asked in PANELS else "decision"
    with st.container(horizontal=True, gap="xsmall", key="tools_panels"):
        for place, (name, (words, _)) in enumerate(PANELS.items(), 1):
            st.button(
                words,
                key=f"panel_{name}",
                shortcut=str(place),
                type="secondary" if name == shown else "tertiary",
                on_click=_show,
                args=(name,),
            )
    return shown


def _show(name: str) -> None:
    state.set_params(panel=None if name == "decision" else name)
