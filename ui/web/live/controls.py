"""What a person asks of a live run under way: wait, go on, end it, decide one turn, put another policy in charge."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.episode import Role
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, label
from ui.presentation.words import policy_name
from ui.runs.plans import LivePlan, plan_of
from ui.web.kit import state
from ui.web.kit.buttons import button, tool
from ui.web.pickers.checkpoints import generation_of, most_telling, playable, policy_label
from ui.web.progress.panel import RunTexts, pause_button, stop_button
from ui.web.turns.recording import Recording

TEXTS = RunTexts(
    process="plays this run",
    pause="Wait after this turn",
    pause_help="Then you can decide a turn yourself, or put another coordinator in charge",
)


def between_turns(recording: Recording | None) -> bool:
    """Whether no turn of the episode is under way."""
    return recording is not None and all(outline.stage == "finished" for outline in recording.outlines)


def run_controls(
    store: Store, run: RunSummary, recording: Recording | None, *, newest: bool, next_turn: int
) -> None:
    """Cancel, wait, go on; and while it waits before a turn of the `newest` episode, who decides it. `next_turn` is the
    number of the turn it waits for as it is shown: who steps twice, or in two tabs, steps once."""
    control = store.runs.control(run.id)
    paused, stepped = control.paused, control.steps >= next_turn
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if paused:
            button(
                "Next turn",
                "next_turn",
                partial(store.runs.step, run.id, next_turn),
                icon="skip_next",
                type="primary",
                shortcut="T",
                disabled=not between_turns(recording) or stepped,
                help="Play one more turn, then wait again",
            )
        pause_button(store, run, TEXTS)
        stop_button(store, run, TEXTS)
        _follow_toggle()
    if paused and newest and recording is not None and between_turns(recording) and not stepped:
        _who_decides(store, run, recording, len(recording.outlines))


def _follow_toggle() -> None:
    st.session_state["follow"] = state.param("t") is None and state.param("ep") is None
    st.toggle(
        "Follow",
        key="follow",
        help="Keep the newest turn in view. Off: the page stays at the turn you are reading.",
        on_change=_set_follow,
    )


def _set_follow() -> None:
    if st.session_state["follow"]:
        follow()
    else:
        episode, cursor = st.session_state.get("live_cursor", (None, 0))
        state.set_params(ep=episode, t=cursor + 1)


def follow() -> None:
    """Show the newest turn from here on."""
    state.set_params(ep=None, t=None)


# Who decides the next turn


def _who_decides(store: Store, run: RunSummary, recording: Recording, index: int) -> None:
    """One decision made by a person, recorded as an override; or another policy for all that follow."""
    plan = plan_of(run, LivePlan)
    if index >= plan.turns:
        return
    left, right = st.columns(2, gap="medium")
    with left, st.container(border=True):
        _take_over(store, plan, recording.episode.id, index)
    with right, st.container(border=True):
        _put_in_charge(store, plan, recording, index)


def _take_over(store: Store, plan: LivePlan, episode_id: str, index: int) -> None:
    chosen = store.runs.override(episode_id, index)
    if chosen:
        st.markdown(
            f":material/back_hand: Turn {index + 1} is yours: **{ROLE_STYLES[chosen[1]].word}** on "
            f"**{label(chosen[0], 40)}**. *Next turn* plays it."
        )
    else:
        st.markdown(f":material/back_hand: **Decide turn {index + 1} yourself**")
    left, middle = st.columns(2)
    models = [model for model in plan.models if model not in plan.left_out]
    model = left.selectbox("Model", models, None, key="override_model", placeholder="Choose a model")
    role = middle.selectbox(
        "Role",
        list(ROLE_STYLES),
        None,
        key="override_role",
        format_func=lambda role: ROLE_STYLES[role].word,
        placeholder="Choose a role",
    )
    with st.container(horizontal=True, gap="small"):
        button(
            "Take over",
            "take_over",
            lambda: store.runs.set_override(
                episode_id, index, st.session_state["override_model"], Role(st.session_state["override_role"])
            ),
            icon="back_hand",
            disabled=model is None or role is None,
            help="This one turn; the coordinator decides the others",
        )
        if chosen:
            words = "Let the coordinator decide after all"
            drop = partial(store.runs.drop_override, episode_id, index)
            tool(words, "give_back", drop, icon="undo")


def _put_in_charge(store: Store, plan: LivePlan, recording: Recording, index: int) -> None:
    checkpoints = store.checkpoints.list()
    names = generation_of(store)
    now, before = recording.decided_by(index), recording.decided_by(index - 1) if index else ""
    fresh = bool(index) and now != before
    current = f"{label(policy_name(now, names.get(now)), 60)}"
    st.markdown(
        f":material/swap_horiz: From turn {index + 1} on **{current}** decides. *Next turn* plays it."
        if fresh
        else f":material/swap_horiz: **Another coordinator from turn {index + 1} on** · now {current}",
        help=define("Policy"),
    )
    same_rules = {
        one.id for one in checkpoints if one.config.get("protocol", "paper") == recording.episode.protocol
    }
    others = [
        name
        for name in playable(store, plan.models)
        if name != now and (name not in names or name in same_rules)
    ]
    st.selectbox(
        "Who decides from here on",
        others,
        others.index(telling) if (telling := most_telling(store, others, now)) else 0,
        key="next_policy",
        format_func=policy_label(store),
        label_visibility="collapsed",
    )
    button(
        "Put in charge",
        "put_in_charge",
        lambda: store.runs.set_decider(recording.episode.id, index, st.session_state["next_policy"]),
        icon="swap_horiz",
        disabled=not others,
        help="It reads the same transcript and decides every turn that follows; each turn keeps who decided it",
    )
