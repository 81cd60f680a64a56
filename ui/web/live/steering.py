"""How a person steers a live run under way: what stands there before its first turn; the turn that waits for them, with
what the coordinator proposes and what may be decided instead; wait, go on, end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core.analysis.head_lens import Pair
from core.episode import ROLE_ORDER, Decision, Role
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.odds import Option, options, undecided
from ui.presentation.theme import label, percent
from ui.presentation.words import pair_words, policy_name
from ui.runs import queue
from ui.runs.lease import alive
from ui.runs.plans import LivePlan, plan_of
from ui.web.components import key_focus
from ui.web.components.decision_chart import Picking, decision_chart
from ui.web.kit import state
from ui.web.kit.widgets import button, tool
from ui.web.pickers.checkpoints import generation_of, most_telling, playable, policy_words
from ui.web.progress import RunTexts, pause_button, stop_button, waiting_words
from ui.web.turns.decision import choice_markdown, undecided_panel
from ui.web.turns.recording import Recording

TEXTS = RunTexts(
    process="plays this run",
    pause="Wait after this turn",
    pause_help="You then see the choice proposed for the next turn and can accept it, decide it yourself or switch to "
    "another coordinator",
)
#: What happens between the button and the first decision, in order.
STEPS = (
    "The run is written down",
    "A background worker starts",
    "The worker loads the coordinator and the models",
    "The coordinator reads the question and decides the first turn",
)
#: The same where whole workflows are written.
_PLANNED = (
    *STEPS[:2],
    "The worker loads the planner and the models",
    "The planner reads the question and writes the workflow",
)
_FIRST = (
    "The first start takes longest, often ten seconds: libraries, coordinator and models are read from disk. "
    "Later runs begin at once: a worker is kept ready while the app is open."
)
_KEYS = (
    "Full ring: what **Enter** plays. Dashed: the proposal. Dotted: argmax. To decide otherwise click a cell, or press "
    "**T**, **W** or **V** for the role and **1** to **{}** for the model. A turn decided by hand is recorded as such."
)


def run_controls(store: Store, run: RunSummary, *, can_wait: bool) -> None:
    """Cancel, wait, go on. A run of workflows cannot wait: its steps are under way side by side."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_live"):
        key_focus("tools_live")
        if can_wait:
            pause_button(store, run, TEXTS)
        stop_button(store, run, TEXTS)
        st.session_state["follow"] = state.param("t") is None and state.param("ep") is None
        help = "Keep the newest turn in view. Off: the page stays at the turn you are reading."
        st.toggle("Follow", key="follow", help=help, on_change=_set_follow)


def _set_follow() -> None:
    if st.session_state["follow"]:
        follow()
    else:
        episode, cursor = st.session_state.get("live_cursor", (None, 0))
        state.set_params(ep=episode, t=cursor + 1)


def follow() -> None:
    """Show the newest turn from here on."""
    state.set_params(ep=None, t=None)


def before_the_first_turn(
    store: Store, run: RunSummary, models: tuple[str, ...], now: float, *, begun: bool, workflows: bool
) -> None:
    """The steps to the first decision, or to the workflow, and the place where it will stand. `begun`: the episode is
    under way."""
    at = 3 if begun else 2 if run.status is RunStatus.RUNNING else 1
    left, right = st.columns([3, 2], gap="medium")
    with left:
        with st.container(border=True, gap="small"):
            _steps(store, run, _PLANNED if workflows else STEPS, at, now)
        if at == 1:
            stop_button(store, run, TEXTS)
    with right, st.container(border=True):
        if workflows:
            st.markdown("**Then, step by step**")
            st.caption(
                "Here stands the workflow: who is asked what, and who may read whom. Steps whose inputs are there are "
                "asked at the same time, and their replies appear as they come."
            )
        elif begun:
            undecided_panel(models, key="live_undecided")
        else:
            st.markdown("**Then, turn by turn**")
            st.caption(
                "The coordinator chooses a model and a role, and here you see how sure it was. The model replies, its "
                "words appear as they come, until a Verifier accepts an answer or the turns are spent."
            )


def _steps(store: Store, run: RunSummary, steps: Sequence[str], at: int, now: float) -> None:
    for place, words in enumerate(steps):
        if place < at:
            st.markdown(f":green[:material/check:] :gray[{words}]")
        elif place > at:
            st.markdown(f":gray[:material/radio_button_unchecked: {words}]")
        else:
            # A queued run may wait for more than the start of its own worker.
            waits = at == 1 and (alive() or not queue.starts_workers())
            doing = waiting_words(store, run) if waits else f"{words} …"
            since = run.created if at == 1 or run.started is None else run.started
            st.markdown(f":material/hourglass_top: **{doing}** :gray[{max(0.0, now - since):.0f} s]")
    if at < 3:
        st.caption(_FIRST)


# The turn that waits


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
        f"Now **{label(policy_name(now, generation_by.get(now)), 60)}** decides.", help=define("Policy")
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
