"""The form that begins a training: on what, which planner learns, by which settings, and what it may cost."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from core.conduct.planners import CONDUCTOR
from core.errors import TrinityError
from core.planner.config import LearnConfig
from core.pool.spec import ModelSpec
from core.settings import POCKET_POOL, Settings
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import Generations, policy_name
from ui.runs.plans import POCKET_QUESTIONS, WARM_UP_STEPS, TrainingPlan, absolute_pool
from ui.runs.spending import training_episodes
from ui.web.evolution.form_parts import digested, with_ceiling
from ui.web.kit.cache import pool_specs
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.task_file import choose_tasks

#: Key of a number of the form -> its words, the least and the most that it may be, and what it means.
_NUMBERS: dict[str, tuple[str, int, int, str | None]] = {
    "tr_iterations": ("Iterations", 1, 100_000, define("Iteration")),
    "tr_questions": ("Questions in each", 1, 100_000, None),
    "tr_rollouts": ("Rollouts of each question", 2, 100_000, define("Rollout")),
    "tr_seed": ("Seed", 0, 2**53 - 1, "The same seed learns the same again."),
    "tr_warm_up": (
        "Steps of the warm-up",
        1,
        100_000,
        "Supervised steps that teach a new pocket planner the form of workflows, and nothing about which are good.",
    ),
    "tr_validation": ("Validation tasks", 0, 100_000, "Held apart; the planner is measured on them."),
    "tr_every": ("Save and validate every", 1, 100_000, "A checkpoint every so many iterations."),
}


def _number(key: str, value: int) -> int:
    words, least, most, help = _NUMBERS[key]
    return int(st.number_input(words, least, most, value, key=key, help=help))


def choose_training(store: Store, settings: Settings) -> tuple[TrainingPlan | None, str]:
    """What was chosen, and what has to be done before it may begin (empty when nothing)."""
    specs = pool_specs(settings.pool)
    models = tuple(one.name for one in specs)
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            tasks, n = choose_tasks(
                "tr",
                POCKET_QUESTIONS,
                "Questions are chosen from these: those that single models and random workflows disagree on.",
            )
        with st.container(border=True):
            planner = _planner(store, settings.pool, models)
            sizes, warm_up, validation = _size(new=planner == POCKET_POOL)
    with right, st.container(border=True):
        st.markdown("**Name and cost**")
        name = st.text_input(
            "Name",
            key="tr_name",
            max_chars=60,
            help="To find it again, and for `trinity train --resume --name`.",
        ).strip()
        pool = absolute_pool(settings.pool)
        st.caption(f"Pool {label(Path(pool).name, 40)}: {label(', '.join(models), 200)}")
        if tasks is None:
            return None, "Name the file of tasks first."
        if planner is None:
            return None, (
                "The pocket planner plans for the pocket models alone, and no stored one was made for this pool: begin "
                "with a language model of yours by trinity train --planner FOLDER."
            )
        if importlib.util.find_spec("trl") is None:
            return (
                None,
                "Planners learn by a library that is missing: pip install 'trinity-inspector[conductor]'.",
            )
        try:
            plan = TrainingPlan(
                tasks=tasks,
                n=n,
                validation=validation,
                pool=pool,
                learning=_learning(sizes),
                planner=planner,
                warm_up_steps=warm_up,
                max_cost_usd=settings.max_cost_usd,
                name=name,
                models=models,
            )
            return _priced(store, plan, specs)
        except TrinityError as error:
            return None, str(error)


def _planner(store: Store, pool: str, models: tuple[str, ...]) -> str | None:
    """What learns: a new pocket planner, or a stored one that was made for this pool; None where there is neither."""
    stored = [one.id for one in store.checkpoints.list(planners=True) if one.models == models]
    ages = generation_of(store)
    names = [*([POCKET_POOL] if pool == POCKET_POOL else []), *stored]
    if not names:
        return None
    return st.selectbox(
        "What learns",
        names,
        key="tr_planner",
        format_func=lambda name: _planner_words(name, ages),
        help=define("Conductor"),
    )


def _planner_words(name: str, ages: Generations) -> str:
    policy = CONDUCTOR + name
    return policy_name(policy, ages.get(policy)) if policy in ages else "a new pocket planner"


def _size(*, new: bool) -> tuple[dict[str, int], int, int]:
    """The settings of `LearnConfig` that can be changed here, the steps of the warm-up, and the validation tasks."""
    usual = LearnConfig()
    one, two, three = st.columns(3)
    with one:
        iterations = _number("tr_iterations", usual.iterations)
    with two:
        questions = _number("tr_questions", usual.questions)
    with three:
        rollouts = _number("tr_rollouts", usual.rollouts)
    one, two, three = st.columns(3)
    with one:
        seed = _number("tr_seed", usual.seed)
    with two:
        validation = _number("tr_validation", 200)
    with three:
        every = _number("tr_every", usual.save_every)
    warm_up = _number("tr_warm_up", WARM_UP_STEPS) if new else WARM_UP_STEPS
    learning = {
        "iterations": iterations,
        "questions": questions,
        "rollouts": rollouts,
        "seed": seed,
        "save_every": every,
        "validate_every": every,
    }
    st.caption(
        f"{iterations * questions * rollouts:,} rollouts in all. Every other setting: `trinity train --write-config`."
    )
    return learning, warm_up, validation


def _learning(sizes: Mapping[str, int]) -> LearnConfig:
    """The usual settings with these; ConfigError for what cannot be."""
    return LearnConfig(**{**LearnConfig().to_json(), **sizes})


def _priced(
    store: Store, plan: TrainingPlan, specs: tuple[ModelSpec, ...]
) -> tuple[TrainingPlan | None, str]:
    """The plan with its tasks' digest and its ceiling, after saying the most that it can ask for and cost."""
    plan, tasks, validation = digested(plan)
    parts = training_episodes(plan, len(specs), len(tasks), len(validation))
    st.caption("At most " + ", ".join(f"{n:,} episodes for {words}" for words, n in parts.items() if n) + ".")
    return with_ceiling(store, plan, specs, key="tr_max_cost")
