"""The forms that begin an evolution or a training: on what, by which settings, and what it may cost."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from core.conduct.planners import CONDUCTOR
from core.episode import ROLE_ORDER
from core.errors import ConfigError, TrinityError
from core.evolution.config import DEFAULT_BUDGET, shape_of
from core.fields import Field, settings_of
from core.pool.spec import slots_of
from core.settings import POCKET_POOL, Settings
from core.tasks.sets import digest_of_tasks
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line
from ui.presentation.words import policy_name
from ui.runs import wiring
from ui.runs.course import LEARNERS
from ui.runs.settings.learning import (
    POCKET_TASKS,
    EvolutionPlan,
    TrainingPlan,
    learning_sets,
    plan_from,
    usual_settings,
)
from ui.runs.spending import paid_models, price, training_episodes
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.fields import draw, draw_all, draw_groups
from ui.web.kit.widgets import button
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.encoder import choose_engine, choose_reader
from ui.web.pickers.task_file import choose_tasks
from ui.web.progress import spending

P = TypeVar("P", EvolutionPlan, TrainingPlan)

#: Sizes that a click fills in: name -> episodes in all.
SIZES: dict[str, int] = {
    "The usual size": DEFAULT_BUDGET,
    "A first look": 1_000,
    "A short one": 6_000,
    "The paper's budget": 30_720,
}
#: Settings that have a place of their own on the forms, or are those of the app.
_ELSEWHERE = {
    "tasks",
    "n",
    "learner",
    "planner",
    "pool",
    "encoder",
    "max_cost_usd",
    "name",
    "device",
    "dtype",
    "engine",
}


def choose_evolution(store: Store, settings: Settings) -> tuple[EvolutionPlan | None, str]:
    """What was chosen, and what has to be done before it may begin (empty when nothing)."""
    specs = slots_of(pool_specs(settings.pool))
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            tasks, n = choose_tasks("ev", POCKET_TASKS[EvolutionPlan], pool=settings.pool)
        chosen: dict[str, Any] = {"tasks": tasks, "n": n}
        with st.container(border=True):
            chosen["learner"] = _learner()
            sizes = _settings(EvolutionPlan, chosen["learner"], size=True)
            chosen |= draw_all(sizes, "ev", {key: {"value": "min"} for key in shape_of("pycma")})
            each = chosen.get("population", 1) * chosen["tasks_per_candidate"]
            st.caption(f"{chosen['generations'] * each:,} episodes in all, besides validation.")
        with st.expander("Head, optimiser, fitness and validation", icon=":material/tune:"):
            barred = [*(one.name for one in specs), *(role.value for role in ROLE_ORDER)]
            looks: dict[str, dict[str, Any]] = {
                "barred": {"options": barred, "format_func": lambda value: one_line(str(value), 30)},
                "constant_spread": {
                    "value": None,
                    "placeholder": _constant_spread(chosen["learner"], settings.pool),
                },
            }
            chosen |= draw_groups(_settings(EvolutionPlan, chosen["learner"]), "ev", looks)
    with right, st.container(border=True):
        settings = choose_reader("ev", settings)
        return _plan(EvolutionPlan, "ev", store, chosen, settings)


def choose_training(store: Store, settings: Settings) -> tuple[TrainingPlan | None, str]:
    """What was chosen, and what has to be done before it may begin (empty when nothing)."""
    models = tuple(one.name for one in slots_of(pool_specs(settings.pool)))
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            help = (
                "Questions are chosen from these: those that single models and random workflows disagree on."
            )
            tasks, n = choose_tasks("tr", POCKET_TASKS[TrainingPlan], help, pool=settings.pool)
        chosen: dict[str, Any] = {"tasks": tasks, "n": n}
        with st.container(border=True):
            planner = chosen["planner"] = _planner(store, settings.pool, models)
            sizes = _settings(TrainingPlan, size=True)
            chosen |= draw_all(
                [one for one in sizes if planner == POCKET_POOL or one.key != "warm_up_steps"], "tr", {}
            )
            rollouts = chosen["iterations"] * chosen["questions"] * chosen["rollouts"]
            st.caption(f"{rollouts:,} rollouts in all.")
        with st.expander("Learning, rewards and validation", icon=":material/tune:"):
            chosen |= draw_groups(_settings(TrainingPlan), "tr")
    with right, st.container(border=True):
        return _plan(TrainingPlan, "tr", store, chosen, settings)


def _settings(kind: type[P], learner: str = "", *, size: bool = False) -> list[Field]:
    """The settings that are about its size, or all others; of a learner those that it has."""
    return [
        one
        for key, one in settings_of(kind).items()
        if key not in _ELSEWHERE
        and (one.setting.group == "size") is size
        and (not one.setting.learners or learner in one.setting.learners)
    ]


def _plan(
    kind: type[P], form: str, store: Store, chosen: dict[str, Any], settings: Settings
) -> tuple[P | None, str]:
    """What is `chosen` besides its engine, name and ceiling, asked for here, with the digest of its tasks; else
    what has to be done first. Says by which models it is played, what is worth knowing of its tasks, and the most that
    it can ask for and cost. `form`: how the keys of its widgets begin."""
    engine = choose_engine(form, settings.engine)
    st.markdown("**Name and cost**")
    command = "evolve" if kind is EvolutionPlan else "train"
    help = f"To find it again, and for `trinity {command} --resume --name`."
    name = draw(st.container(), settings_of(kind)["name"], f"{form}_name", max_chars=60, help=help)
    specs = pool_specs(settings.pool)
    models = tuple(one.name for one in slots_of(specs))
    st.caption(f"Pool {label(Path(settings.pool).name, 40)}: {label(', '.join(models), 200)}")
    try:
        settings = replace(settings, engine=engine)
        if kind is EvolutionPlan:
            settings = replace(settings, encoder=wiring.encoder_for(settings.pool, settings.encoder))
        elif chosen["planner"] is None:
            raise ConfigError(
                "The pocket planner plans for the pocket models alone, and no stored one was made for this pool: begin "
                "with a language model of yours by trinity train --planner FOLDER."
            )
        elif importlib.util.find_spec("trl") is None:
            raise ConfigError(
                "Planners learn by a library that is missing: pip install 'trinity-inspector[conductor]'."
            )
        if chosen["tasks"] is None:
            raise ConfigError("Name the file of tasks first.")
        plan = plan_from(kind, {**chosen, "name": name}, settings)
        tasks, validation, notes = learning_sets(plan)
        for note in notes:
            st.info(label(note, 300), icon=":material/info:")
        plan = replace(plan, models=models, digest=digest_of_tasks(tasks))
        if isinstance(plan, TrainingPlan):
            parts = training_episodes(plan, len(models), len(tasks), len(validation))
            most = ", ".join(f"{n:,} episodes for {words}" for words, n in parts.items() if n)
            st.caption(f"At most {most}.")
        if not paid_models(specs):
            st.markdown(":green[:material/savings:] These models are free.")
            return plan, ""
        quote = price(store, plan, specs)
    except TrinityError as error:
        return None, str(error)
    ceiling, to_do = spending(quote, plan.max_cost_usd, key=f"{form}_max_cost")
    return (None, to_do) if to_do else (replace(plan, max_cost_usd=ceiling), "")


# An evolution's size


def _fill(learner: str, budget: int = DEFAULT_BUDGET) -> None:
    """Fill in how a learner spreads so many episodes."""
    for key, value in shape_of(learner, budget).items():
        st.session_state[f"ev_{key}"] = value


def _learner() -> str:
    """The learner, and sizes that a click fills in."""
    usual = settings_of(EvolutionPlan)["learner"]
    if "ev_generations" not in st.session_state:
        _fill(usual.default)
    learner = str(
        draw(
            st.container(),
            usual,
            "ev_learner",
            letters=80,
            format_func=LEARNERS.__getitem__,
            on_change=lambda: _fill(state.entered("ev_learner", LEARNERS) or usual.default),
        )
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for words, budget in SIZES.items():
            sizes = shape_of(learner, budget)
            now = all(st.session_state.get(f"ev_{key}", value) == value for key, value in sizes.items())
            look = "primary" if now else "secondary"
            button(words, f"ev_size_{words}", partial(_fill, learner, budget), type=look)
    return learner


def _constant_spread(learner: str, pool: str) -> str:
    """What `constant_spread` is while its field is empty: it follows the pool and the spread beside it."""
    spread = st.session_state.get("ev_logit_spread", settings_of(EvolutionPlan)["logit_spread"].default)
    return f"{usual_settings(learner, pool, spread)['constant_spread']:g}"


# What is trained


def _planner(store: Store, pool: str, models: tuple[str, ...]) -> str | None:
    """What learns: a new pocket planner, or a stored one that was made for this pool; None where there is neither."""
    stored = [one.id for one in store.checkpoints.list(planners=True) if one.models == models]
    ages = generation_of(store)
    names = [*([POCKET_POOL] if pool == POCKET_POOL else []), *stored]
    if not names:
        return None

    def words(name: str) -> str:
        policy = CONDUCTOR + name
        return policy_name(policy, ages.get(policy)) if policy in ages else "a new pocket planner"

    return st.selectbox("What learns", names, key="tr_planner", format_func=words, help=define("Conductor"))
