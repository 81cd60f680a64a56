"""The form of the Live page: which problem, who decides under which settings, and what it may cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import streamlit as st

from core.episode import Grader, Task
from core.errors import BudgetError, ConfigError
from core.pocket import FAMILIES, MODELS
from core.pocket.specs import pocket_spec
from core.pool.costs import Estimate
from core.pool.spec import ModelSpec
from core.settings import POCKET
from core.tasks.sets import load_tasks
from storage.store import Store
from ui import state, wiring
from ui.glossary import define
from ui.live import LivePlan
from ui.panels import text_block
from ui.spending import check_ceiling, dollars, paid_models
from ui.theme import label
from ui.widgets import generations, who

ANY = "any family"
_KINDS = {"drawn": "Drawn at random", "mine": "My own question"}
_GRADERS: dict[Grader, str] = {
    "exact": "same text",
    "number": "same number",
    "choice": "same choice (A, B, …)",
}


def pool_specs(pool: str) -> tuple[ModelSpec, ...]:
    """The pool's slots without loading a model."""
    if pool == POCKET:
        return tuple(pocket_spec(name) for name in MODELS)
    return _read_pool(pool)


@st.cache_data(max_entries=4, ttl=60, show_spinner=False)
def _read_pool(pool: str) -> tuple[ModelSpec, ...]:
    return wiring.resolve_pool(pool).specs


def playable(store: Store, models: Sequence[str]) -> list[str]:
    """Policies that fit the pool: checkpoints newest first, then those that need none."""
    fitting = [one for one in store.checkpoints.list() if list(one.config.get("models", [])) == list(models)]
    fitting.sort(key=lambda one: (one.created, one.generation or 0), reverse=True)
    return [one.id for one in fitting] + ["random", "round-robin", *(f"single:{model}" for model in models)]


def choose_task() -> Task | None:
    """The problem: drawn by family and number, or one's own; None until it is complete."""
    st.subheader("Problem")
    with st.container(border=True):
        kind = st.segmented_control(
            "Where the problem comes from",
            list(_KINDS),
            default="drawn",
            required=True,
            key="problem_kind",
            format_func=lambda value: _KINDS[value],
            label_visibility="collapsed",
            persist_state="session",
        )
        if kind == "mine":
            return _own_task()
        left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
        family = left.selectbox("Family", [ANY, *FAMILIES], key="family_choice", persist_state="session")
        if "task_seed" not in st.session_state:
            st.session_state["task_seed"] = 1
        number = middle.number_input(
            "Number", min_value=0, max_value=999_999, step=1, key="task_seed", persist_state="session"
        )
        right.button("Another", key="another", icon=":material/casino:", on_click=_another)
        task = drawn_task(family, int(number))
        text_block(task.question, key="drawn_question")
        st.caption(f"{task.family} · a test task · expected answer: {label(task.answer)}")
        return task


def _another() -> None:
    st.session_state["task_seed"] = (int(st.session_state["task_seed"]) * 48271 + 11) % 999_983


def drawn_task(family: str, seed: int) -> Task:
    """The pocket test task of this number; any family: the number decides that too."""
    chosen = FAMILIES[seed % len(FAMILIES)] if family == ANY else family
    return load_tasks(f"pocket/{chosen}", "test", 1, seed)[0]


def _own_task() -> Task | None:
    question = st.text_area(
        "Question", key="own_question", height=110, max_chars=20_000, persist_state="session"
    )
    left, right = st.columns([3, 2])
    answer = left.text_input("Expected answer", key="own_answer", max_chars=2_000, persist_state="session")
    grader = right.selectbox(
        "How it is checked",
        list(_GRADERS),
        key="own_grader",
        persist_state="session",
        format_func=lambda value: _GRADERS[value],
    )
    if not question.strip() or not answer.strip():
        return None
    name = hashlib.sha256(f"{question}\n{answer}\n{grader}".encode()).hexdigest()[:8]
    return Task(f"own-{name}", question.strip(), answer.strip(), grader, "own", "live")


def choose_policy(store: Store, models: tuple[str, ...], pool: str, encoder: str | None) -> LivePlan:
    """Who decides and how, as a plan that still lacks its task."""
    born = generations(store.checkpoints.list())
    policies = playable(store, models)
    if asked := state.param("play"):
        if asked in policies:
            st.session_state["policy_choice"] = asked
        else:
            st.info(f"{label(asked, 40)} does not fit this pool: choose another.", icon=":material/info:")
    policy = st.selectbox(
        "Who decides",
        policies,
        key="policy_choice",
        format_func=lambda value: who(value, born.get(value)),
        help=define("Policy"),
        on_change=state.set_params,
        kwargs={"play": None},
        persist_state="session",
    )
    left, middle, right = st.columns(3)
    how = left.segmented_control(
        "Choices are",
        ["sampled", "argmax"],
        default="sampled",
        required=True,
        key="how",
        help=define("Argmax and sampling"),
        persist_state="session",
    )
    turns = middle.number_input("Turn budget", 1, 50, 5, key="turn_budget", persist_state="session")
    seed = right.number_input("Seed", 0, 999_999, 0, key="seed", persist_state="session")
    left_out = st.pills(
        "Models left out",
        models,
        selection_mode="multi",
        key="left_out",
        format_func=lambda name: label(name, 30),
        help=define("Mask"),
        persist_state="session",
    )
    left, right = st.columns(2, vertical_alignment="bottom")
    step = left.toggle(
        "Step by step",
        key="step_mode",
        help="The run waits before every decision. You let it go on, or make the decision yourself.",
        persist_state="session",
    )
    pace = right.select_slider(
        "Show each decision before the model answers",
        [0.0, 1.0, 2.0, 5.0],
        value=1.0,
        key="pace",
        format_func=lambda value: f"{value:g} s" if value else "no wait",
        persist_state="session",
    )
    if len(left_out) == len(models):
        raise ConfigError("Every model is left out: leave at least one in.")
    nothing = Task("", "", "")
    return LivePlan(
        nothing,
        policy,
        models,
        pool,
        encoder,
        tuple(left_out),
        int(turns),
        int(seed),
        how == "argmax",
        step,
        pace,
    )


def spending(
    specs: Sequence[ModelSpec], most: Estimate, preset: float | None, *, key: str = "max_cost"
) -> tuple[float | None, str]:
    """For models that cost money: the most it can cost and the ceiling, `preset` unless changed; and what
    has to be done before anything may be spent, empty when nothing."""
    if not paid_models(specs):
        return None, ""
    cost = "an unknown cost" if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    st.warning(
        f"These models cost money: up to {most.calls:,} calls, {label(cost)}.", icon=":material/payments:"
    )
    try:
        check_ceiling(specs, 0.0)
    except BudgetError as error:
        return None, str(error)
    ceiling = st.number_input("Spend at most, USD", min_value=0.0, value=preset, step=0.1, key=key)
    return ceiling, "" if ceiling is not None else "Say first what may be spent at most."
