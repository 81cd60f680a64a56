"""The form that begins an evolution: on what, by which settings, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.episode import ROLE_ORDER
from core.errors import TrinityError
from core.evolution.config import DEFAULT_BUDGET, EvolveConfig, shape_of
from core.evolution.recording import SHARED_CANDIDATES, RecordName
from core.heads import HeadKind
from core.settings import POCKET_POOL, Settings
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line
from ui.runs import wiring
from ui.runs.plans import EvolutionPlan, absolute_encoder
from ui.web.evolution.course import LEARNERS
from ui.web.evolution.form_parts import digested, with_ceiling
from ui.web.kit import state
from ui.web.kit.buttons import button
from ui.web.kit.cache import pool_specs
from ui.web.pickers.rules import choose_rules
from ui.web.pickers.task_file import choose_tasks

_SVF = {
    "": "the head alone",
    "released": "as released: the layer before the last, and all outside the layers",
}
_LAYERS = "layers"
#: Sizes that a click fills in: name -> episodes in all.
SIZES: dict[str, int] = {"A first look": 1_000, "A short one": 6_000, "The paper's budget": 30_720}
#: Whose episodes are stored.
_RECORDS: dict[RecordName, str] = {
    "none": "none",
    "share": "a small share",
    "all": "all of them",
}
#: The learner that evolves one policy instead of a population.
_ALONE = "reinforce"
#: Key of a number of the form -> its words, the least and the most that it may be.
_NUMBERS: dict[str, tuple[str, float, float | None]] = {
    "ev_generations": ("Generations", 1, 100_000),
    "ev_population": ("Candidates in each", 1, 100_000),
    "ev_each": ("Tasks per candidate", 1, 100_000),
    "ev_turns": ("Turn budget", 1, 100),
    "ev_seed": ("Seed", 0, 2**53 - 1),
    "ev_validation": ("Validation tasks", 0, 100_000),
    "ev_every": ("Validate every", 1, 100_000),
    "ev_spread": ("First spread of the logits", 0.01, 1000.0),
    "ev_diversity": ("Weight of diversity", 0.0, 100.0),
    "ev_turn_cost": ("Weight of turns", 0.0, 100.0),
    "ev_constant": ("Spread of what is constant", 0.0, 1000.0),
    "ev_svf_spread": ("Spread by singular values", 0.01, 1000.0),
    "ev_learning_rate": ("Learning rate", 1e-9, 10.0),
    "ev_box": ("Half of its box, in step sizes", 1e-9, 1e6),
}
#: What some of them mean.
_MEANINGS = {
    "ev_generations": define("Generation"),
    "ev_population": define("Candidate"),
    "ev_turns": define("Turn budget"),
    "ev_seed": "The same seed evolves the same again, bit for bit.",
    "ev_validation": "Held apart; the mean is measured on them.",
    "ev_spread": "How far the first candidates' logits spread; it sets the step size.",
    "ev_diversity": "Rewards asking different models; the released run has 0.15.",
    "ev_turn_cost": "Counts against long episodes; the released run has 0.1.",
    "ev_constant": "First spread of preferences that do not depend on the transcript; 0 evolves none.",
    "ev_svf_spread": "How far the first candidates' logits spread by singular values alone.",
}


def _number(column: DeltaGenerator, key: str, value: Any = "min", **look: Any) -> Any:
    """A number of the form, of the type of its bounds."""
    words, least, most = _NUMBERS[key]
    return column.number_input(words, least, most, value, key=key, help=_MEANINGS.get(key), **look)


def choose_evolution(store: Store, settings: Settings) -> tuple[EvolutionPlan | None, str]:
    """What was chosen, and what has to be done before it may begin (empty when nothing)."""
    specs = pool_specs(settings.pool)
    defaults = EvolveConfig()
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            tasks, n = choose_tasks("ev", 1000)
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
            f"{label(settings.encoder or (POCKET_POOL if pool == POCKET_POOL else 'not named'), 60)}"
        )
        if tasks is None:
            return None, "Name the file of tasks first."
        try:
            plan = EvolutionPlan(
                tasks=tasks,
                n=n,
                pool=pool,
                encoder=absolute_encoder(wiring.encoder_for(pool, settings.encoder)),
                max_cost_usd=settings.max_cost_usd,
                name=name,
                **run_settings,
                models=tuple(one.name for one in specs),
                evolution=replace(defaults, **chosen, **further),
            )
            return with_ceiling(store, digested(plan)[0], specs, key="ev_max_cost")
        except TrinityError as error:
            return None, str(error)


#: The keys of the three numbers that make an evolution's size.
_SIZE_KEYS = ("ev_generations", "ev_population", "ev_each")


def _fill(values: tuple[int, int, int]) -> None:
    st.session_state.update(zip(_SIZE_KEYS, values, strict=True))


def _size_of(learner: str, budget: int = DEFAULT_BUDGET) -> tuple[int, int, int]:
    """Generations, candidates in each and tasks per candidate of a learner with so many episodes."""
    shape = shape_of(learner, budget)
    return shape.generations, shape.population, shape.tasks_per_candidate


def _learner(defaults: EvolveConfig) -> str:
    """The learner, and sizes that a click fills in."""
    st.session_state.setdefault("ev_learner", defaults.learner)
    if "ev_generations" not in st.session_state:
        _fill(_size_of(defaults.learner))
    learner = str(
        st.segmented_control(
            "Learner",
            list(LEARNERS),
            key="ev_learner",
            required=True,
            format_func=LEARNERS.__getitem__,
            help=define("Learner"),
            on_change=lambda: _fill(_size_of(state.entered("ev_learner", LEARNERS) or defaults.learner)),
        )
    )
    sizes = {"The usual size": _size_of(learner)}
    sizes |= {words: _size_of(learner, budget) for words, budget in SIZES.items()}
    now = tuple(st.session_state[key] for key in _SIZE_KEYS)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for words, values in sizes.items():
            look = "primary" if now == values else "secondary"
            button(words, f"ev_size_{words}", partial(_fill, values), type=look)
    return learner


def _size(defaults: EvolveConfig) -> dict[str, Any]:
    """Learner, generations, population, tasks per candidate, turn budget and seed."""
    learner = _learner(defaults)
    one, two, three = st.columns(3)
    generations = _number(one, "ev_generations")
    population = _number(two, "ev_population", disabled=learner == _ALONE)
    each = _number(three, "ev_each")
    one, two, _ = st.columns(3)
    sizes = {
        "generations": generations,
        "population": population,
        "tasks_per_candidate": each,
        "turn_budget": _number(one, "ev_turns", defaults.turn_budget),
        "seed": _number(two, "ev_seed", defaults.seed),
    }
    st.caption(f"{generations * population * each:,} episodes in all, besides validation.")
    return {"learner": learner, "rotate_every": shape_of(learner).rotate_every, **sizes}


def _details(
    defaults: EvolveConfig, learner: str, models: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan's settings outside its `evolution`, and further ones of `evolution`."""
    if learner == _ALONE:
        st.caption("REINFORCE learns a linear head, without singular values.")
        head, svf = "linear", ""
    else:
        head, svf = _searched()
    barred = st.multiselect(
        "Left out",
        [*models, *(role.value for role in ROLE_ORDER)],
        key="ev_barred",
        format_func=lambda value: one_line(str(value), 30),
        help="Models and roles that are never chosen, as in an ablation.",
    )
    one, two, three = st.columns(3)
    further = _rate(one, defaults, learner)
    validation = _number(two, "ev_validation", 200)
    further["validate_every"] = _number(three, "ev_every", defaults.validate_every)
    controls, paced = _paced(defaults, learner)
    record = st.segmented_control(
        "Episodes to keep",
        list(_RECORDS),
        default="none",
        key="ev_record",
        required=True,
        format_func=_RECORDS.__getitem__,
        help=f"To be replayed: those of {SHARED_CANDIDATES} candidates in each generation, or of all, and of each "
        "validation.",
    )
    token, rewarded = _rewarded(defaults, learner, svf=bool(svf))
    run_settings = {
        "protocol": choose_rules("ev_rules"),
        "head": head,
        "svf": svf,
        "barred": tuple(barred),
        "validation": validation,
        "controls": controls,
        "token_position": token,
        "record": record,
    }
    return run_settings, {**further, **paced, **rewarded}


def _paced(defaults: EvolveConfig, learner: str) -> tuple[bool, dict[str, Any]]:
    """Whether controls are played, and how far apart and on how many tasks candidates begin."""
    one, two = st.columns(2)
    alone = learner == _ALONE
    spread = _number(one, "ev_spread", defaults.logit_spread, disabled=alone)
    adaptive = two.toggle(
        "Adapt the number of tasks",
        key="ev_adaptive",
        help="Begin with this many tasks per candidate, then use more or fewer, as many as tell candidates apart.",
        disabled=alone,
    )
    controls = two.toggle(
        "Play the controls at the end", value=True, key="ev_controls", help=define("Control")
    )
    return controls, {"logit_spread": spread, "adaptive": adaptive and not alone}


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
        "diversity": _number(two, "ev_diversity", defaults.diversity, step=0.05),
        "turn_cost": _number(three, "ev_turn_cost", defaults.turn_cost, step=0.05),
    }
    one, two, three = st.columns(3)
    own = one.toggle(
        "Own tasks for each candidate",
        key="ev_own_tasks",
        help="As the paper draws them. Otherwise all candidates of a generation play the same tasks.",
    )
    constant = defaults.constant_spread or 0.0
    spreads = {
        "constant_spread": _number(two, "ev_constant", constant, disabled=learner == _ALONE),
        "svf_spread": _number(three, "ev_svf_spread", defaults.svf_spread, disabled=not svf),
    }
    return token, {**weights, **spreads, "common": not own}


def _searched() -> tuple[str, str]:
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
        return head, kind
    return head, st.text_input("Which layers, such as 1 or 26,27", key="ev_layers", value="1").strip()


def _rate(column: DeltaGenerator, defaults: EvolveConfig, learner: str) -> dict[str, Any]:
    """How fast or how far the learner goes."""
    if learner == _ALONE:
        rate = _number(column, "ev_learning_rate", defaults.learning_rate, format="%.4g", step=1e-3)
        return {"learning_rate": rate}
    if learner == "random-search":
        return {"box": _number(column, "ev_box", defaults.box)}
    if learner == "pycma":
        return {}
    rates = column.selectbox(
        "Learning rates", ["pycma", "cmaes"], key="ev_rates", help="By the library they are from."
    )
    return {"rates": rates}
