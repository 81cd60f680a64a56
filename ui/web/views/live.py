"""Live: play a problem now. A worker process plays it; this page steers and reads along."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from storage.store import Store
from ui.presentation.theme import label
from ui.runs import wiring
from ui.runs.grading import name_task_file
from ui.runs.queue import stand_by
from ui.runs.spending import price
from ui.web.components.transport import Keys
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.widgets import button
from ui.web.live.form import choose_policy, choose_settings, choose_way, what_will_run
from ui.web.live.problem import choose_problem
from ui.web.live.run import run_page
from ui.web.pickers.checkpoints import play_link, writes_workflows
from ui.web.progress.panel import begin, queue_panel, spending

KEYS: Keys = (
    ("Enter", "play the turn that waits for you, as it is proposed or as you decided it"),
    ("T / W / V", "let a Thinker, a Worker or a Verifier take it instead"),
    ("1 to 9", "let this model of the pool take it instead"),
)


def show() -> None:
    """Render the form and the queue, or the run that the address names."""
    store = state.store()
    stand_by.keep(store)
    if run := state.param("run"):
        run_page(store, run)
    else:
        _form_page(store)


def _form_page(store: Store) -> None:
    st.title("Play a problem live")
    st.caption(
        "Runs in the background; you can close this tab. Every turn is kept, and the episode is here again."
    )
    play_link("Or play two policies on many tasks, and compare them", [])
    left, right = st.columns([3, 2], gap="large")
    with left:
        _form(store)
    with right:
        queue_panel(store)


def _form(store: Store) -> None:
    """The problem, who decides, and the button; everything else below it, with defaults that do."""
    settings = wiring.settings()
    specs = pool_specs(settings.pool)
    models = tuple(spec.name for spec in specs)
    problem = choose_problem()
    task = problem.task
    with st.container(border=True):
        policy = choose_policy(store, specs)
        choose_way(workflows=writes_workflows(store, policy))
        beginning = st.container()
    with st.expander("All settings", icon=":material/tune:", key="all_settings"):
        plan = choose_settings(store, models, settings.pool, settings.encoder, policy)
    with beginning:
        ceiling, to_do = spending(
            price(store, replace(plan, task=task or plan.task), specs), settings.max_cost_usd
        )
        to_do = problem.to_do or to_do
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            play = button("Play", "play", icon="play_arrow", type="primary", disabled=bool(to_do), width=160)
            st.caption(label(to_do, 400) if to_do else what_will_run(specs, plan), width="stretch")
    if play and task is not None:
        name_task_file(store, problem.tasks)
        begin("live", store, replace(plan, task=task, tasks=problem.tasks, max_cost_usd=ceiling))


if __name__ == "__main__":
    state.run(show)
