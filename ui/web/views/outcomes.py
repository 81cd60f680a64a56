"""Outcomes: what recorded models answered to a task set, who knows what, and what could be won by asking several.

The address holds the table (`table`), the fold that splits it (`fold`), which of its questions are counted (`on`), the
part, what narrows a list of questions (`domain`, `model`, `other`, `case`, `at`) and the question that is open
(`task`)."""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

from core.outcomes.matrix import SPLITS
from core.outcomes.table import OutcomeTable, load_table, tables
from core.tasks.sets import FOLDS
from ui.answers.asked import Asked, mark_words
from ui.answers.outcomes.questions import Reply, find_task, replies_of
from ui.answers.outcomes.subject import ON, asked_of_table
from ui.answers.outcomes.won import table_of
from ui.answers.pages import ANALYSES
from ui.presentation.theme import correct_mark, label
from ui.web.analysis.page import show_answers
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.text import text_block
from ui.web.kit.widgets import nothing_here

#: In the session: the table that was looked at last.
_LAST = "outcomes_last"
#: So many replies stand side by side.
_ACROSS = 2
_LIST = ("domain", "model", "other", "case", "at", "task", "sample")


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title(ANALYSES["outcomes"].title)
    st.caption(ANALYSES["outcomes"].about)
    found = tables()
    if not found:
        nothing_here("There is no outcome table yet: add one by the command below.", ":material/table_chart:")
        st.code("trinity outcomes add NAME FILE ...", language=None)
        st.caption(
            "It reads published outputs of models: MMLU-Pro, ZeroEval, samples of lm-eval-harness, Inspect logs, CSV, "
            "and JSON Lines of your own. trinity outcomes add --help says how."
        )
        return
    table, fold, on = _choose(found)
    choices = st.query_params.to_dict()
    with st.spinner("Reading the table …"):
        asked = asked_of_table(store, table, fold, on, choices=choices, remember=cached)
    show_answers("outcomes", asked)
    if state.param("part") == "questions" and (task := state.param("task")):
        _replies(asked, task)


def _choose(found: list[OutcomeTable]) -> tuple[OutcomeTable, int, str]:
    """The table of the address, else the one that was looked at last, else the newest run's; the fold; the questions.
    What is measured on test questions alone lets nobody choose others, and the fold is asked for where it matters."""
    names = {one.card.name: f"{one.card.name}, {one.card.tasks:,} questions" for one in found}
    won = state.param("part") == "won"
    splits = won or state.param("on") in SPLITS
    if (named := state.param("table")) and named not in names:
        st.info(
            label(f"There is no outcome table {named}: another one is shown.", 200), icon=":material/info:"
        )
    if not named:
        last = st.session_state.get(_LAST)
        state.set_params(table=last if last in names else _newest(names))
    left, middle, right = st.columns([3, 2, 2])
    with left:
        forgets = (*_LIST, "first", "second")
        name = state.address_select(
            "Table",
            names,
            name="table",
            key="outcomes_table",
            default=next(iter(names)),
            forgets=forgets,
            widget="list",
        )
    st.session_state[_LAST] = name
    with middle:
        if won:
            st.selectbox(
                "Questions",
                [ON["test"]],
                disabled=True,
                key="outcomes_on_test",
                help="What could be won is always measured on the test split.",
            )
        on = (
            state.param("on") or "all"
            if won
            else state.address_select(
                "Questions", ON, name="on", key="outcomes_on", default="all", forgets=("at",), widget="list"
            )
        )
    folds = {str(fold): f"Fold {fold}" for fold in range(FOLDS)}
    fold = state.param("fold") or "0"
    if splits:
        with right:
            fold = state.address_select(
                "Split by",
                folds,
                name="fold",
                key="outcomes_fold",
                default="0",
                forgets=("at",),
                widget="list",
                help="Which questions are the evolve, validation and test splits. Rules are chosen on the first two "
                "and measured on the third.",
            )
    return load_table(name), int(fold) if fold in folds else 0, on if on in ON else "all"


def _newest(names: Collection[str]) -> str:
    """The table that the newest run was played from, else the first."""
    pools = [str(run.config.get("pool") or "") for run in state.store().runs.list()]
    return next((name for pool in pools if (name := table_of(pool)) and name in names), next(iter(names)))


def _replies(asked: Asked, name: str) -> None:
    """All replies to a question, side by side, as text."""
    place = find_task(asked, name)
    if place is None:
        return
    found = replies_of(asked, place)
    samples = sorted({one.sample for one in found})
    st.subheader("What did they say?", anchor="replies")
    if len(samples) > 1:
        words = {str(sample): f"Sample {sample + 1}" for sample in samples}
        sample = state.address_select("Sample", words, name="sample", key="outcomes_sample", widget="list")
        found = [one for one in found if str(one.sample) == sample]
    for begin in range(0, len(found), _ACROSS):
        for one, column in zip(found[begin : begin + _ACROSS], st.columns(_ACROSS), strict=False):
            with column:
                _reply(one)


def _reply(one: Reply) -> None:
    st.markdown(f"**{label(one.model, 64)}** · {label(mark_words(correct_mark(one.right)))}")
    answer = f"Answer: {one.answer}" if one.answer else "No answer could be read"
    marked = "" if one.marked is None else f" · the table's mark: {mark_words(correct_mark(one.marked))}"
    st.caption(label(answer + marked, 300))
    if one.error:
        st.caption(label(f"Error: {one.error}", 300))
    text_block(one.text, key=f"reply_{one.model}_{one.sample}")


if __name__ == "__main__":
    state.run(show)
