"""Evolution: how a coordinator came about, generation by generation, or a planner, iteration by iteration. A worker
process learns, this page reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.runs import wiring
from ui.runs.course import course_of
from ui.runs.grading import name_task_file
from ui.runs.queue import LEARNING
from ui.web.components.transport import keys_of
from ui.web.evolution.form import choose_evolution, choose_training
from ui.web.evolution.page import run_page
from ui.web.kit import state
from ui.web.kit.widgets import button, tool
from ui.web.progress import begin, begin_button

#: The panels in the address that are the forms of an evolution and of a training.
BEGIN, BEGIN_TRAINING = "begin", "train"
_FORMS = {
    BEGIN: ("Begin an evolution", "begin_form", "add"),
    BEGIN_TRAINING: ("Begin a training", "begin_training_form", "school"),
}
#: Of a given width, so that the row of buttons breaks on a phone before their words are there.
_BUTTON_PX = 165
KEYS = keys_of("generation")


def show() -> None:
    """Render a form, or the evolution or training that the address names, else the newest."""
    store = state.store()
    runs = [run for kind in LEARNING for run in store.runs.list(kind=kind, limit=200)]
    runs.sort(key=lambda run: run.created, reverse=True)
    if state.param("panel") in (BEGIN, BEGIN_TRAINING):
        _form_page(store, runs, training=state.param("panel") == BEGIN_TRAINING)
    elif not runs:
        _empty()
    else:
        title = st.empty()
        run, second = _choose(store, runs)
        title.title(course_of(run).title)
        run_page(store, run, second)


def _empty() -> None:
    st.title("Evolution")
    with st.container(border=True):
        st.subheader("No evolution yet", anchor=False)
        st.write(
            "An evolution makes a coordinator: candidates are drawn, play, and the best of them move the mean. "
            "A small one on the pocket world takes a minute, needs no key and costs nothing."
        )
        _begin_button(BEGIN, type="primary")
    with st.container(border=True):
        st.subheader("No training yet", anchor=False)
        st.write(
            "A training makes a planner, a language model that writes whole workflows: it writes several for each "
            "question, they are played, and those that did better are made likelier."
        )
        _begin_button(BEGIN_TRAINING, help=define("Conductor"))


def _begin_button(panel: str, **look: Any) -> None:
    """The way to the form of an evolution or a training."""
    words, key, icon = _FORMS[panel]
    act = partial(state.replace_params, {"panel": panel})
    button(words, key, act, icon=icon, width=_BUTTON_PX, **look)


def _form_page(store: Store, runs: Sequence[RunSummary], *, training: bool) -> None:
    st.title(_FORMS[BEGIN_TRAINING if training else BEGIN][0])
    what = (
        "Trains a planner, which writes whole workflows. Runs in the background"
        if training
        else "Runs in the background and keeps every generation as a checkpoint"
    )
    command = "trinity train --resume" if training else "trinity evolve --resume"
    st.caption(f"{what}; you can close this tab. Stopped, it can be resumed, here or by `{command}`.")
    if runs:
        tool("Back to the evolutions", "leave_form", partial(state.set_params, panel=None), icon="arrow_back")
    plan, to_do = (choose_training if training else choose_evolution)(store, wiring.settings())
    if begin_button("Begin", "begin", "play_arrow", to_do, width=160) and plan is not None:
        name_task_file(store, plan.tasks)
        begin("evolution", store, plan)


# Choosing one


def _choose(store: Store, runs: Sequence[RunSummary]) -> tuple[RunSummary, RunSummary | None]:
    """The run of the address, else the newest, and a second one of its kind beside it, with what chooses them."""
    by_id = {run.id: run for run in runs}
    named = state.param("run")
    if named and named not in by_id:
        st.info(
            f"The store holds no evolution or training {label(named, 40)}: the newest one is shown instead.",
            icon=":material/info:",
        )
    words = {run.id: _words(run) for run in runs}
    left, middle, right = st.columns([7, 5, 9], vertical_alignment="bottom")
    with left:
        chosen = state.address_select(
            "Evolution or training",
            words,
            name="run",
            key="evolution_run",
            default=runs[0].id,
            forgets=("gen", "ep", "with"),
            widget="list",
        )
    kind = by_id[chosen].kind
    others = {run: words[run] for run in words if run != chosen and by_id[run].kind == kind}
    with middle:
        other = state.address_select(
            "Compare with",
            {"": "nothing", **others},
            name="with",
            key="evolution_with",
            widget="list",
            disabled=not others,
            help="Draws a second run of the same kind on the same axes, such as another learner's.",
        )
    with right, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        _newest_of_the_other_kind(runs, by_id[chosen])
        _begin_button(BEGIN)
        _begin_button(BEGIN_TRAINING, help=define("Conductor"))
    return by_id[chosen], by_id.get(other)


def _newest_of_the_other_kind(runs: Sequence[RunSummary], shown: RunSummary) -> None:
    """From a training to the newest evolution and back, so that neither hides the other in the list."""
    newest = next((run for run in runs if run.kind != shown.kind), None)
    if newest is not None:
        words = "Newest evolution" if newest.kind == "evolve" else "Newest training"
        forgotten = dict.fromkeys(("gen", "ep", "with", "panel"))
        go = partial(state.set_params, run=newest.id, **forgotten)
        button(
            words, "newest_other", go, icon="trending_up", help=label(_words(newest), 120), width=_BUTTON_PX
        )


def _words(run: RunSummary) -> str:
    """One run in a list, plain text; there may be hundreds, so no update is read."""
    about = course_of(run)
    done = f"{about.noun} {run.generations - 1}" if run.generations else "not begun"
    return " · ".join([about.name, about.learner_words, done, run.status, *["sample"] * run.is_sample])


if __name__ == "__main__":
    state.run(show)
