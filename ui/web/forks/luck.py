"""Was it bad luck? What replaying an episode will cost, and the page of what it came to."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from core.analysis.power import MOST_PLAYS
from core.errors import TrinityError
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.theme import label
from ui.runs.forks.luck import RULE, read_luck
from ui.runs.forks.results import read_results
from ui.runs.plans import ForkPlan
from ui.web.forks.form import what_will_run
from ui.web.forks.panels import TEXTS, headline, plays_table, proof, tree
from ui.web.kit.widgets import replay_link
from ui.web.progress.luck import WORDS, begin_luck, is_open, luck_button, luck_plan
from ui.web.progress.panel import Reached, begin_button, is_under_way, watch


def luck_form(store: Store, episode: str) -> None:
    """What will be played and what it may cost, and the button."""
    parent = store.episodes.get(episode)
    st.title(WORDS)
    st.markdown(f"#### {label(parent.task.question, 220)}")
    replay_link("The recorded episode", episode, 1)
    with st.container(border=True):
        st.markdown("**What will run**")
        try:
            plan = luck_plan(store, episode)
        except TrinityError as error:
            st.markdown(f":orange[:material/block:] {label(str(error), 400)}")
            return
        ceiling, to_do = what_will_run(store, plan)
        if begin_button("Replay it", "luck_start", "casino", to_do):
            begin_luck(store, replace(plan, max_cost_usd=ceiling))


def luck_page(store: Store, run: RunSummary, plan: ForkPlan) -> None:
    """A run that replays an episode: how far it is, what it tells, every play."""
    found, results = read_luck(store, run.id, plan), read_results(store, run.id, plan)
    branch = plan.branches[0]
    st.title(WORDS if not found.recorded_right else "Was it good luck?")
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        st.markdown(f"#### {label(plan.question, 220)}")
        headline(store, run, plan, results)
    if is_under_way(run):
        with progress:
            right, n = results.baseline.right, results.baseline.n
            words = f"Replay {n + 1} of at most {MOST_PLAYS} · right {right} of {n} so far"
            watch(store, run, TEXTS, lambda _store, _run: Reached(n, MOST_PLAYS, words))
    with below:
        with st.container(border=True):
            st.markdown(f"**{label(found.sentence, 300)}**")
            if len(found.plays) < len(found.outcomes):
                st.caption(
                    f"It could be told after {len(found.plays)} plays. {len(found.outcomes) - len(found.plays)} more "
                    "were under way; they are listed and do not count."
                )
            st.caption(RULE)
            if branch.anew:
                st.caption("The workflow stays as it was planned; every step of it is asked again.")
            proof(plan, results)
        if not is_under_way(run) and not store.read_only and is_open(found):
            luck_button(store, branch.parent, again=True)
        grown = results.grown[0]
        tree(store, plan, grown)
        plays_table(grown)
        replay_link("The recorded episode", branch.parent, 1)
