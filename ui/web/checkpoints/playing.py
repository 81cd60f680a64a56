"""A run of several policies on the same tasks, above its comparison: how far it is, and how to go on with it."""

from __future__ import annotations

import time

import streamlit as st

from core.errors import StoreError
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.comparison import enumerated
from ui.presentation.theme import label
from ui.presentation.words import ago, if_paid, policy_name
from ui.runs.plans import known_plan, plan_of
from ui.runs.settings.batch import BatchPlan
from ui.web.kit.widgets import nothing_here
from ui.web.pickers.checkpoints import generation_of
from ui.web.progress.panel import Reached, RunTexts, is_under_way, standing, watch

TEXTS = RunTexts("plays these tasks", pause="Pause")


def played_run(store: Store, run_id: str | None) -> RunSummary | None:
    """The run of several policies that an address names; None for any other, and for none."""
    try:
        run = store.runs.get(run_id) if run_id else None
    except StoreError:  # gone, or the word for every run
        return None
    plan = known_plan(run) if run else None
    return run if isinstance(plan, BatchPlan) and len(plan.policies) > 1 else None


def played_line(store: Store, run: RunSummary) -> bool:
    """Where the run stands, unless it is finished; whether nothing of it is compared yet. Those episodes that end first
    are the shorter ones, so that a comparison would be of these alone as long as others are under way."""
    if run.status is RunStatus.FINISHED:
        return False
    plan = plan_of(run, BatchPlan)
    names = generation_of(store)
    who = enumerated([policy_name(policy, names.get(policy)) for policy in plan.policies])
    st.markdown(f"#### {label(who, 200)}, on the same tasks")
    facts = [f"begun {ago(run.created, time.time())}", f"tasks {label(plan.tasks, 60)}", f"seed {plan.seed}"]
    facts += [f"spent {label(one)}" for one in if_paid(store.runs.spent_usd(run.id))]
    standing(store, run, TEXTS, [f":gray[{one}]" for one in facts], go_on="Go on")
    if is_under_way(run):
        watch(store, run, TEXTS, _reached)
        nothing_here(
            "The comparison stands here once all of it is played: the episodes that end first are the shorter ones.",
            ":material/balance:",
        )
        return True
    if not run.finished_episodes:
        nothing_here(
            "No episode was played to its end, so there is nothing to compare.", ":material/balance:"
        )
        return True
    st.warning(
        "It was not played to its end. Below are the finished episodes alone, which tend to be the shorter ones.",
        icon=":material/content_cut:",
    )
    return False


def _reached(_store: Store, run: RunSummary) -> Reached:
    """How many of its episodes are over, and how long the others take at the pace so far."""
    plan = plan_of(run, BatchPlan)
    done, planned = run.finished_episodes, len(plan.load_tasks()) * len(plan.policies)
    if not run.episodes and plan.undecided:
        return Reached(0, planned, "The best cycle of roles is being chosen on validation tasks")
    words = f"{done:,} of {planned:,} episodes played"
    if run.started is None or done < 4 or done >= planned:
        return Reached(done, planned, words)
    return Reached(done, planned, words, (time.time() - run.started) / done * (planned - done))
