"""The form of the Live page: who decides, under which settings, and how often it is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from core.episode import Protocol, Task
from core.errors import ConfigError
from core.fields import settings_of
from core.pool.spec import ModelSpec
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import PROTOCOL_WORDS
from ui.runs.plans import LivePlan
from ui.runs.spending import paid_models
from ui.web.kit import state
from ui.web.kit.fields import draw
from ui.web.pickers.checkpoints import checkpoint_of, policy_words, startable, writes_workflows
from ui.web.pickers.task_file import choose_rules

#: Ways to play -> their words, and what they do.
WAYS = {
    "watch": ("Watch it", "One episode, every decision shown for a second before its model answers."),
    "step": (
        "Step by step",
        "Before every turn it waits and shows what it proposes, with the probabilities: Enter accepts, or you decide "
        "otherwise.",
    ),
    "many": ("Several times", "The same problem again and again with other seeds: how much of it is luck?"),
}
SEVERAL = 5
_SETTINGS = settings_of(LivePlan)
_WATCH_WORKFLOW = "One workflow, every step shown as it is asked and answered."
_NO_STEPS = (
    " It cannot be played step by step: a workflow is planned as a whole before its first step, so no turn is left to "
    "decide."
)


def choose_policy(store: Store, specs: Sequence[ModelSpec]) -> str:
    """Who decides: a checkpoint that fits the pool, a policy that needs none, or a planner of whole workflows."""
    policies = startable(store, specs)
    if named := state.param("play"):
        if named in policies:
            st.session_state["policy_choice"] = named
        else:
            st.info(f"{label(named, 40)} does not fit this pool: choose another.", icon=":material/info:")
    return st.selectbox(
        "Who decides",
        policies,
        key="policy_choice",
        format_func=policy_words(store, policies).__getitem__,
        help=define("Policy"),
        on_change=state.set_params,
        kwargs={"play": None},
        persist_state="session",
    )


def choose_way(*, workflows: bool) -> None:
    """One of three ways to play, each a handful of settings that can be changed below; of `workflows` one of two."""
    many, step = int(st.session_state.get("repeats", 1)) > 1, steps(workflows=workflows)
    st.session_state["way"] = "step" if step else "many" if many else "watch"
    st.segmented_control(
        "How it is played",
        [way for way in WAYS if way != "step" or not workflows],
        key="way",
        required=True,
        format_func=lambda value: WAYS[value][0],
        on_change=_set_way,
    )
    way = str(st.session_state["way"])
    st.caption(
        f"{_WATCH_WORKFLOW if workflows and way == 'watch' else WAYS[way][1]}{_NO_STEPS if workflows else ''}"
    )


def steps(*, workflows: bool) -> bool:
    """Whether the run is to wait before every turn."""
    return bool(st.session_state.get("step_mode")) and not workflows


def _set_way() -> None:
    way = st.session_state["way"]
    st.session_state["step_mode"] = way == "step"
    st.session_state["repeats"] = SEVERAL if way == "many" else 1
    st.session_state["pace"] = 0.0 if way == "many" else 1.0


def choose_settings(
    store: Store, models: tuple[str, ...], pool: str, encoder: str | None, policy: str
) -> LivePlan:
    """Everything else, as a plan that still lacks its task."""
    workflows = writes_workflows(store, policy)
    for name, value in (("repeats", 1), ("pace", 1.0)):
        st.session_state.setdefault(name, value)
    plan = _playing(_choices(LivePlan(Task("", "", ""), policy, models, pool, encoder)))
    left_out = st.pills(
        "Models left out",
        models,
        selection_mode="multi",
        key="left_out",
        format_func=lambda name: label(name, 30),
        help=define("Mask"),
        persist_state="session",
    )
    if len(left_out) == len(models):
        raise ConfigError("Every model is left out: leave at least one in.")
    protocol = None if workflows else _rules(store, policy)
    return replace(plan, left_out=tuple(left_out), step=steps(workflows=workflows), protocol=protocol)


def _choices(plan: LivePlan) -> LivePlan:
    """How the coordinator's choices are taken, for how many turns."""
    left, middle, right = st.columns(3)
    how = left.segmented_control(
        "Choices are",
        ["sampled", "argmax"],
        default="sampled",
        required=True,
        key="how",
        help=define("Argmax and sampling"),
        persist_state="session",
    )
    turns = draw(middle, _SETTINGS["turns"], "turn_budget", persist_state="session")
    seed = draw(right, _SETTINGS["seed"], "seed", persist_state="session")
    return replace(plan, argmax=how == "argmax", turns=turns, seed=seed)


def _rules(store: Store, policy: str) -> Protocol:
    """The protocol; a checkpoint's own, where one decides."""
    if checkpoint := checkpoint_of(store, policy):
        words = f"Rules: {PROTOCOL_WORDS[checkpoint.protocol]}, as this checkpoint was evolved."
        st.caption(words, help=define("Protocol"))
        return checkpoint.protocol
    return choose_rules("protocol", persist_state="session")


def _playing(plan: LivePlan) -> LivePlan:
    """How often the problem is played, at which temperature and pace."""
    left, middle, right = st.columns(3)
    repeats = draw(left, _SETTINGS["repeats"], "repeats", value="min", persist_state="session")
    temperature = draw(middle, _SETTINGS["temperature"], "temperature", step=0.1, persist_state="session")
    pace = right.select_slider(
        "Wait before each answer",
        [0.0, 1.0, 2.0, 5.0],
        key="pace",
        format_func=lambda value: f"{value:g} s" if value else "no wait",
        help="How long each decision stands on the page before its model is asked.",
        persist_state="session",
    )
    return replace(plan, repeats=repeats, temperature=temperature, pace_s=pace)


def what_will_run(specs: Sequence[ModelSpec], plan: LivePlan) -> str:
    """The bound on what is played, in a sentence."""
    times = "One episode" if plan.repeats == 1 else f"{plan.repeats} episodes"
    free = "" if paid_models(specs) else " Nothing is paid: these models are free."
    return f"{times} of at most {plan.turns} turn{'s' if plan.turns > 1 else ''}.{free}"
