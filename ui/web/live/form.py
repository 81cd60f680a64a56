"""The form of the Live page: which problem is played, who decides, under which settings, and how often. A problem is
drawn from the embedded world, comes from a task file of one's own, or is one's own question."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.episode import Task
from core.errors import ConfigError, TaskError
from core.fields import settings_of
from core.grader import Grader, own_grader
from core.pocket import FAMILIES
from core.pool.spec import ModelSpec, slots_of
from core.settings import Settings
from core.tasks.sets import OUTCOMES_PREFIX, load_task_file, load_tasks
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line
from ui.presentation.words import PROTOCOL_WORDS
from ui.runs import wiring
from ui.runs.grading import name_task_file
from ui.runs.plans import LivePlan
from ui.runs.policies import turns_of
from ui.runs.settings import is_recorded
from ui.runs.spending import paid_models, price
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.fields import draw_all
from ui.web.kit.text import text_block
from ui.web.kit.widgets import button
from ui.web.pickers.checkpoints import checkpoint_of, plays_whole, policy_words, startable, writes_workflows
from ui.web.pickers.encoder import choose_reader
from ui.web.pickers.task_file import task_file
from ui.web.progress import begin, spending

ANY = "any family"
#: A longer list of a file's tasks is searched before one is chosen from it.
MOST_LISTED = 500
#: Where the models reply from an outcome table.
_RECORDED = (
    "The models of this pool are recorded: they gave their replies once, to the {n:,} questions of the outcome table "
    "{name}. These alone can be asked; to a question of your own there is no reply."
)
_KINDS = {"drawn": "Drawn at random", "file": "From my task file", "mine": "My own question"}
_GRADERS: dict[Grader, str] = {
    "exact": "same text",
    "number": "same number",
    "choice": "same choice (A, B, …)",
    "math": "same mathematics (LaTeX)",
}
#: Ways to play -> their words, and what they do.
WAYS = {
    "watch": ("Watch it", "One episode, every decision shown for a second before its model answers."),
    "step": (
        "Step by step",
        "Before every turn it waits and shows what it proposes, with the probabilities: Enter accepts, or you decide "
        "otherwise.",
    ),
    "many": ("Several times", "The same problem again and again with other seeds: how much of it is luck?"),
}
SEVERAL = 5
_SETTINGS = settings_of(LivePlan)
_LOOKS: dict[str, dict[str, Any]] = {"repeats": {"value": "min"}, "temperature": {"step": 0.1}}
_WATCH_WORKFLOW = "One workflow, every step shown as it is asked and answered."
_NO_STEPS = (
    " It cannot be played step by step: a workflow is planned as a whole before its first step, so no turn is left to "
    "decide.",
    " It cannot be played step by step: this policy makes one answer of several, and decides no turn alone.",
)


def live_form(store: Store) -> None:
    """The problem, who decides, and the button; everything else below it, with defaults that do."""
    settings = wiring.settings()
    specs = pool_specs(settings.pool)
    models = tuple(spec.name for spec in slots_of(specs))
    problem = _recorded_question(settings.pool) if is_recorded(settings.pool) else _choose_problem()
    task = problem.task
    with st.container(border=True):
        policy = _choose_policy(store, slots_of(specs))
        whole = plays_whole(store, policy, models)
        _choose_way(whole=whole, workflows=writes_workflows(store, policy))
        beginning = st.container()
    with st.expander("All settings", icon=":material/tune:", key="all_settings"):
        plan = _choose_settings(store, models, settings, policy, whole=whole)
    with beginning:
        ceiling, to_do = spending(
            price(store, replace(plan, task=task or plan.task), specs), settings.max_cost_usd
        )
        to_do = problem.to_do or to_do
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            play = button("Play", "play", icon="play_arrow", type="primary", disabled=bool(to_do), width=160)
            st.caption(label(to_do, 400) if to_do else _what_will_run(specs, plan), width="stretch")
    if play and task is not None:
        name_task_file(store, problem.tasks)
        begin("live", store, replace(plan, task=task, tasks=problem.tasks, max_cost_usd=ceiling))


# The problem


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be played; `tasks` is the file that it comes from, if any. Without a task `to_do` says what has to be
    done first."""

    task: Task | None = None
    tasks: str = ""
    to_do: str = ""


def _choose_problem() -> Problem:
    """Draw the choice of a problem, and give what is chosen."""
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
            return _own_question()
        return _from_file() if kind == "file" else _drawn()


def _recorded_question(pool: str) -> Problem:
    """A question of the outcome table that the pool replies from."""
    st.subheader("Problem")
    tasks = load_task_file(pool)
    with st.container(border=True):
        st.caption(_RECORDED.format(n=len(tasks), name=label(pool.removeprefix(OUTCOMES_PREFIX), 60)))
        return _listed(tasks, pool)


def _drawn() -> Problem:
    left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
    family = left.selectbox(
        "Family",
        [ANY, *FAMILIES],
        key="family_choice",
        help="A kind of problem of the embedded world. No coordinator was evolved on these tasks.",
        persist_state="session",
    )
    st.session_state.setdefault("task_seed", 1)
    number = middle.number_input(
        "Number",
        0,
        999_999,
        key="task_seed",
        help="The same number is the same problem, today and anywhere.",
        persist_state="session",
    )
    with right:
        button("Another", "another", _another, icon="casino", help="Draw another problem")
    task = drawn_task(family, number)
    _show(task)
    return Problem(task)


def _another() -> None:
    st.session_state["task_seed"] = (int(st.session_state["task_seed"]) * 48271 + 11) % 999_983


def drawn_task(family: str, seed: int) -> Task:
    """The pocket test task of this number; any family: the number decides that too."""
    chosen = FAMILIES[seed % len(FAMILIES)] if family == ANY else family
    return load_tasks(f"pocket/{chosen}", "test", 1, seed)[0]


def _from_file() -> Problem:
    """A task of the file that is named; functions of one's own that grade it are called only once it is played."""
    path = task_file("live_file", persist_state="session")
    if path is None:
        return Problem(to_do="Name the file of tasks first.")
    try:
        tasks = load_task_file(path)
    except TaskError as error:
        return Problem(to_do=str(error))
    return _listed(tasks, path)


def _listed(tasks: Sequence[Task], spec: str) -> Problem:
    """One of the tasks of the set that is named so; of many those that have some words, or a number."""
    found = tasks
    if len(tasks) > MOST_LISTED:
        words = st.text_input(
            f"Search the {len(tasks):,} questions",
            key="live_file_words",
            max_chars=200,
            help="Words of a question, its id, or # and its number, such as #12.",
            persist_state="session",
        )
        found = searched(tasks, words)
    task = _one_of(found)
    if task is None:
        return Problem(to_do="No question has these words: search for others.")
    _show(task)
    return Problem(task, spec)


def searched(tasks: Sequence[Task], words: str) -> Sequence[Task]:
    """The tasks that have these words or this id; after a # the one of this number, counted from 1."""
    wanted = words.strip().casefold()
    if (number := wanted.removeprefix("#")) != wanted and number.isdecimal():
        return tasks[max(0, int(number[:9]) - 1) : int(number[:9])]
    return [one for one in tasks if wanted in one.question.casefold() or wanted == one.id.casefold()]


def _one_of(tasks: Sequence[Task]) -> Task | None:
    listed = {one.id: one for one in tasks[:MOST_LISTED]}
    if not listed:
        return None
    if st.session_state.get("live_file_task") not in listed:
        st.session_state["live_file_task"] = next(iter(listed))
    words = {
        name: f"{number:,} · {one_line(one.question, 90)}"
        for number, (name, one) in enumerate(listed.items(), start=1)
    }
    chosen = st.selectbox(
        "Task",
        list(listed),
        key="live_file_task",
        format_func=words.__getitem__,
        help="Type to search.",
        persist_state="session",
    )
    if len(tasks) > MOST_LISTED:
        st.caption(f"The first {MOST_LISTED:,} of {len(tasks):,} are listed.")
    return listed[chosen]


def _show(task: Task) -> None:
    """The question, and how its answer will be judged."""
    text_block(task.question, key="shown_question")
    judged = f"expected answer: {label(task.answer)}"
    if task.grader == "program":
        judged = "the answer is a program, which its tests judge"
    elif task.grader == "judge":
        judged = "the judge of the pool rates the answer from 1 to 10"
    elif own_grader(task.grader):
        judged += f" · judged by {label(task.grader)}"
    article = "an" if task.split[:1] in "aeiou" else "a"
    st.caption(f"{label(task.family, 40)} · {article} {task.split} task · {judged}")


def _own_question() -> Problem:
    question = st.text_area(
        "Question",
        key="own_question",
        height=110,
        max_chars=20_000,
        help="Any text. The pocket models know the embedded world only; name a pool.toml for real ones.",
        persist_state="session",
    )
    unknown = st.toggle(
        "I don't know the answer",
        value=True,
        key="own_unknown",
        help="The problem is then played and shown without a judgement: nothing of it counts as right or wrong.",
        persist_state="session",
    )
    answer, grader = "", next(iter(_GRADERS))
    if not unknown:
        answer, grader = _expected()
    if not question.strip():
        return Problem(to_do="Write the question first.")
    if not unknown and not answer.strip():
        return Problem(to_do="Write the expected answer, or say that you don't know it.")
    name = hashlib.sha256(f"{question}\n{answer}\n{grader}".encode()).hexdigest()[:8]
    return Problem(Task(f"own-{name}", question.strip(), answer.strip(), grader, "own", "live"))


def _expected() -> tuple[str, Grader]:
    """The expected answer, and how one is held against it."""
    left, right = st.columns([3, 2])
    answer = left.text_input(
        "Expected answer",
        key="own_answer",
        max_chars=2_000,
        help="The last Worker's answer is compared with it. No model sees it.",
        persist_state="session",
    )
    grader = right.selectbox(
        "How it is checked",
        list(_GRADERS),
        key="own_grader",
        help="How the two are compared: letter by letter, as numbers, as choices, or as expressions.",
        persist_state="session",
        format_func=lambda value: _GRADERS[value],
    )
    return answer, grader


# Who decides, and how it is played


def _choose_policy(store: Store, specs: Sequence[ModelSpec]) -> str:
    """Who decides: a checkpoint that fits the pool, a policy that needs none, or a planner of whole workflows."""
    policies = startable(store, specs)
    if named := state.param("play"):
        if named in policies:
            st.session_state["policy_choice"] = named
        else:
            st.info(f"{label(named, 40)} does not fit this pool: choose another.", icon=":material/info:")
    return st.selectbox(
        "Who decides",
        policies,
        key="policy_choice",
        format_func=policy_words(store, policies).__getitem__,
        help=define("Policy"),
        on_change=state.set_params,
        kwargs={"play": None},
        persist_state="session",
    )


def _choose_way(*, whole: bool, workflows: bool) -> None:
    """One of three ways to play, each a handful of settings that can be changed below; one of two for a policy that is
    `whole`, as one that writes `workflows` is."""
    many, step = int(st.session_state.get("live_repeats", 1)) > 1, _steps(whole=whole)
    st.session_state["way"] = "step" if step else "many" if many else "watch"
    st.segmented_control(
        "How it is played",
        [way for way in WAYS if way != "step" or not whole],
        key="way",
        required=True,
        format_func=lambda value: WAYS[value][0],
        on_change=_set_way,
    )
    way = str(st.session_state["way"])
    doing = _WATCH_WORKFLOW if workflows and way == "watch" else WAYS[way][1]
    st.caption(doing + (_NO_STEPS[not workflows] if whole else ""))


def _steps(*, whole: bool) -> bool:
    """Whether the run is to wait before every turn."""
    return bool(st.session_state.get("step_mode")) and not whole


def _set_way() -> None:
    way = st.session_state["way"]
    st.session_state["step_mode"] = way == "step"
    st.session_state["live_repeats"] = SEVERAL if way == "many" else 1
    st.session_state["pace"] = 0.0 if way == "many" else 1.0


def _choose_settings(
    store: Store, models: tuple[str, ...], settings: Settings, policy: str, *, whole: bool
) -> LivePlan:
    """Everything else, as a plan that still lacks its task. A checkpoint plays by its own rules."""
    checkpoint = None if whole else checkpoint_of(store, policy)
    keys = ["repeats", "temperature", "turns", "seed", "argmax"]
    if is_recorded(settings.pool):  # what was written once was written at its own
        keys.remove("temperature")
    if not (checkpoint or writes_workflows(store, policy)):
        keys.append("protocol")
    for name, value in (("live_repeats", 1), ("pace", 1.0)):
        st.session_state.setdefault(name, value)
    chosen = draw_all([_SETTINGS[key] for key in keys], "live", _LOOKS, persist_state="session")
    if checkpoint:
        rules = PROTOCOL_WORDS[checkpoint.protocol]
        st.caption(
            f"Rules: {rules}, as this checkpoint was evolved, reading with {label(checkpoint.encoder.name, 40)} in "
            f"{checkpoint.recipe}.",
            help=define("Protocol"),
        )
        chosen["protocol"] = checkpoint.protocol
        settings = choose_reader("live", settings, own=True, persist_state="session")
    pace = st.select_slider(
        "Wait before each answer",
        [0.0, 1.0, 2.0, 5.0],
        key="pace",
        format_func=lambda value: f"{value:g} s" if value else "no wait",
        help="How long each decision stands on the page before its model is asked.",
        persist_state="session",
    )
    left_out = st.pills(
        "Models left out",
        models,
        selection_mode="multi",
        key="left_out",
        format_func=lambda name: label(name, 30),
        help=define("Mask"),
        persist_state="session",
    )
    if len(left_out) == len(models):
        raise ConfigError("Every model is left out: leave at least one in.")
    step = _steps(whole=whole)
    plan = LivePlan(
        Task("", "", ""), policy, models, settings.pool, settings.encoder, pace_s=pace, step=step, **chosen
    )
    return replace(plan, left_out=tuple(left_out), computing=settings.computing)


def _what_will_run(specs: Sequence[ModelSpec], plan: LivePlan) -> str:
    """The bound on what is played, in a sentence."""
    times = "One episode" if plan.repeats == 1 else f"{plan.repeats} episodes"
    recorded = any(spec.provider == "recorded" for spec in specs)
    free = "" if paid_models(specs) else " Nothing is paid: these models are free."
    free = " No model is called: their replies are recorded." if recorded else free
    most = turns_of(plan.policy, plan.turns, plan.models)
    return f"{times} of at most {most} turn{'s' if most > 1 else ''}.{free}"
