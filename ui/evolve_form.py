"""The form that begins an evolution: on what, by which settings, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import streamlit as st

from core.errors import BudgetError, TrinityError
from core.heads import HeadKind
from core.pocket import FAMILIES
from core.pool.spec import ModelSpec
from core.settings import POCKET, Settings
from ui.glossary import define
from ui.live_form import pool_specs
from ui.plan import digest
from ui.spending import check_ceiling, dollars, paid_models
from ui.theme import label

if TYPE_CHECKING:
    from core.pool.costs import Estimate
    from ui.evolution import Outline

#: What is evolved on when it is not a family of the pocket world.
_FILE = "a file of my own (.jsonl)"
_SVF = {
    "": "the head alone",
    "released": "as released: the layer before the last, and all outside the layers",
}
_LAYERS = "layers"
#: Sizes that a click fills in: name -> (generations, population, tasks per candidate).
SIZES: dict[str, tuple[int, int, int]] = {
    "A first look": (8, 24, 4),
    "A short one": (20, 64, 8),
}


def choose_evolution(settings: Settings) -> tuple[dict[str, Any] | None, str]:
    """What was chosen as a run's config, and what has to be done before it may begin (empty when nothing).

    The first form of a server takes seconds: the optimiser comes with torch, which no other page needs."""
    with st.spinner("Reading the optimiser's settings …", show_time=True):
        from core.evolution.evolve import EvolveConfig
        from ui.evolution import Outline

    specs = pool_specs(settings.pool)
    usual = EvolveConfig()
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(border=True):
            tasks, n = _tasks()
        with st.container(border=True):
            chosen = _size(usual)
        with st.expander("Head, optimiser and validation", icon=":material/tune:"):
            head, svf, validation, controls, further = _details(usual)
    with right, st.container(border=True):
        st.markdown("**Name and cost**")
        name = st.text_input(
            "Name",
            key="ev_name",
            max_chars=60,
            help="To find it again, and for `trinity evolve --resume --name`.",
        ).strip()
        pool = settings.pool if settings.pool == POCKET else str(Path(settings.pool).resolve())
        st.caption(
            f"Pool {label(Path(pool).name, 40)}: {label(', '.join(one.name for one in specs), 200)} · encoder "
            f"{label(settings.encoder or POCKET, 60)}"
        )
        if tasks is None:
            return None, "Name the file of tasks first."
        try:
            outline = Outline(
                tasks=tasks,
                n=n,
                validation=validation,
                pool=pool,
                encoder=settings.encoder or POCKET,
                max_cost_usd=settings.max_cost_usd,
                name=name,
                head=head,
                svf=svf,
                controls=controls,
                models=tuple(one.name for one in specs),
                evolution=asdict(EvolveConfig(**{**asdict(usual), **chosen, **further})),
            )
            return _priced(outline, specs)
        except TrinityError as error:
            return None, str(error)


def _tasks() -> tuple[str | None, int | None]:
    """Task set and how many of it; None until a file is named."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    sets = [POCKET, *(f"{POCKET}/{family}" for family in FAMILIES), _FILE]
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


def _size(usual: Any) -> dict[str, Any]:
    """Generations, population and tasks per candidate, with sizes that a click fills in."""
    fields = {
        "generations": "ev_generations",
        "population": "ev_population",
        "tasks_per_candidate": "ev_each",
    }
    standard = tuple(int(getattr(usual, name)) for name in fields)
    for key, value in zip(fields.values(), standard, strict=True):
        st.session_state.setdefault(key, value)

    def fill(values: Sequence[int]) -> None:
        for key, value in zip(fields.values(), values, strict=True):
            st.session_state[key] = value

    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for words, values in (*SIZES.items(), ("The usual size", standard)):
            now = tuple(st.session_state[key] for key in fields.values())
            st.button(
                words,
                key=f"ev_size_{words}",
                type="primary" if now == values else "secondary",
                on_click=fill,
                args=(values,),
            )
    one, two, three = st.columns(3)
    generations = one.number_input(
        "Generations", 1, 100_000, step=1, key="ev_generations", help=define("Generation")
    )
    population = two.number_input(
        "Candidates in each", 2, 100_000, step=2, key="ev_population", help=define("Candidate")
    )
    each = three.number_input("Tasks per candidate", 1, 100_000, step=1, key="ev_each")
    one, two, three = st.columns(3)
    turns = one.number_input(
        "Turn budget", 1, 100, usual.turn_budget, key="ev_turns", help=define("Turn budget")
    )
    seed = two.number_input(
        "Seed",
        0,
        2**53 - 1,
        usual.seed,
        key="ev_seed",
        help="The same seed evolves the same again, bit for bit.",
    )
    st.caption(f"{generations * population * each:,} episodes in all, besides validation.")
    return {
        "generations": int(generations),
        "population": int(population),
        "tasks_per_candidate": int(each),
        "turn_budget": int(turns),
        "seed": int(seed),
    }


def _details(usual: Any) -> tuple[str, str, int, bool, dict[str, Any]]:
    """Head, SVF, validation tasks, whether controls are played, and further settings of the evolution."""
    one, two = st.columns(2)
    head = one.selectbox("Head", get_args(HeadKind), key="ev_head", help=define("Head"))
    kind = two.selectbox(
        "What is evolved",
        [*_SVF, _LAYERS],
        key="ev_svf",
        help=define("SVF"),
        format_func=lambda value: _SVF.get(value, "singular values of layers, too"),
    )
    svf = (
        st.text_input("Which layers, such as 1 or 26,27", key="ev_layers", value="1").strip()
        if kind == _LAYERS
        else str(kind)
    )
    one, two, three = st.columns(3)
    rates = one.selectbox(
        "Learning rates", ["cmaes", "pycma"], key="ev_rates", help="By the library they are from."
    )
    validation = two.number_input(
        "Validation tasks",
        0,
        100_000,
        200,
        key="ev_validation",
        help="Held apart; the mean is measured on them.",
    )
    every = three.number_input("Validate every", 1, 100_000, usual.validate_every, key="ev_every")
    one, two = st.columns(2)
    spread = one.number_input(
        "First spread of the logits",
        0.01,
        1000.0,
        usual.logit_spread,
        key="ev_spread",
        help="How far the first candidates' logits spread; it sets the step size.",
    )
    adaptive = two.toggle(
        "As many tasks as tell candidates apart",
        key="ev_adaptive",
        help="Begin with so many tasks per candidate, then more or fewer, as fitness tells candidates apart.",
    )
    controls = two.toggle(
        "Play the controls at the end", value=True, key="ev_controls", help=define("Control")
    )
    further = {
        "rates": rates,
        "validate_every": int(every),
        "logit_spread": float(spread),
        "adaptive": bool(adaptive),
    }
    return str(head), svf, int(validation), bool(controls), further


def _priced(outline: Outline, specs: Sequence[ModelSpec]) -> tuple[dict[str, Any] | None, str]:
    """The outline as a run's config, its ceiling chosen, with the most that it can ask for and cost."""
    marks, most, notes = _counted(outline, tuple(specs))
    for note in notes:
        st.info(label(note, 300), icon=":material/info:")
    outline = replace(outline, digest=marks)
    if not paid_models(specs):
        st.markdown(":green[:material/savings:] Nobody bills for these models.")
        return asdict(outline), ""
    cost = "an unknown cost" if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    st.warning(
        f"These models cost money: up to {most.calls:,} calls, {label(cost)}.", icon=":material/payments:"
    )
    try:
        check_ceiling(specs, 0.0)
    except BudgetError as error:
        return None, str(error)
    ceiling = st.number_input(
        "Spend at most, USD", min_value=0.0, value=outline.max_cost_usd, step=0.5, key="ev_max_cost"
    )
    if ceiling is None:
        return None, "Say first what may be spent at most."
    return asdict(replace(outline, max_cost_usd=float(ceiling))), ""


def _counted(outline: Outline, specs: tuple[ModelSpec, ...]) -> tuple[str, Estimate, list[str]]:
    """The tasks' digest, the most that can be asked, and what is worth telling."""
    from ui.evolution import most_of, task_sets

    tasks, validation, notes = task_sets(outline)
    return digest(tasks), most_of(outline, specs, tasks, validation), notes
