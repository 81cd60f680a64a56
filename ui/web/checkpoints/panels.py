"""The panels of a comparison: flips and their tasks, how each policy went about it, its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from core.analysis.comparison import Comparison, MatchedTasks, compare, is_solved
from core.conduct.planners import CONDUCTOR
from storage.analysis.counterfactual import AtBudget, accuracy_by_budget
from storage.analysis.pairs import Cell, SharedTask, TaskOutcome, read_shared_tasks
from storage.analysis.standings import Course, PolicySide, side_conditions
from storage.rows.summaries import CheckpointSummary
from storage.store import Store
from ui.presentation.comparison import CELL_WORDS, basis, p_source, p_words, points, short_names, verdict
from ui.presentation.glossary import define
from ui.presentation.theme import RIGHT, WRONG, label, one_line
from ui.web.checkpoints.figures import (
    PolicyStyle,
    by_budget,
    by_entropy,
    by_family,
    by_turns,
    policy_styles,
    routing_change,
)
from ui.web.checkpoints.table import mark, to_episodes
from ui.web.kit import state
from ui.web.kit.buttons import button
from ui.web.kit.cache import cached
from ui.web.kit.clicks import picked
from ui.web.kit.tables import link, row_table, text
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.line import ComparedPolicies

#: Rows on one page of the list of tasks, and families in the figure of families.
PAGE, MOST_FAMILIES = 25, 16
#: Where in the page the list of tasks begins.
LIST = "tasks"
#: The comparison as address parameters: a link with a cell or a family in it then means the same later.
Address = Mapping[str, str | int | None]
#: The tasks that A and B share, by family.
ByFamily = Mapping[str, Sequence[MatchedTasks]]
_RIGHT_WRONG: dict[Cell, str] = {
    "only_b": "Won: only B right",
    "only_a": "Lost: only A right",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
}


# Row 2: flips


def flips(compared: Comparison, address: Address, a: str, b: str, among: int) -> None:
    """The 2x2 table whose cells list their tasks, and the answer in one sentence; `a` and `b` are the two's names."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What did B win and lose?", help=define("Flip"))
        _flip_table(compared, address)
    with right:
        st.subheader("Is B better, and is it luck?", help=define("Paired difference"))
        _difference(compared, label(a, 60), label(b, 60), among)


def _cell() -> Cell | None:
    """The cell that the address names."""
    named = state.param("cell")
    return named if named in CELL_WORDS else None


def _flip_table(compared: Comparison, address: Address) -> None:
    right: dict[Cell, int] = {"both_right": compared.both, "only_a": compared.a_only}
    wrong: dict[Cell, int] = {"only_b": compared.b_only, "both_wrong": compared.neither}
    with st.container(border=True):
        for word, counts in (("**A right**", right), ("**A wrong**", wrong)):
            # A row that stays one on a narrow page: columns would stand below each other there.
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(word, width=64)
                for cell, n in counts.items():
                    _flip_button(cell, n, address)
        if (chosen := _cell()) is None:
            st.caption("A number lists its tasks below; each opens both episodes where they first part.")
        else:
            count = (right | wrong)[chosen]
            words = f"{count:,} {'task' if count == 1 else 'tasks'} {CELL_WORDS[chosen]}"
            st.markdown(f":material/arrow_downward: **{words}**: [to the list below](#{LIST})")


def _flip_button(cell: Cell, n: int, address: Address) -> None:
    chosen = _cell() == cell
    change = {**address, "cell": None if chosen else cell, "page": None}
    button(
        f"**{n:,}**  {CELL_WORDS[cell]}",
        f"cell_{cell}",
        partial(state.set_params, **change),
        type="primary" if chosen else "secondary",
        width="stretch",
        help="List these tasks below",
    )


def _difference(compared: Comparison, a: str, b: str, among: int) -> None:
    found = compared.difference
    with st.container(border=True):
        st.markdown(f"**{verdict(compared, f'{a} (A)', f'{b} (B)', among)}**")
        one, two, three = st.columns(3)
        one.metric("B minus A", f"{100 * found.difference:+.1f} points", help=define("Paired difference"))
        two.metric("95 % interval", points((found.low, found.high)), help=define("Interval of a difference"))
        name, term = ("McNemar p", "McNemar p") if compared.exact else ("p by sign flips", "Sign-flip p")
        three.metric(name, p_words(compared.p), help=define(term))
        st.caption(f"{basis(compared)} p: {p_source(compared)}.")


# Row 3: the tasks


def tasks(
    store: Store, line: ComparedPolicies, shared: ByFamily, names: Sequence[str], address: Address
) -> None:
    """The shared tasks, flips first, every outcome a link to its own episode; paged in SQL."""
    cell, family = _cell(), state.param("family")
    family = family if family in shared else None
    n = _count(shared, cell, family)
    head, narrow = st.columns([3, 1], vertical_alignment="bottom")
    title = (
        f"Which tasks are {CELL_WORDS[cell]}?" if cell else "Which tasks? First those that only one solved"
    )
    head.subheader(title, anchor=LIST, help=define("Flip"))
    with narrow:
        state.select(
            "Family",
            {"": "every family", **{name: one_line(name, 40) for name in shared}},
            family or "",
            lambda name: state.set_params(**{**address, "family": name, "page": None}),
            key="item_family",
        )
    if not n:
        nothing_here("No task is in this cell.")
        return
    pages = -(-n // PAGE)
    page = state.int_param("page", 1, pages, 1)
    first = (page - 1) * PAGE
    rows = read_shared_tasks(
        store, line.base, line.chosen, line.sides, cell=cell, family=family, offset=first, limit=PAGE
    )
    place = f"{cell}_{family}_{page}"  # a widget for each page: the address is the owner
    _task_table(line, rows, names, f"items_{place}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"{first + 1:,} to {first + len(rows):,} of {n:,} tasks")
        if pages > 1:
            key = f"items_page_{place}"
            st.pagination(
                pages,
                default=page,
                key=key,
                on_change=lambda: state.set_params(page=state.entered(key)),
            )


def _count(shared: ByFamily, cell: Cell | None, family: str | None) -> int:
    return sum(
        one.tasks
        for name, matched in shared.items()
        for one in matched
        if family in (None, name)
        and cell in (None, cell_of(is_solved(one.right_a, one.n_a), is_solved(one.right_b, one.n_b)))
    )


def cell_of(a: bool, b: bool) -> Cell:
    """The cell of a task by who solved it."""
    return ("both_right" if b else "only_a") if a else "only_b" if b else "both_wrong"


def _task_table(line: ComparedPolicies, found: Sequence[SharedTask], names: Sequence[str], key: str) -> None:
    """Tasks with a link to both episodes side by side, and per policy its outcome as a link to its episode."""
    headings: dict[str, str | ColumnConfig] = {
        "pair": link("Both episodes", "Side by side", width=110),
        "outcome": text("Outcome", width=140),
        "question": text("Question", width=430 if len(names) < 4 else 260),
    }
    for i, (name, short) in enumerate(zip(names, short_names(names), strict=True)):
        words = f"{mark(line, i)}{one_line(short, 60)}"
        headings[f"side {i}"] = link(words, r"#(.*)$", help=one_line(name, 60), width=130)
    headings["family"] = text("Family", width=100)
    rows = []
    for one in found:
        a, b = one.outcomes[line.a], one.outcomes[line.b]
        pair = state.href("pair", a=a.episode, b=b.episode) if a and b else None
        outcome = _RIGHT_WRONG[cell_of(a.solved, b.solved)] if a and b else None
        links = [each and _outcome_link(each) for each in one.outcomes]
        rows.append((pair, outcome, one_line(one.question, 110), *links, one_line(one.family, 30)))
    row_table(
        headings,
        rows,
        key=key,
        at_most=PAGE + 1,
        placeholder="–",
        alt="Shared tasks with what became of them under each policy, and links to the episodes",
    )


def _outcome_link(outcome: TaskOutcome) -> str:
    """A replay's address whose last part is what the cell shows."""
    mark = RIGHT if outcome.solved else WRONG
    words = f"{outcome.right} of {outcome.n} right" if outcome.n > 1 else mark.word
    return f"{state.href('replay', ep=outcome.episode)}#{quote(f'{mark.glyph} {words}')}"


def families(line: ComparedPolicies, shared: ByFamily, address: Address) -> None:
    """The difference in each task family; a point lists its tasks."""
    if len(shared) < 2:
        return
    largest = sorted(shared, key=lambda family: -sum(one.tasks for one in shared[family]))[:MOST_FAMILIES]
    found = {
        family: compare(shared[family], key=f"{line.base.token}/{line.chosen.token}/{family}")
        for family in sorted(largest)
    }
    further = f"The {MOST_FAMILIES} largest of {len(shared)} families. " if len(shared) > len(found) else ""
    family = _chart(
        "In which families is B better?",
        "Paired difference",
        by_family(found),
        "families",
        "Accuracy of B minus A in each task family, with its 95 % interval",
        f"{further}A point narrows the list of tasks to its family. Few tasks tell little.",
    )
    if family and str(family[0]) != state.param("family"):
        state.set_params(**{**address, "family": str(family[0]), "page": None})
        st.rerun()


# Row 4: how each went about it


@cached
def budgets_of(store: Store, side: PolicySide) -> list[AtBudget]:
    """The side's accuracy and spend had its episodes been cut after 1, 2, ... turns."""
    return accuracy_by_budget(store, *side_conditions(side))


def behaviour(
    line: ComparedPolicies,
    went: Sequence[Course],
    budgets: Sequence[Sequence[AtBudget]],
    slots: Sequence[str],
    names: Sequence[str],
) -> None:
    """Routing moved, lengths of episodes, doubt, and accuracy by budget; a click leads to the episodes."""
    a, b = went[line.a], went[line.b]
    models = [*slots, *sorted({model for model, _ in (*a.routed, *b.routed)} - set(slots))]
    if not models:
        return
    styles = policy_styles([f"{mark(line, i)}{name}" for i, name in enumerate(names)])
    left, right = st.columns(2, gap="large")
    with left:
        _routing(line, a, b, models)
        if any(one.entropy for one in went):
            _entropies(line, went, styles)
    with right:
        _lengths(line, went, styles)
        _budgets(line, budgets, styles)


def _routing(line: ComparedPolicies, a: Course, b: Course, models: Sequence[str]) -> None:
    cell = _chart(
        "Whom does B call more, whom less?",
        "Routing",
        routing_change(a, b, models, ink()),
        "routing",
        "Share of turns by model and role under B minus the share under A, in points",
        "Share of turns, B minus A in points. A cell leads to B's episodes with such a turn.",
    )
    if cell:
        place, role = str(cell[0]).split()
        state.go("episodes", **to_episodes(line.chosen), model=models[int(place)], role=role)
    pair = line.base.policy, line.chosen.policy
    if all(policy.startswith(CONDUCTOR) for policy in pair) and len(set(pair)) == 2:
        words = "The workflows of both, on Routing"
        address = {"a": pair[0], "b": pair[1], "part": "workflows"}
        state.page_link("routing", words, icon=":material/route:", **address)


def _entropies(line: ComparedPolicies, went: Sequence[Course], styles: Sequence[PolicyStyle]) -> None:
    _chart(
        "How sure are the choices?",
        "Entropy",
        by_entropy(went, styles),
        "entropies",
        "Share of each policy's decisions by their entropy",
        "Left is certain. Policies without a head have no line.",
    )
    state.page_link(
        "episodes",
        "B's most undecided episodes",
        icon=":material/table_rows:",
        **to_episodes(line.chosen),
        order="entropy",
    )


def _lengths(line: ComparedPolicies, went: Sequence[Course], styles: Sequence[PolicyStyle]) -> None:
    point = _chart(
        "How long do episodes get?",
        "Turn budget",
        by_turns(went, styles),
        "lengths",
        "Share of each policy's episodes by number of turns",
        "A point leads to the policy's episodes of that length.",
    )
    if point:
        side, turns = line.sides[int(point[0])], int(point[1])
        state.go("episodes", **to_episodes(side), min_turns=turns, max_turns=turns)


def _budgets(
    line: ComparedPolicies, budgets: Sequence[Sequence[AtBudget]], styles: Sequence[PolicyStyle]
) -> None:
    point = _chart(
        "What would a smaller turn budget do?",
        "Turn budget",
        by_budget(budgets, styles),
        "budgets",
        "Accuracy of each policy had its episodes been cut after so many turns",
        "Recorded episodes cut after so many turns: what stood as the answer then counts. A point leads to the "
        "policy's episodes that go on beyond it.",
    )
    if point:
        state.go("episodes", **to_episodes(line.sides[int(point[0])]), min_turns=int(point[1]) + 1)


def _chart(question: str, term: str, figure: go.Figure, key: str, alt: str, caption: str) -> Sequence[Any]:
    """A figure under the question that it answers, whose term the glossary explains; what the point that was clicked
    carries, nothing when none was."""
    st.subheader(question, help=define(term))
    carried = picked(figure, key=key, alt=alt)
    st.caption(caption)
    return carried


# Row 5: settings


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as dotted keys and text values."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = str(value)
    return found


def config_differences(
    line: ComparedPolicies, checkpoints: Sequence[CheckpointSummary], names: Sequence[str]
) -> None:
    """The settings in which the chosen checkpoints differ, one column each."""
    by_id = {one.id: flat(one.config) for one in checkpoints}
    held = {names[i]: by_id[side.policy] for i, side in enumerate(line.sides) if side.policy in by_id}
    if len(held) < 2:
        return
    keys = list(dict.fromkeys(key for config in held.values() for key in config))
    differing = [key for key in keys if len({config.get(key) for config in held.values()}) > 1]
    with st.expander(f"What differs in their configuration ({len(differing)})", icon=":material/difference:"):
        values = {name: [one_line(c.get(key, "–"), 120) for key in differing] for name, c in held.items()}
        st.dataframe(pd.DataFrame({"": differing, **values}), hide_index=True, key="config_differences")
        st.caption(f"{len(keys) - len(differing)} further keys are the same in all of them.")
