"""The form that plays policies on the same tasks, which are then compared: who, on what, and what it may cost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from core.errors import ConfigError, TrinityError
from core.fields import settings_of, values_of
from core.pool.spec import ModelSpec, slots_of
from core.settings import POCKET_POOL, Settings, ray_address
from core.tasks.sets import FILE_SPLITS, POCKET_SETS
from storage.analysis.defaults import MOST_SIDES
from storage.store import Store
from ui.presentation.comparison import enumerated
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line
from ui.presentation.words import policy_name
from ui.runs import wiring
from ui.runs.batch import complete_plan, with_choosing
from ui.runs.expectation import expectation
from ui.runs.grading import name_task_file
from ui.runs.queue import begin
from ui.runs.settings import absolute_pool, absolute_tasks
from ui.runs.settings.batch import BatchPlan
from ui.runs.spending import price
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.fields import draw_all
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import (
    generation_of,
    most_telling,
    own_and_shipped,
    policy_words,
    startable,
    why_not_played,
)
from ui.web.pickers.encoder import OWN, choose_engine, choose_reader_for
from ui.web.pickers.line import listed, parted
from ui.web.pickers.task_file import choose_tasks
from ui.web.progress import begin_button, spending

_SETTINGS = settings_of(BatchPlan)
#: Splits that a set can be drawn from, the one that nothing learns on first; of pocket tasks alone also `unseen`.
_SPLITS = {
    "test": "test",
    "unseen": "unseen templates",
    "validation": "validation",
    "evolve": "evolve",
}


def play_form(store: Store) -> None:
    """The form; a click plays the run in the background and opens its comparison."""
    settings = wiring.settings()
    st.title("Play both on the same tasks")
    st.caption(
        "The same tasks under each policy, then the comparison of exactly these, task by task. It runs in the "
        "background: you can close this tab."
    )
    tool(
        "Back to the comparison",
        "leave_play",
        partial(state.set_params, panel=None, tasks=None, n=None),
        icon="arrow_back",
    )
    specs = pool_specs(settings.pool)
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            policies = _choose_policies(store, slots_of(specs), settings)
        with st.container(border=True):
            plan = _choose_play(store, policies, slots_of(specs), settings)
    with right, st.container(border=True):
        st.markdown("**What will run**")
        plan, to_do = _priced(store, plan, specs, settings)
        words = "Play both" if len(policies) == 2 else "Play them all"
        if begin_button(words, "play_both", "play_arrow", to_do) and plan is not None:
            name_task_file(store, plan.tasks)
            run = begin(store, plan, state.ticket())
            first, last = plan.policies[0], plan.policies[-1]
            state.go("checkpoints", run=run, c=listed(plan.policies), base=first, b=last)
        if plan is not None:
            st.caption("The same from a terminal:")
            st.code(command(plan), language=None, wrap_lines=True)


def _choose_policies(store: Store, specs: Sequence[ModelSpec], settings: Settings) -> list[str]:
    """Who plays: those of the address that can, else one's own best and the shipped one. What cannot play is said."""
    options = startable(store, specs, batch=True)
    named = parted(state.param("c") or "")
    chosen = [one for one in named if one in options]
    for one in named:
        if one not in options:
            st.info(label(why_not_played(store, one, specs, settings.pool), 400), icon=":material/block:")
    if not named:
        chosen = own_and_shipped(store, [spec.name for spec in specs])
    elif len(chosen) == 1 and (
        other := most_telling(store, [x for x in options if x != chosen[0]], chosen[0])
    ):
        chosen = [other, *chosen]
    st.session_state["play_policies"] = chosen
    st.multiselect(
        "Policies, the baseline first",
        options,
        key="play_policies",
        format_func=policy_words(store, options).__getitem__,
        max_selections=MOST_SIDES,
        placeholder="Choose two or more",
        help=define("Policy"),
        on_change=lambda: state.set_params(c=listed(state.entered("play_policies", options) or [])),
    )
    models = [spec.name for spec in specs]
    others = sum(list(one.config.get("models", ())) != models for one in store.checkpoints.list())
    if others:
        some = (
            f"{others} checkpoints of this store choose"
            if others > 1
            else "One checkpoint of this store chooses"
        )
        st.caption(
            f"{some} among other models than {label(_pool_words(settings.pool), 60)} has, and cannot be played with "
            "it: start the app with the pool that they were made for (TRINITY_POOL)."
        )
    return chosen


def _choose_play(
    store: Store, policies: Sequence[str], specs: Sequence[ModelSpec], settings: Settings
) -> BatchPlan | None:
    """On what they play and how, as a plan; None until a file of tasks is named."""
    tasks, n = choose_tasks(
        "both",
        100,
        "Every policy plays all of them. A file: empty for all of its split.",
        offered=tuple(POCKET_SETS),
        sets="Of the test split, unless you change it below: nothing learns on it.",
        pool=settings.pool,
        address=True,
        persist_state="session",
    )
    pocket = tasks in POCKET_SETS
    with st.expander("Split, turns, draws, encoder and engine", icon=":material/tune:"):
        split = st.selectbox(
            "Split",
            [split for split in _SPLITS if pocket or split in FILE_SPLITS],
            key="both_split" if pocket else "both_split_file",
            format_func=_SPLITS.__getitem__,
            persist_state="session",
        )
        fields = [_SETTINGS[key] for key in ("turns", "seed", "argmax")]
        chosen = draw_all(fields, "both", persist_state="session")
        models, look = [spec.name for spec in specs], {"persist_state": "session"}
        settings = choose_reader_for(store, policies, models, "both", settings, **look)
        engine = choose_engine("both", settings.engine, **look)
    if tasks is None:
        return None
    return BatchPlan(
        policies=tuple(policies),
        tasks=absolute_tasks(tasks),
        split=split,
        n=n,
        **chosen,
        pool=absolute_pool(settings.pool),
        encoder=settings.encoder,
        computing=settings.computing,
        engine=engine,
        max_cost_usd=settings.max_cost_usd,
    )


def _priced(
    store: Store, plan: BatchPlan | None, specs: tuple[ModelSpec, ...], settings: Settings
) -> tuple[BatchPlan | None, str]:
    """The whole plan with its ceiling, after saying what is played and what it may cost; and what has to be done before
    it may begin, empty when nothing."""
    if plan is None:
        return None, "Name the file of tasks first."
    if len(plan.policies) < 2:
        return None, "Choose two policies or more."
    try:
        ray_address(plan.engine)
        plan = complete_plan(store, plan)
        check_encoders(store, plan)
        plan, cycles = with_choosing(plan, wiring.resolve_pool(plan.pool))
        quote = price(store, plan, specs)
    except TrinityError as error:
        return None, str(error)
    n = len(plan.load_tasks())
    st.markdown(
        f"**{n:,}** task{'s' * (n > 1)} under each of **{len(plan.policies)}** policies: "
        f"**{n * len(plan.policies):,}** episodes of at most {plan.turns} turn{'s' * (plan.turns > 1)}."
    )
    if plan.undecided:
        names = enumerated([policy_name(name) for name in plan.undecided])
        st.caption(
            label(
                f"First the best cycle of roles of {names} is chosen on {plan.choosing} validation tasks.",
                400,
            )
        )
    elif cycles:
        st.caption(label(cycles, 300))
    if not quote.is_paid:
        st.markdown(":green[:material/savings:] Nothing is paid: these models are free.")
        return plan, ""
    ceiling, to_do = spending(quote, settings.max_cost_usd, key="both_max_cost")
    expected = expectation(store, plan, specs)
    st.caption(
        label(expected.sentence(), 400)
        if expected
        else "What it will probably cost is not known: nothing is recorded of these models yet."
    )
    return (None, to_do) if to_do else (replace(plan, max_cost_usd=ceiling), "")


def check_encoders(store: Store, plan: BatchPlan) -> None:
    """ConfigError where checkpoints of a plan read with encoders that cannot both be the one that is chosen."""
    if plan.encoder is None:  # each reads with its own
        return
    read_by: dict[tuple[object, object], tuple[str, str]] = {}
    ages = generation_of(store)
    for name in plan.policies:
        if store.checkpoints.has(name):
            encoder = store.checkpoints.get(name).config.get("encoder", {})
            known = encoder.get("digest") or encoder.get("name"), encoder.get("hidden_size")
            read_by.setdefault(known, (policy_name(name, ages.get(name)), str(encoder.get("name"))))
    if len(read_by) > 1:
        (one, first), (two, second), *_ = read_by.values()
        raise ConfigError(
            f"{one} reads with the encoder {first} and {two} with {second}, so they cannot both be played with the one "
            f"that is chosen, {plan.encoder}: choose '{OWN}', and each reads with its own."
        )


def _pool_words(pool: str) -> str:
    return "the pocket pool" if pool == POCKET_POOL else one_line(pool, 50)


def command(plan: BatchPlan) -> str:
    """What to type for the same plan."""
    words = ["trinity", "run"]
    for key, field in _SETTINGS.items():
        value, option = values_of(plan)[key], field.setting.option
        if not option or value == field.default:
            continue
        if value is True:
            words.append(option)
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option, str(one)]
    return shlex.join(words)
