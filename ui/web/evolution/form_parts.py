"""What the forms of an evolution and of a training share: which tasks, and what may be spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from core.episode import Task
from core.pocket import FAMILIES
from core.pool.spec import ModelSpec
from core.settings import POCKET_POOL
from core.tasks.sets import digest_of_tasks
from storage.store import Store
from ui.presentation.theme import label
from ui.runs.plans import EvolutionPlan, TrainingPlan
from ui.runs.spending import price
from ui.web.pickers.task_file import task_file
from ui.web.progress.ceiling import spending

#: What is learned on when it is not a family of the pocket world.
_FILE = "a file of my own (.jsonl)"

LearnedPlan = TypeVar("LearnedPlan", EvolutionPlan, TrainingPlan)


def choose_tasks(form: str, usual: int, help: str | None = None) -> tuple[str | None, int | None]:
    """Task set, None until a file is named, and how many of it, None for all; `form` begins the keys, `usual` is how
    many of the pocket's tasks are offered, `help` says what is done with them."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    sets = [POCKET_POOL, *(f"{POCKET_POOL}/{family}" for family in FAMILIES), _FILE]
    tasks = left.selectbox(
        "Tasks", sets, key=f"{form}_tasks", help="Tasks of the evolve split; tests never see them."
    )
    own = tasks == _FILE
    n = right.number_input(
        "How many of them",
        1,
        None,
        None if own else usual,
        key=f"{form}_n_file" if own else f"{form}_n",
        placeholder="all",
        help=help,
    )
    return (task_file(f"{form}_file") if own else tasks), n


def digested(plan: LearnedPlan) -> tuple[LearnedPlan, Sequence[Task], Sequence[Task]]:
    """The plan with the digest of its tasks; these, and those of its validation. What is worth knowing of them is
    said. TaskError for a file that cannot be read."""
    tasks, validation, notes = plan.task_sets()
    for note in notes:
        st.info(label(note, 300), icon=":material/info:")
    return replace(plan, digest=digest_of_tasks(tasks)), tasks, validation


def with_ceiling(
    store: Store, plan: LearnedPlan, specs: tuple[ModelSpec, ...], *, key: str
) -> tuple[LearnedPlan | None, str]:
    """The plan with its ceiling, after saying the most that it can ask for and cost; None, and what has to be done
    first, where it may not begin."""
    quote = price(store, plan, specs)
    if not quote.is_paid:
        st.markdown(":green[:material/savings:] These models are free.")
        return plan, ""
    ceiling, to_do = spending(quote, plan.max_cost_usd, key=key)
    return (None, to_do) if to_do else (replace(plan, max_cost_usd=ceiling), "")
