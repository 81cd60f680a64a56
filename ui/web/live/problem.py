"""Which problem the Live page plays: drawn from the embedded world, from a task file of one's own, or one's own
question."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from core.episode import Task
from core.errors import TaskError
from core.grader_names import Grader, own_grader
from core.pocket import FAMILIES
from core.tasks.sets import load_task_file, load_tasks
from ui.presentation.theme import label, one_line
from ui.web.kit.text import text_block
from ui.web.kit.widgets import button
from ui.web.pickers.task_file import task_file

ANY = "any family"
#: A longer list of a file's tasks is searched before one is chosen from it.
MOST_LISTED = 500
_KINDS = {"drawn": "Drawn at random", "file": "From my task file", "mine": "My own question"}
_GRADERS: dict[Grader, str] = {
    "exact": "same text",
    "number": "same number",
    "choice": "same choice (A, B, …)",
    "math": "same mathematics (LaTeX)",
}


#: The expected answer and how it is checked, where nobody knows it.
_UNKNOWN: tuple[str, Grader] = ("", "exact")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be played; `tasks` is the file that it comes from, if any. Without a task `to_do` says what has to be
    done first."""

    task: Task | None = None
    tasks: str = ""
    to_do: str = ""


def choose_problem() -> Problem:
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


def _drawn() -> Problem:
    left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
    family = left.selectbox(
        "Family",
        [ANY, *FAMILIES],
        key="family_choice",
        help="Which kind of problem of the embedded world; none of them was evolved on.",
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
    found = tasks
    if len(tasks) > MOST_LISTED:
        words = st.text_input(
            f"Search the {len(tasks):,} questions",
            key="live_file_words",
            max_chars=200,
            persist_state="session",
        )
        found = [one for one in tasks if words.strip().casefold() in one.question.casefold()]
    task = _one_of(found)
    if task is None:
        return Problem(to_do="No question of the file has these words: search for others.")
    _show(task)
    return Problem(task, path)


def _one_of(tasks: Sequence[Task]) -> Task | None:
    listed = {one.id: one for one in tasks[:MOST_LISTED]}
    if not listed:
        return None
    if st.session_state.get("live_file_task") not in listed:
        st.session_state["live_file_task"] = next(iter(listed))
    numbers = {name: number for number, name in enumerate(listed, start=1)}
    chosen = st.selectbox(
        "Task",
        list(listed),
        key="live_file_task",
        format_func=lambda name: f"{numbers[name]:,} · {one_line(listed[name].question, 90)}",
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
    answer, grader = _UNKNOWN if unknown else _expected()
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
        help="What the last Worker's answer is held against; no model is shown it.",
        persist_state="session",
    )
    grader = right.selectbox(
        "How it is checked",
        list(_GRADERS),
        key="own_grader",
        help="Whether an answer counts as right: letter by letter, as a number, as a choice, or as an expression.",
        persist_state="session",
        format_func=lambda value: _GRADERS[value],
    )
    return answer, grader
