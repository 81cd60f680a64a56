"""The turn that waits for a person: what the coordinator proposes, with its probabilities, and what may be decided
instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core.analysis.head_lens import Pair
from core.episode import ROLE_ORDER, Decision, Role
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.odds import Option, options, undecided
from ui.presentation.theme import label, percent
from ui.presentation.words import pair_words, policy_name
from ui.runs.plans import LivePlan, plan_of
from ui.web.components import key_focus
from ui.web.components.decision_chart import Picking, decision_chart
from ui.web.kit import state
from ui.web.kit.widgets import button, tool
from ui.web.pickers.checkpoints import generation_of, most_telling, playable, policy_words
from ui.web.turns.decision import choice_markdown, undecided_panel
from ui.web.turns.recording import Recording

_KEYS = (
    "Full ring: what **Enter** plays. Dashed: the proposal. Dotted: argmax. To decide otherwise click a cell, or press "
    "**T**, **W** or **V** for the role and **1** to **{}** for the model. A turn decided by hand is recorded as such."
)


def next_turn_panel(store: Store, run: RunSummary, recording: Recording, *, number: int) -> None:
    """The proposal for the next turn of the episode, and the ways on. `number` is that of the turn in the run as it is
    shown: who lets it go twice, or in two tabs, plays one turn."""
    episode, index = recording.episode, len(recording.outlines)
    plan = plan_of(run, LivePlan)
    st.markdown(f"**Turn {index + 1} of at most {episode.turn_budget} waits for you**")
    proposed = store.runs.proposal(episode.id, index)
    if proposed is None:
        st.caption("The coordinator is working out what it proposes …")
        undecided_panel(recording.models, key="next_undecided", heading=False)
        return
    decision = proposed.decision
    if decision is None:
        name = policy_name(proposed.policy, generation_of(store).get(proposed.policy))
        st.warning(
            f"{label(name, 60)} is in charge and cannot decide: {label(proposed.cannot, 300)} Choose another from here "
            "on.",
            icon=":material/person_off:",
        )
        _put_in_charge(store, plan, recording, index)
        return
    by_hand = store.runs.override(episode.id, index)
    accept = partial(store.runs.step, run.id, number)
    _words(store, recording, proposed.policy, decision, by_hand, index)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_next"):
        key_focus("tools_next")
        shown = by_hand or (decision.model, decision.role)
        words = f"Play {pair_words(shown[1], shown[0])}{' (by hand)' if by_hand else ''}"
        help = "Enter. Plays this turn, then waits again"
        button(label(words, 60), "next_turn", accept, icon="keyboard_return", type="primary", help=help)
        if by_hand:
            drop = partial(store.runs.drop_override, episode.id, index)
            tool("Back to the proposal", "give_back", drop, icon="undo")
    _grid(store, recording, plan, decision, by_hand, index, number, run.id)
    with st.expander(
        "Another coordinator from here on",
        icon=":material/swap_horiz:",
        on_change="rerun",
        key="other_coordinator",
    ) as other:
        if other.open:
            with st.container(key="swap_decider"):
                key_focus("swap_decider")  # Enter then plays the turn, and does not swap once more
                _put_in_charge(store, plan, recording, index)


def _words(
    store: Store,
    recording: Recording,
    policy: str,
    decision: Decision,
    by_hand: tuple[str, Role] | None,
    index: int,
) -> None:
    """Who proposes what, how likely that was, and what was decided instead."""
    before = recording.decided_by(index - 1) if index else policy
    name = policy_name(policy, generation_of(store).get(policy))
    who = f"From this turn on **{label(name, 60)}** decides. " if before != policy else ""
    st.markdown(f"{who}Proposal: {choice_markdown(decision, recording.models)}")
    if by_hand:
        model, role = by_hand
        odds = _odds(decision, recording.models, model, role)
        st.markdown(
            f":blue[:material/back_hand:] Yours instead: **{label(pair_words(role, model), 60)}**"
            + (f", which the coordinator gave {percent(odds)}." if odds is not None else ".")
        )


def _odds(decision: Decision, models: Sequence[str], model: str, role: Role) -> float | None:
    if not decision.model_probs or not decision.role_probs:
        return None
    return decision.model_probs[models.index(model)] * decision.role_probs[ROLE_ORDER.index(role)]


def _grid(
    store: Store,
    recording: Recording,
    plan: LivePlan,
    proposed: Decision,
    by_hand: tuple[str, Role] | None,
    index: int,
    number: int,
    run_id: str,
) -> None:
    """Both softmaxes and the joint grid, from which another pair can be picked."""
    models, own = recording.models, (proposed.model, proposed.role)

    def pick(place: int, line: int) -> None:
        pair = models[place], ROLE_ORDER[line]
        if pair == own:
            store.runs.drop_override(recording.episode.id, index)
        else:
            store.runs.set_override(recording.episode.id, index, *pair)

    model, role = by_hand or own
    decision_chart(
        *_options(replace(proposed, model=model, role=role), models, own),
        key="next_chart",
        what=f"Probability of each model and of each role for the next turn. {pair_words(role, model)} will be played.",
        picking=Picking(
            [one not in plan.left_out for one in models],
            state.guarded(pick, state.refused),
            state.click(store.runs.step, run_id, number),
        ),
    )
    st.caption(_KEYS.format(min(9, len(models))), help=define("Joint grid"))


def _options(decision: Decision, models: Sequence[str], own: Pair) -> tuple[list[Option], list[Option]]:
    """The options of a decision, of which the policy proposed its `own`; without odds where it has none, so that there
    is a grid to pick from."""
    if decision.model_probs and decision.role_probs:
        return options(decision, models, proposed=own, waiting=True)
    nothing = replace(decision, model_probs=(0.0,) * len(models), role_probs=(0.0,) * len(ROLE_ORDER))
    found = options(nothing, models, proposed=own, waiting=True)
    return undecided(found[0]), undecided(found[1])


def _put_in_charge(store: Store, plan: LivePlan, recording: Recording, index: int) -> None:
    """Another policy for all turns that follow."""
    checkpoints = store.checkpoints.list()
    generation_by = generation_of(store)
    now = recording.decided_by(index)
    st.markdown(
        f"Now **{label(policy_name(now, generation_by.get(now)), 60)}** decides.",
        help=define("Policy"),
    )
    same_rules = {
        one.id for one in checkpoints if one.config.get("protocol", "paper") == recording.episode.protocol
    }
    others = [
        name
        for name in playable(store, plan.models)
        if name != now and (name not in generation_by or name in same_rules)
    ]
    words = policy_words(store, others)
    st.selectbox(
        "Who decides from here on",
        others,
        others.index(telling) if (telling := most_telling(store, others, now)) else 0,
        key="next_policy",
        format_func=words.__getitem__,
        label_visibility="collapsed",
    )

    def swap() -> None:
        if (chosen := state.entered("next_policy", others)) is not None:
            store.runs.set_decider(recording.episode.id, index, chosen)

    button(
        "Switch to it",
        "put_in_charge",
        swap,
        icon="swap_horiz",
        disabled=not others,
        help="It reads the same transcript and decides every turn that follows; each turn keeps who decided it",
    )
