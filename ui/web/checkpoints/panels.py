"""The panels of a comparison: flips and their tasks, how each policy went about it, its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from core.analysis.comparison import Comparison, MatchedTasks, compare, is_solved
from storage.analysis.budgets import AtBudget, accuracy_by_budget
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
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.line import ComparedPolicies

#: Rows on one page of the list of tasks, and families in the figure of families.
PAGE, MOST_FAMILIES = 25, 16
#: Where in the page the list of tasks begins.
LIST = "tasks"
#: The comparison as address parameters: a link with a cell or a family in it then means the same later.
Address = Mapping[str, str | int | None]
_RIGHT_WRONG: dict[Cell, str] = {
    "only_b": "Won: only B right",
    "only_a": "Lost: only A right",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
}


# Row 2: flips


def flips(compared: Comparison, address: Address, a: str, b: str) -> None:
    """The 2x2 table whose cells list their tasks, and the answer in one sentence; `a` and `b` are the two's names."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What did B win and lose?", help=define("Flip"))
        _flip_table(compared, address)
    with right:
        st.subheader("Is B better, and is it luck?", help=define("Paired difference"))
        _difference(compared, label(a, 60), label(b, 60))


def _cell() -> Cell | None:
    """The cell that the address names; `kind` is what older links called it."""
    asked = state.param("cell") or state.param("kind")
    return asked if asked in CELL_WORDS else None


def _flip_table(compared: Comparison, address: Address) -> None:
    counts: dict[Cell, int] = {
        "both_right": compared.both,
        "only_a": compared.a_only,
        "only_b": compared.b_only,
        "both_wrong": compared.neither,
    }
    rows: tuple[tuple[str, tuple[Cell, Cell]], ...] = (
        ("**A right**", ("both_right", "only_a")),
        ("**A wrong**", ("only_b", "both_wrong")),
    )
    with st.container(border=True):
        for word, cells in rows:
            # A row that stays one on a narrow page: columns would stand below each other there.
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(word, width=64)
                for cell in cells:
                    _flip_button(cell, counts[cell], address)
        if (chosen := _cell()) is None:
            st.caption("A number lists its tasks below; each opens both episodes where they first part.")
        else:
            n = f"{counts[chosen]:,} {'task' if counts[chosen] == 1 else 'tasks'} {CELL_WORDS[chosen]}"
            st.markdown(f":material/arrow_downward: **{n}**: [to the list below](#{LIST})")


def _flip_button(cell: Cell, n: int, address: Address) -> None:
    st.button(
        f"**{n:,}**  {CELL_WORDS[cell]}",
        key=f"cell_{cell}",
        type="primary" if _cell() == cell else "secondary",
        width="stretch",
        on_click=state.set_params,
        kwargs={**address, "cell": None if _cell() == cell else cell, "kind": None, "page": None},
        help="List these tasks below",
    )


def _difference(compared: Comparison, a: str, b: str) -> None:
    found = compared.difference
    with st.container(border=True):
        st.markdown(f"**{verdict(compared, f'{a} (A)', f'{b} (B)')}**")
        one, two, three = st.columns(3)
        one.metric("B minus A", f"{100 * found.difference:+.1f} points", help=define("Paired difference"))
        two.metric("95 % interval", points((found.low, found.high)), help=define("Bootstrap interval"))
        three.metric(
            "McNemar p" if compared.exact else "p by sign flips",
            p_words(compared.p),
            help=define("McNemar p" if compared.exact else "Sign-flip p"),
        )
        st.caption(f"{basis(compared)} p: {p_source(compared)}.")


# Row 3: the tasks


def tasks(
    store: Store,
    line: ComparedPolicies,
    shared: Mapping[str, Sequence[MatchedTasks]],
    names: Sequence[str],
    address: Address,
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
        _family_choice(shared, family, address)
    if not n:
        nothing_here("No task is in this cell.")
        return
    pages = -(-n // PAGE)
    page = state.int_param("page", 1, pages, 1)
    rows = read_shared_tasks(
        store,
        line.base,
        line.chosen,
        line.sides,
        cell=cell,
        family=family,
        offset=(page - 1) * PAGE,
        limit=PAGE,
    )
    st.dataframe(
        item_rows(line, rows, names),
        key=f"items_{cell}_{family}_{page}",
        hide_index=True,
        height="content",
        placeholder="–",
        column_config=_columns(line, names),
        alt="Shared tasks with what became of them under each policy, and links to the episodes",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        first = (page - 1) * PAGE
        st.caption(f"{first + 1:,} to {first + len(rows):,} of {n:,} tasks")
        if pages > 1:
            key = f"items_page_{cell}_{family}_{page}"  # one widget per page: the address is the owner
            st.pagination(pages, default=page, key=key, on_change=_turned, args=(key,))


def _turned(key: str) -> None:
    state.set_params(page=st.session_state[key])


def _family_choice(
    shared: Mapping[str, Sequence[MatchedTasks]], family: str | None, address: Address
) -> None:
    state.select(
        "Family",
        {"": "every family", **{name: one_line(name, 40) for name in shared}},
        family or "",
        lambda name: state.set_params(**{**address, "family": name, "page": None}),
        key="item_family",
    )


def _count(shared: Mapping[str, Sequence[MatchedTasks]], cell: Cell | None, family: str | None) -> int:
    counted = [one for name, told in shared.items() if family in (None, name) for one in told]
    return sum(
        one.tasks
        for one in counted
        if cell in (None, cell_of(is_solved(one.right_a, one.n_a), is_solved(one.right_b, one.n_b)))
    )


def cell_of(a: bool, b: bool) -> Cell:
    """The cell of a task by who solved it."""
    return ("both_right" if b else "only_a") if a else "only_b" if b else "both_wrong"


def item_rows(line: ComparedPolicies, found: Sequence[SharedTask], names: Sequence[str]) -> pd.DataFrame:
    """Tasks with a link to both episodes side by side, and per policy its outcome as a link to its episode."""
    columns: dict[str, list[Any]] = {"pair": [], "outcome": []}
    columns["question"] = [one_line(one.question, 110) for one in found]
    columns |= {f"side {i}": [] for i in range(len(names))}
    columns["family"] = [one_line(one.family, 30) for one in found]
    for one in found:
        a, b = one.outcomes[line.a], one.outcomes[line.b]
        if a and b:
            columns["pair"].append(state.href("pair", a=a.episode, b=b.episode))
            columns["outcome"].append(_RIGHT_WRONG[cell_of(a.solved, b.solved)])
        for i, outcome in enumerate(one.outcomes):
            columns[f"side {i}"].append(None if outcome is None else _outcome_link(outcome))
    return pd.DataFrame(columns)


def _outcome_link(outcome: TaskOutcome) -> str:
    """A replay's address whose last part is what the cell shows."""
    mark = RIGHT if outcome.solved else WRONG
    told = f"{outcome.right} of {outcome.n} right" if outcome.n > 1 else mark.word
    return f"{state.href('replay', ep=outcome.episode)}#{quote(f'{mark.glyph} {told}')}"


def _columns(line: ComparedPolicies, names: Sequence[str]) -> dict[str, Any]:
    """How the columns read; A, B and the others by their names."""
    config: dict[str, Any] = {
        "pair": st.column_config.LinkColumn("Both episodes", display_text="Side by side", width=110),
        "outcome": st.column_config.TextColumn("Outcome", width=140),
        "family": st.column_config.TextColumn("Family", width=100),
        "question": st.column_config.TextColumn("Question", width=430 if len(names) < 4 else 260),
    }
    for i, (name, short) in enumerate(zip(names, short_names(names), strict=True)):
        config[f"side {i}"] = st.column_config.LinkColumn(
            f"{mark(line, i)}{one_line(short, 60)}",
            help=one_line(name, 60),
            display_text=r"#(.*)$",
            width=130,
        )
    return config


def families(line: ComparedPolicies, shared: Mapping[str, Sequence[MatchedTasks]], address: Address) -> None:
    """The difference in each task family; a point lists its tasks."""
    if len(shared) < 2:
        return
    largest = sorted(shared, key=lambda family: -sum(one.tasks for one in shared[family]))[:MOST_FAMILIES]
    found = {
        family: compare(shared[family], key=f"{line.base.token}/{line.chosen.token}/{family}")
        for family in sorted(largest)
    }
    st.subheader("In which families is B better?", help=define("Paired difference"))
    event = plot(
        by_family(found),
        key="families",
        small=True,
        on_select="rerun",
        selection_mode="points",
        alt="Accuracy of B minus A in each task family, with its 95 % interval",
    )
    further = f"The {MOST_FAMILIES} largest of {len(shared)} families. " if len(shared) > len(found) else ""
    st.caption(f"{further}A point narrows the list of tasks to its family. Few tasks tell little.")
    if picked := event["selection"]["points"]:
        family = str(picked[0]["customdata"][0])
        if family != state.param("family"):
            state.set_params(**{**address, "family": family, "page": None})
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
        _entropies(line, went, styles)
    with right:
        _lengths(line, went, styles)
        _budgets(line, budgets, styles)


def _routing(line: ComparedPolicies, a: Course, b: Course, models: Sequence[str]) -> None:
    st.subheader("Whom does B call more, whom less?", help=define("Routing"))
    picked = _chart(
        routing_change(a, b, models, ink()),
        "routing",
        "Share of turns by model and role under B minus the share under A, in points",
        "Share of turns, B minus A in points. A cell leads to B's episodes with such a turn.",
    )
    if picked:
        place, role = str(picked[0]).split()
        state.go("episodes", **to_episodes(line.chosen), model=models[int(place)], role=role)


def _entropies(line: ComparedPolicies, went: Sequence[Course], styles: Sequence[PolicyStyle]) -> None:
    st.subheader("How sure are the choices?", help=define("Entropy"))
    _chart(
        by_entropy(went, styles),
        "entropies",
        "Share of each policy's decisions by their entropy in nats",
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
    st.subheader("How long do episodes get?", help=define("Turn budget"))
    picked = _chart(
        by_turns(went, styles),
        "lengths",
        "Share of each policy's episodes by number of turns",
        "A point leads to the policy's episodes of that length.",
    )
    if picked:
        side, turns = line.sides[int(picked[0])], int(picked[1])
        state.go("episodes", **to_episodes(side), min_turns=turns, max_turns=turns)


def _budgets(
    line: ComparedPolicies, budgets: Sequence[Sequence[AtBudget]], styles: Sequence[PolicyStyle]
) -> None:
    st.subheader("What would a smaller turn budget do?", help=define("Turn budget"))
    picked = _chart(
        by_budget(budgets, styles),
        "budgets",
        "Accuracy of each policy had its episodes been cut after so many turns",
        "Recorded episodes cut after so many turns: what stood as the answer then counts. A point leads to the "
        "policy's episodes that go on beyond it.",
    )
    if picked:
        state.go("episodes", **to_episodes(line.sides[int(picked[0])]), min_turns=int(picked[1]) + 1)


def _chart(figure: go.Figure, key: str, alt: str, caption: str) -> Sequence[Any]:
    """The figure; what the point that was clicked carries, nothing when none was."""
    event = plot(figure, key=key, small=True, on_select="rerun", selection_mode="points", alt=alt)
    st.caption(caption)
    picked = event["selection"]["points"]
    return picked[0]["customdata"] if picked else ()


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
        told = {name: [one_line(c.get(key, "–"), 120) for key in differing] for name, c in held.items()}
        st.dataframe(pd.DataFrame({"": differing, **told}), hide_index=True, key="config_differences")
        st.caption(f"{len(keys) - len(differing)} further keys are the same in all of them.")
