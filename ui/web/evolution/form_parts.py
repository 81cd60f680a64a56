"""What the forms of an evolution and of a training share: their tasks' digest, and what may be spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from core.episode import Task
from core.pool.spec import ModelSpec
from core.tasks.sets import digest_of_tasks
from storage.store import Store
from ui.presentation.theme import label
from ui.runs.plans import EvolutionPlan, TrainingPlan
from ui.runs.spending import price
from ui.web.progress.ceiling import spending

LearnedPlan = TypeVar("LearnedPlan", EvolutionPlan, TrainingPlan)


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
