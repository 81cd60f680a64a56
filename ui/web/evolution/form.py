"""The form that begins an evolution: on what, by which settings, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import streamlit as st

from core.episode import ROLE_ORDER
from core.errors import TrinityError
from core.evolution.config import EvolveConfig, shape_of
from core.heads import HeadKind
from core.pocket import FAMILIES
from core.pool.spec import ModelSpec
from core.settings import POCKET_POOL, Settings
from core.tasks.sets import digest_of_tasks
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line
from ui.runs.plans import EvolutionPlan
from ui.runs.spending import price
from ui.web.evolution.lineage import LEARNERS
from ui.web.kit.cache import pool_specs
from ui.web.progress.ceiling import spending

#: What is evolved on when it is not a family of the pocket world.
_FILE = "a file of my own (.jsonl)"
_SVF = {
    "": "the head alone",
    "released": "as released: the layer before the last, and all outside the layers",
}
_LAYERS = "layers"
#: Sizes that a click fills in: name -> episodes in all.
SIZES: dict[str, int] = {"A first look": 1_000, "A short one": 6_000, "The paper's budget": 30_720}
#: The learner that evolves one policy instead of a population.
_ALONE = "reinforce"


def choose_evolution(store: Store, settings: Settings) -> tuple[EvolutionPlan | None, str]:
    """What was chosen, and what has to be done before it may begin (empty when nothing)."""
    specs = pool_specs(settings.pool)
    defaults = EvolveConfig()
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            tasks, n = _tasks()
        with st.container(border=True):
            chosen = _size(defaults)
        with st.expander("Head, optimiser, fitness and validation", icon=":material/tune:"):
            run_settings, further = _details(defaults, str(chosen["learner"]), [one.name for one in specs])
    with right, st.container(border=True):
        st.markdown("**Name and cost**")
        name = st.text_input(
            "Name",
            key="ev_name",
            max_chars=60,
            help="To find it again, and for `trinity evolve --resume --name`.",
        ).strip()
        pool = settings.pool if settings.pool == POCKET_POOL else str(Path(settings.pool).resolve())
        st.caption(
            f"Pool {label(Path(pool).name, 40)}: {label(', '.join(one.name for one in specs), 200)} · encoder "
            f"{label(settings.encoder or POCKET_POOL, 60)}"
        )
        if tasks is None:
            return None, "Name the file of tasks first."
        try:
            plan = EvolutionPlan(
                tasks=tasks,
                n=n,
                pool=pool,
                encoder=settings.encoder or POCKET_POOL,
                max_cost_usd=settings.max_cost_usd,
                name=name,
                **run_settings,
                models=tuple(one.name for one in specs),
                evolution=replace(defaults, **chosen, **further),
            )
            return _priced(store, plan, specs)
        except TrinityError as error:
            return None, str(error)


def _tasks() -> tuple[str | None, int | None]:
    """Task set and how many of it; None until a file is named."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    sets = [POCKET_POOL, *(f"{POCKET_POOL}/{family}" for family in FAMILIES), _FILE]
    tasks = left.selectbox(
        "Tasks", sets, key="ev_tasks", help="Tasks of the evolve split; tests never see them."
    )
    own = tasks == _FILE
    n = right.number_input(
        "How many of them",
        min_value=1,
        value=None if own else 1000,
        step=1,
        key="ev_n_file" if own else "ev_n",
        placeholder="all",
    )
    if not own:
        return tasks, None if n is None else int(n)
    path = st.text_input("Path of the file on this machine", key="ev_file", max_chars=1000).strip()
    return (str(Path(path).expanduser().resolve()) if path else None), None if n is None else int(n)


#: The keys of the three numbers that make an evolution's size.
_SIZE_KEYS = ("ev_generations", "ev_population", "ev_each")


def _fill(values: tuple[int, int, int]) -> None:
    st.session_state.update(zip(_SIZE_KEYS, values, strict=True))


def _standard_size(defaults: EvolveConfig) -> tuple[int, int, int]:
    """Generations, candidates in each and tasks per candidate of the chosen learner."""
    shape = shape_of(str(st.session_state["ev_learner"]))
    return defaults.generations, shape.population, shape.tasks_per_candidate


def _learner(defaults: EvolveConfig) -> str:
    """The learner, and sizes that a click fills in."""
    st.session_state.setdefault("ev_learner", defaults.learner)
    if "ev_generations" not in st.session_state:
        _fill(_standard_size(defaults))
    learner = str(
        st.segmented_control(
            "Learner",
            list(LEARNERS),
            key="ev_learner",
            required=True,
            format_func=LEARNERS.__getitem__,
            help=define("Learner"),
            on_change=lambda: _fill(_standard_size(defaults)),
        )
    )
    sizes = {"The usual size": _standard_size(defaults)}
    for words, budget in SIZES.items():
        shape = shape_of(learner, budget)
        each = shape.population * shape.tasks_per_candidate
        sizes[words] = (max(1, budget // each), shape.population, shape.tasks_per_candidate)
    now = tuple(st.session_state[key] for key in _SIZE_KEYS)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for words, values in sizes.items():
            st.button(
                words,
                key=f"ev_size_{words}",
                type="primary" if now == values else "secondary",
                on_click=_fill,
                args=(values,),
            )
    return learner


def _size(defaults: EvolveConfig) -> dict[str, Any]:
    """Learner, generations, population, tasks per candidate, turn budget and seed."""
    learner = _learner(defaults)
    one, two, three = st.columns(3)
    generations = one.number_input(
        "Generations", 1, 100_000, step=1, key="ev_generations", help=define("Generation")
    )
    population = two.number_input(
        "Candidates in each",
        1,
        100_000,
        step=1,
        key="ev_population",
        help=define("Candidate"),
        disabled=learner == _ALONE,
    )
    each = three.number_input("Tasks per candidate", 1, 100_000, step=1, key="ev_each")
    one, two, three = st.columns(3)
    turns = one.number_input(
        "Turn budget", 1, 100, defaults.turn_budget, key="ev_turns", help=define("Turn budget")
    )
    seed = two.number_input(
        "Seed",
        0,
        2**53 - 1,
        defaults.seed,
        key="ev_seed",
        help="The same seed evolves the same again, bit for bit.",
    )
    st.caption(f"{generations * population * each:,} episodes in all, besides validation.")
    return {
        "learner": learner,
        "generations": int(generations),
        "population": int(population),
        "tasks_per_candidate": int(each),
        "rotate_every": shape_of(learner).rotate_every,
        "turn_budget": int(turns),
        "seed": int(seed),
    }


def _details(
    defaults: EvolveConfig, learner: str, models: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan's settings outside its `evolution`, and further ones of `evolution`."""
    run_settings: dict[str, Any] = {"head": "linear", "svf": ""}
    if learner == _ALONE:
        st.caption("REINFORCE learns a linear head, without singular values.")
    else:
        run_settings = _searched()
    barred = st.multiselect(
        "Left out",
        [*models, *(role.value for role in ROLE_ORDER)],
        key="ev_barred",
        format_func=lambda value: one_line(str(value), 30),
        help="Models and roles that are never chosen, as in an ablation.",
    )
    run_settings["barred"] = tuple(barred)
    one, two, three = st.columns(3)
    with one:
        further = _rate(defaults, learner)
    validation = two.number_input(
        "Validation tasks",
        0,
        100_000,
        200,
        key="ev_validation",
        help="Held apart; the mean is measured on them.",
    )
    every = three.number_input("Validate every", 1, 100_000, defaults.validate_every, key="ev_every")
    run_settings["validation"] = int(validation)
    run_settings["controls"], paced = _paced(defaults, learner)
    run_settings["token_position"], rewarded = _rewarded(defaults, learner, svf=bool(run_settings["svf"]))
    return run_settings, {**further, **rewarded, **paced, "validate_every": int(every)}


def _paced(defaults: EvolveConfig, learner: str) -> tuple[bool, dict[str, Any]]:
    """Whether controls are played, and how far apart and on how many tasks candidates begin."""
    one, two = st.columns(2)
    spread = one.number_input(
        "First spread of the logits",
        0.01,
        1000.0,
        defaults.logit_spread,
        key="ev_spread",
        help="How far the first candidates' logits spread; it sets the step size.",
        disabled=learner == _ALONE,
    )
    adaptive = two.toggle(
        "As many tasks as tell candidates apart",
        key="ev_adaptive",
        help="Begin with so many tasks per candidate, then more or fewer, as fitness tells candidates apart.",
        disabled=learner == _ALONE,
    )
    controls = two.toggle(
        "Play the controls at the end", value=True, key="ev_controls", help=define("Control")
    )
    adapted = bool(adaptive) and learner != _ALONE
    return bool(controls), {"logit_spread": float(spread), "adaptive": adapted}


def _rewarded(defaults: EvolveConfig, learner: str, *, svf: bool) -> tuple[int, dict[str, Any]]:
    """The token that is read, and what else makes an evolution the paper's or the released run's."""
    one, two, three = st.columns(3)
    token = one.selectbox(
        "Token whose state is read",
        [-2, -1],
        key="ev_token",
        format_func={-2: "the last but one", -1: "the last"}.__getitem__,
        help="The paper reads the last but one.",
    )
    weights = {
        name: float(
            column.number_input(
                words, 0.0, 100.0, getattr(defaults, name), 0.05, key=f"ev_{name}", help=help_text
            )
        )
        for column, name, words, help_text in (
            (
                two,
                "diversity",
                "Weight of diversity",
                "Rewards asking different models; the released run has 0.15.",
            ),
            (
                three,
                "turn_cost",
                "Weight of turns",
                "Counts against long episodes; the released run has 0.1.",
            ),
        )
    }
    one, two, three = st.columns(3)
    own = one.toggle(
        "Own tasks for each candidate",
        key="ev_own_tasks",
        help="As the paper draws them. Otherwise all candidates of a generation play the same tasks.",
    )
    constant = two.number_input(
        "Spread of what is constant",
        0.0,
        1000.0,
        defaults.constant_spread or 0.0,
        key="ev_constant",
        help="First spread of preferences that do not depend on the transcript; 0 evolves none.",
        disabled=learner == _ALONE,
    )
    offsets = three.number_input(
        "Spread by singular values",
        0.01,
        1000.0,
        defaults.svf_spread,
        key="ev_svf_spread",
        help="How far the first candidates' logits spread by singular values alone.",
        disabled=not svf,
    )
    spreads = {"constant_spread": float(constant), "svf_spread": float(offsets)}
    return int(token), {**weights, **spreads, "common": not own}


def _searched() -> dict[str, Any]:
    """The head, and the singular values that are evolved with it."""
    one, two = st.columns(2)
    head = one.selectbox("Head", get_args(HeadKind), key="ev_head", help=define("Head"))
    kind = two.selectbox(
        "What is evolved",
        [*_SVF, _LAYERS],
        key="ev_svf",
        help=define("SVF"),
        format_func=lambda value: _SVF.get(value, "singular values of layers, too"),
    )
    if kind != _LAYERS:
        return {"head": str(head), "svf": str(kind)}
    layers = st.text_input("Which layers, such as 1 or 26,27", key="ev_layers", value="1")
    return {"head": str(head), "svf": layers.strip()}


def _rate(defaults: EvolveConfig, learner: str) -> dict[str, Any]:
    """How fast or how far the learner goes."""
    if learner == _ALONE:
        rate = st.number_input(
            "Learning rate",
            1e-9,
            10.0,
            defaults.learning_rate,
            key="ev_learning_rate",
            format="%.4g",
            step=1e-3,
        )
        return {"learning_rate": float(rate)}
    if learner == "random-search":
        box = st.number_input("Half of its box, in step sizes", 1e-9, 1e6, defaults.box, key="ev_box")
        return {"box": float(box)}
    rates = st.selectbox(
        "Learning rates", ["pycma", "cmaes"], key="ev_rates", help="By the library they are from."
    )
    return {"rates": str(rates)}


def _priced(
    store: Store, plan: EvolutionPlan, specs: tuple[ModelSpec, ...]
) -> tuple[EvolutionPlan | None, str]:
    """The plan with its tasks' digest and its ceiling, after saying the most that it can ask for and cost."""
    tasks, _, notes = plan.task_sets()
    for note in notes:
        st.info(label(note, 300), icon=":material/info:")
    plan = replace(plan, digest=digest_of_tasks(tasks))
    asked = price(store, plan, specs)
    if not asked.is_paid:
        st.markdown(":green[:material/savings:] Nobody bills for these models.")
        return plan, ""
    ceiling, to_do = spending(asked, plan.max_cost_usd, key="ev_max_cost")
    return (None, to_do) if to_do else (replace(plan, max_cost_usd=ceiling), "")
